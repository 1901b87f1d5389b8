//! Messages of the exporter on standard error.

use std::io::Write;

use pmdscope_telemetry::printable::harmless;

/// Prints a warning. Errors are ignored: standard error may be closed.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {text}"));
}

/// Prints a message as one line. Control characters are replaced, because names of others may be in it.
#[allow(clippy::disallowed_methods)] // All messages of the exporter are printed here.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "pmdscope: {}", harmless(text, &[]));
}
