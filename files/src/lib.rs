//! Creates, replaces and removes the files that the tools write.
//!
//! The tools run as root and write where users ask them to, also in directories that belong to other
//! users. A path that is resolved twice, or through a link that somebody else has placed, may lead to any
//! file of root. So a path is walked once, by descriptors of its directories. A symbolic link is followed
//! only in a directory that nobody but root and this user can write. Files are created exclusively, with
//! mode 0600 unless asked otherwise, and are renamed and removed below the descriptor of their directory.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod directory;
mod mode;
mod part;
mod place;
mod temporary;
#[cfg(test)]
mod tests;
mod walk;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

pub use self::directory::Directory;
pub use self::mode::FileMode;
pub use self::part::{Leftover, PART, PartFile};
pub use self::place::Place;
pub use self::temporary::{temporary_directory, temporary_directory_in};

/// Creates or truncates a file, or opens a pipe or device.
///
/// # Errors
/// As open(2); `PermissionDenied` for what another user has placed, such as a link.
pub fn create(path: &Path, mode: FileMode) -> io::Result<File> {
    let place = Place::of(path)?;
    if place.is_stream()? {
        return place.open_stream(&AtomicBool::new(false));
    }
    let file = place.open_in_place(mode)?;
    file.set_len(0)?;
    Ok(file)
}

/// Creates or overwrites a file with this content, or writes it into a pipe or device.
///
/// # Errors
/// As [`create`] and write(2).
pub fn write(path: &Path, content: &[u8], mode: FileMode) -> io::Result<()> {
    create(path, mode)?.write_all(content)
}

/// Creates a file that does not exist yet.
///
/// # Errors
/// As open(2): `AlreadyExists` for any file of that name.
pub fn create_new(path: &Path, mode: FileMode) -> io::Result<File> {
    Place::of(path)?.create_new(mode)
}

/// Replaces a file atomically, or creates it: a killed process leaves either the old or the new file,
/// and perhaps one of its name with [`PART`].
///
/// # Errors
/// As [`create`], write(2) and rename(2).
pub fn replace(path: &Path, content: &[u8], mode: FileMode) -> io::Result<()> {
    let mut file = PartFile::create(Place::of(path)?, mode, Leftover::Replace)?;
    let written = file.write_whole(content);
    if written.is_err() {
        // The error of the write matters.
        let _ = file.discard();
        return written;
    }
    file.complete()
}

/// Gives a file another name.
///
/// # Errors
/// As rename(2).
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Place::itself(from)?.rename(&Place::itself(to)?)
}

/// Removes a file, or a link itself.
///
/// # Errors
/// As unlink(2).
pub fn remove(path: &Path) -> io::Result<()> {
    Place::itself(path)?.remove()
}
