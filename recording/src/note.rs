//! What a reader should know about a recording.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Something about a recording that its reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybackNote {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the file before the frame that it is about.
    pub offset: u64,
    /// When, where that is known: wall clock, nanoseconds since the epoch.
    pub realtime_ns: Option<u64>,
    /// What is damaged or missing.
    pub text: String,
}

impl fmt::Display for PlaybackNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, offset {}: {}", self.path.display(), self.offset, self.text)
    }
}

/// Adds a note, once.
pub(super) fn note(
    notes: &mut Vec<PlaybackNote>,
    path: &Path,
    offset: u64,
    realtime_ns: Option<u64>,
    text: String,
) {
    /// More tell no more.
    const MOST: usize = 1000;
    let note = PlaybackNote { path: path.to_owned(), offset, realtime_ns, text };
    if notes.len() < MOST && !notes.contains(&note) {
        notes.push(note);
    }
}

/// A time for people.
pub(super) fn time(ns: u64) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
    format!("{time:.0}")
}
