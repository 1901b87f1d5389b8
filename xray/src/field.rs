//! Fields of structures whose bytes were read.

/// A field of a structure that was read; 0 beyond its end.
pub(crate) struct Field<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: u64,
}

impl Field<'_> {
    fn array<const N: usize>(&self) -> [u8; N] {
        let begin = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(begin..).and_then(|bytes| bytes.first_chunk());
        bytes.copied().unwrap_or([0; N])
    }

    pub(crate) fn u16(&self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Up to a zero byte.
    pub(crate) fn text(&self, most: usize) -> String {
        let begin = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(begin..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(most)];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}
