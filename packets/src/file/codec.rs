//! Compression in pieces that can be read without the following ones, so that a crash loses at most the
//! last piece.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use zstd::stream::write::Encoder;

use super::FileCompression;

/// Uncompressed bytes of a piece, for each compression thread.
const PIECE: usize = 4 * 1024 * 1024;
/// Longest time until a piece is ended.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Low levels, because one thread has to keep up with a NIC.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

enum CompressionMethod {
    /// Each piece is a separate member.
    Gzip(Option<GzEncoder<Vec<u8>>>),
    /// Each piece ends with a flush: Wireshark reads only the first frame of a file.
    Zstd { frame: Option<Encoder<'static, Vec<u8>>>, threads: u32 },
}

/// Compresses a stream of bytes.
pub(super) struct Compressor {
    method: CompressionMethod,
    /// Uncompressed bytes of the current piece, and the size of a full one.
    size: usize,
    full: usize,
    /// Packets in the current piece.
    packets: u64,
    begun: Instant,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Compressor {
    /// Returns `None` without compression. With Zstandard, `threads` more threads compress.
    pub(super) fn new(compression: FileCompression, threads: u32) -> Option<Self> {
        let method = match compression {
            FileCompression::None => return None,
            FileCompression::Gzip => CompressionMethod::Gzip(None),
            FileCompression::Zstd => CompressionMethod::Zstd { frame: None, threads },
        };
        // Each thread takes 2 MiB at a time, and all of them wait at the end of a piece.
        let full = PIECE.saturating_mul(threads.max(1) as usize);
        Some(Self { method, size: 0, full, packets: 0, begun: Instant::now() })
    }

    pub(super) fn feed(&mut self, bytes: &[u8], packets: u64) -> io::Result<()> {
        if self.size == 0 {
            self.begun = Instant::now();
        }
        self.size += bytes.len();
        self.packets += packets;
        match &mut self.method {
            CompressionMethod::Gzip(member) => member
                .get_or_insert_with(|| {
                    GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))
                })
                .write_all(bytes),
            CompressionMethod::Zstd { frame: Some(frame), .. } => frame.write_all(bytes),
            CompressionMethod::Zstd { frame, threads } => {
                let mut encoder = Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.multithread(*threads)?;
                frame.insert(encoder).write_all(bytes)
            }
        }
    }

    /// Returns whether the piece must be ended.
    pub(super) fn is_due(&self) -> bool {
        self.size >= self.full || self.size != 0 && self.begun.elapsed() >= MAX_DELAY
    }

    /// Returns the compressed piece and its packets; `None` if it is empty.
    pub(super) fn end(&mut self) -> io::Result<Option<(Vec<u8>, u64)>> {
        if self.size == 0 {
            return Ok(None);
        }
        let piece = match &mut self.method {
            CompressionMethod::Gzip(member) => member.take().map(GzEncoder::finish).transpose()?,
            CompressionMethod::Zstd { frame, .. } => match frame {
                Some(encoder) => {
                    encoder.flush()?;
                    Some(std::mem::take(encoder.get_mut()))
                }
                None => None,
            },
        };
        self.size = 0;
        let packets = std::mem::take(&mut self.packets);
        Ok(piece.map(|piece| (piece, packets)))
    }

    /// Returns the bytes that end a file, after its last piece.
    pub(super) fn close(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.method {
            CompressionMethod::Gzip(_) => Ok(Vec::new()),
            CompressionMethod::Zstd { frame, .. } => {
                frame.take().map_or(Ok(Vec::new()), Encoder::finish)
            }
        }
    }
}
