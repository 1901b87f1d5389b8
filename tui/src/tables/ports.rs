//! Ports and their queues.

use pmdscope_render::cells::{
    alarm, app_cell, bad_count, bad_rate, number, number_or, rate, share,
};
use pmdscope_render::number::si;
use pmdscope_render::{Cell, Column, ColumnUnit, Graph, Subject, TextTable, Tone, direction_word};
use pmdscope_telemetry::finding::balance;
use pmdscope_telemetry::model::{Model, PortRates, QueueRates};
use pmdscope_telemetry::sample::{PortSample, PortStats, QueueDirection, QueueSample};

use super::{UNSUPPORTED, note_level_0};
use crate::view::ViewState;
use pmdscope_telemetry::{AppState, FleetState};

/// One row per port.
pub(super) fn ports(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Port"),
        Column::text("Device").flex(6).drop_at(4),
        Column::text("Link"),
        Column::number("RX pps"),
        Column::number("TX pps"),
        Column::number("RX bit/s").drop_at(3),
        Column::number("TX bit/s").drop_at(3),
        Column::number("Miss/s"),
        Column::number("Missed").drop_at(2),
        Column::number("RXerr/s").drop_at(5),
        Column::number("TXerr/s").drop_at(5),
        Column::number("Nombuf/s").drop_at(1),
        Column::number("RX total").drop_at(6),
        Column::number("TX total").drop_at(6),
    ];
    let mut table = TextTable::new("Ports", columns);
    if !view.baseline.is_empty() {
        let counted = |model: &Model| view.baseline.of(&model.sample).is_some();
        let all = fleet.models().all(|(_, model)| counted(model));
        let some = fleet.models().any(|(_, model)| counted(model));
        let since = match (all, some) {
            (true, _) => "totals since the mark",
            (false, true) => "totals since the mark, or the start of an app without one",
            (false, false) => "totals since the start: there is no mark before",
        };
        since.clone_into(&mut table.remark);
    }
    for (app, model) in fleet.models() {
        for (port, rates) in model.sample.ports.iter().zip(&model.ports) {
            let subject = Subject::Port { app: app.name.clone(), port: port.id };
            let totals = port.stats_since(view.baseline.of(&model.sample));
            table.push(subject, app.stale(), port_cells(app, port, rates, totals));
        }
    }
    table
}

fn port_cells(app: &AppState, port: &PortSample, rates: &PortRates, sum: PortStats) -> Vec<Cell> {
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(port.id)), port.id.to_string()),
        Cell::text(&port.device),
        link(port),
        rate(rates.rx_pps),
        rate(rates.tx_pps),
        rate(rates.rx_bps),
        rate(rates.tx_bps),
        bad_rate(rates.rx_missed_ps),
        bad_count(sum.rx_missed, si(sum.rx_missed as f64)),
        bad_rate(rates.rx_errors_ps),
        bad_rate(rates.tx_errors_ps),
        bad_rate(rates.rx_nombuf_ps),
        number(sum.rx_packets),
        number(sum.tx_packets),
    ]
}

fn link(port: &PortSample) -> Cell {
    match (port.started, port.link_up, port.link_mbps) {
        (false, _, _) => Cell::text("stopped").tone(Tone::Bad),
        (true, Some(false), _) => Cell::text("down").tone(Tone::Bad),
        (true, Some(true), Some(mbps)) => Cell::text(format!("up {}", si(mbps as f64 * 1e6))),
        (true, Some(true), None) => Cell::text("up"),
        (true, None, _) => Cell::text("unknown").tone(Tone::Dim),
    }
}

/// One row per queue of apps with the library.
pub(super) fn queues(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Port"),
        Column::number("Queue"),
        Column::text("Dir"),
        Column::number("pps"),
        Column::number("Refused").drop_at(2),
        Column::number("~bit/s").drop_at(3),
        Column::number("Share").unit(ColumnUnit::Share).drop_at(4),
        Column::number("Depth"),
        Column::number("Win max"),
        Column::number("Max").drop_at(1),
        Column::number("Of"),
        Column::text("Fill").flex(6).drop_at(6),
        Column::number("Busy").unit(ColumnUnit::Share),
        Column::number("Burst").drop_at(2),
        Column::number("Polls/s").drop_at(5),
    ];
    let mut table = TextTable::new("Queues", columns);
    for (app, model) in fleet.models() {
        let hot = balance::hot(model, &view.thresholds);
        for ((queue, rates), hot) in model.sample.queues.iter().zip(&model.queues).zip(hot) {
            let subject = Subject::Queue {
                app: app.name.clone(),
                port: queue.port,
                queue: queue.queue,
                direction: queue.direction,
            };
            table.push(subject, app.stale(), queue_cells(app, queue, rates, hot));
        }
    }
    note_level_0(&mut table, fleet, "queue depth and rates:");
    note_unsupported_depth(&mut table, fleet);
    if !table.rows.is_empty() {
        table.notes.push(
            "refused: packets per second offered and not taken; retried packets count again"
                .to_owned(),
        );
        table.notes.push("~: estimated from one burst in 16".to_owned());
    }
    table
}

fn queue_cells(app: &AppState, queue: &QueueSample, rates: &QueueRates, hot: bool) -> Vec<Cell> {
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(queue.port)), queue.port.to_string()),
        Cell::number(Some(f64::from(queue.queue)), queue.queue.to_string()),
        Cell::text(direction_word(queue.direction)),
        rate(rates.pps),
        refused(queue, rates),
        rate(rates.bps),
        alarm(share(rates.share), hot, Tone::Warn),
        number_or(queue.depth, UNSUPPORTED),
        high(queue.depth_high_water.map(|high| high.window), queue.descriptors),
        high(queue.depth_high_water.map(|high| high.ever), queue.descriptors),
        number_or(queue.descriptors, UNSUPPORTED),
        filled(queue.depth, queue.descriptors),
        share(rates.busy_ratio),
        rate(rates.mean_burst),
        rate(rates.polls_ps),
    ]
}

/// Packets that a transmit queue was offered and did not take; nothing for a receive queue.
fn refused(queue: &QueueSample, rates: &QueueRates) -> Cell {
    match queue.direction {
        QueueDirection::Rx => Cell::text(""),
        QueueDirection::Tx => bad_rate(rates.refused_ps),
    }
}

/// A high-water mark; marked when it reached three quarters of the ring.
pub(super) fn high(value: Option<u64>, size: Option<u64>) -> Cell {
    alarm(number_or(value, UNSUPPORTED), is_high(value, size), Tone::Warn)
}

/// It reached three quarters of the ring.
pub(super) fn is_high(value: Option<u64>, size: Option<u64>) -> bool {
    value.zip(size).is_some_and(|(v, size)| size > 0 && v >= size - size / 4)
}

pub(super) fn filled(used: Option<u64>, size: Option<u64>) -> Cell {
    match (used, size) {
        (Some(used), Some(size)) => Cell::graph(Graph::Bar { used, cached: 0, size }),
        _ => Cell::text(UNSUPPORTED).tone(Tone::Dim),
    }
}

fn note_unsupported_depth(table: &mut TextTable, fleet: &FleetState) {
    let silent = |model: &Model| model.sample.queues.iter().any(|queue| queue.depth.is_none());
    if fleet.models().any(|(_, model)| silent(model)) {
        table.notes.push(format!("{UNSUPPORTED}: not reported by the driver"));
    }
}
