//! Memory that another process may change at any time.
//!
//! Bytes in it are copied or passed to the kernel, and never read twice. A caller that passes them on
//! without a copy holds them until they are written.
#![allow(unsafe_code)] // Reads memory that another process maps.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;

/// A mapping, and the position up to which its bytes are still needed. Positions are those of a ring:
/// they only increase.
#[derive(Debug)]
pub struct SharedRegion {
    map: MmapRaw,
    /// End of the last bytes that were held.
    held: AtomicU64,
    /// Held bytes up to this position are no longer needed.
    done: AtomicU64,
}

impl SharedRegion {
    /// Creates a region of all bytes of a mapping, which may be read-only.
    pub fn new(map: MmapRaw) -> Self {
        Self { map, held: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// Returns the mapping.
    pub fn map(&self) -> &MmapRaw {
        &self.map
    }

    /// Copies `8 * N` bytes, without reading any twice. `None` beyond the end, or if `offset` is not a
    /// multiple of 8.
    #[inline]
    pub fn words<const N: usize>(&self, offset: usize) -> Option<[u64; N]> {
        if !offset.is_multiple_of(8) || !self.contains(offset, 8 * N) {
            return None;
        }
        Some(std::array::from_fn(|index| {
            // SAFETY: the bytes are mapped, as was checked; a mapping begins at a page, so the word is
            // aligned. It is only loaded, which a read-only mapping allows.
            let word = unsafe {
                AtomicU64::from_ptr(self.map.as_ptr().add(offset + 8 * index).cast_mut().cast())
            };
            word.load(Ordering::Relaxed)
        }))
    }

    /// Returns bytes that end at a position of the ring; `None` beyond the end of the region.
    #[inline]
    pub fn bytes(self: &Arc<Self>, offset: usize, len: usize, end: u64) -> Option<SharedBytes<'_>> {
        self.contains(offset, len).then_some(SharedBytes { region: self, offset, len, end })
    }

    /// Returns the position up to which the other process may reuse memory, if everything up to
    /// `position` was read.
    pub fn releasable(&self, position: u64) -> u64 {
        let done = self.done.load(Ordering::Acquire);
        if done >= self.held.load(Ordering::Relaxed) { position } else { done.min(position) }
    }

    fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.map.len())
    }

    fn copy(&self, offset: usize, out: &mut [u8]) {
        debug_assert!(self.contains(offset, out.len()), "bytes beyond a shared region");
        if !self.contains(offset, out.len()) {
            return;
        }
        // SAFETY: the bytes are mapped, as was checked, as long as the region lives, and `out` belongs to the caller. If
        // the other process changes them meanwhile, what arrives is arbitrary bytes.
        unsafe {
            self.map.as_ptr().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len());
        }
    }

    fn slice(&self, offset: usize, len: usize) -> IoSlice<'_> {
        debug_assert!(self.contains(offset, len), "bytes beyond a shared region");
        if !self.contains(offset, len) {
            return IoSlice::new(&[]);
        }
        // SAFETY: the bytes are mapped, as was checked, as long as the region lives. Callers pass the slice to the kernel
        // only, so no code of this process relies on bytes that the other one may change.
        IoSlice::new(unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(offset), len) })
    }
}

/// Bytes of a packet in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    region: &'a Arc<SharedRegion>,
    offset: usize,
    len: usize,
    end: u64,
}

impl SharedBytes<'_> {
    /// Holds the bytes until the result is dropped. Holds must be dropped in the order in which they
    /// were taken.
    fn hold(&self) -> SharedHold {
        self.region.held.store(self.end, Ordering::Relaxed);
        SharedHold { region: Arc::clone(self.region), end: self.end }
    }

    /// Returns the size of the whole region.
    pub(crate) fn region_size(&self) -> usize {
        self.region.map.len()
    }
}

/// A hold on bytes that are still needed.
#[derive(Debug)]
struct SharedHold {
    region: Arc<SharedRegion>,
    end: u64,
}

impl Drop for SharedHold {
    fn drop(&mut self) {
        self.region.done.fetch_max(self.end, Ordering::Release);
    }
}

#[derive(Debug)]
struct SharedPart {
    /// Offset in the caller's bytes at which they belong.
    at: usize,
    offset: usize,
    len: usize,
    /// Index of the hold on their region.
    hold: usize,
}

/// Shared bytes that belong between other bytes, and are held until this is cleared or dropped.
#[derive(Debug, Default)]
pub(crate) struct SharedParts {
    parts: Vec<SharedPart>,
    holds: Vec<SharedHold>,
    len: usize,
}

impl SharedParts {
    /// Returns the number of parts.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the number of bytes in all parts.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes that belong after the first `at` other bytes.
    pub(crate) fn push(&mut self, at: usize, bytes: &SharedBytes<'_>) {
        let same = |hold: &SharedHold| Arc::ptr_eq(&hold.region, bytes.region);
        let hold = self.holds.iter().position(same).unwrap_or(self.holds.len());
        match self.holds.get_mut(hold) {
            Some(known) => {
                known.end = bytes.end;
                known.region.held.store(bytes.end, Ordering::Relaxed);
            }
            None => self.holds.push(bytes.hold()),
        }
        self.parts.push(SharedPart { at, offset: bytes.offset, len: bytes.len, hold });
        self.len += bytes.len;
    }

    /// Returns all bytes in order, for a vectored write.
    pub(crate) fn slices<'a>(&'a self, own: &'a [u8]) -> Vec<IoSlice<'a>> {
        let mut slices = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut begin = 0;
        for part in &self.parts {
            slices.push(IoSlice::new(&own[begin..part.at]));
            slices.push(self.holds[part.hold].region.slice(part.offset, part.len));
            begin = part.at;
        }
        slices.push(IoSlice::new(&own[begin..]));
        slices
    }

    /// Copies all bytes in order into exactly `own.len() + self.len()` bytes.
    pub(crate) fn copy_to(&self, own: &[u8], mut out: &mut [u8]) {
        let mut begin = 0;
        for part in &self.parts {
            let (mine, rest) = out.split_at_mut(part.at - begin);
            mine.copy_from_slice(&own[begin..part.at]);
            let (shared, rest) = rest.split_at_mut(part.len);
            self.holds[part.hold].region.copy(part.offset, shared);
            (begin, out) = (part.at, rest);
        }
        out.copy_from_slice(&own[begin..]);
    }

    /// Releases all held bytes.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.holds.clear();
        self.len = 0;
    }
}

/// The bytes of a packet, in memory of any kind.
pub trait PacketData: Copy {
    /// Returns the number of bytes.
    fn size(&self) -> usize;
    /// Copies all bytes into a buffer of exactly this size.
    fn copy_to(&self, out: &mut [u8]);
    /// Returns the bytes if they are in shared memory.
    fn shared(&self) -> Option<SharedBytes<'_>>;
}

impl PacketData for &[u8] {
    #[inline]
    fn size(&self) -> usize {
        self.len()
    }

    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }

    #[inline]
    fn shared(&self) -> Option<SharedBytes<'_>> {
        None
    }
}

impl PacketData for SharedBytes<'_> {
    #[inline]
    fn size(&self) -> usize {
        self.len
    }

    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        self.region.copy(self.offset, out);
    }

    #[inline]
    fn shared(&self) -> Option<SharedBytes<'_>> {
        Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Arc<SharedRegion> {
        let map = memmap2::MmapOptions::new().len(4096).map_anon().unwrap();
        let mut map = map;
        map.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        Arc::new(SharedRegion::new(map.into()))
    }

    #[test]
    fn nothing_beyond_the_end_can_be_read() {
        let region = region();
        assert!(region.bytes(4000, 96, 0).is_some() && region.bytes(4000, 97, 0).is_none());
        assert!(region.bytes(usize::MAX, 2, 0).is_none());
        assert!(region.words::<4>(4064).is_some() && region.words::<4>(4072).is_none());
        assert!(region.words::<1>(4).is_none());
        assert_eq!(region.words(8).map(|[word]: [u64; 1]| word.to_le_bytes()[0]), Some(8));
    }

    #[test]
    fn memory_is_released_when_what_was_held_is_done() {
        let region = region();
        assert_eq!(region.releasable(64), 64, "nothing is held");
        let mut first = SharedParts::default();
        first.push(0, &region.bytes(64, 16, 80).unwrap());
        first.push(0, &region.bytes(80, 16, 96).unwrap());
        let mut second = SharedParts::default();
        second.push(0, &region.bytes(96, 16, 112).unwrap());
        assert!(region.releasable(128) < 64);
        drop(first);
        assert_eq!(region.releasable(128), 96);
        second.clear();
        assert_eq!(region.releasable(128), 128);
    }

    #[test]
    fn parts_stand_where_they_belong() {
        let (one, other) = (region(), region());
        let mut parts = SharedParts::default();
        parts.push(2, &one.bytes(16, 3, 32).unwrap());
        parts.push(2, &other.bytes(32, 1, 48).unwrap());
        parts.push(4, &one.bytes(48, 0, 64).unwrap());
        assert_eq!((parts.count(), parts.len()), (3, 4));
        let own = *b"abcdef";
        let expected = [&b"ab"[..], &[16, 17, 18, 32], b"cdef"].concat();
        let slices = parts.slices(&own);
        assert_eq!(slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(), expected);
        let mut copy = vec![0; own.len() + parts.len()];
        parts.copy_to(&own, &mut copy);
        assert_eq!(copy, expected);
    }
}
