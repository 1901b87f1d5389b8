//! One frame of a recording, which can be decompressed without the others.

use std::io::{self, Write};

use zstd::stream::write::Encoder;

use super::RecordEntry;
use super::index::FrameSpan;

/// Compression level: output is much smaller than at the next lower level, and the time is a tenth
/// of what the requests to the app take.
const LEVEL: i32 = 3;

/// Compresses the lines of a frame.
pub(super) struct FrameEncoder {
    encoder: Encoder<'static, Vec<u8>>,
    /// Buffer of a line: the encoder is called once a line, not once a number.
    line: Vec<u8>,
    span: FrameSpan,
}

impl std::fmt::Debug for FrameEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameEncoder").field("span", &self.span).finish_non_exhaustive()
    }
}

impl FrameEncoder {
    /// Begins an empty frame, which is written at `offset`.
    pub(super) fn begin(offset: u64) -> io::Result<Self> {
        let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        let line = Vec::new();
        Ok(Self {
            encoder,
            line,
            span: FrameSpan { offset, first_ns: u64::MAX, last_ns: 0, entries: 0 },
        })
    }

    /// Appends a line.
    pub(super) fn push(&mut self, entry: &RecordEntry<'_>) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, entry)?;
        self.line.push(b'\n');
        self.encoder.write_all(&self.line)?;
        self.span.take(entry.realtime_ns());
        Ok(())
    }

    /// Returns the earliest wall clock of the entries.
    pub(super) fn first_ns(&self) -> u64 {
        self.span.first_ns
    }

    /// Returns the number of lines so far.
    pub(super) fn entries(&self) -> u64 {
        self.span.entries
    }

    /// Moves the compressed data of all lines so far to `out`.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.encoder.flush()?;
        out.append(self.encoder.get_mut());
        Ok(())
    }

    /// Moves the rest of the compressed data to `out`.
    pub(super) fn end(self, out: &mut Vec<u8>) -> io::Result<FrameSpan> {
        out.append(&mut self.encoder.finish()?);
        Ok(self.span)
    }
}
