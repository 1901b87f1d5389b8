//! Directories in which apps may run that cannot be seen, for lack of permission.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::DiscoverOptions;
use super::users::name_of;
use crate::printable::harmless;

/// Permissions to list a directory and to access its entries.
const READ_AND_SEARCH: u32 = 0o5;

/// Returns the parents of runtime directories that exist and cannot be read; those of other users are
/// not among them.
pub fn unreadable(options: &DiscoverOptions) -> Vec<PathBuf> {
    let denied = |dir: &PathBuf| {
        fs::read_dir(dir).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    };
    let mut dirs: Vec<PathBuf> = options.roots.iter().map(|root| root.join("dpdk")).collect();
    dirs.retain(denied);
    dirs.dedup();
    dirs
}

/// Returns which directories cannot be read, and as which user to run; `None` if there are none.
pub fn unreadable_text(dirs: &[PathBuf]) -> Option<String> {
    let text = |dir: &PathBuf| format!("cannot read {}: run as {}", dir.display(), readers(dir));
    let texts: Vec<String> = dirs.iter().map(text).collect();
    (!texts.is_empty()).then(|| harmless(&texts.join("; "), &[]))
}

/// The directories that could not be read the last time; used to warn of each change once.
#[derive(Debug, Default)]
pub struct UnreadableWarning(Vec<PathBuf>);

impl UnreadableWarning {
    /// Returns a warning if the directories have changed since the last time, and there are any.
    pub fn update(&mut self, dirs: &[PathBuf]) -> Option<String> {
        if self.0 == dirs {
            return None;
        }
        dirs.clone_into(&mut self.0);
        unreadable_text(dirs)
    }
}

/// Returns the users that may read a directory, according to its owner and mode.
fn readers(dir: &Path) -> String {
    let Ok(metadata) = fs::metadata(dir) else { return "root".to_owned() };
    let may = |shift: u32| metadata.mode() >> shift & READ_AND_SEARCH == READ_AND_SEARCH;
    let mut readers = "root".to_owned();
    if metadata.uid() != 0 && may(6) {
        readers += ", as user ";
        readers += &name_of("/etc/passwd", metadata.uid());
    }
    if may(3) {
        readers += " or a member of group ";
        readers += &name_of("/etc/group", metadata.gid());
    }
    readers
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn those_who_may_read_are_named() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("dpdk");
        fs::create_dir(&dir).unwrap();
        let readers_by = |mode| {
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            readers(&dir)
        };
        let group = name_of("/etc/group", fs::metadata(&dir).unwrap().gid());
        assert!(readers_by(0o750).ends_with(&format!(" or a member of group {group}")));
        assert!(!readers_by(0o710).contains("group"));
        if chown(&dir, Some(12_345), None).is_ok() {
            assert_eq!(readers_by(0o700), "root, as user 12345");
        }
        assert_eq!(readers(Path::new("/nonexistent")), "root");
    }

    #[test]
    fn nothing_is_said_of_directories_that_can_be_read_or_are_not_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dpdk")).unwrap();
        let roots = vec![root.path().to_owned(), "/nonexistent".into()];
        let options = DiscoverOptions { roots, proc: None, ..DiscoverOptions::default() };
        assert_eq!(unreadable(&options), Vec::<PathBuf>::new());
        assert_eq!(unreadable_text(&[]), None);
    }
}
