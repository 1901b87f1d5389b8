//! What was stolen between two samples, and since the start.

use std::collections::BTreeMap;

use pmdscope_interrupts::{StolenEvent, StolenHistogram, Tracer};
use pmdscope_telemetry::missed::polled_share;
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::{
    QueueDirection, QueueSample, StolenCause, StolenSample, TracingSample,
};
use pmdscope_telemetry::{Fleet, monotonic_ns, rate};
use serde::Serialize;

/// Who stole from which lcore of which app.
pub(super) type ThiefKey = (String, u32, StolenCause, String);

/// Time that one thief took from one lcore.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct StolenRow {
    #[serde(skip)]
    pub(super) app: String,
    /// lcore id.
    pub(super) lcore: u32,
    /// Kind of event.
    pub(super) cause: StolenCause,
    /// Name of the thief: action and number of an IRQ, name of a softirq or vector, or command of a thread.
    pub(super) thief: String,
    /// Number of events in the interval.
    pub(super) count: u64,
    /// Events per second.
    pub(super) count_ps: Option<f64>,
    /// Time stolen in the interval, nanoseconds; `None` if unknown.
    pub(super) stolen_ns: Option<u64>,
    /// Share of the interval that was stolen, 0 to 1, also if an event began before it; `None` if unknown.
    pub(super) stolen_ratio: Option<f64>,
    /// Length of the longest event since the start, nanoseconds; `None` if unknown.
    pub(super) longest_ns: Option<u64>,
    /// Wall clock at the start of the longest event, nanoseconds since 1970; `None` if unknown.
    pub(super) longest_realtime_ns: Option<u64>,
    /// Wall clock at the start of the last event with a known time, nanoseconds since 1970; `None` if
    /// unknown.
    pub(super) last_realtime_ns: Option<u64>,
}

/// The longest event that took the CPU from an lcore, and the state of the lcore in the same round.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LongestTheft {
    /// lcore id.
    pub(super) lcore: u32,
    /// Kind of event.
    pub(super) cause: StolenCause,
    /// Name of the thief: action and number of an IRQ, name of a softirq or vector, or command of a thread.
    pub(super) thief: String,
    /// Length of the event, without events inside it that are counted separately, nanoseconds.
    pub(super) duration_ns: u64,
    /// Wall clock at the start of the event, nanoseconds since 1970.
    pub(super) realtime_ns: u64,
    #[serde(flatten)]
    pub(super) state: LcoreState,
}

/// State of an lcore in the round of an event, as reported by libpmdscope; unknown at level 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LcoreState {
    /// Longest gap between two polls of the lcore in the last complete window, microseconds.
    pub(super) poll_gap_us: Option<u64>,
    /// The deepest receive queue that the lcore polls, in that window.
    pub(super) deepest_queue: Option<QueueDepth>,
    /// Packets per second that were missed by the ports that the lcore polls; `None` if no port reports it.
    pub(super) rx_missed_ps: Option<f64>,
}

/// Depth of a receive queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct QueueDepth {
    /// DPDK port id.
    pub(super) port: u16,
    /// Queue number.
    pub(super) queue: u16,
    /// Highest number of packets that waited in the queue, in the last complete window.
    pub(super) packets: u64,
    /// Number of descriptors of the queue; `None` if the driver does not report it.
    pub(super) descriptors: Option<u64>,
}

/// An event, its app, and the state of the lcore at that time.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AppEvent {
    /// Name of the app, by default its file-prefix.
    app: String,
    #[serde(flatten)]
    event: StolenEvent,
    #[serde(flatten)]
    state: LcoreState,
}

/// One app.
#[derive(Clone, Debug)]
pub(super) struct AppRound {
    pub(super) app: String,
    pub(super) pid: u32,
    pub(super) tracing: TracingSample,
    pub(super) histograms: Vec<StolenHistogram>,
    /// Worst first.
    pub(super) rows: Vec<StolenRow>,
    pub(super) around: Vec<LongestTheft>,
    /// Estimated share of the time of its lcores that tracing takes, 0 to 1.
    pub(super) overhead_ratio: Option<f64>,
}

/// Compares the samples of one round with those of the round before, and with those at the start.
#[derive(Debug)]
pub(super) struct Rounds {
    apps: Vec<AppRound>,
    begin: Snapshot,
    before: Snapshot,
    around: BTreeMap<(String, u32), LongestTheft>,
    last: BTreeMap<ThiefKey, u64>,
    events: Vec<AppEvent>,
    sequence: u64,
    seconds: f64,
}

/// Totals at one time.
#[derive(Clone, Debug)]
struct Snapshot {
    at_ns: u64,
    totals: BTreeMap<ThiefKey, StolenSample>,
    overhead_ns: BTreeMap<String, u64>,
}

/// The apps of which tracing is known.
pub(super) fn tracings(fleet: &Fleet) -> impl Iterator<Item = (&str, &TracingSample)> {
    models(fleet).filter_map(|(app, model)| Some((app, model.sample.tracing.as_ref()?)))
}

fn models(fleet: &Fleet) -> impl Iterator<Item = (&str, &Model)> {
    fleet.state.models().map(|(app, model)| (app.name.as_str(), model))
}

impl Snapshot {
    fn of(fleet: &Fleet, tracer: &Tracer) -> Self {
        let mut totals = BTreeMap::new();
        let mut overhead_ns = BTreeMap::new();
        for (app, tracing) in tracings(fleet) {
            overhead_ns.insert(app.to_owned(), tracing.overhead_ns);
            for stolen in &tracing.stolen {
                totals.insert(key(app, stolen), stolen.clone());
            }
        }
        Self { at_ns: tracer.counted_until_ns().unwrap_or_else(monotonic_ns), totals, overhead_ns }
    }
}

fn key(app: &str, stolen: &StolenSample) -> ThiefKey {
    (app.to_owned(), stolen.lcore, stolen.cause, stolen.thief.clone())
}

impl Rounds {
    pub(super) fn new(fleet: &Fleet, tracer: &Tracer) -> Self {
        let begin = Snapshot::of(fleet, tracer);
        let mut rounds = Self {
            apps: Vec::new(),
            before: begin.clone(),
            begin,
            around: BTreeMap::new(),
            last: BTreeMap::new(),
            events: Vec::new(),
            sequence: 0,
            seconds: 0.0,
        };
        // Events of the time before are ignored.
        rounds.sequence = tracer.events_after(0).last().map_or(0, |event| event.sequence);
        rounds
    }

    /// Takes in the samples of a round.
    pub(super) fn advance(&mut self, fleet: &Fleet, tracer: &Tracer) {
        let now = Snapshot::of(fleet, tracer);
        self.take_in_events(fleet, tracer);
        let before = std::mem::replace(&mut self.before, now.clone());
        self.compare(fleet, tracer, &before, &now);
    }

    /// Compares the last samples with the first ones.
    pub(super) fn finish(&mut self, fleet: &Fleet, tracer: &Tracer) {
        let now = Snapshot::of(fleet, tracer);
        self.take_in_events(fleet, tracer);
        let begin = self.begin.clone();
        self.compare(fleet, tracer, &begin, &now);
    }

    fn compare(&mut self, fleet: &Fleet, tracer: &Tracer, before: &Snapshot, now: &Snapshot) {
        self.seconds = now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        self.apps.clear();
        for (app, model) in models(fleet) {
            let Some(tracing) = &model.sample.tracing else { continue };
            let pid = model.sample.app.pid;
            let rows = self.rows(app, &tracing.stolen, before);
            let overhead =
                |snapshot: &Snapshot| snapshot.overhead_ns.get(app).copied().unwrap_or(0);
            let overhead_ns = overhead(now).saturating_sub(overhead(before)) as f64;
            let time_ns = self.seconds * 1e9 * tracing.lcores.len() as f64;
            let around = self.around.iter().filter(|((name, _), _)| name == app);
            self.apps.push(AppRound {
                app: app.to_owned(),
                pid,
                tracing: tracing.clone(),
                histograms: tracer.histograms(pid),
                rows,
                around: around.map(|(_, around)| around.clone()).collect(),
                overhead_ratio: (time_ns > 0.0).then_some(overhead_ns / time_ns),
            });
        }
    }

    fn rows(&self, app: &str, stolen: &[StolenSample], before: &Snapshot) -> Vec<StolenRow> {
        let row = |stolen: &StolenSample| {
            let key = key(app, stolen);
            let earlier = before.totals.get(&key);
            // An app that was restarted counts from 0 again.
            let earlier = earlier.filter(|earlier| earlier.count <= stolen.count);
            let count = stolen.count - earlier.map_or(0, |earlier| earlier.count);
            let earlier_ns = earlier.and_then(|earlier| earlier.stolen_ns).unwrap_or(0);
            let stolen_ns = stolen.stolen_ns.map(|ns| ns.saturating_sub(earlier_ns));
            (count > 0 || stolen_ns.is_some_and(|ns| ns > 0)).then(|| StolenRow {
                app: app.to_owned(),
                lcore: stolen.lcore,
                cause: stolen.cause,
                thief: stolen.thief.clone(),
                count,
                count_ps: rate(count, 0, self.seconds),
                stolen_ns,
                stolen_ratio: stolen_ns.and_then(|ns| share_of(ns, self.seconds)),
                longest_ns: stolen.longest_ns,
                longest_realtime_ns: stolen.longest_realtime_ns,
                last_realtime_ns: self.last.get(&key).copied(),
            })
        };
        let mut rows: Vec<StolenRow> = stolen.iter().filter_map(row).collect();
        sort(&mut rows);
        rows
    }

    fn take_in_events(&mut self, fleet: &Fleet, tracer: &Tracer) {
        for event in tracer.events_after(self.sequence) {
            self.sequence = event.sequence;
            let found = models(fleet).find(|(_, model)| model.sample.app.pid == event.pid);
            let Some((app, model)) = found else { continue };
            let key = (app.to_owned(), event.lcore, event.cause, event.thief.clone());
            self.last.insert(key, event.start_realtime_ns);
            let state = lcore_state(model, event.lcore);
            if let Some(state) = &state {
                self.note_longest(app, state, &event);
            }
            let state = state.unwrap_or_default();
            self.events.push(AppEvent { app: app.to_owned(), event, state });
        }
        // They may never be taken.
        let surplus = self.events.len().saturating_sub(MOST_EVENTS);
        self.events.drain(..surplus);
    }

    /// Remembers what else is known of the time of the longest theft of an lcore.
    fn note_longest(&mut self, app: &str, state: &LcoreState, event: &StolenEvent) {
        let key = (app.to_owned(), event.lcore);
        let known = self.around.get(&key);
        if event.cause == StolenCause::Sleep
            || known.is_some_and(|known| known.duration_ns >= event.duration_ns)
        {
            return;
        }
        let around = LongestTheft {
            lcore: event.lcore,
            cause: event.cause,
            thief: event.thief.clone(),
            duration_ns: event.duration_ns,
            realtime_ns: event.start_realtime_ns,
            state: state.clone(),
        };
        self.around.insert(key, around);
    }

    /// The apps of this round.
    pub(super) fn apps(&self) -> &[AppRound] {
        &self.apps
    }

    /// Length of this round.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The events that have come since this was asked last.
    pub(super) fn take_events(&mut self) -> Vec<AppEvent> {
        std::mem::take(&mut self.events)
    }
}

/// The share of an interval, at most 1: an event that began before it is counted in full when it ends.
fn share_of(ns: u64, seconds: f64) -> Option<f64> {
    rate(ns, 0, seconds).map(|ns_ps| (ns_ps / 1e9).min(1.0))
}

/// Events that wait to be printed.
const MOST_EVENTS: usize = 100_000;

/// Most time first, then most events.
fn sort(rows: &mut [StolenRow]) {
    rows.sort_by(|a, b| (b.stolen_ns, b.count, a.lcore).cmp(&(a.stolen_ns, a.count, b.lcore)));
}

/// `None` at level 0.
fn lcore_state(model: &Model, lcore: u32) -> Option<LcoreState> {
    let sample = model.sample.lcores.iter().find(|sample| sample.lcore == lcore)?;
    let ports = model.sample.ports.iter().zip(&model.ports);
    let polled = ports.filter(|(port, _)| polls_port(model, lcore, port.id));
    let missed = polled.filter_map(|(_, rates)| rates.rx_missed_ps);
    Some(LcoreState {
        poll_gap_us: Some(sample.gap_window_max_us).filter(|gap| *gap > 0),
        deepest_queue: deepest_queue(model, lcore),
        rx_missed_ps: missed.reduce(|sum, port| sum + port),
    })
}

fn receive_queues(model: &Model) -> impl Iterator<Item = &QueueSample> {
    model.sample.queues.iter().filter(|queue| queue.direction == QueueDirection::Rx)
}

fn polls_port(model: &Model, lcore: u32, port: u16) -> bool {
    let mut queues = receive_queues(model).filter(|queue| queue.port == port).peekable();
    if queues.peek().is_none() {
        return polled_share(model, lcore, port, None) > 0.0;
    }
    queues.any(|queue| polled_share(model, lcore, port, Some(queue.queue)) > 0.0)
}

fn deepest_queue(model: &Model, lcore: u32) -> Option<QueueDepth> {
    let polled = receive_queues(model)
        .filter(|queue| polled_share(model, lcore, queue.port, Some(queue.queue)) > 0.0);
    let depth = polled.filter_map(|queue| {
        Some(QueueDepth {
            port: queue.port,
            queue: queue.queue,
            packets: queue.depth_high_water.as_ref()?.window,
            descriptors: queue.descriptors,
        })
    });
    depth.max_by_key(|depth| depth.packets)
}

#[cfg(test)]
mod tests;
