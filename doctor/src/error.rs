//! Errors of reading a host, and of storing its facts.

use std::io;
use std::path::PathBuf;

/// An error of checking a host, or of storing its facts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// The root directory of a tree cannot be read.
    #[error("cannot read the tree {}: {why}; name a bundle, or a directory with proc, sys \
             and etc in it", .path.display())]
    Tree {
        /// The directory.
        path: PathBuf,
        /// The cause.
        why: io::Error,
    },
    /// A file is damaged, or of another version.
    #[error("{} is damaged, or was written by another version: {why}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: serde_json::Error,
    },
    /// A file was written by a newer version.
    #[error("{} has version {schema}, and this pmdscope reads {}: use a newer \
             one", .path.display(), crate::SCHEMA)]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        schema: u32,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {why}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: io::Error,
    },
}
