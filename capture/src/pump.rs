//! Runs a capture: moves packets from the rings of one or more apps to a sink until told to stop.

mod report;
mod sampling;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmdscope_packets::{PacketSink, RunControl, SinkError};

use crate::clock::{Clock, raw_clock_ns};
use crate::layout::Record;
use crate::merge::Merge;
use crate::output::{Arrival, Output};
use crate::records::Records;
use crate::ring::{Counters, Ring};
use crate::session::Event;
use crate::source::{Settings, Source};

pub use self::report::{Failure, Observer, Report};

/// How long a packet may wait for an earlier one from another ring: longer than a burst takes from
/// its time stamp to its publication, unless its lcore was preempted meanwhile.
pub const REORDER_WINDOW: Duration = Duration::from_millis(30);
/// Pauses between looks at rings that are read to their end; in the longest, packets of 64 bytes at
/// 20 Mpps fill half a ring of 8 MiB.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// Share of a ring that may fill in a pause, so that pauses are long where little arrives.
const SHARE_PER_PAUSE: u32 = 64;
/// How long the last packets may be on their way to the sink when no more follow: each time costs
/// a switch to the thread that writes.
const FLUSH: Duration = Duration::from_millis(10);
/// Time between looks at the sockets and for a reader that has gone.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// How long an app may take to measure its clock after its start.
const CLOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait at the end for a clock that is not known yet: anchors come once a second.
const CLOCK_WAIT: Duration = Duration::from_millis(1500);
/// Time between two looks at the counters.
const SECOND: Duration = Duration::from_secs(1);
/// Time between two tries to reach an app that has ended.
const REOPEN: Duration = Duration::from_millis(200);
/// Records held back per ring by the merge; beyond, the ring is left to count drops.
const LANE_MAX: usize = 64 << 20;
/// Bytes taken from a ring at once: so few that they are still in the cache when they are written.
const READ_MAX: usize = 256 << 10;

#[derive(Debug)]
struct Lane {
    source: usize,
    ring: Ring,
    clock: Option<Clock>,
    anchor_seq: u32,
    opened: Instant,
    /// Has brought something in the second that runs.
    fed: bool,
}

impl Lane {
    /// Packets that cannot be read because nobody knows their time.
    fn untimed(&self) -> u64 {
        if self.clock.is_some() { 0 } else { self.ring.counters().records }
    }

    /// Takes over new anchors; the old clock stays while they are being written.
    fn refresh_clock(&mut self) {
        let seq = self.ring.anchor_seq();
        if self.clock.is_some() && seq == self.anchor_seq {
            return;
        }
        if let Some(clock) = self.ring.anchors().and_then(|(first, last)| Clock::new(first, last)) {
            let paced = self.clock.map_or(clock, |earlier| clock.paced_since(&earlier));
            self.clock = Some(paced);
            self.anchor_seq = seq;
        }
    }
}

#[derive(Debug)]
enum State {
    Running,
    /// Ended, and to be looked for at this time.
    Awaited(Instant),
    Over,
}

#[derive(Debug)]
struct App {
    source: Source,
    state: State,
    /// The sampling that it was last asked for.
    asked: u32,
}

/// What rings that are gone have counted.
#[derive(Debug, Default)]
struct Past {
    rings: Counters,
    dropped: BTreeMap<String, u64>,
    untimed: u64,
}

/// What was taken from all rings at once.
#[derive(Debug, Default)]
struct Taken {
    /// Of the ring that was fullest, by what a pause may bring.
    filled: f64,
    /// A ring holds more.
    behind: bool,
}

impl Taken {
    fn add(&mut self, read: usize, ring_size: u32, behind: bool) {
        let wanted = ((ring_size / SHARE_PER_PAUSE) as usize).min(READ_MAX);
        self.filled = self.filled.max(read as f64 / wanted as f64);
        self.behind |= behind;
    }
}

/// The next pause, where the rings filled so far in one like the last.
fn paced(pause: Duration, filled: f64) -> Duration {
    pause.div_f64(filled.max(0.5)).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// A capture that is about to run.
#[derive(Debug)]
pub struct Pump {
    apps: Vec<App>,
    lanes: Vec<Lane>,
    merge: Merge,
    output: Output,
    settings: Settings,
    past: Past,
    nb_rings: usize,
    ended: Vec<String>,
    /// The sampling that all apps ought to have; 0 leaves it to their requests.
    wanted: u32,
    /// As of [`Report`].
    sample: u32,
    fill: f64,
}

impl Pump {
    /// A capture of sources into a sink.
    pub fn new(sources: Vec<Source>, settings: Settings, target: Box<dyn PacketSink>) -> Self {
        let app =
            |source: Source| App { asked: source.sample.max(1), source, state: State::Running };
        let sample = sources.iter().map(|source| source.sample).max().unwrap_or_default().max(1);
        let output = Output::new(target, &settings);
        Self {
            apps: sources.into_iter().map(app).collect(),
            lanes: Vec::new(),
            merge: Merge::default(),
            output,
            settings,
            past: Past::default(),
            nb_rings: 0,
            ended: Vec::new(),
            wanted: 0,
            sample,
            fill: 0.0,
        }
    }

    /// Captures until told to stop, the count, the duration, the end of all apps, or a failure;
    /// then finishes the sink.
    pub fn run(mut self, control: &RunControl, observer: &mut dyn Observer) -> Report {
        let result = self.begin(None).and_then(|()| self.pump(control, observer));
        let result = self.finish(result);
        self.report(result.err())
    }

    fn begin(&mut self, restarted: Option<usize>) -> Result<(), Failure> {
        Ok(self.output.begin(self.apps.iter().map(|app| &app.source), restarted)?)
    }

    fn pump(&mut self, control: &RunControl, observer: &mut dyn Observer) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut pause = PAUSE_MIN;
        let mut filled = 0.0;
        let mut next_flush = begin;
        let mut next_housekeeping = begin;
        let mut next_second = begin + SECOND;
        while !control.stop.load(Ordering::Relaxed) && !self.output.full() {
            let now = Instant::now();
            if self.settings.duration.is_some_and(|limit| now - begin >= limit) {
                break;
            }
            if now >= next_housekeeping {
                next_housekeeping = now + HOUSEKEEPING;
                self.keep_house(observer)?;
                self.obey(control, observer)?;
                if now >= next_second {
                    next_second = now + SECOND;
                    self.tell_counters();
                    self.note_sampling();
                    observer.second(&self.report(None));
                    self.fill = 0.0;
                }
                if self.output.done() || self.all_over() {
                    break;
                }
            }
            let read = self.round()?;
            filled += read.filled;
            if !read.behind {
                if now >= next_flush {
                    next_flush = now + FLUSH;
                    self.output.flush()?;
                }
                std::thread::sleep(pause);
                pause = paced(pause, std::mem::take(&mut filled));
            }
        }
        Ok(())
    }

    fn obey(&mut self, control: &RunControl, observer: &mut dyn Observer) -> Result<(), Failure> {
        if control.flush.swap(false, Ordering::Relaxed) {
            self.output.flush()?;
        }
        if control.report.swap(false, Ordering::Relaxed) {
            observer.asked(&self.report(None));
        }
        self.resample(control.sample.load(Ordering::Relaxed))
    }

    /// Moves what there is, of each ring a part.
    fn round(&mut self) -> Result<Taken, Failure> {
        let raw_ns = raw_clock_ns();
        let taken = self.read_rings(READ_MAX)?;
        let window = u64::try_from(REORDER_WINDOW.as_nanos()).unwrap_or(u64::MAX);
        let clock = self.lanes.iter().find_map(|lane| lane.clock);
        if let Some(clock) = clock {
            self.drain(clock.tsc_at(raw_ns.saturating_sub(window)))?;
        }
        Ok(taken)
    }

    fn read_rings(&mut self, most: usize) -> Result<Taken, Failure> {
        let mut taken = Taken::default();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            lane.refresh_clock();
            if lane.clock.is_none() {
                continue;
            }
            let Some(records) = self.merge.lane(index) else { continue };
            if records.pending() < LANE_MAX {
                let read = lane.ring.read(most, records);
                let app = &self.apps[lane.source].source.app;
                let read = read.map_err(|source| Failure::Ring { app: app.clone(), source })?;
                let size = lane.ring.data_size();
                taken.add(read, size, records.is_behind());
                lane.fed |= read > 0;
                self.fill = self.fill.max((read + records.left()) as f64 / f64::from(size));
            }
        }
        Ok(taken)
    }

    fn drain(&mut self, watermark: u64) -> Result<(), Failure> {
        let Self { merge, lanes, apps, output, .. } = self;
        let mut written = Ok(());
        let each = |index: usize, record: &Record, payload: &[u8], weight: u32| {
            let lane: &Lane = &lanes[index];
            let Some(clock) = &lane.clock else { return ControlFlow::Continue(()) };
            // Only an error is moved: copying the result of every packet takes longer than it looks.
            let source = &apps[lane.source].source;
            let arrival = Arrival { record, data: payload, lcore: lane.ring.lcore(), weight };
            match output.packet(lane.source, source, clock, &arrival) {
                Ok(()) if !output.full() => ControlFlow::Continue(()),
                result => {
                    written = result;
                    ControlFlow::Break(())
                }
            }
        };
        let _ = merge.drain(watermark, each)?;
        Ok(written?)
    }

    /// Listens to the apps: new rings, ends, returns.
    fn keep_house(&mut self, observer: &mut dyn Observer) -> Result<(), Failure> {
        for index in 0..self.apps.len() {
            match self.apps[index].state {
                State::Running => self.listen(index, observer)?,
                State::Awaited(when) if when <= Instant::now() => self.look_for(index, observer)?,
                State::Awaited(_) | State::Over => {}
            }
        }
        let stuck = |lane: &&Lane| lane.clock.is_none() && lane.opened.elapsed() > CLOCK_PATIENCE;
        match self.lanes.iter().find(|lane| self.is_running(lane.source) && stuck(lane)) {
            Some(lane) => Err(Failure::Clock(self.apps[lane.source].source.app.clone())),
            None => Ok(()),
        }
    }

    fn listen(&mut self, index: usize, observer: &mut dyn Observer) -> Result<(), Failure> {
        while self.is_running(index) {
            let app = &mut self.apps[index];
            let name = app.source.app.clone();
            match app.source.session.next_event() {
                Ok(None) => break,
                Ok(Some(Event::Ring(ring))) => self.add_ring(index, ring),
                Ok(Some(Event::Gone)) => {
                    let awaited = app.source.reopen.is_some();
                    app.state =
                        if awaited { State::Awaited(Instant::now() + REOPEN) } else { State::Over };
                    observer.ended(&name, awaited);
                    self.ended.push(name);
                }
                Ok(Some(Event::Ended(reason))) => return Err(Failure::Ended { app: name, reason }),
                Err(source) => return Err(Failure::Session { app: name, source }),
            }
        }
        Ok(())
    }

    /// Goes on with an app that has come back, in a new section. What its last run left in the
    /// rings belongs to the section before.
    fn look_for(&mut self, index: usize, observer: &mut dyn Observer) -> Result<(), Failure> {
        self.apps[index].state = State::Awaited(Instant::now() + REOPEN);
        let waits = |lane: usize| self.merge.lane_waits(lane);
        if (0..self.lanes.len()).any(|lane| self.lanes[lane].source == index && waits(lane)) {
            return Ok(());
        }
        let app = &mut self.apps[index];
        let Some((ports, session)) = app.source.reopen.as_mut().and_then(|reopen| reopen()) else {
            return Ok(());
        };
        (app.source.ports, app.source.session, app.state) = (ports, session, State::Running);
        app.asked = app.source.sample.max(1);
        self.tell_counters();
        self.retire_lanes(index);
        self.begin(Some(index))?;
        observer.returned(&self.apps[index].source.app);
        Ok(())
    }

    fn retire_lanes(&mut self, source: usize) {
        let rings = self.rings().into_iter().filter(|(owner, _)| *owner == source);
        for (name, count) in self.output.dropped(&rings.collect::<Vec<_>>()) {
            *self.past.dropped.entry(name).or_default() += count;
        }
        for index in (0..self.lanes.len()).rev() {
            if self.lanes[index].source == source {
                self.merge.remove(index);
                let lane = self.lanes.remove(index);
                self.past.untimed += lane.untimed();
                self.past.rings = [self.past.rings, lane.ring.counters()].into_iter().sum();
            }
        }
    }

    fn add_ring(&mut self, source: usize, ring: Ring) {
        let snaplen = self.settings.effective_snaplen();
        let sample = self.apps[source].source.sample;
        self.merge.add(Records::sampled(ring.consumed(), ring.data_size(), snaplen, sample));
        let opened = Instant::now();
        self.nb_rings += 1;
        self.lanes.push(Lane { source, ring, clock: None, anchor_seq: 0, opened, fed: false });
    }

    fn is_running(&self, app: usize) -> bool {
        matches!(self.apps[app].state, State::Running)
    }

    fn all_over(&self) -> bool {
        self.apps.iter().all(|app| matches!(app.state, State::Over))
    }

    fn rings(&self) -> Vec<(usize, &Ring)> {
        self.lanes.iter().map(|lane| (lane.source, &lane.ring)).collect()
    }

    fn tell_counters(&mut self) {
        let rings = self.lanes.iter().map(|lane| (lane.source, &lane.ring)).collect::<Vec<_>>();
        self.output.tell_counters(&rings);
    }

    /// Writes what was published up to now, and the statistics. A failure that came before stays
    /// the one to report.
    fn finish(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let broken = matches!(result, Err(Failure::Target(_)));
        let swept = if broken || self.output.full() { Ok(()) } else { self.sweep() };
        self.tell_counters();
        self.note_sampling();
        let finished = self.output.finish().map_err(Failure::from);
        result.and(swept).and(finished)
    }

    fn sweep(&mut self) -> Result<(), Failure> {
        self.await_clocks();
        let read = self.read_rings(usize::MAX).map(|_| ());
        self.drain(u64::MAX).and(read)
    }

    /// A capture may end before its app has measured its clock.
    fn await_clocks(&mut self) {
        let deadline = Instant::now() + CLOCK_WAIT;
        let apps = &self.apps;
        let waits = |lane: &mut Lane| {
            lane.refresh_clock();
            let running = matches!(apps[lane.source].state, State::Running);
            running && lane.untimed() > 0
        };
        while self.lanes.iter_mut().any(waits) && Instant::now() < deadline {
            std::thread::sleep(PAUSE_MAX);
        }
    }

    fn report(&self, failure: Option<Failure>) -> Report {
        let closed = matches!(failure, Some(Failure::Target(SinkError::Closed { .. })));
        let progress = self.output.progress();
        let counters = self.lanes.iter().map(|lane| lane.ring.counters());
        let mut dropped = self.past.dropped.clone();
        for (name, count) in self.output.dropped(&self.rings()) {
            *dropped.entry(name).or_default() += count;
        }
        let untimed = self.past.untimed + self.lanes.iter().map(Lane::untimed).sum::<u64>();
        Report {
            captured: self.output.packets().saturating_sub(progress.lost),
            rings: counters.chain([self.past.rings]).sum(),
            dropped: dropped.into_iter().collect(),
            unwritten: if closed { 0 } else { progress.lost + untimed },
            late: self.merge.late(),
            sample: self.sample,
            fixed: self.fixed(),
            fill: self.fill,
            nb_rings: self.nb_rings,
            ended: self.ended.clone(),
            progress,
            failure: failure.filter(|_| !closed),
        }
    }
}

#[cfg(test)]
mod tests;
