//! A file that has another name until it is complete.

use std::fs::File;
use std::io::{self, Write};

use rustix::fs::{FileType, FlockOperation, flock, fstat};
use rustix::io::Errno;

use crate::{FileMode, Place};

/// The suffix of a file name until the file is complete.
pub const PART: &str = ".part";

/// How often another process may take the name in between.
const TRIES: u32 = 8;

/// What to do with a file that a killed process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Remove it.
    Replace,
    /// Keep it, unless it is empty.
    Keep,
}

/// A file that is being written, and locked: `NAME.part` until it is complete.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    part: Place,
    place: Place,
}

impl PartFile {
    /// Creates the file for a place.
    ///
    /// # Errors
    /// `ResourceBusy` when another process writes it; `AlreadyExists` for a leftover that is to be kept;
    /// `PermissionDenied` when the name is taken by what this user has not left; as open(2).
    pub fn create(place: Place, mode: FileMode, leftover: Leftover) -> io::Result<Self> {
        let part = place.with_suffix(PART);
        for _ in 0..TRIES {
            match part.create_new(mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    remove_leftover(&part, leftover)?;
                }
                created => {
                    let file = created?;
                    lock(&file)?;
                    // Until it was locked, it looked like a leftover.
                    if part.is_same(&fstat(&file)?)? {
                        return Ok(Self { file, part, place });
                    }
                }
            }
        }
        Err(busy())
    }

    /// Creates the file for a place where there is neither a file yet nor one that is being written.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one; as open(2).
    pub fn create_new(place: Place, mode: FileMode) -> io::Result<Self> {
        if place.exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let part = place.with_suffix(PART);
        let file = part.create_new(mode)?;
        lock(&file)?;
        Ok(Self { file, part, place })
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the open file.
    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Returns the place that it will have.
    pub fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn write_whole(&mut self, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)?;
        self.file.sync_all()
    }

    /// Gives the file its name; it replaces another one.
    ///
    /// # Errors
    /// As rename(2).
    pub fn complete(self) -> io::Result<()> {
        self.part.rename(&self.place)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn discard(self) -> io::Result<()> {
        self.part.remove()
    }
}

fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(busy()),
        // A file system without locks is not an error.
        _ => Ok(()),
    }
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing it")
}

/// Removes a file that a killed process of this user has left.
fn remove_leftover(part: &Place, leftover: Leftover) -> io::Result<()> {
    let opened = part.open();
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let there = fstat(&file)?;
    let is_regular = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
    if !is_regular || there.st_uid != rustix::process::geteuid().as_raw() {
        let text = format!(
            "{} is not a file that this user has left; move it away or delete it",
            part.path().display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    lock(&file)?;
    if leftover == Leftover::Keep && there.st_size > 0 {
        let text = format!(
            "{} is what a process that was killed has left; move it away or delete it",
            part.path().display()
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // Whoever removes the name holds the lock of its file.
    if part.is_same(&there)? { part.remove() } else { Ok(()) }
}
