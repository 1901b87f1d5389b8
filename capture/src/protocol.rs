//! The consumer's side of the ring protocol: which shared word it accesses when, and with which
//! memory order. The type of the words is generic, so that a model checker can try all orders.

// Offsets and lengths are bounded by a ring of 64 MiB.
#![allow(clippy::cast_possible_truncation)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A word that the producer accesses concurrently.
pub(crate) trait SharedWord<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn fence(order: Ordering);
}

macro_rules! word {
    ($atomic:ty, $value:ty, $fence:path) => {
        impl SharedWord<$value> for $atomic {
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            fn fence(order: Ordering) {
                $fence(order);
            }
        }
    };
}

word!(AtomicU32, u32, fence);
word!(AtomicU64, u64, fence);

/// The read position of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingCursor {
    consumed: u64,
    /// The tail: the producer may overwrite everything before it.
    released: u64,
    size: u64,
    align: u64,
}

/// A head at an invalid position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadHead(pub(crate) u64);

impl RingCursor {
    /// Returns a cursor at the position where the last consumer of the ring stopped.
    pub(crate) fn new(tail: &impl SharedWord<u64>, size: u32, align: u32) -> Self {
        let consumed = tail.load(Ordering::Relaxed);
        Self { consumed, released: consumed, size: size.into(), align: align.into() }
    }

    /// Returns the bytes read so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the number of bytes that are published and not yet read.
    pub(crate) fn available(&self, head: &impl SharedWord<u64>) -> Result<usize, BadHead> {
        let head = head.load(Ordering::Acquire);
        match head.checked_sub(self.consumed) {
            Some(bytes) if bytes <= self.size && bytes.is_multiple_of(self.align) => {
                Ok(bytes as usize)
            }
            _ => Err(BadHead(head)),
        }
    }

    /// Returns the number of bytes that were read and not yet released.
    pub(crate) fn kept(&self) -> u64 {
        self.consumed - self.released
    }

    /// Returns the end of the bytes that are available and contiguous, and the number of bytes
    /// available after it.
    pub(crate) fn contiguous(&self, head: &impl SharedWord<u64>) -> Result<(u64, usize), BadHead> {
        let available = self.available(head)?;
        let count = available.min((self.size - self.consumed % self.size) as usize);
        Ok((self.consumed + count as u64, available - count))
    }

    /// Marks everything before a position as read.
    pub(crate) fn advance(&mut self, position: u64) {
        self.consumed = self.consumed.max(position);
    }

    /// Releases the room before a position to the producer, unless that was done already.
    pub(crate) fn release(&mut self, tail: &impl SharedWord<u64>, position: u64) {
        let position = position.min(self.consumed);
        if position > self.released {
            self.released = position;
            tail.store(position, Ordering::Release);
        }
    }

    /// Calls `copy` with (offset, length) in the ring for at most `most` bytes that are available.
    /// Returns the number of bytes copied, and of those available that were not.
    pub(crate) fn read(
        &mut self,
        head: &impl SharedWord<u64>,
        most: usize,
        mut copy: impl FnMut(usize, usize),
    ) -> Result<(usize, usize), BadHead> {
        let available = self.available(head)?;
        let count = available.min(most - most % self.align as usize);
        if count == 0 {
            return Ok((0, available));
        }
        let start = self.consumed % self.size;
        let first = count.min((self.size - start) as usize);
        copy(start as usize, first);
        copy(0, count - first);
        self.consumed += count as u64;
        Ok((count, available - count))
    }
}

/// Returns whether the records of the last burst are published. A head that is read afterwards has
/// them.
pub(crate) fn is_between_bursts(in_burst: &impl SharedWord<u32>) -> bool {
    in_burst.load(Ordering::Acquire) == 0
}

/// Reads a value under a sequence lock, by relaxed loads; `None` if it was being written.
pub(crate) fn read_locked<S: SharedWord<u32>, T>(seq: &S, read: impl FnOnce() -> T) -> Option<T> {
    let before = seq.load(Ordering::Acquire);
    let value = read();
    S::fence(Ordering::Acquire);
    (before.is_multiple_of(2) && before == seq.load(Ordering::Relaxed)).then_some(value)
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
