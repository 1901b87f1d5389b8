//! What a running capture tells.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pmdscope_packets::{SinkError, SinkProgress};

use super::{CaptureLoop, CaptureRingName, RingReader};
use crate::records::RingRecordError;
use crate::ring::{RingCounters, RingError};
use crate::session::SessionError;

/// Why a capture ended early.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A session broke.
    #[error("the capture from {app} broke")]
    Session {
        /// App.
        app: String,
        /// What happened.
        source: SessionError,
    },
    /// The app, or the helper beside it, ended the session with an error.
    #[error("the capture from {app} has ended: {reason}")]
    Ended {
        /// App.
        app: String,
        /// Why.
        reason: String,
    },
    /// A ring broke.
    #[error("the capture from {app} broke")]
    Ring {
        /// App.
        app: String,
        /// What happened.
        source: RingError,
    },
    /// A ring held a broken record.
    #[error("a capture ring is broken")]
    Record(#[from] RingRecordError),
    /// An app's clock gives no rate.
    #[error(
        "{0}: the clock anchors of its capture ring do not advance; its control thread is stuck"
    )]
    Clock(String),
    /// The packets could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// Of a capture with several threads.
    #[error("a thread that reads capture rings has panicked")]
    Panicked,
}

/// What a running capture tells others. No call may wait.
pub trait CaptureObserver {
    /// An app has ended, and will be waited for or not.
    fn ended(&mut self, _app: &str, _awaited: bool) {}
    /// An app has come back.
    fn returned(&mut self, _app: &str) {}
    /// A second has gone by.
    fn second(&mut self, _report: &CaptureReport) {}
    /// Someone wants to know.
    fn asked(&mut self, _report: &CaptureReport) {}
    /// The capture ends: nothing more is told, and the last packets are written, which a slow disk or
    /// reader may hold up.
    fn ending(&mut self) {}
}

/// Nobody watches.
impl CaptureObserver for () {}

/// What became of a capture, or has so far.
#[derive(Debug, Default)]
pub struct CaptureReport {
    /// Packets put out, without those that could then not be written or that came after the last file.
    pub captured: u64,
    /// What the rings counted.
    pub rings: RingCounters,
    /// Packets dropped because the rings were full, by interface; only where there were any.
    pub dropped: Vec<(String, u64)>,
    /// Packets that could not be written or that a reader did not take before it closed, or whose time
    /// is not known because their app had no clock yet when it died.
    pub unwritten: u64,
    /// The capture ended because the reader of a pipe closed it.
    pub reader_gone: bool,
    /// Packets published so late that they are out of order.
    pub late: u64,
    /// One packet in so many is kept now; 1 is all. Where apps or lcores differ, the most that one
    /// packet stood for in the last second.
    pub sample: u32,
    /// The highest that it was at the end of a second.
    pub highest_sample: u32,
    /// Apps that keep their sampling though [`Control::sample`] asks for another, because their library
    /// is too old to change it.
    pub fixed: Vec<String>,
    /// How full the fullest ring was in the last second, 0 to 1.
    pub fill: f64,
    /// Rings, which is lcores that polled.
    pub nb_rings: usize,
    /// Apps that ended meanwhile, once for each time.
    pub ended: Vec<String>,
    /// What the sink did.
    pub progress: SinkProgress,
    /// Each ring by itself, where each has a sink of its own.
    pub by_ring: Vec<RingReport>,
    /// Why the capture ended early.
    pub failure: Option<CaptureError>,
}

/// What became of a ring that has a sink of its own, or has so far. As [`CaptureReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingReport {
    /// Which.
    pub name: CaptureRingName,
    /// Packets put out.
    pub captured: u64,
    /// Packets that the filter let through, kept or not.
    pub received: u64,
    /// Packets dropped because the ring was full.
    pub dropped: u64,
    /// Packets that could not be written.
    pub unwritten: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Where to.
    pub file: Option<PathBuf>,
}

impl CaptureReport {
    /// Adds a ring that has a sink of its own.
    pub(super) fn add(&mut self, ring: &Self) {
        self.captured += ring.captured;
        self.rings = [self.rings, ring.rings].into_iter().sum();
        for (name, count) in &ring.dropped {
            match self.dropped.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(*count),
                None => self.dropped.push((name.clone(), *count)),
            }
        }
        self.unwritten = self.unwritten.saturating_add(ring.unwritten);
        self.late += ring.late;
        self.sample = self.sample.max(ring.sample);
        self.highest_sample = self.highest_sample.max(ring.highest_sample);
        self.fill = self.fill.max(ring.fill);
        let (all, one) = (&mut self.progress, &ring.progress);
        all.written += one.written;
        all.lost += one.lost;
        all.bytes += one.bytes;
        all.files += one.files;
        all.file = all.file.take().or_else(|| one.file.clone());
        all.waiting = all.waiting.take().or_else(|| one.waiting.clone());
    }
}

/// Adds drops by interface. An app may count any number.
pub(super) fn add_drops(sums: &mut BTreeMap<String, u64>, drops: Vec<(String, u64)>) {
    for (name, count) in drops {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}

impl CaptureLoop {
    /// What it has come to.
    pub(super) fn report(&self, failure: Option<CaptureError>) -> CaptureReport {
        let closed = matches!(failure, Some(CaptureError::Sink(SinkError::Closed { .. })));
        let progress = self.output.progress();
        let counters = self.readers.iter().map(|reader| reader.ring.counters());
        let mut dropped = self.past.dropped.clone();
        add_drops(&mut dropped, self.output.dropped(&self.rings()));
        let untimed = self.readers.iter().map(RingReader::untimed);
        let untimed = untimed.fold(self.past.untimed, u64::saturating_add);
        let mut report = CaptureReport {
            captured: self.output.packets().saturating_sub(progress.lost + progress.after_end),
            rings: counters.chain([self.past.rings]).sum(),
            dropped: dropped.into_iter().collect(),
            unwritten: progress.lost.saturating_add(untimed),
            reader_gone: closed,
            late: self.merge.late(),
            sample: self.sample,
            highest_sample: self.highest_sample,
            fixed: self.fixed(),
            fill: self.fill,
            nb_rings: self.nb_rings,
            ended: self.ended.clone(),
            progress,
            by_ring: Vec::new(),
            failure: failure.filter(|_| !closed),
        };
        if let Some(workers) = &self.workers {
            workers.add_to(&mut report);
        }
        report
    }
}
