//! Directories for a time, that nobody else can replace.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::Directory;

/// Creates a directory of mode 0700 with a new name in that for temporary files. It is removed when the
/// returned value is dropped.
///
/// # Errors
/// As [`temporary_directory_in`].
pub fn temporary_directory(prefix: &str) -> io::Result<TempDir> {
    temporary_directory_in(&std::env::temp_dir(), prefix)
}

/// Creates a directory of mode 0700 with a new name in another one, or, where others can replace what is in
/// there, in that for temporary files. It is removed when the returned value is dropped.
///
/// # Errors
/// As mkdir(2); `PermissionDenied` when others can replace the directory in either place.
pub fn temporary_directory_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    let usual = std::env::temp_dir();
    for parent in [parent, &usual] {
        if Directory::open(parent)?.keeps_files()? {
            let private = Permissions::from_mode(0o700);
            let mut builder = tempfile::Builder::new();
            return builder.prefix(prefix).permissions(private).tempdir_in(parent);
        }
    }
    let text = format!("other users can replace files in {}: set TMPDIR", usual.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
