//! Prints all text on standard output and standard error.
//!
//! Names, reasons and evidence are untrusted: they come from an app, a directory of any local user,
//! or a recording. Characters that control a terminal, and invisible ones, are therefore replaced.
//! Lints keep other modules from printing; binary data, such as capture files, is not text. A
//! closed standard output is not an error.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use pmdscope_render::number::plural;
use pmdscope_render::{TextLine, TextSpan, TextTable, Theme, fitted, table_lines};
use pmdscope_telemetry::printable::{harmless, is_printable};
use rustix::termios::{Winsize, tcgetwinsize};

use crate::color::Color;
use crate::config::ConfigError;
use crate::progress;

/// Characters of text of several lines.
const LINES: [char; 2] = ['\n', '\t'];

/// Prints lines; `false` when the output is closed, as behind `| head -1`, which is not an error.
/// Text from outside must be within one of them: [`one_line`].
pub(crate) fn print(text: &str) -> Result<bool> {
    write(&plain(text))
}

/// Lines as they are printed, for files.
pub(crate) fn plain(text: &str) -> String {
    harmless(text, &LINES)
}

/// Prints lines of tones; the result is as that of [`print()`]. Only the escape sequences are ours: the text is
/// made harmless before.
pub(crate) fn print_lines(lines: &[TextLine], color: Color) -> Result<bool> {
    write(&colored(lines, color))
}

/// Prints lines as [`print_lines()`] does, of which those that are longer than a line of the terminal are broken
/// between words.
pub(crate) fn print_fitted(lines: &[TextLine], color: Color) -> Result<bool> {
    print_lines(&fitted(lines, StandardOutput::width()), color)
}

/// Prints the lines of a text without tones as [`print_fitted()`] does.
pub(crate) fn print_fitted_text(text: &str) -> Result<bool> {
    let lines: Vec<TextLine> = text.lines().map(|line| line.to_owned().into()).collect();
    print_fitted(&lines, Color::Never)
}

/// Prints a table, in `width` characters or as wide as it likes; the result is as that of [`print()`].
pub(crate) fn print_table(table: &TextTable, width: Option<usize>, color: Color) -> Result<bool> {
    print_lines(&table_lines(table, width, Theme::default()), color)
}

fn colored(lines: &[TextLine], color: Color) -> String {
    let span = |span: &TextSpan| color.paint(&one_line(&span.text), span.tone);
    let line = |line: &TextLine| {
        line.trimmed().spans.iter().map(span).chain(["\n".to_owned()]).collect::<String>()
    };
    lines.iter().map(line).collect()
}

/// Prints one line.
pub(crate) fn print_line(line: &str) -> Result<bool> {
    write(&(one_line(line) + "\n"))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<bool> {
    write(&json_line(value)?)
}

/// A document as a line of JSON, as it is printed.
pub(crate) fn json_line(value: &impl serde::Serialize) -> Result<String> {
    let line = serde_json::to_string(value).context("cannot write JSON")?;
    Ok(escaped_json(&line) + "\n")
}

/// Clears the terminal that standard output is.
pub(crate) fn clear_terminal() -> Result<bool> {
    write("\x1b[H\x1b[J")
}

/// Prints a message on standard error, after the name of this program. A closed one is not an
/// error.
pub(crate) fn tell(line: &str) {
    say(format_args!("pmdscope: {line}"));
}

/// Prints a message on standard error, as it is.
pub(crate) fn say(line: impl Display) {
    write_error(&(one_line(&line.to_string()) + "\n"));
}

/// Prints why the program ends. No line of the error can be taken for another message of this
/// program, except those of a configuration file, which state what is wrong where.
pub(crate) fn fail(error: &anyhow::Error) {
    let text = harmless(&format!("pmdscope: error: {}\n", causes(error)), &LINES);
    let aligned = error.is::<ConfigError>();
    write_error(&if aligned { text } else { indented(&text) });
}

/// Prints what is wrong with the command line: in a line where the first paragraph of clap is
/// sufficient, else in the lines that clap makes of it. As with [`fail`], none can be taken for one of
/// its own.
pub(crate) fn refuse(error: &clap::Error) {
    let text = format!("pmdscope: {}", error.render());
    if says_all_at_once(error) {
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        return say(paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    }
    write_error(&indented(&harmless(&text, &LINES)));
}

/// The error names an option and what it expects, or a number where none can stand: usage does not help.
fn says_all_at_once(error: &clap::Error) -> bool {
    let number = |argument: &str| {
        argument
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidValue | ErrorKind::ValueValidation, _) => true,
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => number(argument),
        _ => false,
    }
}

/// Several apps in a line: how many, and the first of them.
pub(crate) fn names(apps: &[&str]) -> String {
    const SHOWN: usize = 3;
    let shown = apps.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more = if apps.len() > SHOWN { ", ..." } else { "" };
    format!("{} ({shown}{more})", plural(apps.len() as u64, "app"))
}

/// Lines that belong to the first one.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n  ").replace("\n  \n", "\n\n") + "\n"
}

/// An error and its causes, without those that the text before already ends with.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Standard output for those who write text to it piece by piece, each of whole characters.
#[derive(Debug)]
pub(crate) struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let clean = harmless(&String::from_utf8_lossy(text), &LINES);
        let print = || stdout().write_all(clean.as_bytes());
        progress::making_room(Self::is_terminal, print).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stdout().flush()
    }
}

impl AsFd for StandardOutput {
    #[allow(clippy::disallowed_methods)] // To check whether the output is closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdout()
    }
}

impl StandardOutput {
    /// It is a terminal.
    pub(crate) fn is_terminal() -> bool {
        stdout().is_terminal()
    }

    /// Characters in a line: those of the terminal, or else of the environment variable COLUMNS, which watch(1)
    /// sets; `None` without either.
    pub(crate) fn width() -> Option<usize> {
        let terminal = Self::size().map(|size| size.ws_col.into());
        let environment = || std::env::var("COLUMNS").ok()?.parse().ok();
        terminal.or_else(environment).filter(|columns| *columns > 0)
    }

    /// Size of the terminal that it is; `None` where it does not report one.
    pub(crate) fn size() -> Option<Winsize> {
        tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0)
    }
}

/// Text from outside, for a line of ours.
pub(crate) fn one_line(text: &str) -> String {
    harmless(text, &[])
}

/// JSON has its own way to write what is not printable.
fn escaped_json(json: &str) -> String {
    if json.chars().all(is_printable) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_printable(letter) {
            out.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

fn write(text: &str) -> Result<bool> {
    let print = || {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
    match progress::making_room(StandardOutput::is_terminal, print) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("cannot write to standard output"),
    }
}

/// Writes to standard error what is harmless already, in one piece, so that lines of several threads
/// do not mix. A closed terminal is not an error.
pub(crate) fn write_error(text: &str) {
    progress::making_room(|| true, || draw(text));
}

/// Draws the line of progress on standard error, harmless and in one piece, for [`progress`] alone.
pub(crate) fn draw(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

#[allow(clippy::disallowed_methods)] // Here and nowhere else.
fn stdout() -> io::Stdout {
    io::stdout()
}

#[allow(clippy::disallowed_methods)] // Here and nowhere else.
fn stderr() -> io::Stderr {
    io::stderr()
}

#[cfg(test)]
mod tests {
    use pmdscope_render::{Palette, Tone};

    use super::*;

    #[test]
    fn json_keeps_what_it_says_in_characters_that_everybody_sees() {
        let evil = "a\x1b]0;x\x07\u{7f}\u{9b}2J\u{202e}\u{e0041}\n\"é日";
        let json = escaped_json(&serde_json::to_string(evil).unwrap());
        assert!(json.chars().all(is_printable), "{json}");
        assert!(json.contains("é日") && json.contains("\\u202e\\udb40\\udc41"), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), evil);
    }

    #[test]
    fn only_escape_sequences_of_ours_are_printed() {
        let lines = [TextLine::of("a\x1b[2Jb ", Tone::Bad), TextLine::default()];
        assert_eq!(colored(&lines, Color::Never), "a?[2Jb\n\n");
        assert_eq!(colored(&lines, Color::Of(Palette::Ansi)), "\x1b[1;91ma?[2Jb\x1b[0m\n\n");
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = std::io::Error::other("no space");
        let outer = anyhow::Error::from(cause).context("cannot write x: no space");
        assert_eq!(causes(&outer), "cannot write x: no space");
        let apart = anyhow::anyhow!("no space").context("cannot write x");
        assert_eq!(causes(&apart), "cannot write x: no space");
    }
}
