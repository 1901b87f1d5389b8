//! One open file, pipe or device.
//!
//! A regular file is called `NAME.part` until it is complete. If a write fails after a part of the
//! data, a regular file is truncated to its last complete block.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmdscope_files::{FileMode, Leftover, PartFile, Place};
use rustix::fs::{FileType, FlockOperation, FsWord, flock};

use super::FileSettings;
use super::unread::UnreadPackets;
use crate::sink::SinkError;

/// `f_type` of file systems in memory.
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;
/// Major and minor number of `/dev/null`.
const DEV_NULL: (u32, u32) = (1, 3);

/// How files are opened.
#[derive(Clone, Debug, Default)]
pub(super) struct SinkOptions {
    in_place: bool,
    mode: FileMode,
    stop: Arc<AtomicBool>,
}

impl SinkOptions {
    pub(super) fn of(settings: &FileSettings) -> Self {
        let FileSettings { in_place, mode, stop, .. } = settings;
        Self { in_place: *in_place, mode: *mode, stop: Arc::clone(stop) }
    }
}

/// An open file that is written.
#[derive(Debug)]
pub(super) struct FileSink {
    file: SinkFile,
    /// Name for messages.
    name: String,
    written: u64,
    /// Data in a pipe that may not have been read yet.
    unread: Option<UnreadPackets>,
}

#[derive(Debug)]
enum SinkFile {
    /// A pipe, a device, or a descriptor that the caller opened.
    Stream(File),
    /// A regular file that has its name already.
    Named(File, PathBuf),
    /// A regular file that gets its name when it is complete.
    Part(PartFile),
}

impl SinkFile {
    fn file_mut(&mut self) -> &mut File {
        match self {
            Self::Stream(file) | Self::Named(file, _) => file,
            Self::Part(part) => part.file_mut(),
        }
    }

    fn file(&self) -> &File {
        match self {
            Self::Stream(file) | Self::Named(file, _) => file,
            Self::Part(part) => part.file(),
        }
    }
}

impl FileSink {
    /// Opens standard output.
    #[allow(clippy::disallowed_methods)] // Bytes of packets, and no text.
    pub(super) fn stdout() -> io::Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self::onto(file.into(), "standard output".to_owned()))
    }

    /// Uses an open file, which is never truncated or renamed.
    pub(super) fn onto(file: File, name: String) -> Self {
        let unread = UnreadPackets::of(&file);
        Self { file: SinkFile::Stream(file), name, written: 0, unread }
    }

    /// Creates or overwrites a file, or opens a pipe or device. If it is a symbolic link, the file that
    /// it points to is replaced.
    pub(super) fn open(path: &Path, options: &SinkOptions) -> io::Result<Self> {
        let name = path.display().to_string();
        let place = Place::of(path)?;
        if place.is_stream()? {
            return Ok(Self::onto(place.open_stream(&options.stop)?, name));
        }
        let file = if options.in_place {
            let file = overwrite_alone(&place, options.mode)?;
            SinkFile::Named(file, place.path().to_owned())
        } else {
            SinkFile::Part(PartFile::create(place, options.mode, Leftover::Replace)?)
        };
        Ok(Self { file, name, written: 0, unread: None })
    }

    /// Returns the name for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the path; `None` for a stream.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.file {
            SinkFile::Stream(_) => None,
            SinkFile::Named(_, path) => Some(path),
            SinkFile::Part(part) => Some(part.place().path()),
        }
    }

    /// Returns a descriptor that tells when the reader of a stream has closed it.
    pub(super) fn reader(&self) -> Option<std::os::fd::OwnedFd> {
        match &self.file {
            SinkFile::Stream(file) => file.as_fd().try_clone_to_owned().ok(),
            SinkFile::Named(..) | SinkFile::Part(_) => None,
        }
    }

    /// Returns whether writes never block: the file is in memory, or `/dev/null`.
    pub(super) fn never_waits(&self) -> bool {
        let file = self.file.file();
        let in_memory =
            rustix::fs::fstatfs(file).is_ok_and(|system| [TMPFS, RAMFS].contains(&system.f_type));
        rustix::fs::fstat(file).is_ok_and(|status| match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => in_memory,
            FileType::CharacterDevice => {
                let device = status.st_rdev;
                (rustix::fs::major(device), rustix::fs::minor(device)) == DEV_NULL
            }
            _ => false,
        })
    }

    /// Writes slices, and adds the written bytes to `done`.
    pub(super) fn write_slices(
        &mut self,
        mut slices: &mut [IoSlice<'_>],
        done: &mut usize,
    ) -> io::Result<()> {
        while !slices.is_empty() {
            match self.file.file_mut().write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    IoSlice::advance_slices(&mut slices, count);
                    *done += count;
                    self.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notes that these bytes, with this many packets, were written last.
    pub(super) fn wrote(&mut self, bytes: &[u8], packets: u64) {
        if let Some(unread) = &mut self.unread {
            unread.written(self.file.file(), bytes, packets, self.written);
        }
    }

    /// Returns the number of packets in a pipe that its reader has closed. `whole` returns how many
    /// packets are complete at the start of a write; its second argument tells whether the write begins
    /// the stream.
    pub(super) fn unread(&self, whole: impl Fn(&[u8], bool) -> u64) -> u64 {
        self.unread.as_ref().map_or(0, |unread| unread.lost(self.file.file(), whole))
    }

    /// Writes `bytes` from `done` on, and advances `done`. After an error, a regular file is truncated
    /// to the end of the last complete block, by `whole`.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        done: &mut usize,
        whole: impl Fn(&[u8]) -> usize,
    ) -> io::Result<()> {
        while *done < bytes.len() {
            let count = match self.file.file_mut().write(&bytes[*done..]) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                result => result,
            };
            match count {
                Ok(count) => {
                    *done += count;
                    self.written += count as u64;
                }
                Err(error) => {
                    self.cut_back(bytes, done, whole);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn cut_back(&mut self, bytes: &[u8], done: &mut usize, whole: impl Fn(&[u8]) -> usize) {
        if matches!(self.file, SinkFile::Stream(_)) {
            return;
        }
        let partial = *done - whole(&bytes[..*done]);
        let size = self.written - partial as u64;
        // A file that cannot be truncated is still readable up to its last complete block.
        let file = self.file.file_mut();
        if file.set_len(size).and_then(|()| file.seek(SeekFrom::Start(size))).is_ok() {
            *done -= partial;
            self.written = size;
        }
    }

    /// Completes the file: a regular file gets its final name, which is returned. If nothing was
    /// written, an old file of that name stays.
    pub(super) fn close(self) -> Result<Option<PathBuf>, SinkError> {
        let done = match self.file {
            SinkFile::Stream(_) => return Ok(None),
            SinkFile::Named(_, path) => return Ok(Some(path)),
            SinkFile::Part(part) if self.written == 0 => {
                return Ok(part.discard().ok().and(None));
            }
            SinkFile::Part(part) => {
                let path = part.place().path().to_owned();
                part.complete().map(|()| path)
            }
        };
        done.map(Some).map_err(|source| SinkError::Write { name: self.name, source })
    }
}

/// Opens and truncates a file that no other capture writes.
fn overwrite_alone(place: &Place, mode: FileMode) -> io::Result<File> {
    let file = place.open_in_place(mode)?;
    // On a file system without locks, the file is used anyway.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK)
    {
        let text = "another capture is writing it";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the bytes in complete blocks of 10 bytes.
    fn tens(bytes: &[u8]) -> usize {
        bytes.len() / 10 * 10
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old and longer").unwrap();
        let mut sink = FileSink::open(&path, &SinkOptions::default()).unwrap();
        sink.write(b"new", &mut 0, tens).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old and longer");
        assert_eq!(fs::read(dir.path().join("out.part")).unwrap(), b"new");
        sink.close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_was_never_begun_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old").unwrap();
        assert_eq!(FileSink::open(&path, &SinkOptions::default()).unwrap().close().unwrap(), None);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn in_place_there_is_no_other_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old and longer").unwrap();
        let mut sink =
            FileSink::open(&path, &SinkOptions { in_place: true, ..SinkOptions::default() })
                .unwrap();
        sink.write(b"new", &mut 0, tens).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        sink.close().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out"), dir.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("out", &link).unwrap();
        let mut sink = FileSink::open(&link, &SinkOptions::default()).unwrap();
        sink.write(b"new", &mut 0, tens).unwrap();
        sink.close().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn two_captures_do_not_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut first = FileSink::open(&path, &SinkOptions::default()).unwrap();
        first.write(b"first", &mut 0, tens).unwrap();
        let second = FileSink::open(&path, &SinkOptions::default()).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        first.close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }

    #[test]
    fn a_partial_block_is_cut_off_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut sink = FileSink::open(&path, &SinkOptions::default()).unwrap();
        let bytes = b"0123456789abcdefghij".as_slice();
        sink.write(&bytes[..15], &mut 0, tens).unwrap();
        let mut done = 15;
        sink.cut_back(bytes, &mut done, tens);
        assert_eq!((done, sink.written()), (10, 10));
        sink.write(bytes, &mut done, tens).unwrap();
        sink.close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn a_directory_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = FileSink::open(dir.path(), &SinkOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
