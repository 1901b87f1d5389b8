//! Standard output that may go away, and terminals that act on what they are sent.
//!
//! Names, reasons and evidence are what others say: an app, a directory of any local user, a recording
//! from anywhere.

use std::io::{self, Write};

use anyhow::{Context, Result};
use pmdscope_tui::table::harmless;

/// Width of a terminal that does not tell it.
const COLUMNS: usize = 80;

/// Prints text, its control characters made harmless; `false` when nobody reads any more, as behind
/// `| head -1`, which is no error.
pub(crate) fn print(text: &str) -> Result<bool> {
    write(&lines(text))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<bool> {
    let mut line = serde_json::to_string(value).context("cannot write JSON")?;
    line.push('\n');
    write(&line)
}

/// Clears the terminal that standard output is.
pub(crate) fn clear_terminal() -> Result<bool> {
    write("\x1b[H\x1b[J")
}

/// Tells people something on standard error. One that is closed is no reason to fail.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "pmdscope: {}", lines(text));
}

/// Width of the terminal that standard error is.
pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).map(|size| size.ws_col.into());
    size.ok().filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// What others say, within a line of ours.
pub(crate) fn one_line(text: &str) -> String {
    harmless(text, &[])
}

fn lines(text: &str) -> String {
    harmless(text, &['\n', '\t'])
}

fn write(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_do_not_act_on_what_others_say() {
        let evil = "é\x1b[31m\x07\u{9b}2J\r\x7f\n\tx";
        assert_eq!(lines(evil), "é?[31m??2J??\n\tx");
        assert_eq!(one_line(evil), "é?[31m??2J????x");
    }
}
