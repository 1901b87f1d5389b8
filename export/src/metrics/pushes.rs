//! Results of pushes to an OTLP receiver: counted by the pusher, read by each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

/// How pushes to an OTLP receiver ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PushCounts {
    /// All was taken.
    pub accepted: u64,
    /// Some values were refused.
    pub partial: u64,
    /// All was refused for good.
    pub rejected: u64,
    /// The receiver was not reached, or had no time; it is tried again.
    pub failed: u64,
    /// Newer numbers were due before these got through.
    pub dropped: u64,
}

/// The same, counted by one thread while others read.
#[derive(Debug, Default)]
pub(crate) struct PushCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) partial: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl PushCounters {
    /// Adds one to one of the counters.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers so far.
    pub(crate) fn read(&self) -> PushCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PushCounts {
            accepted: read(&self.accepted),
            partial: read(&self.partial),
            rejected: read(&self.rejected),
            dropped: read(&self.dropped),
            failed: read(&self.failed),
        }
    }
}
