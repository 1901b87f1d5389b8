//! The captured bytes of a packet from some header on, and their length on the wire.

use std::ops::Deref;

/// Captured bytes; a packet may have had more on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WireBytes<'a> {
    captured: &'a [u8],
    /// Length on the wire: at least that of `captured`.
    length: usize,
}

impl<'a> WireBytes<'a> {
    #[inline]
    pub(super) fn new(captured: &'a [u8], length: usize) -> Self {
        Self { captured, length: length.max(captured.len()) }
    }

    #[inline]
    pub(super) fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// Length on the wire.
    #[inline]
    pub(super) fn wire_length(self) -> usize {
        self.length
    }

    /// Returns what follows the first bytes; `None` if these were not captured.
    #[inline]
    pub(super) fn after(self, size: usize) -> Option<Self> {
        let captured = self.captured.get(size..)?;
        Some(Self { captured, length: self.length - size })
    }

    /// Returns at most this many bytes, without what follows them.
    #[inline]
    pub(super) fn up_to(self, length: usize) -> Self {
        let captured = &self.captured[..self.captured.len().min(length)];
        Self { captured, length: self.length.min(length) }
    }
}

impl Deref for WireBytes<'_> {
    type Target = [u8];

    /// The captured bytes.
    #[inline]
    fn deref(&self) -> &[u8] {
        self.captured
    }
}
