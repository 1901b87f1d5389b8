//! The index of a file: a skippable frame at its end, which `zstd -d` ignores.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// Version of the index. An index of another version is not used.
const INDEX_SCHEMA: u32 = 1;

/// First bytes of a skippable frame.
const MAGIC: [u8; 4] = 0x184D_2A5D_u32.to_le_bytes();

/// Last bytes of a recording that has an index.
const FOOTER: [u8; 8] = *b"pmdscope";

/// Bytes before the index: magic number and size.
const BEFORE: u64 = 8;

/// Bytes after the index in its frame: its size again, and the footer.
const TRAILER_BYTES: u64 = 12;

/// Longest index that is accepted, bytes.
const LONGEST: u64 = 64 << 20;

/// Position and times of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameSpan {
    /// Bytes of the file before it.
    pub(super) offset: u64,
    /// Earliest wall clock in it, nanoseconds since the epoch.
    pub(super) first_ns: u64,
    /// Latest wall clock in it.
    pub(super) last_ns: u64,
    /// Number of lines.
    pub(super) entries: u64,
}

/// All frames of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameIndex {
    schema: u32,
    /// Bytes of the file before the index, to detect that something was inserted before it.
    end: u64,
    /// Frames in the order of the file.
    pub(super) frames: Vec<FrameSpan>,
    /// All apps in the file.
    pub(super) apps: BTreeSet<String>,
}

impl FrameSpan {
    /// Adds the time of a line.
    pub(super) fn take(&mut self, realtime_ns: u64) {
        self.first_ns = self.first_ns.min(realtime_ns);
        self.last_ns = self.last_ns.max(realtime_ns);
        self.entries += 1;
    }
}

impl FrameIndex {
    pub(super) fn new() -> Self {
        Self { schema: INDEX_SCHEMA, ..Self::default() }
    }

    /// Adds an app.
    pub(super) fn note(&mut self, app: &str) {
        if !self.apps.contains(app) {
            self.apps.insert(app.to_owned());
        }
    }

    /// Returns the skippable frame with the index, to be written at offset `end`.
    pub(super) fn frame(&mut self, end: u64) -> serde_json::Result<Vec<u8>> {
        self.end = end;
        let json = serde_json::to_vec(self)?;
        let size = u32::try_from(json.len()).unwrap_or(u32::MAX);
        let mut frame = Vec::with_capacity(json.len() + 20);
        frame.extend(MAGIC);
        frame.extend(size.saturating_add(12).to_le_bytes());
        frame.extend(&json);
        frame.extend(size.to_le_bytes());
        frame.extend(FOOTER);
        Ok(frame)
    }

    /// Returns the index at the end of a file of `size` bytes; `None` if there is no valid one.
    pub(super) fn read(file: &File, size: u64) -> Option<Self> {
        let mut footer = [0; 12];
        file.read_exact_at(&mut footer, size.checked_sub(TRAILER_BYTES)?).ok()?;
        let (length, mark) = footer.split_at(4);
        let length = u64::from(u32::from_le_bytes(length.try_into().ok()?));
        let begin = size.checked_sub(TRAILER_BYTES + length + BEFORE)?;
        let mut before = [0; 8];
        file.read_exact_at(&mut before, begin).ok()?;
        if mark != FOOTER || before[..4] != MAGIC || length > LONGEST {
            return None;
        }
        let mut json = vec![0; usize::try_from(length).ok()?];
        file.read_exact_at(&mut json, begin + BEFORE).ok()?;
        let index: Self = serde_json::from_slice(&json).ok()?;
        (index.schema == INDEX_SCHEMA && index.is_sound(begin)).then_some(index)
    }

    fn is_sound(&self, end: u64) -> bool {
        let ordered = self.frames.windows(2).all(|pair| pair[0].offset < pair[1].offset);
        let first = self.frames.first().is_some_and(|frame| frame.offset == 0);
        self.end == end
            && first
            && ordered
            && self.frames.last().is_some_and(|frame| frame.offset < end)
    }
}
