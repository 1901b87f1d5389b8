//! The terminal of standard error: its width, and a progress line that is updated in place.

use std::fmt::Display;
use std::io::IsTerminal;
use std::os::fd::BorrowedFd;

use rustix::termios::tcgetwinsize;

use crate::output::{self, one_line, write_error};

/// Width of a terminal that does not report it.
const DEFAULT_COLUMNS: usize = 80;

/// A line on standard error that is drawn over itself; other lines take its place.
#[derive(Debug, Default)]
pub(crate) struct ProgressLine {
    drawn: bool,
}

impl ProgressLine {
    /// Shows a text, cut to the width of the terminal.
    pub(crate) fn show(&mut self, text: &str) {
        self.drawn = true;
        write_error(&drawn(text, columns()));
    }

    /// Makes room for anything else.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            write_error("\r\x1b[K");
        }
    }

    /// Clears the line, and prints another one in its place, as [`output::say`].
    pub(crate) fn say(&mut self, line: impl Display) {
        self.clear();
        output::say(line);
    }

    /// Clears the line, and prints a message in its place, as [`output::tell`].
    pub(crate) fn tell(&mut self, line: &str) {
        self.clear();
        output::tell(line);
    }
}

/// Shows a text in the present line of standard error, whatever that is; the next one covers it.
pub(crate) fn rewrite(text: &str) {
    write_error(&(one_line(text) + "\r"));
}

/// Standard error is a terminal.
pub(crate) fn is_on_stderr() -> bool {
    stderr().is_terminal()
}

/// Width of the terminal that standard error is.
fn columns() -> usize {
    let size = tcgetwinsize(stderr()).map(|size| size.ws_col.into());
    size.ok().filter(|columns| *columns > 0).unwrap_or(DEFAULT_COLUMNS)
}

fn drawn(text: &str, columns: usize) -> String {
    // A full line would wrap, and would appear twice.
    let text = one_line(text).chars().take(columns.saturating_sub(1)).collect::<String>();
    format!("\r{text}\x1b[K")
}

#[allow(clippy::disallowed_methods)] // To ask what it is.
fn stderr() -> BorrowedFd<'static> {
    rustix::stdio::stderr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_and_cannot_leave_its_place() {
        assert_eq!(drawn("0123456789", 8), "\r0123456\x1b[K");
        assert_eq!(drawn("a\r\n\x1b[2J", 80), "\ra???[2J\x1b[K");
    }
}
