//! The bytes of a file, decompressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags, fcntl_setfl};

use crate::control::RunControl;

const BUFFER: usize = 256 * 1024;
/// First bytes of gzip members, of Zstandard and of LZ4 frames.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const LZ4: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// Longest time until a read from a silent pipe notices that it should stop.
const STOP_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A file that appears to end when told to stop, even if it is a pipe without data.
struct StoppableReader {
    file: File,
    control: RunControl,
}

impl Read for StoppableReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.control.stop.load(Ordering::Relaxed) {
            let mut files = [PollFd::new(&self.file, PollFlags::IN)];
            match rustix::event::poll(&mut files, Some(&STOP_POLL_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let read = self.file.read(out)?;
                    self.control.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
                    return Ok(read);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}

/// Opens a file without waiting for the writer of a named pipe: a read does, until `stop` is set.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file.into())
}

/// Decodes all LZ4 frames of a file; the decoder itself ends after each.
struct Lz4Frames<R: Read>(FrameDecoder<BufReader<R>>);

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(out)?;
            if read > 0 || out.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
        }
    }
}

/// A decompressed file, from its first byte.
pub(super) struct FileInput {
    bytes: BufReader<Box<dyn Read>>,
}

impl FileInput {
    /// Opens a file; `-` is standard input. It appears to end when told to stop.
    pub(super) fn open(path: &Path, control: &RunControl) -> io::Result<Self> {
        let file = if path == Path::new("-") {
            io::stdin().as_fd().try_clone_to_owned()?.into()
        } else {
            open(path)?
        };
        Self::new(StoppableReader { file, control: control.clone() })
    }

    pub(super) fn new(mut raw: impl Read + 'static) -> io::Result<Self> {
        let mut magic = Vec::new();
        raw.by_ref().take(4).read_to_end(&mut magic)?;
        let bytes = Cursor::new(magic.clone()).chain(raw);
        let bytes: Box<dyn Read> = if magic.starts_with(&GZIP) {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, bytes)))
        } else if magic == ZSTANDARD {
            Box::new(zstd::Decoder::new(bytes)?)
        } else if magic == LZ4 {
            let bytes = BufReader::with_capacity(BUFFER, bytes);
            Box::new(Lz4Frames(FrameDecoder::new(bytes)))
        } else {
            Box::new(bytes)
        };
        Ok(Self { bytes: BufReader::with_capacity(BUFFER, bytes) })
    }

    /// Returns the bytes that were read ahead.
    pub(super) fn buffered(&self) -> &[u8] {
        self.bytes.buffer()
    }

    /// Skips bytes that were read ahead.
    pub(super) fn consume(&mut self, len: usize) {
        self.bytes.consume(len);
    }

    /// Appends the next `len` bytes, or the rest of the file. Memory grows only as bytes arrive, so a
    /// wrong length does no harm.
    pub(super) fn read(&mut self, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        // Most packets are there already, and this is several times faster than what follows.
        if let Some(bytes) = self.bytes.buffer().get(..len) {
            out.extend_from_slice(bytes);
            self.bytes.consume(len);
            return Ok(len);
        }
        match self.bytes.by_ref().take(len as u64).read_to_end(out) {
            // The compressed file is truncated.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }

    /// Skips the next `len` bytes, or the rest of the file.
    pub(super) fn skip(&mut self, len: u64) -> io::Result<u64> {
        match io::copy(&mut self.bytes.by_ref().take(len), &mut io::sink()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}
