//! Notes about damaged or missing parts of a recording.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// A damaged or missing part of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybackNote {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the file before the frame that it is about.
    pub offset: u64,
    /// Time, if it is known: wall clock, nanoseconds since the epoch.
    pub realtime_ns: Option<u64>,
    /// What is damaged or missing.
    pub text: String,
}

impl fmt::Display for PlaybackNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, offset {}: {}", self.path.display(), self.offset, self.text)
    }
}

/// Adds a note, unless it is there already.
pub(super) fn note(
    notes: &mut Vec<PlaybackNote>,
    path: &Path,
    offset: u64,
    realtime_ns: Option<u64>,
    text: String,
) {
    /// Limit of notes.
    const MOST: usize = 1000;
    let note = PlaybackNote { path: path.to_owned(), offset, realtime_ns, text };
    if notes.len() < MOST && !notes.contains(&note) {
        notes.push(note);
    }
}

/// Formats a time for display.
pub(super) fn time(ns: u64) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
    format!("{time:.0}")
}
