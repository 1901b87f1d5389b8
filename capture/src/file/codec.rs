//! Compression in frames: each can be read alone, so that a crash costs the last one at most.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use zstd::bulk::Compressor;

use super::Compression;

/// Bytes before compression of a frame.
const FRAME: usize = 4 * 1024 * 1024;
/// How long a frame may wait to be full.
const PATIENCE: Duration = Duration::from_secs(1);
/// Fast rather than small: one thread has to keep up with a NIC.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

enum Method {
    Gzip,
    Zstd(Compressor<'static>),
}

/// Collects bytes and compresses them.
pub(super) struct Codec {
    method: Method,
    raw: Vec<u8>,
    /// Packets in `raw`.
    packets: u64,
    begun: Instant,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").field("raw", &self.raw.len()).finish_non_exhaustive()
    }
}

impl Codec {
    /// Nothing where nothing is to be compressed.
    pub(super) fn new(compression: Compression) -> io::Result<Option<Self>> {
        let method = match compression {
            Compression::None => return Ok(None),
            Compression::Gzip => Method::Gzip,
            Compression::Zstd => Method::Zstd(Compressor::new(ZSTD_LEVEL)?),
        };
        let raw = Vec::with_capacity(FRAME);
        Ok(Some(Self { method, raw, packets: 0, begun: Instant::now() }))
    }

    pub(super) fn feed(&mut self, bytes: &[u8], packets: u64) {
        if self.raw.is_empty() {
            self.begun = Instant::now();
        }
        self.raw.extend_from_slice(bytes);
        self.packets += packets;
    }

    /// It is time to end the frame.
    pub(super) fn is_due(&self) -> bool {
        self.raw.len() >= FRAME || !self.raw.is_empty() && self.begun.elapsed() >= PATIENCE
    }

    /// The frame and its packets; nothing when there is nothing in it.
    pub(super) fn end(&mut self) -> io::Result<Option<(Vec<u8>, u64)>> {
        if self.raw.is_empty() {
            return Ok(None);
        }
        let frame = match &mut self.method {
            Method::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                let mut encoder = GzEncoder::new(Vec::with_capacity(self.raw.len() / 2), level);
                encoder.write_all(&self.raw)?;
                encoder.finish()?
            }
            Method::Zstd(compressor) => compressor.compress(&self.raw)?,
        };
        self.raw.clear();
        Ok(Some((frame, std::mem::take(&mut self.packets))))
    }
}
