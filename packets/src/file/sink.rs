//! One open file, pipe or device.
//!
//! A regular file is called `NAME.part` until it is complete. If a write fails after a part of the
//! data, a regular file is truncated to its last complete block.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, FsWord};

use super::unread::UnreadPackets;
use crate::sink::SinkError;

/// `f_type` of file systems in memory.
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;
/// Major and minor number of `/dev/null`.
const DEV_NULL: (u32, u32) = (1, 3);

/// An open file that is written.
#[derive(Debug)]
pub(super) struct FileSink {
    file: File,
    /// Name for messages.
    name: String,
    place: SinkPlace,
    written: u64,
    /// Data in a pipe that may not have been read yet.
    unread: Option<UnreadPackets>,
}

#[derive(Debug)]
enum SinkPlace {
    /// A pipe, a device, or a descriptor that the caller opened.
    Stream,
    Regular {
        path: PathBuf,
        part: Option<PathBuf>,
    },
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
        Self { file, name, place: SinkPlace::Stream, written: 0, unread }
    }

    /// Creates or overwrites a file, or opens a pipe or device.
    pub(super) fn open(path: &Path, in_place: bool) -> io::Result<Self> {
        let name = path.display().to_string();
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Self::onto(file, name));
            }
            _ => {}
        }
        // If it is a symbolic link, the file that it points to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let part = (!in_place).then(|| part_of(&path));
        let file = create_alone(part.as_deref().unwrap_or(&path))?;
        let place = SinkPlace::Regular { path, part };
        Ok(Self { file, name, place, written: 0, unread: None })
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
        match &self.place {
            SinkPlace::Stream => None,
            SinkPlace::Regular { path, .. } => Some(path),
        }
    }

    /// Returns a descriptor that tells when the reader of a stream has closed it.
    pub(super) fn reader(&self) -> Option<std::os::fd::OwnedFd> {
        match self.place {
            SinkPlace::Stream => self.file.as_fd().try_clone_to_owned().ok(),
            SinkPlace::Regular { .. } => None,
        }
    }

    /// Returns whether writes never block: the file is in memory, or `/dev/null`.
    pub(super) fn never_waits(&self) -> bool {
        let in_memory = rustix::fs::fstatfs(&self.file)
            .is_ok_and(|system| [TMPFS, RAMFS].contains(&system.f_type));
        rustix::fs::fstat(&self.file).is_ok_and(|status| {
            match FileType::from_raw_mode(status.st_mode) {
                FileType::RegularFile => in_memory,
                FileType::CharacterDevice => {
                    let device = status.st_rdev;
                    (rustix::fs::major(device), rustix::fs::minor(device)) == DEV_NULL
                }
                _ => false,
            }
        })
    }

    /// Writes slices, and adds the written bytes to `done`.
    pub(super) fn write_slices(
        &mut self,
        mut slices: &mut [IoSlice<'_>],
        done: &mut usize,
    ) -> io::Result<()> {
        while !slices.is_empty() {
            match self.file.write_vectored(slices) {
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
            unread.written(&self.file, bytes, packets, self.written);
        }
    }

    /// Returns the number of packets in a pipe that its reader has closed. `whole` returns how many
    /// packets are complete at the start of a write; its second argument tells whether the write begins
    /// the stream.
    pub(super) fn unread(&self, whole: impl Fn(&[u8], bool) -> u64) -> u64 {
        self.unread.as_ref().map_or(0, |unread| unread.lost(&self.file, whole))
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
            let count = match self.file.write(&bytes[*done..]) {
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
        if matches!(self.place, SinkPlace::Stream) {
            return;
        }
        let partial = *done - whole(&bytes[..*done]);
        let size = self.written - partial as u64;
        // A file that cannot be truncated is still readable up to its last complete block.
        if self.file.set_len(size).and_then(|()| self.file.seek(SeekFrom::Start(size))).is_ok() {
            *done -= partial;
            self.written = size;
        }
    }

    /// Completes the file: a regular file gets its final name, which is returned. If nothing was
    /// written, an old file of that name stays.
    pub(super) fn close(self) -> Result<Option<PathBuf>, SinkError> {
        let SinkPlace::Regular { path, part } = self.place else { return Ok(None) };
        let done = match &part {
            Some(part) if self.written == 0 => return Ok(fs::remove_file(part).ok().and(None)),
            Some(part) => fs::rename(part, &path),
            None => Ok(()),
        };
        match done {
            Ok(()) => Ok(Some(path)),
            Err(source) => Err(SinkError::Write { name: self.name, source }),
        }
    }
}

/// The suffix of a file name until the file is complete.
pub const PART: &str = ".part";

/// Returns the name of a file until it is complete.
fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(PART);
    part.into()
}

/// Opens and truncates a file that no other capture writes.
fn create_alone(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    // On a file system without locks, the file is used anyway.
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(rustix::io::Errno::WOULDBLOCK) {
        let text = "another capture is writing it";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
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
        let mut sink = FileSink::open(&path, false).unwrap();
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
        assert_eq!(FileSink::open(&path, false).unwrap().close().unwrap(), None);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn in_place_there_is_no_other_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old and longer").unwrap();
        let mut sink = FileSink::open(&path, true).unwrap();
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
        let mut sink = FileSink::open(&link, false).unwrap();
        sink.write(b"new", &mut 0, tens).unwrap();
        sink.close().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn two_captures_do_not_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut first = FileSink::open(&path, false).unwrap();
        first.write(b"first", &mut 0, tens).unwrap();
        let second = FileSink::open(&path, false).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        first.close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }

    #[test]
    fn a_partial_block_is_cut_off_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut sink = FileSink::open(&path, false).unwrap();
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
        let error = FileSink::open(dir.path(), false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
