//! Walks, leftovers and links, in directories of this user and in those that others can write.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A directory that only this user can write, and one in it that all can.
fn directories() -> (TempDir, PathBuf) {
    let own = tempfile::tempdir().unwrap();
    let shared = own.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    (own, shared)
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_link_is_followed_only_where_nobody_else_can_place_one() {
    let (own, shared) = directories();
    let target = own.path().join("target");
    fs::write(&target, "old").unwrap();
    symlink(&target, shared.join("link")).unwrap();
    symlink(own.path(), shared.join("up")).unwrap();
    for path in [shared.join("link"), shared.join("up/target"), shared.join("up/../x")] {
        let error = write(&path, b"new", FileMode::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(replace(&path, b"new", FileMode::default()).is_err());
        assert!(Directory::create(&path).is_err());
    }
    assert_eq!(fs::read(&target).unwrap(), b"old");
    // A link itself can be removed and replaced.
    rename(&target, &own.path().join("moved")).unwrap();
    remove(&shared.join("link")).unwrap();
    assert!(own.path().join("moved").exists());
    symlink("moved", own.path().join("link")).unwrap();
    write(&own.path().join("link"), b"new", FileMode::default()).unwrap();
    assert_eq!(fs::read(own.path().join("moved")).unwrap(), b"new");
}

#[test]
fn a_file_with_several_names_is_not_overwritten_where_others_can_place_it() {
    let (own, shared) = directories();
    let target = own.path().join("target");
    fs::write(&target, "old").unwrap();
    fs::hard_link(&target, shared.join("name")).unwrap();
    assert!(create(&shared.join("name"), FileMode::default()).is_err());
    assert_eq!(fs::read(&target).unwrap(), b"old");
    replace(&shared.join("name"), b"new", FileMode::default()).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"old");
}

#[test]
fn what_a_killed_process_left_is_replaced_and_nothing_else() {
    let (own, shared) = directories();
    let (path, part) = (shared.join("x"), shared.join("x.part"));
    fs::write(&part, "left").unwrap();
    fs::set_permissions(&part, Permissions::from_mode(0o666)).unwrap();
    let begin =
        |leftover| PartFile::create(Place::of(&path).unwrap(), FileMode::default(), leftover);
    assert_eq!(begin(Leftover::Keep).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let mut file = begin(Leftover::Replace).unwrap();
    assert_eq!((fs::read(&part).unwrap().len(), mode_of(&part)), (0, 0o600));
    assert_eq!(begin(Leftover::Replace).unwrap_err().kind(), ErrorKind::ResourceBusy);
    file.file_mut().write_all(b"new").unwrap();
    file.complete().unwrap();
    assert_eq!((fs::read(&path).unwrap(), part.exists()), (b"new".to_vec(), false));
    begin(Leftover::Keep).unwrap().discard().unwrap();
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
    let target = own.path().join("target");
    fs::write(&target, "old").unwrap();
    symlink(&target, &part).unwrap();
    assert_eq!(begin(Leftover::Replace).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(fs::read(&target).unwrap(), b"old");
}

#[test]
fn modes_are_as_asked_for() {
    let (own, _) = directories();
    let path = own.path().join("x");
    replace(&path, b"", FileMode::default()).unwrap();
    assert_eq!(mode_of(&path), 0o600);
    replace(&path, b"", "664".parse().unwrap()).unwrap();
    assert_eq!(mode_of(&path), 0o664);
    Place::itself(&path).unwrap().set_mode(0o600).unwrap();
    assert_eq!(mode_of(&path), 0o600);
}

#[test]
fn a_directory_is_safe_to_name_again_unless_others_can_replace_it() {
    let (own, shared) = directories();
    let keeps = |path: &Path| Directory::open(path).unwrap().keeps_files().unwrap();
    assert!(keeps(own.path()) && !keeps(&shared));
    let inner = shared.join("inner");
    drop(Directory::create(&inner).unwrap());
    assert!(!keeps(&inner), "it can be renamed");
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    assert!(keeps(&inner) && keeps(&shared));
    let made = temporary_directory_in(&inner, "x").unwrap();
    assert!(made.path().starts_with(&inner) && mode_of(made.path()) == 0o700);
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    assert!(!temporary_directory_in(&inner, "x").unwrap().path().starts_with(&inner));
}

/// Directories and links, some of which lead in circles.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("a/b")).unwrap();
    fs::write(root.path().join("a/file"), "").unwrap();
    let links =
        [("l", "a"), ("a/m", "../a/b"), ("a/b/n", ".."), ("o", "o"), ("p", "none"), ("q", "l/m/n")];
    for (link, target) in links {
        symlink(target, root.path().join(link)).unwrap();
    }
    symlink(root.path().join("a"), root.path().join("a/b/absolute")).unwrap();
    root
}

proptest! {
    #[test]
    fn own_paths_lead_where_the_kernel_goes(
        names in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "l", "m", "n", "o", "p", "q", "absolute", "file", "none", ".", "..",
            ]),
            1..7,
        ),
    ) {
        let root = tree();
        // Not above the tree, which others may change.
        let path = names.iter().fold(root.path().join("a/b"), |path, name| path.join(name));
        let identity = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino(), it.is_dir()));
        let inside = path.canonicalize().is_ok_and(|real| real.starts_with(root.path()));
        let kernel = identity(&path).ok().filter(|(.., is_dir)| *is_dir);
        let ours = Directory::open(&path).ok();
        let ours = ours.map(|directory| identity(&directory.own_path()).unwrap());
        if inside || kernel.is_none() {
            prop_assert_eq!(ours, kernel, "{}", path.display());
        }
    }
}
