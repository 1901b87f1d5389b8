//! A directory that is held by a descriptor, whatever happens to its path.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, Mode, OFlags, fstat, openat};

use crate::Place;
use crate::walk::{Walk, by_descriptor, can_replace, is_shared};

/// A directory in which files are created, renamed and removed.
#[derive(Clone, Debug)]
pub struct Directory {
    pub(crate) fd: Arc<OwnedFd>,
    path: PathBuf,
    stable: bool,
}

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    /// As open(2); `PermissionDenied` for a link that another user may have placed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::reach(path, false)
    }

    /// Opens a directory, and makes it and those above it if they are missing.
    ///
    /// # Errors
    /// As [`Directory::open`] and mkdir(2).
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::reach(path, true)
    }

    fn reach(path: &Path, create: bool) -> io::Result<Self> {
        let mut walk = Walk::along(path)?;
        walk.finish(create)?;
        Ok(Self { fd: Arc::new(walk.at), path: path.to_owned(), stable: walk.stable })
    }

    /// The directory of a walk, whose path ends in this one.
    pub(crate) fn of(walk: Walk, path: &Path) -> Self {
        Self { fd: Arc::new(walk.at), path: path.to_owned(), stable: walk.stable }
    }

    /// Returns a path that leads here as long as this value lives, and only for this process.
    pub fn own_path(&self) -> PathBuf {
        by_descriptor(&self.fd)
    }

    /// Returns whether nobody but root and this user can make a path of a file of ours in it lead
    /// elsewhere. Then it is safe to use that path again.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn keeps_files(&self) -> io::Result<bool> {
        Ok(self.stable && !can_replace(&fstat(&self.fd)?))
    }

    /// Returns whether users other than root and this one can add files.
    pub(crate) fn is_shared(&self) -> io::Result<bool> {
        Ok(is_shared(&fstat(&self.fd)?))
    }

    /// Returns the place of a file in this directory; a link is not followed.
    pub fn place(&self, name: &OsStr) -> Place {
        Place::new(self.clone(), name.to_owned(), self.path.join(name))
    }

    /// Returns the names of what is in it, in no order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = openat(&self.fd, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(readable)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}
