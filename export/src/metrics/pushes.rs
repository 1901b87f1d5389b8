//! Results of pushes to an OTLP receiver: counted by the thread that pushes, read by each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Counts of pushes to an OTLP receiver by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PushCounts {
    /// The receiver accepted all values.
    pub accepted: u64,
    /// The receiver rejected some values.
    pub partial: u64,
    /// The receiver rejected the push permanently.
    pub rejected: u64,
    /// The receiver was not reached, or was overloaded; the push is retried.
    pub failed: u64,
    /// A newer push was due before this one succeeded.
    pub dropped: u64,
}

/// Counters that one thread updates while others read them.
#[derive(Debug, Default)]
pub(crate) struct PushCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) partial: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl PushCounters {
    /// Increments a counter.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current values.
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
