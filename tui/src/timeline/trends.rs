//! What graphs show of the time before the displayed moment, and since when findings are there.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint, Severity};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::PoolSample;
use pmdscope_telemetry::{AppState, FleetState};

use super::gaps::GapPoint;
use super::marks::FindingMark;
use crate::clock::NS_PER_SECOND;

/// Longest time that graphs go back, nanoseconds.
pub const TREND_NS: u64 = 300 * NS_PER_SECOND;

/// For so long findings are remembered, nanoseconds.
pub const HISTORY_NS: u64 = 600 * NS_PER_SECOND;

/// Without a point for this long, there is a gap; nanoseconds. Longer where points are far apart.
const GAP_NS: u64 = 5 * NS_PER_SECOND;

/// What an app has in this time after it was first heard of, it may have had before; nanoseconds.
const SETTLE_NS: u64 = 5 * NS_PER_SECOND;

/// A finding that comes back in this time was not gone, nanoseconds.
const BACK_NS: u64 = 5 * NS_PER_SECOND;

/// The values of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TrendPoint {
    /// When, as [`super::TimelineFrame::at`].
    pub at: u64,
    /// The apps that answered, by name.
    pub apps: Vec<AppPoint>,
}

/// The values of one app; `None` where they are not known.
#[derive(Clone, Debug, PartialEq)]
pub struct AppPoint {
    /// Its name.
    pub app: String,
    /// Packets per second received by all its ports.
    pub rx_pps: Option<f64>,
    /// Packets per second sent.
    pub tx_pps: Option<f64>,
    /// Packets per second missed by the NICs.
    pub missed_ps: Option<f64>,
    /// Use of its fullest pool, 0 to 1.
    pub pool_used: Option<f64>,
    /// Its pools of which the use is known.
    pub pools: Vec<PoolPoint>,
    /// Its lcores of which the gaps between polls are known.
    pub lcores: Vec<GapPoint>,
}

/// The use of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPoint {
    /// Its name.
    pub name: String,
    /// Objects in use.
    pub in_use: u64,
}

impl AppPoint {
    fn of(app: &AppState, model: &Model) -> Self {
        Self {
            app: app.name.clone(),
            rx_pps: model.sum_of_ports(|rates| rates.rx_pps),
            tx_pps: model.sum_of_ports(|rates| rates.tx_pps),
            missed_ps: model.sum_of_ports(|rates| rates.rx_missed_ps),
            // A new process has other pools: a gap tells them apart.
            pool_used: model.fullest_pool_ratio().filter(|_| !model.restarted),
            pools: if model.restarted { Vec::new() } else { PoolPoint::all(model) },
            lcores: GapPoint::all(model),
        }
    }

    /// Gaps of that lcore.
    pub fn gaps(&self, lcore: u32) -> Option<&GapPoint> {
        self.lcores.iter().find(|point| point.lcore == lcore)
    }

    /// Objects in use of that pool.
    pub fn in_use(&self, pool: &str) -> Option<f64> {
        self.pools.iter().find(|point| point.name == pool).map(|point| point.in_use as f64)
    }
}

impl PoolPoint {
    fn all(model: &Model) -> Vec<Self> {
        let point = |pool: &PoolSample| {
            let in_use = pool.occupancy?.in_use;
            Some(Self { name: pool.name.clone(), in_use })
        };
        model.sample.pools.iter().filter_map(point).collect()
    }
}

impl TrendPoint {
    /// The values of that state.
    pub fn of(at: u64, fleet: &FleetState) -> Self {
        let live = fleet.live_models();
        Self { at, apps: live.map(|(app, model)| AppPoint::of(app, model)).collect() }
    }

    /// Stands for an earlier point as well: packets that were missed, and gaps, are not forgotten.
    pub fn replace(&mut self, earlier: &Self) {
        for app in &mut self.apps {
            if let Some(before) = earlier.app(&app.app) {
                app.missed_ps =
                    [app.missed_ps, before.missed_ps].into_iter().flatten().reduce(f64::max);
                for lcore in &mut app.lcores {
                    before.gaps(lcore.lcore).into_iter().for_each(|gaps| lcore.replace(gaps));
                }
            }
        }
    }

    /// The values of that app.
    pub fn app(&self, name: &str) -> Option<&AppPoint> {
        let index = self.apps.binary_search_by(|app| app.app.as_str().cmp(name)).ok()?;
        self.apps.get(index)
    }

    /// The sum over all apps of which the value is known.
    pub fn sum(&self, of: impl Fn(&AppPoint) -> Option<f64>) -> Option<f64> {
        self.apps.iter().filter_map(of).reduce(|a, b| a + b)
    }
}

/// The value of several points that share a column of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnValue {
    /// Their mean.
    Mean,
    /// The highest: short losses must be seen.
    Highest,
}

/// The time before a moment.
#[derive(Clone, Debug, Default)]
pub struct Trends {
    /// The displayed moment, as [`super::TimelineFrame::at`].
    pub now: u64,
    /// Points of [`TREND_NS`] up to the displayed moment, oldest first.
    pub points: Vec<Arc<TrendPoint>>,
    /// Moments in which a finding began, oldest first.
    pub marks: Vec<FindingMark>,
    /// The oldest moment of which the findings are known.
    pub since: u64,
    /// Findings of [`HISTORY_NS`] up to the displayed moment, in the order in which they began.
    pub findings: Vec<FindingSpan>,
}

/// For how long a finding has been there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindingAge {
    /// Seconds.
    pub seconds: f64,
    /// It may have been there before it could be seen.
    pub at_least: bool,
}

impl Trends {
    /// How long the points go back, nanoseconds: 1, 2 or 5 minutes, the shortest that holds them all.
    pub fn length_ns(&self) -> u64 {
        let oldest = self.points.first().map_or(self.now, |point| point.at);
        let held = self.now.saturating_sub(oldest);
        let lengths = [60, 120].map(|seconds| seconds * NS_PER_SECOND);
        lengths.into_iter().find(|length| held <= *length).unwrap_or(TREND_NS)
    }

    /// The last `length_ns` in so many columns, oldest first; `None` where nothing is known.
    pub fn columns(
        &self,
        length_ns: u64,
        columns: usize,
        joined: ColumnValue,
        value: impl Fn(&TrendPoint) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let axis = TimeAxis::new(self.now, length_ns, columns);
        let mut sums = vec![(0.0, 0_u32); columns];
        let gap_ns = self.gap_ns();
        let mut before: Option<u64> = None;
        for point in &self.points {
            let close = before.filter(|before| point.at.saturating_sub(*before) <= gap_ns);
            let last = axis.column(point.at);
            // A rate is that of the time since the point before.
            let first = close.map_or(last, |before| axis.column(before) + 1).min(last);
            before = Some(point.at);
            let Some(value) = value(point) else { continue };
            for column in first.max(0)..=last {
                let Some(sum) = usize::try_from(column).ok().and_then(|at| sums.get_mut(at)) else {
                    continue;
                };
                *sum = match joined {
                    ColumnValue::Mean => (sum.0 + value, sum.1 + 1),
                    ColumnValue::Highest => (value.max(sum.0), 1),
                };
            }
        }
        sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
    }

    /// The columns in which findings began.
    pub fn marked(&self, length_ns: u64, columns: usize) -> Vec<(usize, FindingMark)> {
        let axis = TimeAxis::new(self.now, length_ns, columns);
        let column = |mark: &FindingMark| {
            let column = usize::try_from(axis.column(mark.at)).ok()?;
            (column < columns && mark.at <= self.now).then_some((column, *mark))
        };
        self.marks.iter().filter_map(column).collect()
    }

    fn gap_ns(&self) -> u64 {
        let mut steps: Vec<u64> =
            self.points.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect();
        let middle = steps.len() / 2;
        if steps.is_empty() {
            return GAP_NS;
        }
        let (_, median, _) = steps.select_nth_unstable(middle);
        GAP_NS.max(median.saturating_mul(3))
    }

    /// How long that finding has been there.
    pub fn age(&self, finding: &Finding) -> Option<FindingAge> {
        let is_there = |span: &&FindingSpan| span.is_of(finding) && span.covers(self.now);
        self.findings.iter().find(is_there).map(|span| self.age_of(span))
    }

    /// How long ago that began.
    pub(crate) fn age_of(&self, span: &FindingSpan) -> FindingAge {
        let seconds = self.now.saturating_sub(span.began) as f64 / 1e9;
        FindingAge { seconds, at_least: span.at_least }
    }

    /// The findings that have ended and are not there again, the last time of each, newest first.
    pub(crate) fn ended(&self) -> Vec<&FindingSpan> {
        let mut ended: Vec<&FindingSpan> = Vec::new();
        for span in self.findings.iter().rev() {
            if !ended.iter().any(|newer| newer.is_same(span)) {
                ended.push(span);
            }
        }
        ended.retain(|span| !span.covers(self.now));
        ended.sort_by_key(|span| std::cmp::Reverse(span.ended));
        ended
    }

    /// The times at which a finding was there, in the order in which they began.
    pub(crate) fn times<'a>(
        &'a self,
        is_it: impl Fn(&FindingSpan) -> bool + 'a,
    ) -> impl Iterator<Item = &'a FindingSpan> {
        self.findings.iter().filter(move |span| is_it(span))
    }

    /// Whether a finding was there, over [`HISTORY_NS`] in so many columns: 1 or 0, `None` where
    /// nothing is known.
    pub(crate) fn presence(
        &self,
        columns: usize,
        is_it: impl Fn(&FindingSpan) -> bool,
    ) -> Vec<Option<f64>> {
        let axis = TimeAxis::new(self.now, HISTORY_NS, columns);
        let clamp = |column: i64| usize::try_from(column).unwrap_or(0).min(columns);
        let mut values = vec![Some(0.0); columns];
        values[..clamp(axis.column(self.since))].fill(None);
        for span in self.times(is_it) {
            let ended = span.ended.filter(|ended| *ended <= self.now).unwrap_or(self.now);
            let (first, last) = (clamp(axis.column(span.began)), clamp(axis.column(ended) + 1));
            values[first..last.max(first)].fill(Some(1.0));
        }
        values
    }
}

/// Columns of the same length; they begin at multiples of it, so that values keep their column.
struct TimeAxis {
    step: u64,
    /// Number of the column after the last one, counted from time 0.
    end: i64,
    columns: i64,
}

impl TimeAxis {
    fn new(now: u64, length_ns: u64, columns: usize) -> Self {
        let step = (length_ns / (columns as u64).max(1)).max(1);
        let columns = i64::try_from(columns).unwrap_or(i64::MAX);
        Self { step, end: number(now, step) + 1, columns }
    }

    /// Negative for one before the axis.
    fn column(&self, at: u64) -> i64 {
        number(at, self.step) - self.end + self.columns
    }
}

fn number(at: u64, step: u64) -> i64 {
    i64::try_from(at / step).unwrap_or(i64::MAX / 2)
}

/// The time in which a finding was there.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingSpan {
    /// App; empty for the host.
    pub app: String,
    /// Which.
    pub lint: Lint,
    /// What it is about.
    pub about: FindingSubject,
    /// How bad it was when it began.
    pub severity: Severity,
    /// Its evidence when it began.
    pub evidence: String,
    /// When it began, as [`super::TimelineFrame::at`].
    pub began: u64,
    /// When it ended; `None` while it is there.
    pub ended: Option<u64>,
    /// It may have been there before.
    pub at_least: bool,
}

impl FindingSpan {
    /// It is one of that finding.
    pub fn is_of(&self, finding: &Finding) -> bool {
        (&self.app, self.lint, &self.about) == (&finding.app, finding.lint, &finding.subject)
    }

    /// Both are of the same finding.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.app, self.lint, &self.about) == (&other.app, other.lint, &other.about)
    }

    /// It began by then, and was there in [`HISTORY_NS`] before.
    pub(crate) fn is_remembered(&self, now: u64) -> bool {
        let oldest = now.saturating_sub(HISTORY_NS);
        self.began <= now && self.ended.is_none_or(|ended| ended >= oldest)
    }

    /// It was there at that time.
    pub fn covers(&self, at: u64) -> bool {
        self.began <= at && self.ended.is_none_or(|ended| at < ended)
    }
}

/// When findings began and ended.
#[derive(Clone, Debug, Default)]
pub struct FindingLog {
    spans: Vec<FindingSpan>,
    /// When apps were first heard of.
    heard: BTreeMap<String, u64>,
    /// The first state.
    began: Option<u64>,
}

impl FindingLog {
    /// Takes in the findings at that time, which is not before the last one.
    pub fn update(&mut self, at: u64, fleet: &FleetState) {
        let began = *self.began.get_or_insert(at);
        for (app, _) in fleet.models() {
            self.heard.entry(app.name.clone()).or_insert(at);
        }
        let findings = fleet.findings();
        for (_, finding) in &findings {
            let heard = self.heard.get(&finding.app).copied().unwrap_or(began);
            let mut spans = self.spans.iter_mut().rev();
            match spans.find(|span| span.is_of(finding)) {
                Some(span) if span.ended.is_none_or(|ended| at - ended <= BACK_NS) => {
                    span.ended = None;
                }
                _ => self.spans.push(FindingSpan {
                    app: finding.app.clone(),
                    lint: finding.lint,
                    about: finding.subject.clone(),
                    severity: finding.severity,
                    evidence: finding.evidence.clone(),
                    began: at,
                    ended: None,
                    at_least: at - heard <= SETTLE_NS,
                }),
            }
        }
        let gone = |span: &&mut FindingSpan| {
            span.ended.is_none() && !findings.iter().any(|(_, finding)| span.is_of(finding))
        };
        self.spans.iter_mut().filter(gone).for_each(|span| span.ended = Some(at));
    }

    /// Forgets those that ended before.
    pub fn forget(&mut self, before: u64) {
        self.spans.retain(|span| span.ended.is_none_or(|ended| ended >= before));
    }

    /// All that are known, in the order in which they began.
    pub fn spans(&self) -> &[FindingSpan] {
        &self.spans
    }
}

#[cfg(test)]
mod tests;
