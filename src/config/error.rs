//! Errors of a configuration file, with line numbers.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Longest piece of the file that a message repeats, characters.
const QUOTE: usize = 60;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {why}; --config none does without", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause; part of the message already, so it is not a source.
        why: io::Error,
    },
    /// It has invalid content.
    #[error("{}", lines(.path, .problems))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// At least one, by line.
        problems: Vec<Problem>,
    },
}

fn lines(path: &Path, problems: &[Problem]) -> String {
    let line = |problem: &Problem| format!("{}:{problem}", path.display());
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// From 1.
    line: usize,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)
    }
}

/// The text of a file, and what was found wrong with it so far.
pub(super) struct Source<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// Something is wrong at these bytes.
    pub(super) fn blame(&mut self, span: &Range<usize>, text: String) {
        let line = line(self.text.as_bytes(), span.start);
        self.problems.push(Problem { line, text });
    }

    /// What the file has at these bytes, as far as it fits into a message.
    pub(super) fn quote(&self, span: &Range<usize>) -> String {
        let text = self.text.get(span.clone()).unwrap_or_default();
        let short: String = text.lines().next().unwrap_or_default().chars().take(QUOTE).collect();
        if short.len() < text.len() { format!("{short} ...") } else { short }
    }

    /// All that is wrong, by line.
    pub(super) fn problems(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| problem.line);
        self.problems
    }

    /// How much is wrong so far.
    pub(super) fn count(&self) -> usize {
        self.problems.len()
    }
}

/// Nothing else can be reported about text that is not UTF-8.
pub(super) fn not_text(bytes: &[u8], valid: usize) -> Problem {
    Problem { line: line(bytes, valid), text: "the file is not valid UTF-8".to_owned() }
}

fn line(bytes: &[u8], at: usize) -> usize {
    bytes.iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// The one of `known` that was probably meant, as a question; else all of them.
pub(super) fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("expected one of {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The one of `known` that was probably meant.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), known);
    let nearest = known.max_by(|a, b| near(a).total_cmp(&near(b)));
    nearest.filter(|nearest| near(nearest) > 0.75)
}
