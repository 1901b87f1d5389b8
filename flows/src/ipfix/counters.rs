//! What became of what was exported.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most notices that wait to be shown.
const MAX_NOTICES: usize = 16;

/// Numbers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Times that a conversation was told of.
    pub flows: u64,
    /// Data records made of them: one for each way that packets went.
    pub records: u64,
    /// Records that no collector got: they came faster than they may be sent.
    pub dropped: u64,
    /// Records whose counts are no multiples of the announced sampling, and were rounded.
    pub rounded: u64,
    /// Messages given to the network, to all collectors together.
    pub messages: u64,
    /// Bytes of these.
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

    /// Something to tell people. Beyond what can wait, it is left to the counts.
    pub(super) fn tell(&self, text: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES {
            notices.push(text);
        }
    }
}

/// Shows others how the export does.
#[derive(Clone, Debug)]
pub struct ExportStatus(pub(super) Arc<ExportCounters>);

impl ExportStatus {
    /// The numbers so far.
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

    /// What happened since the last call that people should know, a line each: collectors that cannot be
    /// reached, at most once a minute for each.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
