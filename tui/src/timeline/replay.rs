//! A past that takes its time to read, such as a recording: played, held, and gone through.
//!
//! A thread reads the moments, so that the display never waits; of all that was asked meanwhile it
//! does what counts. Another one looks for findings that began.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_telemetry::FleetState;

use super::marks::FindingMark;
use super::time_bar::{PlaybackState, TimeBar, TimeBarKind};
use super::trends::{FindingLog, FindingSpan, TREND_NS, TrendPoint, Trends};
use super::{FrameSource, SeekTarget, TimeSpan, Timeline, TimelineFrame, began, resolve};
use crate::clock::NS_PER_SECOND;

/// Speeds, seconds of the recording per second.
const SPEEDS: [u32; 6] = [1, 2, 5, 10, 30, 100];

/// Where nothing was recorded, playing goes on after that time at the latest.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The marks that were found are published this often.
const MARKS_INTERVAL: Duration = Duration::from_millis(250);

/// Marks that are closer become one, and so do points of graphs; nanoseconds.
const MARK_STEP_NS: u64 = NS_PER_SECOND / 2;

/// Most points of graphs that are kept of a recording.
const POINTS: u64 = 16_384;

/// Messages of the threads.
#[derive(Debug)]
pub enum ReplayUpdate {
    /// The moment to show now.
    Shown {
        /// The moment.
        moment: TimelineFrame,
        /// Whether it plays, is held, or has ended.
        motion: PlaybackState,
        /// What is wrong with the recording, as far as it was read.
        notes: Vec<String>,
    },
    /// A moment could not be read.
    Failed(String),
    /// Findings that began, and the course of the recording.
    Marks {
        /// Oldest first, after those of earlier messages.
        marks: Vec<FindingMark>,
        /// Points of graphs, oldest first, after those of earlier messages.
        points: Vec<Arc<TrendPoint>>,
        /// When findings were there, as far as is known.
        findings: Vec<FindingSpan>,
        /// How far the thread has searched, as [`TimelineFrame::at`]; `None` for to the end.
        until: Option<u64>,
    },
}

enum ReplayCommand {
    Seek(SeekTarget),
    Hold,
    Speed(u32),
}

/// The side of the display.
#[derive(Debug)]
pub struct ReplayTimeline {
    orders: Sender<ReplayCommand>,
    span: TimeSpan,
    shown: Option<TimelineFrame>,
    nothing: FleetState,
    motion: PlaybackState,
    speed: u32,
    marks: Vec<FindingMark>,
    points: Vec<Arc<TrendPoint>>,
    findings: Vec<FindingSpan>,
    searched: Option<u64>,
    remark: Option<String>,
}

impl ReplayTimeline {
    /// Starts at the moment at `start`, playing. `past` and `again` read the same; `tell` hands
    /// updates to the display and is `false` when that has ended.
    pub fn start<P, T>(past: P, again: P, span: TimeSpan, start: u64, tell: T) -> Self
    where
        P: FrameSource + Send + 'static,
        T: Fn(ReplayUpdate) -> bool + Clone + Send + 'static,
    {
        let (orders, inbox) = channel();
        let projector = FrameReader::new(past, tell.clone(), start);
        thread::spawn(move || projector.run(&inbox));
        thread::spawn(move || search(again, &tell));
        Self {
            orders,
            span,
            shown: None,
            nothing: FleetState { advice: "Reading ...".to_owned(), ..FleetState::default() },
            motion: PlaybackState::Playing,
            speed: 1,
            marks: Vec::new(),
            points: Vec::new(),
            findings: Vec::new(),
            searched: Some(span.oldest),
            remark: None,
        }
    }

    /// Sends an order to the thread, which lives as long as the display.
    fn order(&self, order: ReplayCommand) {
        let _ = self.orders.send(order);
    }

    fn at(&self) -> u64 {
        self.shown.as_ref().map_or(self.span.oldest, |shown| self.span.clamp(shown.at))
    }

    fn searching(&self) -> Option<String> {
        let until = self.span.clamp(self.searched?) - self.span.oldest;
        let share = until as f64 / self.span.length().max(1) as f64;
        Some(format!("searching for findings: {}", pmdscope_render::number::percent(share)))
    }
}

impl Timeline for ReplayTimeline {
    type Update = ReplayUpdate;

    fn take(&mut self, update: ReplayUpdate) {
        match update {
            ReplayUpdate::Shown { moment, motion, notes } => {
                self.shown = Some(moment);
                self.motion = motion;
                self.remark = notes.last().map(|last| match notes.len() {
                    1 => last.clone(),
                    several => format!("{last} (and {} more)", several - 1),
                });
            }
            ReplayUpdate::Failed(why) => {
                self.motion = PlaybackState::Held;
                self.remark = Some(why);
            }
            ReplayUpdate::Marks { marks, points, findings, until } => {
                self.marks.extend(marks);
                self.points.extend(points);
                self.findings = findings;
                self.searched = until;
            }
        }
    }

    fn tick(&mut self, _monotonic_ns: u64, _realtime_ns: u64) {}

    fn fleet(&self) -> &FleetState {
        self.shown.as_ref().map_or(&self.nothing, |shown| &shown.fleet)
    }

    fn time_bar(&self) -> Option<TimeBar> {
        Some(TimeBar {
            at: self.at(),
            realtime_ns: self.shown.as_ref().map_or(self.at(), |shown| shown.fleet.realtime_ns),
            span: self.span,
            marks: self.marks.clone(),
            place: TimeBarKind::Replay { motion: self.motion, speed: self.speed },
            remark: self.remark.clone().or_else(|| self.searching()),
        })
    }

    fn trends(&self) -> Trends {
        let now = self.at();
        let from = |at: u64| self.points.partition_point(|point| point.at < at);
        let shown = from(now.saturating_sub(TREND_NS))..from(now.saturating_add(1));
        let remembered = self.findings.iter().filter(|span| span.is_remembered(now));
        Trends {
            now,
            points: self.points[shown].to_vec(),
            marks: self.marks.clone(),
            since: self.span.oldest,
            findings: remembered.cloned().collect(),
        }
    }

    fn seek(&mut self, to: SeekTarget) {
        if let Some(to) = resolve(to, self.at(), &self.marks) {
            self.order(ReplayCommand::Seek(to));
        }
    }

    fn hold(&mut self) {
        self.order(ReplayCommand::Hold);
    }

    fn hasten(&mut self, faster: bool) -> bool {
        let next = if faster {
            SPEEDS.iter().find(|&&speed| speed > self.speed)
        } else {
            SPEEDS.iter().rev().find(|&&speed| speed < self.speed)
        };
        self.speed = next.copied().unwrap_or(self.speed);
        self.order(ReplayCommand::Speed(self.speed));
        true
    }
}

/// How the time of a recording passes.
#[derive(Clone, Copy, Debug)]
struct PlaybackClock {
    speed: u32,
    playing: bool,
    /// The moment at `from` was due then.
    since: Instant,
    from: u64,
}

impl PlaybackClock {
    fn of(speed: u32, from: u64) -> Self {
        Self { speed, playing: true, since: Instant::now(), from }
    }

    /// How long to wait for the moment at `at`.
    fn wait(&self, at: u64) -> Duration {
        let after = Duration::from_nanos(at.saturating_sub(self.from)) / self.speed.max(1);
        after.saturating_sub(self.since.elapsed())
    }

    /// Counts from the moment at `from` and from now on.
    fn anchor(&mut self, from: u64) {
        (self.since, self.from) = (Instant::now(), from);
    }
}

/// Reads the moments to show.
struct FrameReader<P, T> {
    past: P,
    tell: T,
    at: u64,
    pace: PlaybackClock,
    shown: Option<TimelineFrame>,
    /// There is nothing after the shown moment.
    ended: bool,
}

/// The display has ended.
struct DisplayClosed;

impl<P: FrameSource, T: Fn(ReplayUpdate) -> bool> FrameReader<P, T> {
    fn new(past: P, tell: T, at: u64) -> Self {
        Self { past, tell, at, pace: PlaybackClock::of(1, at), shown: None, ended: false }
    }

    fn run(mut self, inbox: &Receiver<ReplayCommand>) {
        let _ = self.seek(SeekTarget::At(self.at)).and_then(|()| self.project(inbox));
    }

    fn project(&mut self, inbox: &Receiver<ReplayCommand>) -> Result<(), DisplayClosed> {
        loop {
            let next = if self.pace.playing { self.next()? } else { None };
            let order = match &next {
                Some(next) => self.until(next.at, inbox),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match (order, next) {
                (Ok(order), _) => self.obey(order, inbox)?,
                (Err(RecvTimeoutError::Timeout), Some(next)) => self.show(next)?,
                (Err(_), _) => return Err(DisplayClosed),
            }
        }
    }

    /// The moment that is played next; without one the playing has ended.
    fn next(&mut self) -> Result<Option<TimelineFrame>, DisplayClosed> {
        match self.past.after(self.at) {
            Ok(Some(next)) => Ok(Some(next)),
            Ok(None) => {
                self.pace.playing = false;
                self.ended = true;
                self.show_again().map(|()| None)
            }
            Err(error) => self.fail(&error).map(|()| None),
        }
    }

    /// Waits until a moment is due, or an order comes.
    fn until(
        &mut self,
        at: u64,
        inbox: &Receiver<ReplayCommand>,
    ) -> Result<ReplayCommand, RecvTimeoutError> {
        let wait = self.pace.wait(at);
        if wait > LONGEST_WAIT {
            self.pace.anchor(at);
            self.pace.since += LONGEST_WAIT;
        }
        inbox.recv_timeout(wait.min(LONGEST_WAIT))
    }

    fn obey(
        &mut self,
        order: ReplayCommand,
        inbox: &Receiver<ReplayCommand>,
    ) -> Result<(), DisplayClosed> {
        let mut seeks = Vec::new();
        for order in std::iter::once(order).chain(inbox.try_iter()) {
            match order {
                ReplayCommand::Seek(to) => fold(&mut seeks, to),
                ReplayCommand::Hold => self.pace.playing = !self.pace.playing,
                ReplayCommand::Speed(speed) => self.pace.speed = speed,
            }
        }
        self.pace.anchor(self.at);
        if seeks.is_empty() {
            return self.show_again();
        }
        seeks.into_iter().try_for_each(|to| self.seek(to))
    }

    fn seek(&mut self, to: SeekTarget) -> Result<(), DisplayClosed> {
        match self.past.seek(self.at, to) {
            Ok(Some(moment)) => {
                self.pace.anchor(moment.at);
                self.show(moment)
            }
            Ok(None) => Ok(()),
            Err(error) => self.fail(&error),
        }
    }

    fn show(&mut self, moment: TimelineFrame) -> Result<(), DisplayClosed> {
        self.at = moment.at;
        self.ended = self.past.span().is_some_and(|span| span.newest <= moment.at);
        self.shown = Some(moment);
        self.show_again()
    }

    fn show_again(&self) -> Result<(), DisplayClosed> {
        let Some(moment) = self.shown.clone() else { return Ok(()) };
        let motion = match (self.ended, self.pace.playing) {
            (true, _) => PlaybackState::Ended,
            (false, true) => PlaybackState::Playing,
            (false, false) => PlaybackState::Held,
        };
        self.say(ReplayUpdate::Shown { moment, motion, notes: self.past.notes() })
    }

    fn fail(&mut self, error: &P::Error) -> Result<(), DisplayClosed> {
        self.pace.playing = false;
        self.say(ReplayUpdate::Failed(error.to_string()))
    }

    fn say(&self, update: ReplayUpdate) -> Result<(), DisplayClosed> {
        if (self.tell)(update) { Ok(()) } else { Err(DisplayClosed) }
    }
}

/// Adds a request to those not fulfilled yet, and drops those that it makes void.
fn fold(wishes: &mut Vec<SeekTarget>, to: SeekTarget) {
    match (wishes.last_mut(), to) {
        (Some(SeekTarget::Step(steps)), SeekTarget::Step(more)) => {
            *steps = steps.saturating_add(more);
        }
        (Some(SeekTarget::By(ns)), SeekTarget::By(more)) => *ns = ns.saturating_add(more),
        (_, SeekTarget::Step(_) | SeekTarget::By(_)) => wishes.push(to),
        _ => *wishes = vec![to],
    }
}

/// Looks for findings that began, from the oldest moment to the newest.
fn search<P: FrameSource>(mut past: P, tell: &impl Fn(ReplayUpdate) -> bool) {
    let mut found = SearchResults::of(past.span());
    let mut told = Instant::now();
    let mut last: Option<u64> = None;
    loop {
        let next = match last {
            None => past.at(0),
            Some(at) => past.after(at),
        };
        // An error in reading is reported when the user goes there.
        let Ok(Some(moment)) = next else { break };
        last = Some(moment.at);
        found.add(moment);
        if told.elapsed() >= MARKS_INTERVAL {
            told = Instant::now();
            if !tell(found.update(last)) {
                return;
            }
        }
    }
    tell(found.update(None));
}

/// What was found in a recording, and was not published yet.
#[derive(Default)]
struct SearchResults {
    marks: Vec<FindingMark>,
    newest_mark: Option<u64>,
    points: Vec<Arc<TrendPoint>>,
    point_step: u64,
    /// The newest point, until there is one that is far enough from it.
    point: Option<TrendPoint>,
    newest_point: u64,
    findings: FindingLog,
    last: Option<Arc<FleetState>>,
}

impl SearchResults {
    fn of(span: Option<TimeSpan>) -> Self {
        let length = span.map_or(0, TimeSpan::length);
        Self { point_step: MARK_STEP_NS.max(length / POINTS), ..Self::default() }
    }

    fn add(&mut self, moment: TimelineFrame) {
        let TimelineFrame { at, fleet } = moment;
        if let Some(before) = &self.last
            && let Some(began) = began(before, &fleet)
            && self.newest_mark.is_none_or(|mark| at - mark >= MARK_STEP_NS)
        {
            self.newest_mark = Some(at);
            self.marks.push(FindingMark { at, began });
        }
        self.findings.update(at, &fleet);
        let mut point = TrendPoint::of(at, &fleet);
        match self.point.take() {
            Some(before) if before.at - self.newest_point >= self.point_step => self.keep(before),
            Some(before) => point.replace(&before),
            None => {}
        }
        self.point = Some(point);
        self.last = Some(fleet);
    }

    fn keep(&mut self, point: TrendPoint) {
        self.newest_point = point.at;
        self.points.push(Arc::new(point));
    }

    /// What was not published yet; `until` as in [`ReplayUpdate::Marks`].
    fn update(&mut self, until: Option<u64>) -> ReplayUpdate {
        if until.is_none()
            && let Some(last) = self.point.take()
        {
            self.keep(last);
        }
        ReplayUpdate::Marks {
            marks: std::mem::take(&mut self.marks),
            points: std::mem::take(&mut self.points),
            findings: self.findings.spans().to_vec(),
            until,
        }
    }
}
