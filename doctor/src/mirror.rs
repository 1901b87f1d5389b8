//! Copies the files of a host while they are read.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use pmdscope_files::{Directory, FileMode, Place};

/// A directory that receives a copy of everything that is read.
#[derive(Debug)]
pub(crate) struct Mirror {
    into: PathBuf,
    /// Entries of listed directories; those that were not read are created last, as empty directories.
    listed: BTreeSet<PathBuf>,
    unreadable: BTreeSet<String>,
    /// The first write error.
    failure: Option<(PathBuf, io::Error)>,
}

impl Mirror {
    pub(crate) fn new(into: &Path) -> Self {
        let (listed, unreadable) = (BTreeSet::new(), BTreeSet::new());
        Self { into: into.into(), listed, unreadable, failure: None }
    }

    pub(crate) fn file(&mut self, path: &str, text: &str) {
        self.place(path, |place| {
            pmdscope_files::write(place, text.as_bytes(), FileMode::default())
        });
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.place(path, |place| match Place::itself(place)?.link_to(Path::new(target)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    }

    pub(crate) fn listing(&mut self, path: &str, names: &[String]) {
        self.place(path, |place| Directory::create(place).map(drop));
        let below = names.iter().filter_map(|name| relative(path).map(|path| path.join(name)));
        self.listed.extend(below);
    }

    pub(crate) fn unreadable(&mut self, path: &str) {
        self.unreadable.insert(path.to_owned());
    }

    fn place(&mut self, path: &str, make: impl FnOnce(&Path) -> io::Result<()>) {
        let Some(relative) = relative(path) else { return };
        let place = self.into.join(relative);
        let above = place.parent().map(Directory::create).transpose();
        if let Err(error) = above.and_then(|_| make(&place)) {
            self.failure.get_or_insert((place, error));
        }
    }

    /// Completes the copy; returns the files that could not be read. An error if anything could not
    /// be written.
    pub(crate) fn finish(self) -> Result<BTreeSet<String>, (PathBuf, io::Error)> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for name in &self.listed {
            let place = self.into.join(name);
            if fs::symlink_metadata(&place).is_err() {
                Directory::create(&place).map_err(|error| (place, error))?;
            }
        }
        Ok(self.unreadable)
    }
}

/// Returns a path relative to a root; `None` for a path that leads out of it.
pub(crate) fn relative(path: &str) -> Option<&Path> {
    let path = Path::new(path.trim_start_matches('/'));
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    inside.then(|| if path.as_os_str().is_empty() { Path::new(".") } else { path })
}
