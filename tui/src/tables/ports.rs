//! Ports and their queues.

use pmdscope_render::cells::{
    alarm, app_cell, bad_count, bad_rate, number, number_or, rate, share,
};
use pmdscope_render::number::si;
use pmdscope_render::{Cell, Column, ColumnUnit, Graph, Subject, TextTable, Tone, direction_word};
use pmdscope_telemetry::finding::balance;
use pmdscope_telemetry::model::{Model, PortRates, QueueRates};
use pmdscope_telemetry::sample::{PortSample, PortStats, QueueDirection, QueueSample, Sample};

use super::notes::{UNSUPPORTED, note_level_0};
use super::totals;
use crate::state::ViewState;
use pmdscope_telemetry::{AppState, FleetState};

/// Letters of the address of a device, which is not cut.
const PCI_ADDRESS: usize = "0000:00:00.0".len();

/// One row per port.
pub(super) fn ports(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Port"),
        Column::text("Device").flex(PCI_ADDRESS).drop_at(4),
        Column::text("Link"),
        Column::events("RX pps", "RX total"),
        Column::events("TX pps", "TX total"),
        Column::traffic(["RX bit/s", "RX B/s", "RX bits", "RX bytes"]).drop_at(3),
        Column::traffic(["TX bit/s", "TX B/s", "TX bits", "TX bytes"]).drop_at(3),
        Column::events("Miss/s", "Missed"),
        Column::number("Missed").drop_at(2),
        Column::events("RXerr/s", "RXerr").drop_at(6),
        Column::events("TXerr/s", "TXerr").drop_at(6),
        Column::events("Nombuf/s", "Nombuf").drop_at(1),
        Column::number("RX total").drop_at(7),
        Column::number("TX total").drop_at(7),
    ];
    let mut table = TextTable::new("Ports", columns);
    if !view.baseline.is_empty() {
        totals::origin(fleet, view).clone_into(&mut table.remark);
    }
    for (app, model) in fleet.models() {
        let mut ports: Vec<_> = model.sample.ports.iter().zip(&model.ports).collect();
        // Members are below the port that counts their packets once more.
        ports.sort_by_key(|(port, rates)| {
            (rates.member_of.unwrap_or(port.id), rates.member_of.is_some(), port.id)
        });
        for (port, rates) in ports {
            let subject = Subject::Port { app: app.name.clone(), port: port.id };
            let totals = port.stats_since(view.baseline.of(&model.sample));
            table.push(subject, app.stale(), port_cells(app, port, rates, totals));
        }
    }
    table.notes.extend(note_counter_updates(fleet));
    table
}

/// Ports whose rates are means of a longer time than one between two samples.
fn note_counter_updates(fleet: &FleetState) -> Option<String> {
    let ports = fleet.models().flat_map(|(app, model)| {
        let periods = model.ports.iter().filter_map(|port| Some((port.id, port.counter_period_s?)));
        periods.map(|(port, period)| (period, format!("{} port {port}", app.name)))
    });
    let (periods, names): (Vec<f64>, Vec<String>) = ports.unzip();
    let longest = periods.into_iter().reduce(f64::max)?;
    let more =
        if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
    Some(format!(
        "{}{more}: the driver updates its counters every {longest:.1} s only; rates are means of that time",
        names[0]
    ))
}

fn port_cells(app: &AppState, port: &PortSample, rates: &PortRates, sum: PortStats) -> Vec<Cell> {
    let bad = |count: u64| bad_count(count, si(count as f64));
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(port.id)), port.id.to_string()),
        Cell::text(&port.device),
        link(port),
        rate(rates.rx_pps).with_total(number(sum.rx_packets)),
        rate(rates.tx_pps).with_total(number(sum.tx_packets)),
        rate(rates.rx_bps).with_bytes(Some(sum.rx_bytes)),
        rate(rates.tx_bps).with_bytes(Some(sum.tx_bytes)),
        bad_rate(rates.rx_missed_ps).with_total(bad(sum.rx_missed)),
        bad(sum.rx_missed),
        bad_rate(rates.rx_errors_ps).with_total(bad(sum.rx_errors)),
        bad_rate(rates.tx_errors_ps).with_total(bad(sum.tx_errors)),
        bad_rate(rates.rx_nombuf_ps).with_total(bad(sum.rx_nombuf)),
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

/// One row per queue: as libpmdscope counts it, or a receive queue as the driver does.
pub(super) fn queues(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Port"),
        Column::number("Queue"),
        Column::text("Dir"),
        Column::events("pps", "Packets"),
        Column::events("Refused/s", "Refused").drop_at(2),
        Column::traffic(["~bit/s", "~B/s", "~bits", "~bytes"]).drop_at(3),
        Column::number("Share").unit(ColumnUnit::Share).drop_at(4),
        Column::number("Depth"),
        Column::number("Win max"),
        Column::number("Max").drop_at(1),
        Column::number("Of"),
        Column::text("Fill").flex(6).drop_at(6),
        Column::number("Busy").unit(ColumnUnit::Share),
        Column::number("Burst").drop_at(2),
        Column::events("Polls/s", "Polls").drop_at(5),
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
            let before = view.baseline.of(&model.sample);
            let cells = queue_cells(app, (queue, &model.sample, before), rates, hot);
            table.push(subject, app.stale(), cells);
        }
        push_counted_by_driver(&mut table, app, model, view);
    }
    note_level_0(&mut table, fleet, "queue depth, polls and sent packets:");
    note_unsupported_depth(&mut table, fleet);
    if !table.rows.is_empty() {
        table.notes.push(
            "refused: packets offered and not taken, in total since the app was first seen; retried \
             packets count again"
                .to_owned(),
        );
        table.notes.push("~: estimated from one burst in 16".to_owned());
    }
    table
}

/// Receive queues of which only the driver counts packets.
fn push_counted_by_driver(table: &mut TextTable, app: &AppState, model: &Model, view: &ViewState) {
    let hottest = balance::hottest(model, &view.thresholds);
    for port in &model.ports {
        let all: balance::QueueBalance = port.rx_queues.iter().map(|queue| queue.pps).collect();
        for rates in &port.rx_queues {
            let queue = rates.queue;
            let hot = hottest.iter().any(|hot| (hot.port, hot.queue) == (port.id, queue));
            let subject = Subject::Queue {
                app: app.name.clone(),
                port: port.id,
                queue,
                direction: QueueDirection::Rx,
            };
            let mut cells = vec![
                app_cell(app),
                Cell::number(Some(f64::from(port.id)), port.id.to_string()),
                Cell::number(Some(f64::from(queue)), queue.to_string()),
                Cell::text(direction_word(QueueDirection::Rx)),
                rate(Some(rates.pps)),
                Cell::text(""),
                rate(None),
                alarm(share(all.share(rates.pps)), hot, Tone::Warn),
            ];
            // What only libpmdscope counts.
            cells.resize_with(table.columns.len(), || rate(None));
            table.push(subject, app.stale(), cells);
        }
    }
}

fn queue_cells(
    app: &AppState,
    (queue, now, before): (&QueueSample, &Sample, Option<&Sample>),
    rates: &QueueRates,
    hot: bool,
) -> Vec<Cell> {
    let (packets, bytes) = totals::moved_by_queue(queue, now, before);
    let polls = totals::of_queue(queue, before, |queue| queue.polls);
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(queue.port)), queue.port.to_string()),
        Cell::number(Some(f64::from(queue.queue)), queue.queue.to_string()),
        Cell::text(direction_word(queue.direction)),
        rate(rates.pps).with_total(packets.map_or_else(|| rate(None), number)),
        refused(queue, rates),
        rate(rates.bps).with_bytes(bytes),
        alarm(share(rates.share), hot, Tone::Warn),
        number_or(queue.depth, UNSUPPORTED),
        high(queue.depth_high_water.map(|high| high.window), queue.descriptors),
        high(queue.depth_high_water.map(|high| high.ever), queue.descriptors),
        number_or(queue.descriptors, UNSUPPORTED),
        filled(queue.depth, queue.descriptors),
        share(rates.busy_ratio),
        rate(rates.mean_burst),
        rate(rates.polls_ps).with_total(number(polls)),
    ]
}

/// Packets that a transmit queue was offered and did not take; nothing for a receive queue.
fn refused(queue: &QueueSample, rates: &QueueRates) -> Cell {
    match queue.direction {
        QueueDirection::Rx => Cell::text(""),
        QueueDirection::Tx => {
            let total = rates.refused_packets.map(|packets| bad_count(packets, si(packets as f64)));
            bad_rate(rates.refused_ps).with_total(total.unwrap_or_else(|| rate(None)))
        }
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

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::model::RxQueueRates;

    use super::*;
    use crate::fixture;

    #[test]
    fn queues_that_only_the_driver_counts_have_rows() {
        let mut model = fixture::stock();
        let of_queue = |queue, pps| RxQueueRates { queue, pps, missed_ps: None };
        model.ports[0].rx_queues = vec![of_queue(0, 30_000.0), of_queue(1, 10_000.0)];
        let table = queues(&fixture::fleet_of(model, Vec::new()), &fixture::view());
        let value = |row: usize, at: usize| table.rows[row].cells[at].value();
        // Queue, packets per second, share; no depth.
        for (row, expected) in [[0.0, 30_000.0, 0.75], [1.0, 10_000.0, 0.25]].iter().enumerate() {
            let [queue, pps, share] = *expected;
            let found = [value(row, 2), value(row, 4), value(row, 7), value(row, 8)];
            assert_eq!(found, [Some(queue), Some(pps), Some(share), None]);
        }
        assert_eq!(table.rows.len(), 2);
    }

    #[test]
    fn rates_of_a_longer_time_than_between_two_samples_have_a_note() {
        let mut model = fixture::leaking();
        let note = |model: &Model| {
            ports(&fixture::fleet_of(model.clone(), Vec::new()), &fixture::view()).notes
        };
        assert_eq!(note(&model), Vec::<String>::new());
        model.ports[0].counter_period_s = Some(0.996);
        let says = "reflector port 0: the driver updates its counters every 1.0 s only; rates are \
                    means of that time";
        assert_eq!(note(&model), [says]);
    }
}
