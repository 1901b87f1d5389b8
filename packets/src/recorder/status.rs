//! The status of a recorder, which is available while it records.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::RecorderSettings;
use super::history::PacketHistory;
use crate::clock::realtime_ns;

/// The counts of a recorder, at most 10 ms old; they cost nothing per packet.
#[derive(Debug)]
pub struct RecorderStatus {
    memory: u64,
    before: Duration,
    after: Duration,
    capacity: u64,
    held: AtomicU64,
    complete_since_ns: AtomicU64,
    evicted: AtomicU64,
    /// Nanoseconds; [`u64::MAX`] if memory was always large enough.
    least_held_ns: AtomicU64,
    lost: AtomicU64,
    triggers: AtomicU64,
    recording: AtomicBool,
    files: Mutex<Vec<PathBuf>>,
}

impl RecorderStatus {
    pub(super) fn new(settings: &RecorderSettings, history: &PacketHistory, now_ns: u64) -> Self {
        Self {
            memory: settings.memory as u64,
            before: settings.before,
            after: settings.after,
            capacity: history.capacity(),
            held: AtomicU64::new(0),
            complete_since_ns: AtomicU64::new(now_ns),
            evicted: AtomicU64::new(0),
            least_held_ns: AtomicU64::new(u64::MAX),
            lost: AtomicU64::new(0),
            triggers: AtomicU64::new(0),
            recording: AtomicBool::new(false),
            files: Mutex::default(),
        }
    }

    pub(super) fn update(&self, history: &PacketHistory, lost: u64) {
        self.held.store(history.bytes(), Ordering::Relaxed);
        self.complete_since_ns.store(history.complete_since_ns(), Ordering::Relaxed);
        self.evicted.store(history.evicted(), Ordering::Relaxed);
        self.least_held_ns.store(history.least_held_ns().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.lost.store(lost, Ordering::Relaxed);
    }

    pub(super) fn began(&self, file: &Path, triggers: u64) {
        self.fired(triggers);
        self.recording.store(true, Ordering::Relaxed);
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(file.to_owned());
    }

    pub(super) fn fired(&self, triggers: u64) {
        self.triggers.store(triggers, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        self.recording.store(false, Ordering::Relaxed);
    }

    /// Returns the limit of memory for packets, bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the memory in use, bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the time for which all packets are stored, up to `before`; less after the start, and if
    /// memory is short.
    pub fn covered(&self) -> Duration {
        let since = self.complete_since_ns.load(Ordering::Relaxed);
        Duration::from_nanos(realtime_ns().saturating_sub(since)).min(self.before)
    }

    /// Returns the requested history.
    pub fn before(&self) -> Duration {
        self.before
    }

    /// Returns the time for which packets are written after a trigger.
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Returns the rate of packets, in bytes per second with 4 to 8 bytes more for each packet, up to
    /// which memory is sufficient for [`before`](Self::before); `None` if no history is requested.
    pub fn sustained_rate(&self) -> Option<u64> {
        let rate = u128::from(self.capacity) * 1_000_000_000;
        let rate = rate.checked_div(self.before.as_nanos())?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the shortest history since the start, if memory was too small for
    /// [`before`](Self::before).
    pub fn least_held(&self) -> Option<Duration> {
        let ns = self.least_held_ns.load(Ordering::Relaxed);
        (ns != u64::MAX).then(|| Duration::from_nanos(ns))
    }

    /// Returns the number of packets that were evicted too early, because memory is short.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that were lost because all memory waited to be written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the number of triggers that began or extended a file.
    pub fn triggers(&self) -> u64 {
        self.triggers.load(Ordering::Relaxed)
    }

    /// Returns whether a file is being written.
    pub fn recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// Returns the files of all incidents so far, the newest last.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
