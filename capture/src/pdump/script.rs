//! Programs that do what a test wants.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A shell script with this body; it is there as long as the directory.
pub(crate) fn script(body: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope-pdump");
    // Not executable while a process that another test starts may hold it open for writing.
    let staged = dir.path().join("staged");
    std::fs::write(&staged, format!("#!/bin/sh\n{body}\n")).unwrap();
    let copied = Command::new("install").arg("-m755").args([&staged, &path]).status().unwrap();
    assert!(copied.success());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    (dir, path)
}
