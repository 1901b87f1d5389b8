//! The place of a file: its directory and its name there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, chmod, fchmod, fcntl_setfl, fstat, openat, readlinkat,
    renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::walk::{Walk, by_descriptor, is_proc, is_public, is_trusted, place_of, refusal};
use crate::{Directory, FileMode};

/// Pause between two looks for the reader of a pipe.
const READER_POLL: Duration = Duration::from_millis(20);

const WRITE: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Where a file is, or may be created.
#[derive(Clone, Debug)]
pub struct Place {
    directory: Directory,
    name: OsString,
    /// For messages, and for other programs.
    path: PathBuf,
    /// A link of procfs to an open pipe or device, as `/dev/stdout` is.
    of_descriptor: bool,
}

impl Place {
    pub(crate) fn new(directory: Directory, name: OsString, path: PathBuf) -> Self {
        Self { directory, name, path, of_descriptor: false }
    }

    /// Finds the place of a file. If its name is a symbolic link, this is the place that the link leads to.
    ///
    /// # Errors
    /// When a directory of the path cannot be reached, when the path is that of a directory, or when it has
    /// a link in a directory that users other than root and this one can write.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::find(path, true)
    }

    /// Finds the place of a file or of a link itself.
    ///
    /// # Errors
    /// As [`Place::of`], without the last component.
    pub fn itself(path: &Path) -> io::Result<Self> {
        Self::find(path, false)
    }

    fn find(path: &Path, follow: bool) -> io::Result<Self> {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut walk = Walk::along(path)?;
        // The path that a link leads to, instead of that of the link.
        let mut real = false;
        while let Some((name, last)) = walk.next() {
            if !last || name == ".." {
                walk.enter(&name, false)?;
                continue;
            }
            if follow {
                match readlinkat(&walk.at, &name, Vec::new()) {
                    Ok(_) if is_proc(&walk.at) && !leads_to_file(&walk, &name)? => {
                        let directory = Directory::of(walk, parent_of(path));
                        let path = path.to_owned();
                        return Ok(Self { directory, name, path, of_descriptor: true });
                    }
                    Ok(_) => {
                        real = true;
                        walk.step(&name)?;
                        continue;
                    }
                    Err(Errno::INVAL | Errno::NOENT) => {}
                    Err(why) => return Err(why.into()),
                }
            }
            let path = if real { place_of(&walk.at).join(&name) } else { path.to_owned() };
            let directory = Directory::of(walk, parent_of(&path));
            return Ok(Self::new(directory, name, path));
        }
        Err(io::ErrorKind::IsADirectory.into())
    }

    /// Returns the path, for messages and other programs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the place of the file in the same directory whose name has this suffix as well.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let append = |text: &OsStr| {
            let mut text = text.to_owned();
            text.push(suffix);
            text
        };
        let path = append(self.path.as_os_str()).into();
        Self::new(self.directory.clone(), append(&self.name), path)
    }

    /// Returns whether something other than a regular file is there: a pipe or a device.
    ///
    /// # Errors
    /// `IsADirectory` for a directory; as stat(2).
    pub fn is_stream(&self) -> io::Result<bool> {
        let Some(there) = self.status()? else { return Ok(false) };
        match FileType::from_raw_mode(there.st_mode) {
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            kind => Ok(kind != FileType::RegularFile),
        }
    }

    /// Returns whether there is anything of that name.
    ///
    /// # Errors
    /// As stat(2).
    pub fn exists(&self) -> io::Result<bool> {
        Ok(self.status()?.is_some())
    }

    pub(crate) fn status(&self) -> io::Result<Option<Stat>> {
        let flags = if self.of_descriptor { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match statat(&self.directory.fd, &self.name, flags) {
            Err(Errno::NOENT) => Ok(None),
            status => Ok(Some(status?)),
        }
    }

    /// Creates a file.
    ///
    /// # Errors
    /// As open(2): `AlreadyExists` for any file or link of that name.
    pub fn create_new(&self, mode: FileMode) -> io::Result<File> {
        let flags = WRITE.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW);
        let fd = openat(&self.directory.fd, &self.name, flags, mode.bits())?;
        if let Some(asked) = mode.asked() {
            fchmod(&fd, asked)?;
        }
        Ok(fd.into())
    }

    /// Opens a file for writing and keeps what it contains, or creates it.
    ///
    /// # Errors
    /// As open(2); `PermissionDenied` for a file that another user has placed in a directory of others.
    pub fn open_in_place(&self, mode: FileMode) -> io::Result<File> {
        match self.create_new(mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
        let file = self.open_existing(WRITE)?;
        let there = fstat(&file)?;
        if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile {
            return Err(self.refused("is not a regular file"));
        }
        let is_own = is_trusted(there.st_uid) && there.st_nlink == 1;
        if !is_own && self.directory.is_shared()? {
            return Err(self.refused("belongs to another user, or has several names,"));
        }
        Ok(file)
    }

    /// Opens what is there, and no link to it, for reading, without waiting for the writer of a pipe.
    ///
    /// # Errors
    /// As open(2); `PermissionDenied` for a link.
    pub fn open(&self) -> io::Result<File> {
        self.open_existing(OFlags::RDONLY.union(OFlags::CLOEXEC))
    }

    /// Opens what is there, and no link to it, without waiting.
    pub(crate) fn open_existing(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
        match openat(&self.directory.fd, &self.name, flags, Mode::empty()) {
            Err(Errno::LOOP) => Err(self.refused("is a symbolic link")),
            fd => Ok(fd?.into()),
        }
    }

    /// Opens a pipe or device. Waits for the reader of a named pipe, until `stop` is set.
    ///
    /// # Errors
    /// As open(2); `TimedOut` if it was told to stop; `PermissionDenied` for a pipe that another user has
    /// placed where everybody can, as in `/tmp`.
    pub fn open_stream(&self, stop: &AtomicBool) -> io::Result<File> {
        self.check_owner()?;
        let mut flags = WRITE.union(OFlags::NONBLOCK);
        flags.set(OFlags::NOFOLLOW, !self.of_descriptor);
        loop {
            match openat(&self.directory.fd, &self.name, flags, Mode::empty()) {
                Err(Errno::NXIO) if self.is_pipe()? => {}
                Err(why) => return Err(why.into()),
                Ok(fd) => {
                    if FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::RegularFile {
                        return Err(self.refused("was replaced by a regular file"));
                    }
                    fcntl_setfl(&fd, OFlags::empty())?;
                    return Ok(fd.into());
                }
            }
            if stop.load(Ordering::Relaxed) {
                let text = format!("interrupted: nobody reads the pipe {}", self.path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            sleep(READER_POLL);
        }
    }

    fn is_pipe(&self) -> io::Result<bool> {
        let there = self.status()?;
        Ok(there.is_some_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Fifo))
    }

    /// As `fs.protected_fifos` of the kernel, which is for programs that create the file.
    fn check_owner(&self) -> io::Result<()> {
        let directory = fstat(&self.directory.fd)?;
        if self.of_descriptor || !is_public(&directory) {
            return Ok(());
        }
        let owned = |there: Stat| is_trusted(there.st_uid) || there.st_uid == directory.st_uid;
        if self.status()?.is_none_or(owned) {
            return Ok(());
        }
        Err(self.refused("belongs to another user"))
    }

    /// Gives it another name, also where a file of that name exists.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, to: &Self) -> io::Result<()> {
        Ok(renameat(&self.directory.fd, &self.name, &to.directory.fd, &to.name)?)
    }

    /// Sets the access mode of what is there, and not of the target of a link.
    ///
    /// # Errors
    /// As open(2) and chmod(2).
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = openat(&self.directory.fd, &self.name, flags, Mode::empty())?;
        // Linux changes no mode of a link.
        Ok(chmod(by_descriptor(&there), Mode::from_raw_mode(mode))?)
    }

    /// Removes it; a link is removed itself.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory.fd, &self.name, AtFlags::empty())?)
    }

    /// Makes a symbolic link there.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn link_to(&self, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.directory.fd, &self.name)?)
    }

    /// The error for what is there and is not used.
    pub(crate) fn refused(&self, is: &str) -> io::Error {
        refusal(&self.directory.fd, &self.name, is)
    }

    /// Returns whether this file is still there.
    pub(crate) fn is_same(&self, other: &Stat) -> io::Result<bool> {
        let there = self.status()?;
        Ok(there.is_some_and(|it| (it.st_dev, it.st_ino) == (other.st_dev, other.st_ino)))
    }
}

/// A link of procfs leads to a regular file, which has a place of its own.
fn leads_to_file(walk: &Walk, name: &OsStr) -> io::Result<bool> {
    let there = statat(&walk.at, name, AtFlags::empty())?;
    Ok(FileType::from_raw_mode(there.st_mode) == FileType::RegularFile)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
