//! Walks a path by descriptors: no link of another user is followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, mkdirat, open, openat, readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Most links of a path, as in the kernel.
const MOST_LINKS: u32 = 40;
/// Bits with which users other than the owner can write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode of new directories: their files are private, their names need not be.
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o755);
/// Only the owner of a file may rename or remove it.
const STICKY: u32 = 0o1000;

const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A walk along a path.
pub(crate) struct Walk {
    /// The directory that it has reached.
    pub(crate) at: OwnedFd,
    /// What is left of the path, the next component last.
    ahead: Vec<OsString>,
    links: u32,
    /// Nobody else can make the path so far lead elsewhere.
    pub(crate) stable: bool,
}

impl Walk {
    /// Begins at the root or the working directory.
    pub(crate) fn along(path: &Path) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        let at = open(".", DIRECTORY, Mode::empty())?;
        let mut walk = Self { at, ahead: Vec::new(), links: 0, stable: true };
        walk.add(path)?;
        Ok(walk)
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.ahead.push(name.to_owned()),
                Component::ParentDir => self.ahead.push("..".into()),
                Component::RootDir => self.at = open("/", DIRECTORY, Mode::empty())?,
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the next component, and whether it is the last.
    pub(crate) fn next(&mut self) -> Option<(OsString, bool)> {
        let name = self.ahead.pop()?;
        let last = self.ahead.is_empty();
        Some((name, last))
    }

    /// Enters all that is left of the path; `create` makes directories that are missing.
    pub(crate) fn finish(&mut self, create: bool) -> io::Result<()> {
        while let Some((name, _)) = self.next() {
            self.enter(&name, create)?;
        }
        Ok(())
    }

    /// Enters a directory of the current one.
    pub(crate) fn enter(&mut self, name: &OsStr, create: bool) -> io::Result<()> {
        let enter = |at: &OwnedFd| openat(at, name, DIRECTORY, Mode::empty());
        let entered = match enter(&self.at) {
            Err(Errno::NOENT) if create => match mkdirat(&self.at, name, NEW_DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => enter(&self.at),
                Err(why) => Err(why),
            },
            entered => entered,
        };
        match entered {
            Ok(next) => {
                self.stable &= name == ".." || !can_replace(&fstat(&self.at)?);
                self.at = next;
                Ok(())
            }
            Err(Errno::NOTDIR | Errno::LOOP) => self.follow(name),
            Err(why) => Err(why.into()),
        }
    }

    /// Enters the directory that a link leads to.
    fn follow(&mut self, name: &OsStr) -> io::Result<()> {
        if is_proc(&self.at) {
            let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
            self.at = openat(&self.at, name, flags, Mode::empty())?;
            return Ok(());
        }
        self.step(name)
    }

    /// Replaces a link of the current directory by the path that it has, unless another user may have
    /// placed it there.
    pub(crate) fn step(&mut self, name: &OsStr) -> io::Result<()> {
        let target = match readlinkat(&self.at, name, Vec::new()) {
            Err(Errno::INVAL) => return Err(Errno::NOTDIR.into()),
            target => target?,
        };
        if is_shared(&fstat(&self.at)?) {
            return Err(refusal(&self.at, name, "is a symbolic link"));
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        self.add(Path::new(OsStr::from_bytes(target.as_bytes())))
    }
}

/// Users other than root and this one can write a directory.
pub(crate) fn is_shared(directory: &Stat) -> bool {
    !is_trusted(directory.st_uid) || directory.st_mode & OTHERS_WRITE != 0
}

/// Others can replace what root and this user have in a directory.
pub(crate) fn can_replace(directory: &Stat) -> bool {
    let sticky = directory.st_mode & STICKY != 0;
    !is_trusted(directory.st_uid) || directory.st_mode & OTHERS_WRITE != 0 && !sticky
}

/// Everybody can add files to a directory, as to `/tmp`.
pub(crate) fn is_public(directory: &Stat) -> bool {
    directory.st_mode & STICKY != 0 && directory.st_mode & 0o002 != 0
}

/// Root or this user.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// A directory of procfs, whose links are made by the kernel.
pub(crate) fn is_proc(directory: &OwnedFd) -> bool {
    fstatfs(directory).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
}

/// The error for something in a directory that others can write.
pub(crate) fn refusal(directory: &OwnedFd, name: &OsStr, is: &str) -> io::Error {
    let path = place_of(directory).join(name);
    let text = format!("{} {is} in a directory that other users can write", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Where a directory is, for messages.
pub(crate) fn place_of(directory: &OwnedFd) -> PathBuf {
    let link = readlinkat(CWD, by_descriptor(directory), Vec::new());
    link.map(|path| OsString::from_vec(path.into_bytes())).unwrap_or_default().into()
}

/// A path of an open file that stays valid as long as it is open.
pub(crate) fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}
