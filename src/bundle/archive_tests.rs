//! Tests of writing archives.

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};

use zstd::stream::read::Decoder;

use super::super::index::PartStatus;
use super::*;

/// Paths in an archive, and what the files contain.
fn unpacked(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(Decoder::new(File::open(path).unwrap()).unwrap());
    let entries = archive.entries().unwrap();
    let read = entries.map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        let _ = entry.read_to_string(&mut text);
        (entry.path().unwrap().display().to_string(), text)
    });
    read.collect()
}

/// A staging directory with some files.
fn staging(root: &Path) -> PathBuf {
    let staging = root.join("staging");
    fs::create_dir_all(staging.join("b/deep")).unwrap();
    for (path, text) in [("INDEX.txt", "index"), ("a.txt", "a"), ("b/deep/c", "c")] {
        fs::write(staging.join(path), text).unwrap();
    }
    symlink("deep/c", staging.join("b/link")).unwrap();
    staging
}

#[test]
fn everything_is_in_the_archive_and_the_index_is_first() {
    let dir = tempfile::tempdir().unwrap();
    let staging = staging(dir.path());
    let target = dir.path().join("x.tar.zst");
    let file = ArchiveFile::create(&target, FileMode::default()).unwrap();
    assert!(!target.exists(), "it has no name before it is complete");
    let size = file.write(&staging, "x", &["INDEX.txt"]).unwrap();
    assert_eq!(fs::metadata(&target).unwrap().len(), size);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    let paths: Vec<_> = unpacked(&target).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["x/INDEX.txt", "x/a.txt", "x/b", "x/b/deep", "x/b/deep/c", "x/b/link"]);
    assert_eq!(unpacked(&target)[4].1, "c");
}

#[test]
fn a_failed_archive_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("x.tar.zst");
    let file = ArchiveFile::create(&target, FileMode::default()).unwrap();
    let error = file.write(&dir.path().join("missing"), "x", &["INDEX.txt"]).unwrap_err();
    assert!(format!("{error:#}").contains("x.tar.zst"), "{error:#}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_written_is_told_at_once() {
    for target in ["/nonexistent/x.tar.zst", "/proc/x.tar.zst", "/dev/full", "/tmp"] {
        let error = ArchiveFile::create(Path::new(target), FileMode::default()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot write {target}")), "{error}");
    }
}

#[test]
fn the_largest_files_are_left_out_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &str, bytes: usize| {
        fs::write(dir.path().join(path), vec![0; bytes]).unwrap();
        FileEntry { path: path.to_owned(), bytes: bytes as u64 }
    };
    let mut parts = ["one", "two"].map(|part| PartEntry::skipped(part, None, ""));
    for part in &mut parts {
        (part.status, part.reason) = (PartStatus::Complete, None);
    }
    parts[0].files = vec![file("large", 900), file("small", 100)];
    parts[1].files = vec![file("medium", 500)];
    limit(&mut parts, dir.path(), 1000);
    assert!(!dir.path().join("large").exists());
    assert!(dir.path().join("small").exists() && dir.path().join("medium").exists());
    assert_eq!([parts[0].status, parts[1].status], [PartStatus::Incomplete, PartStatus::Complete]);
    let reason = parts[0].reason.as_deref().unwrap();
    assert_eq!(reason, "large (900 B) does not fit into --max-size 1000 B");
}
