//! Compression in pieces: what is before a piece can be read without it, so that a crash costs the
//! last one at most.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use zstd::stream::write::Encoder;

use super::FileCompression;

/// Bytes before compression of a piece.
const PIECE: usize = 4 * 1024 * 1024;
/// How long a piece may wait to be full.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Fast rather than small: one thread has to keep up with a NIC.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

enum CompressionMethod {
    /// Each piece is a member of its own.
    Gzip,
    /// Each piece ends with a flush: Wireshark reads the first frame of a file only.
    Zstd(Option<Encoder<'static, Vec<u8>>>),
}

/// Collects bytes and compresses them.
pub(super) struct Compressor {
    method: CompressionMethod,
    raw: Vec<u8>,
    /// Packets in `raw`.
    packets: u64,
    begun: Instant,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").field("raw", &self.raw.len()).finish_non_exhaustive()
    }
}

impl Compressor {
    /// Nothing where nothing is to be compressed.
    pub(super) fn new(compression: FileCompression) -> Option<Self> {
        let method = match compression {
            FileCompression::None => return None,
            FileCompression::Gzip => CompressionMethod::Gzip,
            FileCompression::Zstd => CompressionMethod::Zstd(None),
        };
        let raw = Vec::with_capacity(PIECE);
        Some(Self { method, raw, packets: 0, begun: Instant::now() })
    }

    pub(super) fn feed(&mut self, bytes: &[u8], packets: u64) {
        if self.raw.is_empty() {
            self.begun = Instant::now();
        }
        self.raw.extend_from_slice(bytes);
        self.packets += packets;
    }

    /// It is time to end the piece.
    pub(super) fn is_due(&self) -> bool {
        self.raw.len() >= PIECE || !self.raw.is_empty() && self.begun.elapsed() >= MAX_DELAY
    }

    /// The piece and its packets; nothing when there is nothing in it.
    pub(super) fn end(&mut self) -> io::Result<Option<(Vec<u8>, u64)>> {
        if self.raw.is_empty() {
            return Ok(None);
        }
        let piece = match &mut self.method {
            CompressionMethod::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                let mut encoder = GzEncoder::new(Vec::with_capacity(self.raw.len() / 2), level);
                encoder.write_all(&self.raw)?;
                encoder.finish()?
            }
            CompressionMethod::Zstd(frame) => {
                let encoder = match frame {
                    Some(encoder) => encoder,
                    None => frame.insert(Encoder::new(Vec::new(), ZSTD_LEVEL)?),
                };
                encoder.write_all(&self.raw)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
        };
        self.raw.clear();
        Ok(Some((piece, std::mem::take(&mut self.packets))))
    }

    /// What must stand at the end of a file, behind its last piece.
    pub(super) fn close(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.method {
            CompressionMethod::Gzip => Ok(Vec::new()),
            CompressionMethod::Zstd(frame) => frame.take().map_or(Ok(Vec::new()), Encoder::finish),
        }
    }
}
