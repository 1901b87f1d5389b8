//! Command lines of this program, as people type them.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::context::TaskContext;

/// A command of this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Its arguments, the name of the command first.
    pub args: Vec<String>,
    /// The file that its output goes to.
    pub output: Option<String>,
}

impl CommandLine {
    /// One that prints on the terminal.
    pub fn new<'a>(args: impl IntoIterator<Item = &'a str>) -> Self {
        Self { args: args.into_iter().map(str::to_owned).collect(), output: None }
    }

    /// The same with further arguments.
    #[must_use]
    pub fn with<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    /// The same with the configuration that the display has.
    #[must_use]
    pub(crate) fn with_config(self, context: &TaskContext) -> Self {
        match &context.config {
            Some(config) => self.with(["--config", config]),
            None => self,
        }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pmdscope {}", joined(&self.args))?;
        match &self.output {
            Some(file) => write!(f, " >{}", quoted(file)),
            None => Ok(()),
        }
    }
}

/// What names of captures end with.
pub(crate) const CAPTURE_EXTENSION: &str = ".pcapng";

/// Words as a shell reads them.
pub(super) fn joined(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it. No argument of a command has a NUL, which no shell can read.
fn quoted(word: &str) -> String {
    let word = word.replace('\0', "");
    shlex::try_quote(&word).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

/// The name of an app or a port, as part of the name of a file.
pub(crate) fn file_name(name: &str) -> String {
    const LONGEST: usize = 64;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = name.chars().take(LONGEST).map(|c| if is_plain(c) { c } else { '-' });
    let plain = plain.collect::<String>();
    plain.trim_start_matches(['.', '-']).to_owned()
}

/// That name of a file, with a number before its extension if the name is taken: `x-2.pcapng`.
pub(super) fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    const TRIES: u32 = 1000;
    let (stem, extension) = match name.strip_suffix(CAPTURE_EXTENSION) {
        Some(stem) => (stem, CAPTURE_EXTENSION),
        None => (name, ""),
    };
    let numbered = (2..TRIES).map(|number| format!("{stem}-{number}{extension}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    // The command that opens the file refuses one that exists.
    names.find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned())
}

/// A time as part of the name of a file.
pub(crate) fn compact_time(realtime_ns: u64, zone: &TimeZone) -> String {
    let time = Timestamp::from_nanosecond(i128::from(realtime_ns)).unwrap_or_default();
    time.to_zoned(zone.clone()).strftime("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_words_that_were_meant() {
        let words = ["capture", "-i", "a b:0", "udp and host 10.0.0.1", "it's $HOME"];
        let command = CommandLine { output: Some("x y.json".into()), ..CommandLine::new(words) };
        let text = command.to_string();
        let read = shlex::split(&text).unwrap();
        assert_eq!(read[0], "pmdscope");
        assert_eq!(read[1..6], words);
        assert!(text.ends_with(" >'x y.json'"), "{text}");
        assert_eq!(CommandLine::new(["a\0b"]).to_string(), "pmdscope ab");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let free = |name, taken: &[&str]| free_name(name, |name| taken.contains(&name));
        assert_eq!(free("a-1.2.pcapng", &[]), "a-1.2.pcapng");
        assert_eq!(free("a-1.2.pcapng", &["a-1.2.pcapng"]), "a-1.2-2.pcapng");
        assert_eq!(free("x.y", &["x.y", "x.y-2"]), "x.y-3");
        assert_eq!(free_name("x", |_| true), "x");
    }

    #[test]
    fn names_of_files_stay_in_their_directory() {
        assert_eq!(file_name("../../etc/x"), "etc-x".trim_start_matches('-'));
        assert_eq!(file_name("-rf"), "rf");
        assert_eq!(file_name("fwd:0:1"), "fwd-0-1");
        assert_eq!(compact_time(1_767_323_045_000_000_000, &TimeZone::UTC), "20260102-030405");
    }
}
