//! Shell scripts as programs of tests.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// Creates a shell script with this body; it exists as long as the directory.
pub(crate) fn script(body: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pmdscope-pdump");
    // The script becomes executable only as a copy: a process that another test starts may hold the
    // written file open.
    let staged = dir.path().join("staged");
    std::fs::write(&staged, format!("#!/bin/sh\n{body}\n")).unwrap();
    let copied = Command::new("install").arg("-m755").args([&staged, &path]).status().unwrap();
    assert!(copied.success());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    (dir, path)
}
