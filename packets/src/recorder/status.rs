//! What a recorder tells of itself while it records.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::RecorderSettings;
use super::history::PacketHistory;
use crate::clock::realtime_ns;

/// Numbers of a recorder, at most 10 ms old; costs nothing per packet.
#[derive(Debug)]
pub struct RecorderStatus {
    memory: u64,
    before: Duration,
    after: Duration,
    capacity: u64,
    held: AtomicU64,
    complete_since_ns: AtomicU64,
    evicted: AtomicU64,
    /// Nanoseconds; [`u64::MAX`] while memory was large enough.
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

    /// Most memory for packets, bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Memory in use, bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// How far back all packets are held, up to `before`; less in the beginning and where memory is
    /// short.
    pub fn covered(&self) -> Duration {
        let since = self.complete_since_ns.load(Ordering::Relaxed);
        Duration::from_nanos(realtime_ns().saturating_sub(since)).min(self.before)
    }

    /// How far back packets were to be held.
    pub fn before(&self) -> Duration {
        self.before
    }

    /// How long packets are written after a trigger.
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Bytes per second of packets, with 4 to 8 bytes for each, up to which memory holds all of
    /// [`before`](Self::before); `None` where nothing is to be held.
    pub fn sustained_rate(&self) -> Option<u64> {
        let rate = u128::from(self.capacity) * 1_000_000_000;
        let rate = rate.checked_div(self.before.as_nanos())?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// The shortest history since the start, where memory was too small to hold
    /// [`before`](Self::before).
    pub fn least_held(&self) -> Option<Duration> {
        let ns = self.least_held_ns.load(Ordering::Relaxed);
        (ns != u64::MAX).then(|| Duration::from_nanos(ns))
    }

    /// Packets that had to go before their time, because memory is short.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Packets that found no memory, because all of it waited to be written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Triggers that began a file or prolonged one.
    pub fn triggers(&self) -> u64 {
        self.triggers.load(Ordering::Relaxed)
    }

    /// A file is being written.
    pub fn recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// Files of all incidents so far, the newest last.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
