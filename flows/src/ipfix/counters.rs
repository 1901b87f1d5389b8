//! Counters of the export.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most notices that wait to be shown.
const MAX_NOTICES: usize = 16;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Reports of conversations.
    pub flows: u64,
    /// Data records of these: one for each direction and sender.
    pub records: u64,
    /// Records dropped because the send queue was full, or because they were left at the end.
    pub dropped: u64,
    /// Records with counts that are not multiples of the announced sampling, and were rounded.
    pub rounded: u64,
    /// Messages sent, to all collectors together.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages that the system refused to send to a collector.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct ExportCounters {
    pub(super) flows: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) rounded: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) failed: AtomicU64,
    notices: Mutex<Vec<String>>,
}

impl ExportCounters {
    pub(super) fn add(number: &AtomicU64, count: u64) {
        number.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds a notice for users. If too many are waiting, it is discarded.
    pub(super) fn tell(&self, text: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES {
            notices.push(text);
        }
    }
}

/// Shares the counters and notices of an export.
#[derive(Clone, Debug)]
pub struct ExportStatus(pub(super) Arc<ExportCounters>);

impl ExportStatus {
    /// Returns the current counts.
    pub fn counts(&self) -> ExportCounts {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counters = &self.0;
        ExportCounts {
            flows: read(&counters.flows),
            records: read(&counters.records),
            dropped: read(&counters.dropped),
            rounded: read(&counters.rounded),
            messages: read(&counters.messages),
            bytes: read(&counters.bytes),
            failed: read(&counters.failed),
        }
    }

    /// Returns the notices since the last call, one line each: collectors that cannot be reached, at
    /// most once a minute each, and collectors with a new address.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
