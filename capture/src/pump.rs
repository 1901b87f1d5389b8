//! Runs a capture: moves packets from the rings of one or more apps to a sink until told to stop.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use crate::clock::Clock;
use crate::layout::{MAX_SNAPLEN, Record};
use crate::merge::Merge;
use crate::output::Output;
use crate::records::{RecordError, Records};
use crate::ring::{Counters, Ring, RingError};
use crate::session::{Event, Session, SessionError};
use crate::sink::{Sink, SinkError};

/// How long a packet may wait for an earlier one from another ring: longer than a burst takes from
/// its time stamp to its publication, unless its lcore was preempted meanwhile.
pub const REORDER_WINDOW: Duration = Duration::from_millis(30);
/// Pauses between looks at idle rings.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Time between looks at the sockets and for a reader that has gone.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// How long an app may take to measure its clock after its start.
const CLOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait at the end for a clock that is not known yet: anchors come once a second.
const CLOCK_WAIT: Duration = Duration::from_millis(1500);
/// Records held back per ring by the merge; beyond, the ring is left to count drops.
const LANE_MAX: usize = 64 << 20;

/// One app to capture from.
#[derive(Debug)]
pub struct Source {
    /// File-prefix of the app.
    pub app: String,
    /// Its ports, to give interfaces their device names.
    pub ports: Vec<Port>,
    /// The armed capture.
    pub session: Session,
}

/// A port of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// DPDK port id.
    pub id: u16,
    /// Device name.
    pub device: String,
    /// It was asked for, so it has an interface even if it has no packets.
    pub selected: bool,
}

/// How to capture.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Most bytes kept of a packet; 0 means 262144.
    pub snaplen: u32,
    /// Stop after so many packets.
    pub count: Option<u64>,
    /// Stop after so long.
    pub duration: Option<Duration>,
    /// Write every packet at once.
    pub packet_buffered: bool,
    /// Filter expression, to be noted in the file.
    pub filter: String,
    /// Outgoing packets are captured, to be explained in the file.
    pub outgoing: bool,
}

impl Settings {
    /// Most bytes kept of a packet.
    pub fn effective_snaplen(&self) -> u32 {
        if self.snaplen == 0 { MAX_SNAPLEN } else { self.snaplen }
    }
}

/// Why a capture ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A session broke.
    #[error("the capture from {app} broke")]
    Session {
        /// App.
        app: String,
        /// What happened.
        source: SessionError,
    },
    /// The app ended the session with an error.
    #[error("{app} ended the capture: {reason}")]
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
    Record(#[from] RecordError),
    /// An app's clock gives no rate.
    #[error(
        "{0}: the clock anchors of its capture ring do not advance; its control thread is stuck"
    )]
    Clock(String),
    /// The packets could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// What became of a capture.
#[derive(Debug, Default)]
pub struct Report {
    /// Packets written.
    pub captured: u64,
    /// What the rings counted.
    pub rings: Counters,
    /// Packets dropped because the rings were full, by interface; only where there were any.
    pub dropped: Vec<(String, u64)>,
    /// Packets collected and then not written, though there was a reader.
    pub unwritten: u64,
    /// Packets published so late that they are out of order.
    pub late: u64,
    /// Rings, which is lcores that polled.
    pub nb_rings: usize,
    /// Apps that ended meanwhile.
    pub ended: Vec<String>,
    /// Why the capture ended early.
    pub failure: Option<Failure>,
}

#[derive(Debug)]
struct Lane {
    source: usize,
    ring: Ring,
    clock: Option<Clock>,
    anchor_seq: u32,
    opened: Instant,
}

impl Lane {
    /// Takes over new anchors; the old clock stays while they are being written.
    fn refresh_clock(&mut self) {
        let seq = self.ring.anchor_seq();
        if self.clock.is_some() && seq == self.anchor_seq {
            return;
        }
        if let Some(clock) = self.ring.anchors().and_then(|(first, last)| Clock::new(first, last)) {
            self.clock = Some(clock);
            self.anchor_seq = seq;
        }
    }
}

#[derive(Debug)]
struct App {
    source: Source,
    running: bool,
}

/// A capture that is about to run.
#[derive(Debug)]
pub struct Pump {
    apps: Vec<App>,
    lanes: Vec<Lane>,
    merge: Merge,
    output: Output,
    settings: Settings,
    ended: Vec<String>,
}

impl Pump {
    /// A capture of sources into a sink.
    pub fn new(sources: Vec<Source>, settings: Settings, sink: Sink) -> Self {
        let apps = sources.into_iter().map(|source| App { source, running: true }).collect();
        let output = Output::new(sink, &settings);
        Self {
            apps,
            lanes: Vec::new(),
            merge: Merge::default(),
            output,
            settings,
            ended: Vec::new(),
        }
    }

    /// Captures until `stop`, the count, the duration, the end of all apps, or a failure; then
    /// finishes the file.
    pub fn run(mut self, stop: &AtomicBool) -> Report {
        let result = self.start().and_then(|()| self.pump(stop));
        let result = self.finish(result);
        self.report(result.err())
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.output.begin()?;
        for (index, app) in self.apps.iter().enumerate() {
            for port in app.source.ports.iter().filter(|port| port.selected) {
                self.output.add_interface(index, &app.source, port.id);
            }
        }
        Ok(self.output.flush()?)
    }

    fn pump(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut pause = PAUSE_MIN;
        let mut next_housekeeping = begin;
        while !stop.load(Ordering::Relaxed) && !self.output.full() {
            let now = Instant::now();
            if self.settings.duration.is_some_and(|limit| now - begin >= limit) {
                break;
            }
            if now >= next_housekeeping {
                next_housekeeping = now + HOUSEKEEPING;
                self.keep_house()?;
                if self.output.reader_gone() || self.apps.iter().all(|app| !app.running) {
                    break;
                }
            }
            if self.round()? {
                pause = PAUSE_MIN;
            } else {
                self.output.flush()?;
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        Ok(())
    }

    /// Moves what there is; false when there was nothing.
    fn round(&mut self) -> Result<bool, Failure> {
        let raw_ns = raw_clock_ns();
        let got = self.read_rings()?;
        let window = REORDER_WINDOW.as_nanos() as u64;
        let clock = self.lanes.iter().find_map(|lane| lane.clock);
        if let Some(clock) = clock {
            self.drain(clock.tsc_at(raw_ns.saturating_sub(window)))?;
        }
        Ok(got)
    }

    fn read_rings(&mut self) -> Result<bool, Failure> {
        let mut got = false;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            lane.refresh_clock();
            if lane.clock.is_none() {
                continue;
            }
            let Some(records) = self.merge.lane(index) else { continue };
            if records.pending() < LANE_MAX {
                let read = lane.ring.read(records.input());
                let app = &self.apps[lane.source].source.app;
                got |= read.map_err(|source| Failure::Ring { app: app.clone(), source })? > 0;
            }
        }
        Ok(got)
    }

    fn drain(&mut self, watermark: u64) -> Result<(), Failure> {
        let Self { merge, lanes, apps, output, .. } = self;
        let mut written = Ok(());
        let each = |index: usize, record: &Record, payload: &[u8]| {
            let lane: &Lane = &lanes[index];
            let Some(clock) = &lane.clock else { return ControlFlow::Continue(()) };
            written = output.packet(lane.source, &apps[lane.source].source, clock, record, payload);
            if written.is_err() || output.full() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let _ = merge.drain(watermark, each)?;
        Ok(written?)
    }

    /// Listens to the apps: new rings, ends.
    fn keep_house(&mut self) -> Result<(), Failure> {
        for index in 0..self.apps.len() {
            while self.apps[index].running {
                let app = &mut self.apps[index];
                let name = app.source.app.clone();
                match app.source.session.next_event() {
                    Ok(None) => break,
                    Ok(Some(Event::Ring(ring))) => self.add_ring(index, ring),
                    Ok(Some(Event::Gone)) => {
                        app.running = false;
                        self.ended.push(name);
                    }
                    Ok(Some(Event::Ended(reason))) => {
                        return Err(Failure::Ended { app: name, reason });
                    }
                    Err(source) => return Err(Failure::Session { app: name, source }),
                }
            }
        }
        let stuck = |lane: &&Lane| lane.clock.is_none() && lane.opened.elapsed() > CLOCK_PATIENCE;
        match self.lanes.iter().find(stuck) {
            Some(lane) => Err(Failure::Clock(self.apps[lane.source].source.app.clone())),
            None => Ok(()),
        }
    }

    fn add_ring(&mut self, source: usize, ring: Ring) {
        let snaplen = self.settings.effective_snaplen();
        self.merge.add(Records::new(ring.consumed(), ring.data_size(), snaplen));
        let opened = Instant::now();
        self.lanes.push(Lane { source, ring, clock: None, anchor_seq: 0, opened });
    }

    /// Writes what was published up to now, and the statistics. A failure that came before stays
    /// the one to report.
    fn finish(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if matches!(result, Err(Failure::Sink(_))) {
            return result;
        }
        let swept = if self.output.full() { Ok(()) } else { self.sweep() };
        let rings = self.lanes.iter().map(|lane| (lane.source, &lane.ring)).collect::<Vec<_>>();
        self.output.write_statistics(&rings);
        let flushed = self.output.flush().map_err(Failure::from);
        result.and(swept).and(flushed)
    }

    fn sweep(&mut self) -> Result<(), Failure> {
        self.await_clocks();
        let read = self.read_rings().map(|_| ());
        self.drain(u64::MAX).and(read)
    }

    /// A capture may end before its app has measured its clock.
    fn await_clocks(&mut self) {
        let deadline = Instant::now() + CLOCK_WAIT;
        let apps = &self.apps;
        let waits = |lane: &mut Lane| {
            lane.refresh_clock();
            lane.clock.is_none() && apps[lane.source].running && lane.ring.counters().records > 0
        };
        while self.lanes.iter_mut().any(waits) && Instant::now() < deadline {
            std::thread::sleep(PAUSE_MAX);
        }
    }

    fn report(self, failure: Option<Failure>) -> Report {
        let rings = self.lanes.iter().map(|lane| lane.ring.counters()).sum();
        let failed_write = match &failure {
            Some(Failure::Sink(error)) => error.lost(),
            _ => 0,
        };
        let failure = failure.filter(|f| !matches!(f, Failure::Sink(SinkError::Closed { .. })));
        let lanes = self.lanes.iter().map(|lane| (lane.source, &lane.ring)).collect::<Vec<_>>();
        Report {
            captured: self.output.packets() - failed_write,
            rings,
            dropped: self.output.dropped(&lanes),
            unwritten: if failure.is_some() { failed_write } else { 0 },
            late: self.merge.late(),
            nb_rings: self.lanes.len(),
            ended: self.ended,
            failure,
        }
    }
}

fn raw_clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicRaw);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests;
