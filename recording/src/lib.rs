//! Recordings: what apps said and when, in compressed lines of JSON that give the same states again.
//!
//! A [`TelemetryRecorder`] writes the states of a [`pmdscope_telemetry::Fleet`], a [`RecordingPlayer`] gives them back.
//! What is written is what apps said; rates and findings are derived anew. `docs/recording.md` has
//! the format.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod clock_steps;
mod entry;
mod file;
#[cfg(test)]
mod fixture;
mod frame;
mod frame_lines;
mod frame_scan;
mod index;
mod note;
mod player;
mod reader;
mod recorder;
mod retention;
mod storage;
mod time_spec;

use std::io;
use std::path::PathBuf;

pub use self::entry::{
    AbsenceFinding, GoneApp, LostApp, RECORD_SCHEMA, RecordEntry, RecordedInterfaces, RecordingGap,
    RecordingHeader, RoundEnd,
};
pub use self::note::PlaybackNote;
pub use self::player::RecordingPlayer;
pub use self::recorder::{RecordingOptions, RecordingTotals, TelemetryRecorder};
pub use self::time_spec::{TimeSpec, TimeSpecError};

/// Extension of a recording.
pub const EXTENSION: &str = ".jsonl.zst";

/// What is appended to the name of a recording until it is complete.
pub const PART: &str = ".part";

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{}: no recording at offset {offset}: {what}", .path.display())]
    Garbage {
        /// The file.
        path: PathBuf,
        /// Bytes before the place.
        offset: u64,
        /// What is there instead.
        what: String,
    },
    /// A later version of this tool wrote the file.
    #[error(
        "{}: written by pmdscope {tool}, in schema {schema} where this one knows {known}; \
         use pmdscope {tool} or newer",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the tool that wrote it.
        tool: String,
        /// Its schema.
        schema: u32,
        /// Ours.
        known: u32,
    },
    /// There is nothing to read.
    #[error("{}: {what}", .path.display())]
    Empty {
        /// The file or directory.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(&'static str),
}

impl RecordingError {
    fn io(action: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}
