//! Runs a capture: moves packets from the rings of one or more apps to a sink until it is stopped.

mod pace;
mod parallel;
mod reader;
mod report;
mod sampling;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmdscope_packets::{PacketSink, RunControl};

use crate::clock::raw_clock_ns;
use crate::layout::RingRecord;
use crate::merge::RecordMerge;
use crate::output::{PacketOutput, RingPacket};
use crate::records::{RecordData, RecordStream};
use crate::ring::{Ring, RingCounters};
use crate::session::{CaptureSession, SessionEvent};
use crate::source::{CaptureSettings, CaptureSource};

use self::pace::{PAUSE_MAX, ReadPace, RoundStats};
use self::parallel::RingWorkers;
pub use self::parallel::{CaptureRingName, RingSinkOpener};
use self::reader::RingReader;
use self::report::add_drops;
pub use self::report::{CaptureError, CaptureObserver, CaptureReport, RingReport};

/// How long a packet may wait for an earlier one from another ring whose producer is in a burst, or
/// does not tell: longer than the time from the time stamp of a burst to its publication, unless its
/// lcore was preempted meanwhile.
pub const REORDER_WINDOW: Duration = Duration::from_millis(30);
/// How long it waits for one from other empty rings: longer than a store of the producer takes to
/// arrive, and than the error of a clock one second after its anchor.
const CLOCK_ERROR: Duration = Duration::from_micros(250);
/// Interval of flushes when no more packets follow: each flush costs a switch to the thread that
/// writes.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);
/// Interval of checks of the sockets, and whether the reader has gone. A socket announces rings that
/// the app already fills: with 1 Mpps of 1500 bytes, a ring of 8 MiB is full after 5 ms.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(1);
/// Longest time that an app may take to measure its clock after its start.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait at the end for a clock that is not known yet: anchors come once a second.
const LAST_CLOCK_TIMEOUT: Duration = Duration::from_millis(1500);
/// Interval of reports to the observer.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of attempts to reach an app that has ended.
const REOPEN_INTERVAL: Duration = Duration::from_millis(200);
/// Most bytes per ring that the merge holds back. Beyond that the ring is not read, and counts
/// drops.
const HELD_MAX: usize = 64 << 20;
/// Most bytes read from a ring at once: so few that they are still in the cache when they are
/// written, and that their room is released soon.
const READ_MAX: usize = 256 << 10;

#[derive(Debug)]
enum CapturedAppState {
    Running,
    /// Ended; the next attempt to reach it is at this time.
    Awaited(Instant),
    Over,
}

#[derive(Debug)]
struct CapturedApp {
    source: CaptureSource,
    state: CapturedAppState,
    /// The sampling that was last requested of it.
    asked: u32,
}

/// Counters of rings that are no longer read.
#[derive(Debug, Default)]
struct RetiredRings {
    rings: RingCounters,
    dropped: BTreeMap<String, u64>,
    untimed: u64,
}

/// A capture, which [`CaptureLoop::run`] runs.
#[derive(Debug)]
pub struct CaptureLoop {
    apps: Vec<CapturedApp>,
    readers: Vec<RingReader>,
    merge: RecordMerge,
    output: PacketOutput,
    settings: CaptureSettings,
    past: RetiredRings,
    nb_rings: usize,
    ended: Vec<String>,
    /// The sampling that all apps should use; 0 leaves it to their requests.
    wanted: u32,
    /// As in [`CaptureReport`].
    sample: u32,
    highest_sample: u32,
    fill: f64,
    /// The threads that read the rings, if each ring has its own sink.
    workers: Option<RingWorkers>,
    /// No packets are read any more.
    is_finished: bool,
}

impl CaptureLoop {
    /// Returns a capture of `sources` into a sink.
    pub fn new(
        sources: Vec<CaptureSource>,
        settings: CaptureSettings,
        target: Box<dyn PacketSink>,
    ) -> Self {
        let app = |source: CaptureSource| CapturedApp {
            asked: source.sample.max(1),
            source,
            state: CapturedAppState::Running,
        };
        let sample = sources.iter().map(|source| source.sample).max().unwrap_or_default().max(1);
        let output = PacketOutput::new(target, &settings);
        Self {
            apps: sources.into_iter().map(app).collect(),
            readers: Vec::new(),
            merge: RecordMerge::default(),
            output,
            settings,
            past: RetiredRings::default(),
            nb_rings: 0,
            ended: Vec::new(),
            wanted: 0,
            sample,
            highest_sample: sample,
            fill: 0.0,
            workers: None,
            is_finished: false,
        }
    }

    /// Captures until `control` stops it, the count or the duration is reached, all apps have
    /// ended, or a failure; then finishes the sink.
    pub fn run(
        mut self,
        control: &RunControl,
        observer: &mut dyn CaptureObserver,
    ) -> CaptureReport {
        let result = self.begin(None).and_then(|()| self.run_loop(control, observer));
        observer.ending();
        let result = self.finish(result);
        self.report(result.err())
    }

    fn begin(&mut self, restarted: Option<usize>) -> Result<(), CaptureError> {
        Ok(self.output.begin(self.apps.iter().map(|app| &app.source), restarted)?)
    }

    fn run_loop(
        &mut self,
        control: &RunControl,
        observer: &mut dyn CaptureObserver,
    ) -> Result<(), CaptureError> {
        let begin = Instant::now();
        let mut pace = ReadPace::default();
        let mut next_flush = begin;
        let mut next_housekeeping = begin;
        let mut next_second = begin + REPORT_INTERVAL;
        while !control.stop.load(Ordering::Relaxed) && !self.output.full() {
            let now = Instant::now();
            if self.settings.duration.is_some_and(|limit| now - begin >= limit) {
                break;
            }
            if now >= next_housekeeping {
                next_housekeeping = now + HOUSEKEEPING_INTERVAL;
                self.housekeep(observer)?;
                self.apply_control(control, observer)?;
                if now >= next_second {
                    next_second = now + REPORT_INTERVAL;
                    self.report_counters();
                    self.update_sampling();
                    observer.second(&self.report(None));
                    self.fill = 0.0;
                }
                if self.output.done() || self.all_over() {
                    break;
                }
            }
            let read = self.round()?;
            pace.add(&read);
            if !read.behind {
                if now >= next_flush {
                    next_flush = now + FLUSH_INTERVAL;
                    self.output.flush()?;
                }
                pace.sleep();
            }
        }
        Ok(())
    }

    fn apply_control(
        &mut self,
        control: &RunControl,
        observer: &mut dyn CaptureObserver,
    ) -> Result<(), CaptureError> {
        if control.flush.swap(false, Ordering::Relaxed) {
            self.output.flush()?;
        }
        if control.report.swap(false, Ordering::Relaxed) {
            observer.asked(&self.report(None));
        }
        self.resample(control.sample.load(Ordering::Relaxed))
    }

    /// Reads a part of each ring, and writes the packets that are due.
    fn round(&mut self) -> Result<RoundStats, CaptureError> {
        let raw_ns = raw_clock_ns();
        let mut taken = self.read_rings(self.output.takes_shared(), READ_MAX)?;
        let clock = self.readers.iter().find_map(|reader| reader.clock);
        let mut more = false;
        if let Some(clock) = clock {
            let before = |span: Duration| {
                let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                clock.tsc_at(raw_ns.saturating_sub(span))
            };
            self.set_complete_until(before(CLOCK_ERROR), before(REORDER_WINDOW));
            more = self.drain(READ_MAX)?.is_break();
        }
        taken.behind |= self.release_rings(more) || more;
        Ok(taken)
    }

    /// Tells the merge up to which TSC each ring is complete: that of this round if nothing was being
    /// written when it was read, an earlier one otherwise.
    fn set_complete_until(&mut self, round: u64, earlier: u64) {
        for (index, reader) in self.readers.iter_mut().enumerate() {
            let complete = std::mem::take(&mut reader.complete);
            if let Some(records) = self.merge.stream(index) {
                records.set_complete_until(if complete { round } else { earlier });
            }
        }
    }

    /// Releases the room of packets that were written; returns whether a ring holds more. `more`
    /// says that further packets can be written without waiting.
    fn release_rings(&mut self, more: bool) -> bool {
        let mut behind = false;
        for (index, reader) in self.readers.iter_mut().enumerate() {
            let Some(records) = self.merge.stream(index) else { continue };
            reader.ring.release(records);
            reader.held_back = if more { 0 } else { records.pending() };
            behind |= records.pending() == 0 && records.is_behind();
        }
        behind
    }

    fn read_rings(&mut self, share: bool, most: usize) -> Result<RoundStats, CaptureError> {
        let mut taken = RoundStats::default();
        for (index, reader) in self.readers.iter_mut().enumerate() {
            reader.refresh_clock();
            if reader.clock.is_none() {
                continue;
            }
            let Some(records) = self.merge.stream(index) else { continue };
            if records.copied() < HELD_MAX {
                let read = reader.read(records, share, most);
                let app = &self.apps[reader.source].source.app;
                let read =
                    read.map_err(|source| CaptureError::Ring { app: app.clone(), source })?;
                let size = reader.ring.data_size();
                let viewed = records.viewed().is_some();
                taken.add(read, size, !viewed && records.is_behind());
                reader.fed |= read > 0;
                let filled = if viewed {
                    (records.pending() + records.left()) as u64 + reader.ring.kept()
                } else {
                    (read + records.left()) as u64
                };
                self.fill = self.fill.max(filled as f64 / f64::from(size));
            }
        }
        Ok(taken)
    }

    /// Writes the packets that no earlier ones can follow, in order. Breaks after `most` bytes that
    /// are still in their rings, or when no more packets are wanted.
    fn drain(&mut self, most: usize) -> Result<ControlFlow<()>, CaptureError> {
        let Self { merge, readers, apps, output, .. } = self;
        let mut written = Ok(());
        let mut bytes = 0;
        let each = |index: usize, record: &RingRecord, data: RecordData<'_>, weight: u32| {
            let reader: &RingReader = &readers[index];
            let Some(clock) = &reader.clock else { return ControlFlow::Continue(()) };
            // The result is stored only if it ends the drain: storing it for every packet is
            // measurably slower.
            let source = &apps[reader.source].source;
            let arrival = RingPacket { record, data, lcore: reader.ring.lcore(), weight };
            match output.packet(reader.source, source, clock, &arrival) {
                Ok(()) if !output.full() => {
                    if let RecordData::Shared(_) = data {
                        bytes += record.size as usize;
                    }
                    if bytes < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                }
                result => {
                    written = result;
                    ControlFlow::Break(())
                }
            }
        };
        let drained = merge.drain(each)?;
        written?;
        Ok(drained)
    }

    /// Processes events of the apps: new rings, exits, restarts.
    fn housekeep(&mut self, observer: &mut dyn CaptureObserver) -> Result<(), CaptureError> {
        for index in 0..self.apps.len() {
            match self.apps[index].state {
                CapturedAppState::Running => self.read_events(index, observer)?,
                CapturedAppState::Awaited(when) if when <= Instant::now() => {
                    self.reopen_app(index, observer)?;
                }
                CapturedAppState::Awaited(_) | CapturedAppState::Over => {}
            }
        }
        self.workers.as_ref().map_or(Ok(()), RingWorkers::check)?;
        self.check_clocks()
    }

    fn check_clocks(&self) -> Result<(), CaptureError> {
        let stuck = |reader: &&RingReader| {
            reader.clock.is_none() && reader.opened.elapsed() > CLOCK_TIMEOUT
        };
        match self.readers.iter().find(|reader| self.is_running(reader.source) && stuck(reader)) {
            Some(reader) => Err(CaptureError::Clock(self.apps[reader.source].source.app.clone())),
            None => Ok(()),
        }
    }

    fn read_events(
        &mut self,
        index: usize,
        observer: &mut dyn CaptureObserver,
    ) -> Result<(), CaptureError> {
        while self.is_running(index) {
            let app = &mut self.apps[index];
            let name = app.source.app.clone();
            let Some(session) = &mut app.source.session else { break };
            match session.next_event() {
                Ok(None) => break,
                Ok(Some(SessionEvent::Ring(ring))) => self.add_ring(index, ring)?,
                Ok(Some(SessionEvent::Note(note))) => observer.note(&name, &note),
                Ok(Some(SessionEvent::Gone)) => {
                    self.workers.iter().for_each(|workers| workers.ended(index));
                    let awaited = app.source.reopen.is_some();
                    app.state = if awaited {
                        CapturedAppState::Awaited(Instant::now() + REOPEN_INTERVAL)
                    } else {
                        CapturedAppState::Over
                    };
                    observer.ended(&name, awaited);
                    self.ended.push(name);
                }
                Ok(Some(SessionEvent::Ended(reason))) => {
                    return Err(CaptureError::Ended { app: name, reason });
                }
                Err(source) => return Err(CaptureError::Session { app: name, source }),
            }
        }
        Ok(())
    }

    /// Continues with an app that has come back, in a new section. Packets of its last run that are
    /// still in the rings belong to the section before.
    fn reopen_app(
        &mut self,
        index: usize,
        observer: &mut dyn CaptureObserver,
    ) -> Result<(), CaptureError> {
        self.apps[index].state = CapturedAppState::Awaited(Instant::now() + REOPEN_INTERVAL);
        let waits = |reader: usize| self.merge.waits(reader);
        if (0..self.readers.len())
            .any(|reader| self.readers[reader].source == index && waits(reader))
        {
            return Ok(());
        }
        let app = &mut self.apps[index];
        let Some((ports, session)) = app.source.reopen.as_mut().and_then(|reopen| reopen()) else {
            return Ok(());
        };
        (app.source.ports, app.source.session, app.state) =
            (ports, Some(session), CapturedAppState::Running);
        app.asked = app.source.sample.max(1);
        self.report_counters();
        self.retire_rings(index);
        self.begin(Some(index))?;
        observer.returned(&self.apps[index].source.app);
        Ok(())
    }

    fn retire_rings(&mut self, source: usize) {
        self.workers.iter_mut().for_each(|workers| workers.retire(source));
        let rings = self.rings().into_iter().filter(|(owner, _)| *owner == source);
        let drops = self.output.dropped(&rings.collect::<Vec<_>>());
        add_drops(&mut self.past.dropped, drops);
        for index in (0..self.readers.len()).rev() {
            if self.readers[index].source == source {
                self.merge.remove(index);
                let reader = self.readers.remove(index);
                self.past.untimed = self.past.untimed.saturating_add(reader.untimed());
                self.past.rings = [self.past.rings, reader.ring.counters()].into_iter().sum();
            }
        }
    }

    fn add_ring(&mut self, source: usize, ring: Ring) -> Result<(), CaptureError> {
        self.nb_rings += 1;
        if let Some(workers) = &mut self.workers {
            return workers.add(source, &self.apps[source].source, ring);
        }
        let snaplen = self.settings.effective_snaplen();
        let sample = self.apps[source].source.sample;
        self.merge.add(RecordStream::sampled(ring.consumed(), ring.data_size(), snaplen, sample));
        let opened = Instant::now();
        self.readers.push(RingReader {
            source,
            ring,
            clock: None,
            anchor_seq: 0,
            opened,
            fed: false,
            held_back: 0,
            complete: false,
        });
        Ok(())
    }

    fn is_running(&self, app: usize) -> bool {
        matches!(self.apps[app].state, CapturedAppState::Running)
    }

    fn all_over(&self) -> bool {
        self.apps.iter().all(|app| matches!(app.state, CapturedAppState::Over))
    }

    fn rings(&self) -> Vec<(usize, &Ring)> {
        self.readers.iter().map(|reader| (reader.source, &reader.ring)).collect()
    }

    fn report_counters(&mut self) {
        let rings =
            self.readers.iter().map(|reader| (reader.source, &reader.ring)).collect::<Vec<_>>();
        self.output.report_counters(&rings);
    }

    /// Ends the capture at this moment, and writes the packets published so far, and the statistics. An
    /// earlier failure remains the one to report.
    fn finish(&mut self, result: Result<(), CaptureError>) -> Result<(), CaptureError> {
        self.readers.iter_mut().for_each(|reader| reader.ring.close());
        let broken = matches!(result, Err(CaptureError::Sink(_)));
        let sweeps = !broken && !self.output.full();
        if sweeps {
            self.await_clocks();
        }
        // Before the last packets are written: the disk or the reader may be slow.
        self.disarm();
        let swept = if sweeps { self.sweep() } else { Ok(()) };
        self.report_counters();
        self.update_sampling();
        let written = self.workers.as_mut().map_or(Ok(()), RingWorkers::finish);
        self.is_finished = true;
        let finished = self.output.finish().map_err(CaptureError::from);
        result.and(swept).and(written).and(finished)
    }

    /// Has apps stop copying packets, as far as the threads of a parallel capture do not wait for their clocks.
    fn disarm(&self) {
        if self.workers.is_none() {
            let sessions = self.apps.iter().filter_map(|app| app.source.session.as_ref());
            sessions.for_each(CaptureSession::disarm);
        }
    }

    fn sweep(&mut self) -> Result<(), CaptureError> {
        let read = self.read_rings(false, usize::MAX).map(|_| ());
        self.set_complete_until(u64::MAX, u64::MAX);
        self.drain(usize::MAX).and(read)
    }

    /// Waits for the clocks of apps: a capture may end before its app has measured its clock.
    fn await_clocks(&mut self) {
        let deadline = Instant::now() + LAST_CLOCK_TIMEOUT;
        let apps = &self.apps;
        let waits = |reader: &mut RingReader| {
            reader.refresh_clock();
            let running = matches!(apps[reader.source].state, CapturedAppState::Running);
            running && reader.untimed() > 0
        };
        while self.readers.iter_mut().any(waits) && Instant::now() < deadline {
            std::thread::sleep(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests;
