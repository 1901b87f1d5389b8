//! The consumer's part in the protocol of a ring: which shared word it touches when, and in which
//! memory order. What the words are made of is left open, so that a model checker can try them all.

// Offsets and lengths are bounded by a ring of 64 MiB.
#![allow(clippy::cast_possible_truncation)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A word that the producer works with at the same time.
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

/// How far a ring has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingCursor {
    consumed: u64,
    /// The tail: the producer may write up to here.
    released: u64,
    size: u64,
    align: u64,
}

/// The head that is not where a head can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadHead(pub(crate) u64);

impl RingCursor {
    /// Starts where the last consumer of the ring stopped. `size` and `align` are powers of two.
    pub(crate) fn new(tail: &impl SharedWord<u64>, size: u32, align: u32) -> Self {
        let consumed = tail.load(Ordering::Relaxed);
        Self { consumed, released: consumed, size: size.into(), align: align.into() }
    }

    /// Bytes read so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Bytes that are published and not yet read.
    pub(crate) fn available(&self, head: &impl SharedWord<u64>) -> Result<usize, BadHead> {
        let head = head.load(Ordering::Acquire);
        match head.checked_sub(self.consumed) {
            Some(bytes) if bytes <= self.size && bytes.is_multiple_of(self.align) => {
                Ok(bytes as usize)
            }
            _ => Err(BadHead(head)),
        }
    }

    /// Bytes that the producer has not got back.
    pub(crate) fn kept(&self) -> u64 {
        self.consumed - self.released
    }

    /// What is available and contiguous: the end of it, and the bytes available behind it.
    pub(crate) fn contiguous(&self, head: &impl SharedWord<u64>) -> Result<(u64, usize), BadHead> {
        let available = self.available(head)?;
        let count = available.min((self.size - self.consumed % self.size) as usize);
        Ok((self.consumed + count as u64, available - count))
    }

    /// Everything before a position was read where it is.
    pub(crate) fn advance(&mut self, position: u64) {
        self.consumed = self.consumed.max(position);
    }

    /// Gives the room before a position back, unless that was done.
    pub(crate) fn release(&mut self, tail: &impl SharedWord<u64>, position: u64) {
        let position = position.min(self.consumed);
        if position > self.released {
            self.released = position;
            tail.store(position, Ordering::Release);
        }
    }

    /// Has what is available copied, at most so many bytes, as (offset, length) in the ring. Returns the
    /// bytes copied, and those available that were not.
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

/// Reads what a sequence lock guards, by relaxed loads; `None` when it was being written.
pub(crate) fn read_locked<S: SharedWord<u32>, T>(seq: &S, read: impl FnOnce() -> T) -> Option<T> {
    let before = seq.load(Ordering::Acquire);
    let value = read();
    S::fence(Ordering::Acquire);
    (before.is_multiple_of(2) && before == seq.load(Ordering::Relaxed)).then_some(value)
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
