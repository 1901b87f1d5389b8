//! A file whose content is not trusted: read in pieces within limits, never mapped. Who can cut a file that
//! is mapped ends this process by SIGBUS.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use object::{ReadCache, ReadCacheOps, ReadRef};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Most bytes that are read of an ELF file, repeated reads included: symbols and debug information of
/// the largest apps.
const MOST_BYTES_READ: u64 = 2 << 30;

/// Most bytes of a file that is copied.
const MOST_BYTES_COPIED: u64 = 512 << 20;

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The content of a file, read up to a limit; for the crate `object`.
#[derive(Debug)]
pub struct FileData<'a> {
    cache: ReadCache<Positioned<'a>>,
    /// Bytes that may still be read.
    left: Rc<Cell<u64>>,
    exceeded: Cell<bool>,
}

impl<'a> FileData<'a> {
    /// With a limit for ELF files.
    pub fn new(file: &'a File) -> Self {
        Self::with_limit(file, MOST_BYTES_READ)
    }

    /// With a limit of bytes, which counts repeated reads as well.
    pub fn with_limit(file: &'a File, most_bytes: u64) -> Self {
        let left = Rc::new(Cell::new(most_bytes));
        let cache = ReadCache::new(Positioned { file, at: 0, left: Rc::clone(&left) });
        Self { cache, left, exceeded: Cell::new(false) }
    }

    /// Whether more was asked for than the limit.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }
}

impl<'a> ReadRef<'a> for &'a FileData<'_> {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        // The cache allocates memory before it reads.
        if size > self.left.get() {
            self.exceeded.set(true);
            return Err(());
        }
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // Reads 4 KiB at most.
        if self.left.get() == 0 {
            self.exceeded.set(true);
            return Err(());
        }
        (&self.cache).read_bytes_at_until(range, delimiter)
    }
}

/// A file with an offset of its own: that of the file belongs to all who have opened it.
#[derive(Debug)]
struct Positioned<'a> {
    file: &'a File,
    at: u64,
    left: Rc<Cell<u64>>,
}

impl Positioned<'_> {
    fn advance(&mut self, read: usize) {
        self.at = self.at.saturating_add(read as u64);
        self.left.set(self.left.get().saturating_sub(read as u64));
    }
}

impl ReadCacheOps for Positioned<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|_| ())
    }

    fn seek(&mut self, pos: u64) -> Result<u64, ()> {
        self.at = pos;
        Ok(pos)
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ()> {
        let read = self.file.read_at(buf, self.at).map_err(|_| ())?;
        self.advance(read);
        Ok(read)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), ()> {
        self.file.read_exact_at(buf, self.at).map_err(|_| ())?;
        self.advance(buf.len());
        Ok(())
    }
}

/// A copy of a file in memory, of a size that nobody can change: for libraries that map files.
#[derive(Debug)]
pub(crate) struct CopiedFile(File);

impl CopiedFile {
    /// Whether a file is short enough.
    pub(crate) fn is_possible(file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| metadata.len() <= MOST_BYTES_COPIED)
    }

    /// # Errors
    /// If the file is too long, or cannot be read.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        if !Self::is_possible(file) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut copy = File::from(memfd_create("pmdscope-elf", flags)?);
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < MOST_BYTES_COPIED {
            let read = file.read_at(&mut piece, at)?;
            if read == 0 {
                break;
            }
            copy.write_all(&piece[..read])?;
            at += read as u64;
        }
        fcntl_add_seals(&copy, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(Self(copy))
    }

    /// At which this process can open it, as long as this object exists.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_allowed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        // Nothing but a hole: reading it would take all memory.
        file.set_len(1 << 43).unwrap();
        let data = FileData::with_limit(&file, 100);
        assert_eq!((&data).read_bytes_at(2, 3), Ok(&b"234"[..]));
        assert!(!data.is_exceeded());
        assert!((&data).read_bytes_at(4, 98).is_err() && data.is_exceeded());
        assert!((&data).read_bytes_at(0, 1 << 42).is_err());
    }

    #[test]
    fn a_copy_keeps_its_length() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let copy = CopiedFile::new(file.as_file()).unwrap();
        file.as_file().set_len(0).unwrap();
        assert_eq!(std::fs::read(copy.path()).unwrap(), [7; 10_000]);
        let again = std::fs::OpenOptions::new().write(true).open(copy.path());
        assert!(again.is_err() || again.is_ok_and(|file| file.set_len(1).is_err()));
        file.as_file().set_len(1 << 40).unwrap();
        assert!(CopiedFile::new(file.as_file()).is_err());
    }
}
