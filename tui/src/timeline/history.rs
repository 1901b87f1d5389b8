//! The last minutes of states, limited in time, number and memory.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use pmdscope_telemetry::FleetState;

use super::marks::{FindingMark, NewFindings};
use super::trends::{FindingLog, FindingSpan, HISTORY_NS, TREND_NS, TrendPoint, Trends};
use super::{FrameSource, TimeSpan, TimelineFrame, began, mem_size};
use crate::clock::NS_PER_SECOND;

/// How much a history keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Length, nanoseconds.
    pub length_ns: u64,
    /// Closer moments become one, nanoseconds.
    pub step_ns: u64,
    /// Most moments, at least 2.
    pub moments: usize,
    /// Most memory, bytes, as far as more than the newest moment is kept.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            length_ns: HISTORY_NS,
            step_ns: NS_PER_SECOND / 2,
            moments: 1_500,
            bytes: 64 * 1024 * 1024,
        }
    }
}

/// Moments of a running machine, oldest first, by the monotonic clock.
///
/// Models are shared with all others that hold them. When it grows too large, moments that are old
/// and close to their neighbours go first, those in which a finding began last: far back it gets
/// coarser, not shorter.
#[derive(Debug, Default)]
pub struct FrameHistory {
    limits: HistoryLimits,
    kept: VecDeque<StoredFrame>,
    findings: FindingLog,
    bytes: usize,
}

#[derive(Debug)]
struct StoredFrame {
    moment: TimelineFrame,
    point: Arc<TrendPoint>,
    began: Option<NewFindings>,
    /// Bytes of the state itself with its point, and of each of its models.
    own: usize,
    models: Vec<usize>,
}

impl StoredFrame {
    /// Bytes that `before` does not hold as well.
    fn bytes(&self, before: Option<&Self>) -> usize {
        let apps = self.moment.fleet.apps.iter().zip(&self.models);
        let new = apps.filter(|(app, _)| {
            let earlier = before.and_then(|kept| kept.moment.fleet.find(&app.name));
            match (earlier.and_then(|earlier| earlier.model.as_ref()), &app.model) {
                (Some(earlier), Some(model)) => !Arc::ptr_eq(earlier, model),
                _ => true,
            }
        });
        self.own + new.map(|(_, bytes)| bytes).sum::<usize>()
    }
}

impl FrameHistory {
    /// An empty one.
    pub fn new(limits: HistoryLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Keeps `fleet` as its newest moment; one that is older than the newest is ignored.
    pub fn push(&mut self, fleet: &FleetState) {
        let at = fleet.now_ns;
        let last = self.kept.back();
        if last.is_some_and(|last| last.moment.at > at) {
            return;
        }
        let mut new = last.and_then(|last| began(&last.moment.fleet, fleet));
        self.findings.update(at, fleet);
        let mut point = TrendPoint::of(at, fleet);
        if self.unsettled()
            && let Some(last) = self.remove(self.kept.len() - 1)
        {
            new = last.began.into_iter().chain(new).reduce(NewFindings::with);
            point.replace(&last.point);
        }
        self.kept.push_back(StoredFrame {
            own: mem_size::members(fleet),
            models: mem_size::models(fleet),
            moment: TimelineFrame { at, fleet: Arc::new(fleet.clone()) },
            point: Arc::new(point),
            began: new,
        });
        self.bytes += self.charge(self.kept.len() - 1);
        self.forget(at);
    }

    /// The newest moment makes room for a newer one: it is too close to the one before, unless a
    /// finding began in it.
    fn unsettled(&self) -> bool {
        let mut newest = self.kept.iter().rev();
        let (Some(last), Some(before)) = (newest.next(), newest.next()) else { return false };
        let close = last.moment.at - before.moment.at < self.limits.step_ns;
        close && (last.began.is_none() || before.began.is_some())
    }

    fn forget(&mut self, now: u64) {
        let oldest = now.saturating_sub(self.limits.length_ns);
        while self.kept.front().is_some_and(|kept| kept.moment.at < oldest) {
            self.remove(0);
        }
        self.findings.forget(oldest);
        while self.kept.len() > self.limits.moments.max(2) || self.bytes > self.limits.bytes {
            match self.least() {
                Some(index) => self.remove(index),
                None if self.kept.len() > 1 => self.remove(0),
                None => return,
            };
        }
    }

    fn remove(&mut self, index: usize) -> Option<StoredFrame> {
        self.bytes -= self.charge(index) + self.charge(index + 1);
        let removed = self.kept.remove(index);
        self.bytes += self.charge(index);
        removed
    }

    /// Bytes that a moment adds to those before it; 0 for none.
    fn charge(&self, index: usize) -> usize {
        let before = index.checked_sub(1).and_then(|before| self.kept.get(before));
        self.kept.get(index).map_or(0, |kept| kept.bytes(before))
    }

    /// The moment that is missed least; never the oldest or the newest.
    fn least(&self) -> Option<usize> {
        let newest = self.kept.back()?.moment.at;
        let at = |index: usize| self.kept[index].moment.at;
        let value = |index: &usize| {
            let gap = at(index + 1) - at(index - 1);
            let age = newest - at(*index) + NS_PER_SECOND;
            let worth = if self.kept[*index].began.is_some() { 16.0 } else { 1.0 };
            worth * gap as f64 / age as f64
        };
        (1..self.kept.len().saturating_sub(1)).min_by(|a, b| value(a).total_cmp(&value(b)))
    }

    /// Moments in which a finding began, oldest first. What there was from the beginning has not
    /// begun.
    pub fn marks(&self) -> Vec<FindingMark> {
        let mark =
            |kept: &StoredFrame| Some(FindingMark { at: kept.moment.at, began: kept.began? });
        self.kept.iter().filter_map(mark).collect()
    }

    /// What graphs show at `now`.
    pub fn trends(&self, now: u64) -> Trends {
        let oldest = now.saturating_sub(TREND_NS);
        let first = self.kept.partition_point(|kept| kept.moment.at < oldest);
        let points = self.kept.range(first..).take_while(|kept| kept.moment.at <= now);
        let is_remembered = |span: &&FindingSpan| span.is_remembered(now);
        Trends {
            now,
            points: points.map(|kept| Arc::clone(&kept.point)).collect(),
            marks: self.marks(),
            since: self.kept.front().map_or(now, |kept| kept.moment.at),
            findings: self.findings.spans().iter().filter(is_remembered).cloned().collect(),
        }
    }

    /// Memory that it keeps from being freed, bytes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn moment(&self, index: usize) -> Option<TimelineFrame> {
        self.kept.get(index).map(|kept| kept.moment.clone())
    }
}

impl FrameSource for FrameHistory {
    type Error = Infallible;

    fn span(&self) -> Option<TimeSpan> {
        let (oldest, newest) = (self.kept.front()?.moment.at, self.kept.back()?.moment.at);
        Some(TimeSpan { oldest, newest })
    }

    fn at(&mut self, at: u64) -> Result<Option<TimelineFrame>, Infallible> {
        let later = self.kept.partition_point(|kept| kept.moment.at <= at);
        Ok(self.moment(later.saturating_sub(1)))
    }

    fn after(&mut self, at: u64) -> Result<Option<TimelineFrame>, Infallible> {
        Ok(self.moment(self.kept.partition_point(|kept| kept.moment.at <= at)))
    }
}
