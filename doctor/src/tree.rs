//! The files of a host: those of this machine, or a collected copy of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use crate::error::DoctorError;
use crate::manifest::{MANIFEST, Manifest};
use crate::mirror::{Mirror, relative};

/// Limit of a file; the rest is ignored. `/proc/interrupts` of a large host has a few MiB.
const FILE_BYTES: u64 = 16 << 20;

/// Attempts of a path lookup that races with a rename.
const LOOKUPS: u32 = 8;

/// A value, or why it is unknown.
pub(crate) type Fact<T> = Result<T, Unknown>;

/// Why a fact is unknown, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unknown(pub(crate) String);

/// The files of a host below a root directory. Symbolic links never lead out of it.
#[derive(Debug)]
pub struct HostTree {
    root: OwnedFd,
    path: PathBuf,
    manifest: Manifest,
    mirror: Option<RefCell<Mirror>>,
}

impl HostTree {
    /// Opens the host with the root directory `root`: `/`, or a collected tree.
    ///
    /// # Errors
    /// If it is not a directory that can be read, or its manifest is damaged.
    pub fn open(root: &Path) -> Result<Self, DoctorError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(root, flags, Mode::empty())
            .map_err(|why| DoctorError::Tree { path: root.into(), why: why.into() })?;
        let mut tree =
            Self { root: fd, path: root.into(), manifest: Manifest::default(), mirror: None };
        if !tree.is_this_machine()
            && let Ok(text) = tree.text(MANIFEST)
        {
            tree.manifest = Manifest::parse(&text)?;
        }
        Ok(tree)
    }

    /// Opens the host below `root`; everything that is read is copied into `mirror`.
    pub(crate) fn mirrored(root: &Path, mirror: Mirror) -> Result<Self, DoctorError> {
        let tree = Self::open(root)?;
        Ok(Self { mirror: Some(RefCell::new(mirror)), ..tree })
    }

    /// Whether it is the machine that this program runs on, rather than a copy.
    pub fn is_this_machine(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Returns the manifest of a collected tree; an empty one for this machine.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Stops copying, and returns the mirror.
    pub(crate) fn into_mirror(self) -> Option<Mirror> {
        self.mirror.map(RefCell::into_inner)
    }

    /// Returns the text of a file, without surrounding white space.
    pub(crate) fn text(&self, path: &str) -> Fact<String> {
        self.optional_text(path)?.ok_or_else(|| self.unknown(path, Errno::NOENT))
    }

    /// Returns the text of a file; `None` if its directory exists and the file does not.
    pub(crate) fn optional_text(&self, path: &str) -> Fact<Option<String>> {
        let read =
            self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).and_then(text);
        let Some(text) = self.known(path, read)? else { return Ok(None) };
        self.copy(|mirror| mirror.file(path, &text));
        Ok(Some(text.trim().to_owned()))
    }

    /// Returns the sorted names in a directory that satisfy `wanted`.
    pub(crate) fn names(&self, path: &str, wanted: impl Fn(&str) -> bool) -> Fact<Vec<String>> {
        self.optional_names(path, wanted)?.ok_or_else(|| self.unknown(path, Errno::NOENT))
    }

    /// As `names`; `None` if the parent directory exists and this one does not.
    pub(crate) fn optional_names(
        &self,
        path: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Fact<Option<Vec<String>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let read = self.open_at(path, flags).and_then(|fd| names(&fd));
        let Some(mut names) = self.known(path, read)? else { return Ok(None) };
        names.retain(|name| wanted(name));
        names.sort_unstable();
        self.copy(|mirror| mirror.listing(path, &names));
        Ok(Some(names))
    }

    /// Returns the last component of the target of a symbolic link; `None` if its directory exists
    /// and the link does not.
    pub(crate) fn link_name(&self, path: &str) -> Fact<Option<String>> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let read = self.open_at(dir, flags).and_then(|dir| readlinkat(dir, name, Vec::new()));
        let Some(target) = self.known(path, read)? else { return Ok(None) };
        let target = target.to_string_lossy().into_owned();
        let name = target.rsplit('/').next().unwrap_or_default().to_owned();
        self.copy(|mirror| mirror.link(path, &name));
        Ok(Some(name))
    }

    /// Whether a file or directory exists; unknown if its parent directory is missing.
    pub(crate) fn exists(&self, path: &str) -> Fact<bool> {
        let read = self.open_at(path, OFlags::PATH).and_then(fstat);
        let Some(stat) = self.known(path, read)? else { return Ok(false) };
        let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
        self.copy(|mirror| if is_dir { mirror.listing(path, &[]) } else { mirror.file(path, "") });
        Ok(true)
    }

    pub(crate) fn copy(&self, copy: impl FnOnce(&mut Mirror)) {
        if let Some(mirror) = &self.mirror {
            copy(&mut mirror.borrow_mut());
        }
    }

    /// Distinguishes a file that does not exist (`None`) from one that cannot be read.
    fn known<T>(&self, path: &str, read: rustix::io::Result<T>) -> Fact<Option<T>> {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NOENT) if self.manifest.is_unreadable(path) => {
                Err(Unknown(format!("{path} could not be read when it was collected")))
            }
            Err(Errno::NOENT) if self.open_at(above, OFlags::PATH).is_ok() => {
                // The copy records as well that the file is absent: its directory exists there.
                self.copy(|mirror| mirror.listing(above, &[]));
                Ok(None)
            }
            Err(why) => {
                if why != Errno::NOENT {
                    self.copy(|mirror| mirror.unreadable(path));
                }
                Err(self.unknown(path, why))
            }
        }
    }

    fn unknown(&self, path: &str, why: Errno) -> Unknown {
        let place = self.path.join(path.trim_start_matches('/'));
        let why = match why {
            Errno::NOENT => "there is no such file".to_owned(),
            Errno::ACCESS | Errno::PERM => "permission denied, run as root".to_owned(),
            other => std::io::Error::from(other).to_string(),
        };
        Unknown(format!("cannot read {}: {why}", place.display()))
    }

    fn open_at(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let relative = relative(path).ok_or(Errno::INVAL)?;
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..LOOKUPS {
            opened = openat2(&self.root, relative, flags, Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
        }
        match opened {
            // Kernels before 5.6 do not have it. Links of this machine are trusted.
            Err(Errno::NOSYS) if self.is_this_machine() => {
                openat(&self.root, relative, flags, Mode::empty())
            }
            other => other,
        }
    }
}

fn text(fd: OwnedFd) -> rustix::io::Result<String> {
    let mut bytes = Vec::new();
    let mut file = std::fs::File::from(fd).take(FILE_BYTES);
    match file.read_to_end(&mut bytes) {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

fn names(fd: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name != "." && name != ".." {
            names.insert(name.into_owned());
        }
    }
    Ok(names.into_iter().collect())
}
