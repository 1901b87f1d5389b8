//! Messages of the exporter on standard error.

use std::io::Write;

use pmdscope_telemetry::printable::harmless;

/// Says that something is wrong. Nothing reads this where standard error is closed, which is no reason
/// to stop.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {text}"));
}

/// Says what happened. It may be of names that anybody may choose, and is one line.
#[allow(clippy::disallowed_methods)] // The exporter tells all here.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "pmdscope: {}", harmless(text, &[]));
}
