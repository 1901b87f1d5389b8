//! Deletes the oldest complete files of a directory.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use super::storage::is_ours;

/// Files that may be deleted, the oldest first.
#[derive(Debug)]
pub(super) struct Retention {
    files: VecDeque<Complete>,
    keep: Option<Duration>,
    max_size: Option<u64>,
}

#[derive(Debug)]
struct Complete {
    path: PathBuf,
    size: u64,
    /// Time when it was last written.
    ended: SystemTime,
}

impl Retention {
    /// Finds the files that earlier recorders left in `dir`, if there are limits: they count as
    /// well.
    pub(super) fn new(dir: &Path, keep: Option<Duration>, max_size: Option<u64>) -> Self {
        let mut kept = Self { files: VecDeque::new(), keep, max_size };
        if kept.is_on() {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let mut paths: Vec<_> =
                entries.map(|entry| entry.path()).filter(|p| is_ours(p)).collect();
            paths.sort();
            paths.retain(|path| !is_being_written(path));
            kept.files = paths.into_iter().filter_map(Complete::of).collect();
        }
        kept
    }

    fn is_on(&self) -> bool {
        self.keep.is_some() || self.max_size.is_some()
    }

    /// Adds a complete file.
    pub(super) fn add(&mut self, path: PathBuf) {
        if self.is_on() {
            self.files.extend(Complete::of(path));
        }
    }

    /// Deletes files that are too old, and the oldest ones that exceed the size limit together with
    /// the `current` bytes of the file being written.
    pub(super) fn trim(&mut self, current: u64, now: SystemTime) {
        // If the clock was set back, files with times in the future precede older ones.
        if let Some(keep) = self.keep {
            let age = |file: &Complete| now.duration_since(file.ended).unwrap_or_default();
            let (old, young) = self.files.drain(..).partition(|file| age(file) > keep);
            self.files = young;
            for file in old {
                file.delete();
            }
        }
        let Some(most) = self.max_size else { return };
        while self.files.iter().map(|file| file.size).sum::<u64>() + current > most
            && !self.files.is_empty()
        {
            self.delete_oldest();
        }
    }

    /// Deletes the oldest file, to make room on a full disk; returns false when there is none, or
    /// it cannot be deleted.
    pub(super) fn delete_oldest(&mut self) -> bool {
        self.files.pop_front().is_some_and(Complete::delete)
    }
}

impl Complete {
    fn of(path: PathBuf) -> Option<Self> {
        let metadata = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some(Self { size: metadata.len(), ended: metadata.modified().ok()?, path })
    }

    /// Deletes the file; returns whether that succeeded. A file that cannot be deleted is not tried
    /// again.
    fn delete(self) -> bool {
        pmdscope_files::remove(&self.path).is_ok()
    }
}

/// Returns whether another recorder is writing it.
fn is_being_written(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return true };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}
