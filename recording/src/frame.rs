//! One piece of a recording, which can be read without the others.

use std::io::{self, Write};

use zstd::stream::write::Encoder;

use super::RecordEntry;
use super::index::FrameSpan;

/// Much smaller than the next lower level, and a tenth of what asking the app costs.
const LEVEL: i32 = 3;

/// Compresses lines.
pub(super) struct FrameEncoder {
    encoder: Encoder<'static, Vec<u8>>,
    /// Keeps its memory: the encoder is called once a line, not once a number.
    line: Vec<u8>,
    span: FrameSpan,
}

impl std::fmt::Debug for FrameEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameEncoder").field("span", &self.span).finish_non_exhaustive()
    }
}

impl FrameEncoder {
    /// An empty frame, to be written at `offset`.
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

    /// Wall clock of the first entry.
    pub(super) fn first_ns(&self) -> u64 {
        self.span.first_ns
    }

    /// Lines so far.
    pub(super) fn entries(&self) -> u64 {
        self.span.entries
    }

    /// Brings out what was pushed so far.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.encoder.flush()?;
        out.append(self.encoder.get_mut());
        Ok(())
    }

    /// Brings out the rest.
    pub(super) fn end(self, out: &mut Vec<u8>) -> io::Result<FrameSpan> {
        out.append(&mut self.encoder.finish()?);
        Ok(self.span)
    }
}
