//! The terminal of standard error.

use std::io::IsTerminal;
use std::os::fd::BorrowedFd;

use rustix::termios::tcgetwinsize;

use crate::output::{one_line, write_error};

/// Width of a terminal that does not report it.
const DEFAULT_COLUMNS: usize = 80;

/// Shows a text in the present line of standard error, whatever that is; the next one covers it.
pub(crate) fn rewrite(text: &str) {
    write_error(&(one_line(text) + "\r"));
}

/// Standard error is a terminal.
pub(crate) fn is_on_stderr() -> bool {
    stderr().is_terminal()
}

/// Width of the terminal that standard error is.
pub(crate) fn columns() -> usize {
    let size = tcgetwinsize(stderr()).map(|size| size.ws_col.into());
    size.ok().filter(|columns| *columns > 0).unwrap_or(DEFAULT_COLUMNS)
}

#[allow(clippy::disallowed_methods)] // To ask what it is.
fn stderr() -> BorrowedFd<'static> {
    rustix::stdio::stderr()
}
