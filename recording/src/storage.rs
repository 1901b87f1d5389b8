//! The file that is being written: `NAME.part` until it is complete.
//!
//! Data that does not fit on a full disk is kept here, and no more is accepted until it is written:
//! so a file never has gaps within a frame.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use pmdscope_files::{FileMode, Leftover, PartFile, Place};

use super::{EXTENSION, PART, RecordingError};

/// Prefix of the names in a directory.
const PREFIX: &str = "pmdscope-";

/// The destination of files.
#[derive(Clone, Debug)]
pub(super) enum RecordingDestination {
    /// One file of this name.
    File(PathBuf),
    /// Any number of files, named by their start times.
    Directory(PathBuf),
}

/// An open file.
#[derive(Debug)]
pub(super) struct RecordingFileWriter {
    file: PartFile,
    path: PathBuf,
    written: u64,
    pending: Vec<u8>,
}

impl RecordingDestination {
    /// Returns a directory if the path exists as one or ends with a slash, otherwise a file.
    pub(super) fn of(path: &Path) -> Self {
        let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if slash || path.is_dir() { Self::Directory(path.into()) } else { Self::File(path.into()) }
    }

    /// Returns the directory of the files.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Directory(dir) => dir,
            Self::File(path) => path.parent().unwrap_or(path),
        }
    }

    /// Creates a file that starts at this time.
    pub(super) fn create(
        &self,
        realtime_ns: u64,
        mode: FileMode,
    ) -> Result<RecordingFileWriter, RecordingError> {
        match self {
            Self::File(path) => RecordingFileWriter::create(path.clone(), mode, false),
            Self::Directory(dir) => {
                let time = Timestamp::from_nanosecond(realtime_ns.into()).unwrap_or(Timestamp::MAX);
                let time = time.strftime("%Y%m%dT%H%M%SZ");
                let create = |name| RecordingFileWriter::create(dir.join(name), mode, true);
                let mut result = create(format!("{PREFIX}{time}{EXTENSION}"));
                // Several files may start in the same second.
                for number in 2..100 {
                    if !result.as_ref().is_err_and(exists) {
                        break;
                    }
                    result = create(format!("{PREFIX}{time}-{number}{EXTENSION}"));
                }
                result
            }
        }
    }
}

fn exists(error: &RecordingError) -> bool {
    matches!(error, RecordingError::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}

/// Returns whether the file has a name that recorders give.
pub(super) fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(PART).unwrap_or(name);
    name.starts_with(PREFIX) && name.ends_with(EXTENSION)
}

/// Returns whether an error is a full disk or quota, so that waiting may help.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl RecordingFileWriter {
    /// Creates `path`.part and locks it against other recorders; with `anew`, neither it nor `path`
    /// may exist.
    fn create(path: PathBuf, mode: FileMode, anew: bool) -> Result<Self, RecordingError> {
        let create = |place: Place| {
            if place.is_stream()? {
                let text = "a recording needs a regular file";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            if anew {
                PartFile::create_new(place, mode)
            } else {
                PartFile::create(place, mode, Leftover::Keep)
            }
        };
        match Place::of(&path).and_then(create) {
            Ok(file) => Ok(Self { file, path, written: 0, pending: Vec::new() }),
            Err(error) => Err(RecordingError::io("create", &path, error)),
        }
    }

    /// Returns its final name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its size with the pending bytes.
    pub(super) fn size(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Returns the buffer to append data to.
    pub(super) fn pending(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Writes the pending data.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let mut done = 0;
        let mut result = Ok(());
        while done < self.pending.len() && result.is_ok() {
            match self.file.file_mut().write(&self.pending[done..]) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        self.pending.drain(..done);
        self.written += done as u64;
        result
    }

    /// Deletes a file without data.
    pub(super) fn discard(self) -> Result<(), RecordingError> {
        self.file.discard().map_err(|error| RecordingError::io("delete", &self.path, error))
    }

    /// Appends the index, if the disk has room for it, and renames the file to its final name.
    pub(super) fn close(mut self, index: &[u8]) -> Result<(PathBuf, u64), RecordingError> {
        self.drain().map_err(|error| RecordingError::io("write", &self.path, error))?;
        let end = self.written;
        self.pending.extend_from_slice(index);
        if self.drain().is_err() {
            // The file can be read without an index.
            let cut = self.file.file().set_len(end);
            cut.map_err(|error| RecordingError::io("write", &self.path, error))?;
            self.written = end;
        }
        self.file.complete().map_err(|error| RecordingError::io("complete", &self.path, error))?;
        Ok((self.path, self.written))
    }
}
