//! How rates and pools went over the time of a recording, in as many steps as a graph can show.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use jiff::tz::TimeZone;
use pmdscope_recording::RecordingPlayer;
use pmdscope_render::number;
use pmdscope_telemetry::model::{Model, PortRates};
use pmdscope_telemetry::sample::PortSample;
use pmdscope_telemetry::{FleetSettings, FleetState};

use crate::source;

/// Steps of the time axis.
pub(super) const STEPS: usize = 160;
/// Most apps, most lines of all apps together, and of one graph.
const MOST_APPS: usize = 64;
const MOST_LINES: usize = 1024;
const MOST_OF_GRAPH: usize = 64;
/// Most notes about the recording.
const MOST_NOTES: usize = 20;

/// A rate of a port.
type PortRate = fn(&PortRates) -> Option<f64>;

/// What a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quantity {
    /// Packets received per second, by port.
    Received,
    /// Packets sent per second, by port.
    Sent,
    /// Packets that the NIC missed per second, by port.
    Missed,
    /// Share of the objects of a mempool that are in use, 0 to 1.
    PoolUse,
}

/// All apps of a recording.
#[derive(Clone, Debug)]
pub(in crate::bundle) struct RecordedHistory {
    /// Wall clock of its begin and end, nanoseconds since the epoch.
    pub(super) span_ns: (u64, u64),
    /// Local time of the recorder.
    pub(super) zone: TimeZone,
    /// How often apps were asked.
    pub(super) rounds: u64,
    pub(super) apps: BTreeMap<String, AppHistory>,
    /// Apps of which nothing was kept.
    pub(super) left_out: BTreeSet<String>,
    /// The state at its end.
    pub(super) last: FleetState,
    /// What is damaged or missing in it.
    pub(super) notes: Vec<String>,
    /// Lines that may still be added.
    room: usize,
}

/// One app.
#[derive(Clone, Debug, Default)]
pub(super) struct AppHistory {
    pub(super) graphs: BTreeMap<Quantity, Vec<HistoryLine>>,
    /// Ports or pools of a graph that have no line, for lack of room.
    pub(super) left_out: BTreeMap<Quantity, usize>,
    /// Monotonic clock of its last sample, nanoseconds.
    last_ns: Option<u64>,
}

/// One port or pool.
#[derive(Clone, Debug)]
pub(super) struct HistoryLine {
    pub(super) name: String,
    /// One for each of [`STEPS`]; `None` without a value.
    pub(super) steps: Vec<Option<StepValues>>,
    /// The newest value.
    pub(super) last: f64,
}

/// The values of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepValues {
    pub(super) least: f64,
    pub(super) most: f64,
    sum: f64,
    count: u32,
}

/// When to stop reading a recording, which may be of any length.
pub(in crate::bundle) struct PlayLimit<'a> {
    pub(in crate::bundle) deadline: Instant,
    /// Nobody wants the page any more.
    pub(in crate::bundle) is_unwanted: &'a dyn Fn() -> bool,
}

impl RecordedHistory {
    /// Reads the recordings of a directory.
    ///
    /// # Errors
    ///
    /// When nothing in it can be read.
    pub(in crate::bundle) fn play(
        dir: &Path,
        settings: &FleetSettings,
        limit: &PlayLimit<'_>,
    ) -> Result<Self> {
        let mut player = RecordingPlayer::open(dir, settings)?;
        let mut history = Self::new(player.span(), source::time_zone(&player));
        loop {
            match player.next() {
                Ok(Some(fleet)) => history.note(fleet),
                Ok(None) => break,
                Err(error) => {
                    history.notes.push(error.to_string());
                    break;
                }
            }
            if (limit.is_unwanted)() || Instant::now() >= limit.deadline {
                let left_ns = history.span_ns.1.saturating_sub(player.fleet().realtime_ns);
                let left = number::seconds(left_ns as f64 / 1e9);
                history.notes.push(format!(
                    "the last {left} of the recording are not shown: reading it took too long"
                ));
                break;
            }
        }
        history.last = player.fleet().clone();
        let notes = player.notes().iter().take(MOST_NOTES).map(ToString::to_string);
        history.notes.extend(notes);
        Ok(history)
    }

    /// Nothing yet, of this time.
    pub(super) fn new(span_ns: (u64, u64), zone: TimeZone) -> Self {
        Self {
            span_ns,
            zone,
            rounds: 0,
            apps: BTreeMap::new(),
            left_out: BTreeSet::new(),
            last: FleetState::default(),
            notes: Vec::new(),
            room: MOST_LINES,
        }
    }

    /// Takes in the state after a round.
    pub(super) fn note(&mut self, fleet: &FleetState) {
        self.rounds += 1;
        let step = self.step(fleet.realtime_ns);
        for (app, model) in fleet.live_models() {
            let has_room = self.apps.len() < MOST_APPS;
            if !has_room && !self.apps.contains_key(&app.name) {
                self.left_out.insert(app.name.clone());
                continue;
            }
            let history = self.apps.entry(app.name.clone()).or_default();
            history.note(step, model, &mut self.room);
        }
    }

    /// The step of a moment.
    fn step(&self, realtime_ns: u64) -> usize {
        let (begin, end) = self.span_ns;
        let since = u128::from(realtime_ns.clamp(begin, end.max(begin)) - begin);
        let length = u128::from(end.saturating_sub(begin)) + 1;
        let step = since * STEPS as u128 / length;
        usize::try_from(step).map_or(STEPS - 1, |step| step.min(STEPS - 1))
    }
}

impl AppHistory {
    fn note(&mut self, step: usize, model: &Model, room: &mut usize) {
        // A round without an answer of this app shows its last one.
        if self.last_ns.replace(model.sample.monotonic_ns) == Some(model.sample.monotonic_ns) {
            return;
        }
        let mut graph = |quantity, values: Vec<(String, Option<f64>)>| {
            let lines = self.graphs.entry(quantity).or_default();
            let all = values.len();
            for (name, value) in values {
                let known = value.filter(|value| value.is_finite());
                add_value(lines, name, step, known, room);
            }
            let left_out = self.left_out.entry(quantity).or_default();
            *left_out = (*left_out).max(all.saturating_sub(lines.len()));
        };
        let rates: [(Quantity, PortRate); 3] = [
            (Quantity::Received, |rates| rates.rx_pps),
            (Quantity::Sent, |rates| rates.tx_pps),
            (Quantity::Missed, |rates| rates.rx_missed_ps),
        ];
        for (quantity, of) in rates {
            let ports = model.sample.ports.iter().zip(&model.ports);
            let value = |(port, rates): (&PortSample, &PortRates)| {
                (format!("{} {}", port.id, port.device), of(rates))
            };
            graph(quantity, ports.map(value).collect());
        }
        let pools = model.pools.iter().map(|pool| (pool.name.clone(), pool.used_ratio));
        graph(Quantity::PoolUse, pools.collect());
    }
}

/// Adds a value to the line of that name, which is made if there is room for it.
fn add_value(
    lines: &mut Vec<HistoryLine>,
    name: String,
    step: usize,
    value: Option<f64>,
    room: &mut usize,
) {
    let at = lines.iter().position(|line| line.name == name);
    let line = match at {
        Some(at) => lines.get_mut(at),
        None if lines.len() < MOST_OF_GRAPH && *room > 0 => {
            *room -= 1;
            lines.push(HistoryLine { name, steps: vec![None; STEPS], last: f64::NAN });
            lines.last_mut()
        }
        None => None,
    };
    if let (Some(line), Some(value)) = (line, value) {
        line.add(step, value);
    }
}

impl HistoryLine {
    fn add(&mut self, step: usize, value: f64) {
        self.last = value;
        let Some(values) = self.steps.get_mut(step) else { return };
        match values {
            Some(values) => values.add(value),
            None => *values = Some(StepValues::of(value)),
        }
    }

    /// The least, mean and greatest value; `None` without any.
    pub(super) fn range(&self) -> Option<(f64, f64, f64)> {
        let known = || self.steps.iter().flatten();
        let count: u32 = known().map(|values| values.count).sum();
        let sum: f64 = known().map(|values| values.sum).sum();
        let least = known().map(|values| values.least).reduce(f64::min)?;
        let most = known().map(|values| values.most).reduce(f64::max)?;
        Some((least, sum / f64::from(count), most))
    }

    /// The greatest value; 0 without any.
    pub(super) fn most(&self) -> f64 {
        self.range().map_or(0.0, |(_, _, most)| most)
    }
}

impl StepValues {
    /// One value.
    pub(super) fn of(value: f64) -> Self {
        Self { least: value, most: value, sum: value, count: 1 }
    }

    fn add(&mut self, value: f64) {
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        self.sum += value;
        self.count += 1;
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / f64::from(self.count)
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
