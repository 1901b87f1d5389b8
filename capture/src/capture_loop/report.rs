//! Reports and errors of a capture.

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
    /// A session failed.
    #[error("the capture from {app} broke")]
    Session {
        /// App.
        app: String,
        /// Cause.
        source: SessionError,
    },
    /// The app, or its helper, ended the session with an error.
    #[error("the capture from {app} has ended: {reason}")]
    Ended {
        /// App.
        app: String,
        /// Reason that it gave.
        reason: String,
    },
    /// A ring is inconsistent.
    #[error("the capture from {app} broke")]
    Ring {
        /// App.
        app: String,
        /// Cause.
        source: RingError,
    },
    /// A ring contains an invalid record.
    #[error("a capture ring is broken")]
    Record(#[from] RingRecordError),
    /// The clock anchors of an app do not advance, so that its TSC rate is not known.
    #[error(
        "{0}: the clock anchors of its capture ring do not advance; its control thread is stuck"
    )]
    Clock(String),
    /// The packets could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// A thread of a parallel capture panicked.
    #[error("a thread that reads capture rings has panicked")]
    Panicked,
}

/// Callbacks of a running capture. They must not block.
pub trait CaptureObserver {
    /// An app has ended; `awaited` says whether the capture waits for it to come back.
    fn ended(&mut self, _app: &str, _awaited: bool) {}
    /// An app has come back.
    fn returned(&mut self, _app: &str) {}
    /// A port of an app was removed, or is back.
    fn note(&mut self, _app: &str, _note: &str) {}
    /// Called once a second.
    fn second(&mut self, _report: &CaptureReport) {}
    /// A report was requested with `RunControl::report`.
    fn asked(&mut self, _report: &CaptureReport) {}
    /// The capture ends: no callback follows, and the last packets are written, which a slow disk
    /// or reader may delay.
    fn ending(&mut self) {}
}

/// An observer that ignores everything.
impl CaptureObserver for () {}

/// The results of a capture, so far or final.
#[derive(Debug, Default)]
pub struct CaptureReport {
    /// Packets passed to the sink, without those that could not be written afterwards or that came
    /// after the last file.
    pub captured: u64,
    /// Sum of the counters of all rings.
    pub rings: RingCounters,
    /// Packets dropped because the rings were full, by interface; only interfaces with drops.
    pub dropped: Vec<(String, u64)>,
    /// Packets that could not be written, that a reader did not take before it closed, or that have
    /// no time because their app ended before it had measured its clock. At the end, `rings.records` is the
    /// sum of `captured`, `unwritten`, `skipped` and `surplus`.
    pub unwritten: u64,
    /// Packets that `skip` passed by.
    pub skipped: u64,
    /// Packets that came after the last one that was wanted: beyond `count`, or after the last file.
    pub surplus: u64,
    /// The capture ended because the reader of a pipe closed it.
    pub reader_gone: bool,
    /// Packets published so late that they are out of order.
    pub late: u64,
    /// Current sampling: one packet in this many is kept; 1 keeps all. If apps or lcores differ,
    /// the highest in the last second.
    pub sample: u32,
    /// The highest sampling at the end of any second.
    pub highest_sample: u32,
    /// Apps that keep their sampling although `RunControl::sample` asks for another, because their
    /// library is too old to change it.
    pub fixed: Vec<String>,
    /// Highest fill level of a ring in the last second, 0 to 1.
    pub fill: f64,
    /// Number of rings, one for each lcore that polled; an app that comes back has new ones.
    pub nb_rings: usize,
    /// Apps that ended during the capture, once for each time.
    pub ended: Vec<String>,
    /// Progress of the sink.
    pub progress: SinkProgress,
    /// The result of each ring, if each ring has its own sink.
    pub by_ring: Vec<RingReport>,
    /// Why the capture ended early.
    pub failure: Option<CaptureError>,
}

/// The result of a ring that has its own sink, so far or final. Fields are as in [`CaptureReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingReport {
    /// Name of the ring.
    pub name: CaptureRingName,
    /// Packets passed to the sink.
    pub captured: u64,
    /// Packets that the filter let through, kept or not.
    pub received: u64,
    /// Packets dropped because the ring was full.
    pub dropped: u64,
    /// Packets that could not be written.
    pub unwritten: u64,
    /// Bytes written.
    pub bytes: u64,
    /// File, if the sink writes one.
    pub file: Option<PathBuf>,
}

impl CaptureReport {
    /// Adds the report of a ring that has its own sink.
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
        self.skipped = self.skipped.saturating_add(ring.skipped);
        self.surplus = self.surplus.saturating_add(ring.surplus);
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

/// Adds drops by interface. The sums saturate: an app may report any number.
pub(super) fn add_drops(sums: &mut BTreeMap<String, u64>, drops: Vec<(String, u64)>) {
    for (name, count) in drops {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}

impl CaptureLoop {
    /// Returns the results so far.
    pub(super) fn report(&self, failure: Option<CaptureError>) -> CaptureReport {
        let closed = matches!(failure, Some(CaptureError::Sink(SinkError::Closed { .. })));
        let progress = self.output.progress();
        let counters = self.readers.iter().map(|reader| reader.ring.counters());
        let mut dropped = self.past.dropped.clone();
        add_drops(&mut dropped, self.output.dropped(&self.rings()));
        let untimed = self.readers.iter().map(RingReader::untimed);
        let untimed = untimed.fold(self.past.untimed, u64::saturating_add);
        let rings: RingCounters = counters.chain([self.past.rings]).sum();
        let taken = self.output.packets().saturating_add(self.output.skipped());
        let unread = rings.records.saturating_sub(taken).saturating_sub(untimed);
        // Until the end they are on their way.
        let unread = if self.is_finished && self.workers.is_none() { unread } else { 0 };
        let (unwanted, unread) = if self.output.full() { (unread, 0) } else { (0, unread) };
        let mut report = CaptureReport {
            captured: self.output.packets().saturating_sub(progress.lost + progress.after_end),
            rings,
            dropped: dropped.into_iter().collect(),
            unwritten: progress.lost.saturating_add(untimed).saturating_add(unread),
            skipped: self.output.skipped(),
            surplus: progress.after_end.saturating_add(unwanted),
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
