//! The bytes of a file, decompressed.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

const BUFFER: usize = 256 * 1024;
/// First bytes of gzip members and Zstandard frames.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A file from its first byte.
pub(super) struct Input {
    bytes: BufReader<Box<dyn Read>>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") { Self::new(io::stdin()) } else { Self::new(File::open(path)?) }
    }

    pub(super) fn new(mut raw: impl Read + 'static) -> io::Result<Self> {
        let mut magic = Vec::new();
        raw.by_ref().take(4).read_to_end(&mut magic)?;
        let bytes = Cursor::new(magic.clone()).chain(raw);
        let bytes: Box<dyn Read> = if magic.starts_with(&GZIP) {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, bytes)))
        } else if magic == ZSTANDARD {
            Box::new(zstd::Decoder::new(bytes)?)
        } else {
            Box::new(bytes)
        };
        Ok(Self { bytes: BufReader::with_capacity(BUFFER, bytes) })
    }

    /// Nothing more was read ahead.
    pub(super) fn drained(&self) -> bool {
        self.bytes.buffer().is_empty()
    }

    /// Appends the next `len` bytes, or what is left of the file. Memory grows as bytes arrive, so a
    /// broken length costs none.
    pub(super) fn read(&mut self, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        match self.bytes.by_ref().take(len as u64).read_to_end(out) {
            // A compressed file that was cut off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }

    /// Passes over the next `len` bytes, or what is left of the file.
    pub(super) fn skip(&mut self, len: u64) -> io::Result<u64> {
        match io::copy(&mut self.bytes.by_ref().take(len), &mut io::sink()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}
