//! Cached values with an age.

use std::time::{Duration, Instant};

/// A value, and when it was read.
#[derive(Debug, Default)]
pub(super) struct Cached<T> {
    value: T,
    read: Option<Instant>,
}

impl<T> Cached<T> {
    /// Returns the value; calls `read` first if it is at least `age` old.
    pub(super) fn get(&mut self, now: Instant, age: Duration, read: impl FnOnce() -> T) -> &T {
        if self.is_older(now, age) {
            self.set(now, read());
        }
        &self.value
    }

    /// Whether it was read at least `age` ago, or never.
    pub(super) fn is_older(&self, now: Instant, age: Duration) -> bool {
        self.read.is_none_or(|read| now.saturating_duration_since(read) >= age)
    }

    /// Returns the value that was read last; the default before that.
    pub(super) fn value(&self) -> &T {
        &self.value
    }

    /// Sets the value, read at `now`.
    pub(super) fn set(&mut self, now: Instant, value: T) {
        (self.value, self.read) = (value, Some(now));
    }

    /// Expires the value, so that it is read again.
    pub(super) fn forget(&mut self) {
        self.read = None;
    }
}
