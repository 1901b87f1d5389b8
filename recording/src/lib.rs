//! Recordings: the samples of apps with their times, in compressed lines of JSON from which the
//! same states are derived again.
//!
//! A [`TelemetryRecorder`] writes the states of a [`pmdscope_telemetry::Fleet`], a
//! [`RecordingPlayer`] plays them back. Only samples are written; rates and findings are derived
//! again. `docs/recording.md` describes the format.

// Only the binary prints text, because it replaces control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

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

pub use pmdscope_files::{FileMode, PART};

pub use self::entry::{
    AbsenceFinding, GoneApp, LostApp, RECORD_SCHEMA, RecordEntry, RecordedInterfaces, RecordingGap,
    RecordingHeader, RoundEnd,
};
pub use self::file::is_named_as_recording;
pub use self::note::PlaybackNote;
pub use self::player::RecordingPlayer;
pub use self::recorder::{RecordingOptions, RecordingTotals, TelemetryRecorder};
pub use self::time_spec::{TimeSpec, TimeSpecError};

/// Extension of a recording.
pub const EXTENSION: &str = ".jsonl.zst";

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a recording.
    #[error("{}: no recording at offset {offset}: {what}", .path.display())]
    Garbage {
        /// The file.
        path: PathBuf,
        /// Offset of the data in the file, bytes.
        offset: u64,
        /// Description of the data.
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
        /// The schema of this version.
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
