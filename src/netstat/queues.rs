//! Is RSS balanced, and what makes a queue hot?

use std::collections::BTreeMap;

use pmdscope_flows::{Flow, FlowPlace, FlowSnapshot, QueueCounts};
use pmdscope_packets::{DIR_RX, DIR_TX};
use pmdscope_render::number::{UNKNOWN, count, known, percent, si};
use pmdscope_render::{Cell, Column, Subject, TextTable};
use pmdscope_telemetry::Thresholds;
use pmdscope_telemetry::finding::balance::QueueBalance;
use pmdscope_telemetry::model::{QueueGrowth, queue_packets};
use pmdscope_telemetry::sample::{PortSample, QueueDirection, Sample};
use serde::Serialize;

use super::args::Args;
use super::conversations;
use super::report_data::{self, AppCounters, ReportData, app_of, way};
use super::report_layout::ReportLayout;
use crate::capture::Direction as Wanted;

/// Conversations that are named of a hot queue.
const NAMED: usize = 3;
/// Characters of a bar that is full.
const BAR: f64 = 20.0;

/// Packets of a queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct QueueLoad {
    /// Name of the app; for files of other tools, name of the interface.
    pub(super) app: String,
    /// DPDK port, or number of the interface in a file.
    pub(super) port: u16,
    /// Direction: `rx`, `tx`, or `-` if a file does not report it.
    pub(super) direction: &'static str,
    /// Number of the queue; `None` if unknown.
    pub(super) queue: Option<u16>,
    /// Number of packets; `source` states which. An estimate if captured packets were sampled.
    pub(super) packets: u64,
    /// Share of the packets of all queues of the port in this direction, 0 to 1; `None` if there were none.
    pub(super) share: Option<f64>,
    /// Packets per second.
    pub(super) pps: Option<f64>,
    /// The lcore that handled the last captured packet; `None` if unknown.
    pub(super) lcore: Option<u16>,
    /// Where the packets were counted.
    pub(super) source: CountSource,
    /// Whether the queue has clearly more packets than the others.
    pub(super) hot: bool,
    /// The largest conversations of a hot queue.
    pub(super) flows: Vec<QueueLoadCause>,
    #[serde(skip)]
    dir: u8,
}

/// Where packets were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum CountSource {
    /// Counters of the app: all packets in the time of the report.
    Counters,
    /// Counters of the app: all packets since it began to count.
    CountersTotal,
    /// Captured packets, counted by pmdscope.
    Packets,
}

/// A conversation that makes a queue hot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct QueueLoadCause {
    /// Protocol and both ends of the conversation, as text, with its VLANs and tunnel if it has any.
    conversation: String,
    /// Captured packets of the conversation in this direction, also of other queues; an estimate if sampled.
    packets: u64,
    /// Share of the captured packets of the queue, 0 to 1; `None` if there were none.
    share: Option<f64>,
    /// Whether other queues had packets of the conversation as well.
    several: bool,
}

/// All queues, in their order.
pub(super) fn all(args: &Args, data: &ReportData) -> Vec<QueueLoad> {
    let snapshot = data.counted();
    let wanted = args.direction();
    let counted = data.counters.iter().filter(|_| !data.filtered);
    let mut loads =
        counted.flat_map(|counters| of_counters(counters, data, wanted)).collect::<Vec<_>>();
    let captured = of_packets(&snapshot, data, wanted);
    for load in captured {
        if let Some(known) = loads.iter_mut().find(|known| key(known) == key(&load)) {
            known.lcore = load.lcore;
        } else if !loads.iter().any(|known| is_counted(known, &load)) {
            loads.push(load);
        }
    }
    loads.sort_by(|a, b| key(a).cmp(&key(b)));
    weigh(&mut loads, &data.thresholds);
    for load in loads.iter_mut().filter(|load| load.hot) {
        load.flows = causes(data, &snapshot, load);
    }
    loads
}

fn key(load: &QueueLoad) -> (&str, u16, u8, Option<u16>) {
    (&load.app, load.port, load.dir, load.queue)
}

/// Counters of a port are complete: a queue that is not among them has none.
fn is_counted(known: &QueueLoad, load: &QueueLoad) -> bool {
    known.source != CountSource::Packets && same_port(known, load)
}

fn same_port(a: &QueueLoad, b: &QueueLoad) -> bool {
    (&a.app, a.port, a.dir) == (&b.app, b.port, b.dir)
}

/// Gives each its share, and finds the hot ones.
fn weigh(loads: &mut [QueueLoad], thresholds: &Thresholds) {
    let balances = loads.iter().map(|load| balance(loads, load)).collect::<Vec<_>>();
    for (load, balance) in loads.iter_mut().zip(balances) {
        load.share = balance.share(load.packets as f64);
        load.hot = balance.is_hot(load.packets as f64, thresholds);
    }
}

/// The queues of a port and direction.
fn balance(loads: &[QueueLoad], of: &QueueLoad) -> QueueBalance {
    let same = loads.iter().filter(|load| same_port(load, of));
    same.map(|load| load.packets as f64).collect()
}

fn is_wanted(dir: u8, wanted: Wanted) -> bool {
    dir == 0 || wanted.bits() & dir != 0
}

fn of_counters(counters: &AppCounters, data: &ReportData, wanted: Wanted) -> Vec<QueueLoad> {
    let mut loads = Vec::new();
    for (app, before, now) in counters.samples() {
        for port in now.ports.iter().filter(|port| data.includes(app, port)) {
            for dir in [DIR_RX, DIR_TX].into_iter().filter(|dir| is_wanted(*dir, wanted)) {
                loads.extend(of_port(app, port, dir, before, now));
            }
        }
    }
    loads
}

fn of_port(
    app: &str,
    port: &PortSample,
    dir: u8,
    before: Option<&Sample>,
    now: &Sample,
) -> Vec<QueueLoad> {
    let direction = if dir == DIR_RX { QueueDirection::Rx } else { QueueDirection::Tx };
    let growth = before.and_then(|before| QueueGrowth::between(before, now, port, direction));
    let (counts, pps, source) = if let Some(growth) = growth {
        (growth.packets, growth.pps, CountSource::Counters)
    } else {
        (queue_packets(now, port, direction), BTreeMap::new(), CountSource::CountersTotal)
    };
    let load = |(queue, packets): (u16, u64)| QueueLoad {
        app: app.to_owned(),
        port: port.id,
        direction: way(dir),
        queue: Some(queue),
        packets,
        share: None,
        pps: pps.get(&queue).copied(),
        lcore: None,
        source,
        hot: false,
        flows: Vec::new(),
        dir,
    };
    counts.into_iter().map(load).collect()
}

fn of_packets(snapshot: &FlowSnapshot, data: &ReportData, wanted: Wanted) -> Vec<QueueLoad> {
    let queues = snapshot.queues.iter().filter(|queue| is_wanted(queue.dir, wanted));
    let load = |queue: &QueueCounts| QueueLoad {
        app: app_of(snapshot, queue.app).to_owned(),
        port: queue.port,
        direction: way(queue.dir),
        queue: queue.queue,
        packets: queue.total.packets,
        share: None,
        pps: data.speed(snapshot, queue.total, queue.recent).map(|speed| speed.pps),
        lcore: queue.lcore,
        source: CountSource::Packets,
        hot: false,
        flows: Vec::new(),
        dir: queue.dir,
    };
    queues.map(load).collect()
}

/// The conversations with most packets of a queue.
fn causes(data: &ReportData, snapshot: &FlowSnapshot, load: &QueueLoad) -> Vec<QueueLoadCause> {
    let place = |flow: &Flow| if load.dir == DIR_TX { flow.tx_place } else { flow.rx_place };
    let here = |place: FlowPlace| place.port == load.port && place.queue == load.queue;
    let count = |flow: &Flow| {
        let (rx, tx) = report_data::directions(flow);
        if load.dir == DIR_TX { tx.packets } else { rx.packets }
    };
    let is_here = |flow: &&Flow| {
        app_of(snapshot, flow.app) == load.app && place(flow).is_some_and(here) && count(flow) > 0
    };
    let mut flows = snapshot.flows.iter().filter(is_here).collect::<Vec<_>>();
    flows.sort_by_key(|flow| std::cmp::Reverse((count(flow), flow.remote)));
    flows.truncate(NAMED);
    data.look_up(flows.iter().flat_map(|flow| conversations::ends(flow)));
    let queue = snapshot.queues.iter().find(|queue| {
        let place = (app_of(snapshot, queue.app), queue.port, queue.dir, queue.queue);
        place == (load.app.as_str(), load.port, load.dir, load.queue)
    });
    let all = queue.map_or(0, |queue| queue.total.packets);
    let cause = |flow: &Flow| QueueLoadCause {
        conversation: data.conversation(flow),
        packets: count(flow),
        share: (all > 0).then(|| (count(flow) as f64 / all as f64).min(1.0)),
        several: place(flow).is_some_and(|place| place.several),
    };
    flows.into_iter().map(cause).collect()
}

/// The report.
pub(super) fn text(args: &Args, data: &ReportData, layout: &ReportLayout) -> String {
    let columns = vec![
        Column::text("Queue"),
        Column::text("Dir"),
        Column::number("Packets"),
        Column::number("Share"),
        Column::text("Balance").drop_at(3),
        Column::number("pps").drop_at(1),
        Column::text("Lcore").drop_at(2),
    ];
    let mut table = TextTable::new("Queues", columns);
    let loads = all(args, data);
    let widest = loads.iter().filter_map(|load| load.share).fold(0.0, f64::max);
    for load in &loads {
        let subject = Subject::App { app: load.app.clone() };
        table.push(subject, false, load.cells(widest));
    }
    if loads.iter().all(|load| load.lcore.is_none()) {
        table.hide_column("Lcore");
    }
    table.notes = notes(data, &loads);
    layout.table(&table)
}

impl QueueLoad {
    fn name(&self) -> String {
        let queue = known(self.queue, |queue| queue.to_string());
        format!("{}:{}:{queue}", self.app, self.port)
    }

    fn cells(&self, widest: f64) -> Vec<Cell> {
        let bar = self.share.filter(|_| widest > 0.0).map_or(0.0, |share| share / widest * BAR);
        let sign = if self.hot { " !" } else { "" };
        vec![
            Cell::text(self.name()),
            Cell::text(self.direction),
            Cell::text(count(self.packets)),
            Cell::text(known(self.share, percent)),
            Cell::text(bar_of(bar) + sign),
            Cell::text(known(self.pps, si)),
            Cell::text(known(self.lcore, |lcore| lcore.to_string())),
        ]
    }

    /// What makes it hot.
    fn explained(&self, all: &QueueBalance) -> Vec<String> {
        let packets = self.packets as f64;
        let others = match all.others(packets).filter(|mean| *mean > 0.0) {
            Some(mean) => format!("{:.1} times the mean of the others", packets / mean),
            None => "the others have none".to_owned(),
        };
        let head = format!(
            "hot: {} {} has {} of the packets, {others}",
            self.name(),
            self.direction,
            known(self.share, percent)
        );
        let cause = |cause: &QueueLoadCause| {
            let several = if cause.several { ", and other queues" } else { "" };
            let share = known(cause.share, percent);
            format!("    {share} of it by {}{several}", cause.conversation)
        };
        std::iter::once(head).chain(self.flows.iter().map(cause)).collect()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to BAR
fn bar_of(length: f64) -> String {
    "#".repeat(length.round() as usize)
}

fn notes(data: &ReportData, loads: &[QueueLoad]) -> Vec<String> {
    let mut notes = Vec::new();
    for load in loads.iter().filter(|load| load.hot) {
        notes.extend(load.explained(&balance(loads, load)));
    }
    let counts = |source| loads.iter().any(|load| load.source == source);
    if counts(CountSource::CountersTotal) {
        notes.push("shares are of all packets since the counters were reset".to_owned());
    }
    if counts(CountSource::Packets) {
        notes.push("shares are of captured packets".to_owned());
    }
    if loads.is_empty() {
        notes.push(format!("{UNKNOWN}: no queue counters and no packets"));
    }
    if let Some(counters) = &data.counters {
        notes.extend(counters.silent());
    }
    if let Some(snapshot) = &data.snapshot {
        notes.push(conversations::total(data, snapshot));
        notes.extend(data.caveats());
    }
    notes
}

#[cfg(test)]
mod tests;
