//! Messages to whoever runs the exporter, on standard error.

use std::io::Write;

/// Says that something is wrong. Nothing reads this where standard error is closed, which is no reason
/// to stop.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "pmdscope: warning: {text}");
}

/// Says what happened.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "pmdscope: {text}");
}
