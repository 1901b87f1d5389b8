//! The directory with the parts of a bundle; removal of those that killed runs left behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use pmdscope_files::Directory;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// How names of unfinished directories and files begin.
pub(super) const PREFIX: &str = ".pmdscope-bundle-";
/// What is younger may belong to a run that has not locked it yet.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// A directory that is removed when it is dropped, and locked until then.
#[derive(Debug)]
pub(super) struct StagingDirectory {
    dir: TempDir,
    _lock: File,
}

impl StagingDirectory {
    /// Creates a directory within another one, or, where others could replace it, in that for temporary
    /// files: all parts are written by paths below it.
    ///
    /// # Errors
    ///
    /// When nothing can be created there.
    pub(super) fn create_in(parent: &Path) -> Result<Self> {
        let failed = "cannot create a directory for the parts of the bundle";
        let dir = pmdscope_files::temporary_directory_in(parent, PREFIX).context(failed)?;
        let lock = File::open(dir.path()).context(failed)?;
        mark_as_used(&lock);
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Locks a directory or file as long as it is open, so that other runs do not remove it.
pub(super) fn mark_as_used(file: &impl AsFd) {
    // Where nothing can be locked, no run removes it either.
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes what runs of this user that were killed have left in a directory. Returns how many.
pub(super) fn remove_abandoned(parent: &Directory) -> usize {
    let mut names = parent.names().unwrap_or_default();
    names.retain(|name| name.to_string_lossy().starts_with(PREFIX));
    names.iter().filter(|name| remove_if_abandoned(parent, name).unwrap_or(false)).count()
}

fn remove_if_abandoned(parent: &Directory, name: &OsStr) -> io::Result<bool> {
    let place = parent.place(name);
    let file = place.open()?;
    let metadata = file.metadata()?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let is_old = metadata.modified()?.elapsed().is_ok_and(|age| age >= LEAST_AGE);
    if !is_ours || !is_old || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    if metadata.is_dir() {
        // Follows no links.
        fs::remove_dir_all(parent.own_path().join(name))?;
    } else if metadata.is_file() {
        place.remove()?;
    }
    Ok(metadata.is_dir() || metadata.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use super::*;

    fn make_old(path: &Path) {
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::open(path).unwrap().set_modified(hour_ago).unwrap();
    }

    #[test]
    fn what_a_killed_run_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let [dir, file] = ["dir", "file"].map(|name| parent.path().join(format!("{PREFIX}{name}")));
        fs::create_dir_all(dir.join("capture")).unwrap();
        fs::write(dir.join("capture/fwd.pcapng"), "packets").unwrap();
        fs::write(&file, "half an archive").unwrap();
        assert_eq!(remove_abandoned(&Directory::open(parent.path()).unwrap()), 0, "they are new");
        make_old(&dir);
        make_old(&file);
        assert_eq!(remove_abandoned(&Directory::open(parent.path()).unwrap()), 2);
        assert!(!dir.exists() && !file.exists());
    }

    #[test]
    fn what_is_used_or_is_something_else_stays() {
        let parent = tempfile::tempdir().unwrap();
        let used = StagingDirectory::create_in(parent.path()).unwrap();
        make_old(used.path());
        let other = parent.path().join("bundle");
        fs::create_dir(&other).unwrap();
        make_old(&other);
        symlink(&other, parent.path().join(format!("{PREFIX}link"))).unwrap();
        assert_eq!(remove_abandoned(&Directory::open(parent.path()).unwrap()), 0);
        assert!(used.path().exists() && other.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
