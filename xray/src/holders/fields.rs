//! Fields of structures that were read.

use crate::memory::Memory;

/// Longest structure that is read.
const MOST_BYTES: u64 = 1 << 16;

/// The first bytes of a structure.
#[derive(Clone, Debug)]
pub(super) struct Fields(Vec<u8>);

impl Fields {
    /// `None` if they cannot be read.
    pub(super) fn read(memory: &dyn Memory, address: u64, bytes: u64) -> Option<Self> {
        let mut buffer = vec![0; usize::try_from(bytes.min(MOST_BYTES)).ok()?];
        memory.read(address, &mut buffer).ok()?;
        Some(Self(buffer))
    }

    /// The same for memory of any length. `None` if a part of it cannot be read.
    pub(super) fn read_large(memory: &dyn Memory, address: u64, bytes: u64) -> Option<Self> {
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        memory.read(address, &mut buffer).ok()?;
        Some(Self(buffer))
    }

    fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        self.0.get(usize::try_from(offset).ok()?..)?.first_chunk().copied()
    }

    pub(super) fn u16(&self, offset: u64) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, offset: u64) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }

    /// Up to a zero byte; `None` if there is none, or the text is empty or not printable ASCII.
    pub(super) fn name(&self, offset: u64, most: usize) -> Option<String> {
        let bytes = self.0.get(usize::try_from(offset).ok()?..)?;
        let end = bytes.iter().take(most).position(|byte| *byte == 0)?;
        let name = &bytes[..end];
        let is_name = end > 0 && name.iter().all(u8::is_ascii_graphic);
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    }

    /// All whole words.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        words(&self.0)
    }
}

/// Words of eight bytes.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes))
}
