//! Copies the files that the checks read into a directory, for `doctor --root` on another machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pmdscope_telemetry::realtime_ns;

use crate::SCHEMA;
use crate::app::AppFacts;
use crate::error::DoctorError;
use crate::facts::HostFacts;
use crate::manifest::{MANIFEST, Manifest};
use crate::tree::{HostTree, relative};

/// Copies the files of this machine that the checks read, and what is known of `apps`, into the
/// directory `into`, which is created. `HostTree::open(into)` opens the copy, on any machine. With
/// `None` the checks of apps are skipped there.
///
/// Reads a few thousand small files of `/proc`, `/sys` and `/etc`, and changes nothing outside of
/// `into`. What cannot be read is noted in the copy, and is no error.
///
/// # Errors
/// When `into` cannot be written.
pub fn collect(into: &Path, apps: Option<&[AppFacts]>) -> Result<(), DoctorError> {
    collect_from(Path::new("/"), into, apps)
}

pub(crate) fn collect_from(
    root: &Path,
    into: &Path,
    apps: Option<&[AppFacts]>,
) -> Result<(), DoctorError> {
    let unwritable = |path: &Path, why| DoctorError::Unwritable { path: path.into(), why };
    fs::create_dir_all(into).map_err(|why| unwritable(into, why))?;
    let tree = HostTree::mirrored(root, Mirror::new(into))?;
    // The reader of the facts knows best what it reads.
    drop(HostFacts::read(&tree, apps.unwrap_or_default(), None));
    let Some(mirror) = tree.into_mirror() else { return Ok(()) };
    let unreadable =
        mirror.finish().map_err(|(path, why)| DoctorError::Unwritable { path, why })?;
    let manifest = Manifest {
        schema: SCHEMA,
        collected_realtime_ns: realtime_ns(),
        unreadable,
        cpus: None,
        apps: apps.map(<[AppFacts]>::to_vec),
    };
    let path = into.join(MANIFEST);
    let text =
        serde_json::to_vec(&manifest).map_err(|why| unwritable(&path, io::Error::other(why)))?;
    fs::write(&path, text).map_err(|why| unwritable(&path, why))
}

/// A directory that gets a copy of everything that is read.
#[derive(Debug)]
pub(crate) struct Mirror {
    into: PathBuf,
    /// Entries of directories that were listed; they are made last, since most become more than a name.
    listed: BTreeSet<PathBuf>,
    unreadable: BTreeSet<String>,
    /// The first failure to write.
    failure: Option<(PathBuf, io::Error)>,
}

impl Mirror {
    pub(crate) fn new(into: &Path) -> Self {
        let (listed, unreadable) = (BTreeSet::new(), BTreeSet::new());
        Self { into: into.into(), listed, unreadable, failure: None }
    }

    pub(crate) fn file(&mut self, path: &str, text: &str) {
        self.place(path, |place| fs::write(place, text));
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.place(path, |place| match symlink(target, place) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    }

    pub(crate) fn listing(&mut self, path: &str, names: &[String]) {
        self.place(path, |place| fs::create_dir_all(place));
        let below = names.iter().filter_map(|name| relative(path).map(|path| path.join(name)));
        self.listed.extend(below);
    }

    pub(crate) fn unreadable(&mut self, path: &str) {
        self.unreadable.insert(path.to_owned());
    }

    fn place(&mut self, path: &str, make: impl FnOnce(&Path) -> io::Result<()>) {
        let Some(relative) = relative(path) else { return };
        let place = self.into.join(relative);
        let above = place.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = above.and_then(|()| make(&place)) {
            self.failure.get_or_insert((place, error));
        }
    }

    /// What could not be read.
    fn finish(self) -> Result<BTreeSet<String>, (PathBuf, io::Error)> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for name in &self.listed {
            let place = self.into.join(name);
            if fs::symlink_metadata(&place).is_err() {
                fs::create_dir_all(&place).map_err(|error| (place, error))?;
            }
        }
        Ok(self.unreadable)
    }
}
