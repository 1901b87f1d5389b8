//! Values that are not worth asking for each time.

use std::time::{Duration, Instant};

/// A value, and when it was read.
#[derive(Debug, Default)]
pub(super) struct Cached<T> {
    value: T,
    read: Option<Instant>,
}

impl<T> Cached<T> {
    /// The value, read again when it is older than `age`.
    pub(super) fn get(&mut self, now: Instant, age: Duration, read: impl FnOnce() -> T) -> &T {
        if self.is_older(now, age) {
            self.set(now, read());
        }
        &self.value
    }

    /// Whether it was read longer ago than `age`, or never.
    pub(super) fn is_older(&self, now: Instant, age: Duration) -> bool {
        self.read.is_none_or(|read| now.saturating_duration_since(read) >= age)
    }

    /// The value as it was read last; the default before that.
    pub(super) fn value(&self) -> &T {
        &self.value
    }

    /// It was read now.
    pub(super) fn set(&mut self, now: Instant, value: T) {
        (self.value, self.read) = (value, Some(now));
    }

    /// Reads it again the next time.
    pub(super) fn forget(&mut self) {
        self.read = None;
    }
}
