//! The queues of each port side by side: which of them have the load, are full, and miss packets.

use std::collections::BTreeSet;

use pmdscope_render::cells::{app_cell, bad_count, bad_rate, rate};
use pmdscope_render::number::{UNKNOWN, known, percent, si};
use pmdscope_render::{Cell, Column, Graph, HeatCell, Subject, TextTable, Tone, direction_word};
use pmdscope_telemetry::finding::{Finding, FindingCause, FindingSubject, Lint, balance};
use pmdscope_telemetry::model::{Model, QueueRates};
use pmdscope_telemetry::sample::{QueueDirection, QueueSample, Sample};
use pmdscope_telemetry::{AppState, FleetState};

use super::notes::UNSUPPORTED;
use super::ports::is_high;
use crate::state::ViewState;

/// A queue, its rates, and whether it is hot.
type ShownQueue<'a> = (&'a QueueSample, &'a QueueRates, bool);

/// One row per port and direction, with a cell for each queue.
pub(super) fn heat(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Port"),
        Column::text("Dir"),
        Column::text("Share by queue").flex(8),
        Column::text("Depth").flex(8).drop_at(2),
        Column::text("Missed/s").flex(8).drop_at(3),
        Column::events("Miss/s", "Missed"),
        Column::text("Because of").flex(14).drop_at(1),
    ];
    let mut table = TextTable::new("Queue heat", columns);
    for (app, model) in fleet.models() {
        let hot = balance::hot(model, &view.thresholds);
        let queues = model.sample.queues.iter().zip(&model.queues).zip(hot);
        let queues: Vec<ShownQueue> =
            queues.map(|((queue, rates), hot)| (queue, rates, hot)).collect();
        let groups: BTreeSet<_> =
            queues.iter().map(|(queue, ..)| (queue.port, queue.direction)).collect();
        for (port, direction) in groups {
            let mut of_port = queues.clone();
            of_port.retain(|(queue, ..)| (queue.port, queue.direction) == (port, direction));
            of_port.sort_by_key(|(queue, ..)| queue.queue);
            let subject = Subject::Queues { app: app.name.clone(), port, direction };
            let before = view.baseline.of(&model.sample);
            table.push(
                subject,
                app.stale(),
                cells(app, (model, before), &of_port, (port, direction)),
            );
        }
    }
    table
}

fn cells(
    app: &AppState,
    (model, before): (&Model, Option<&Sample>),
    queues: &[ShownQueue],
    (port, direction): (u16, QueueDirection),
) -> Vec<Cell> {
    let of_port = model.ports.iter().find(|rates| rates.id == port);
    let missed_ps = of_port.and_then(|rates| rates.rx_missed_ps);
    let sample = model.sample.ports.iter().find(|sample| sample.id == port);
    let missed_of_port = sample.map(|sample| {
        let count = sample.stats_since(before).rx_missed;
        bad_count(count, si(count as f64))
    });
    let receives = direction == QueueDirection::Rx;
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(port)), port.to_string()),
        Cell::text(direction_word(direction)),
        Cell::graph(Graph::Heat { cells: queues.iter().map(share).collect() }),
        known_heat(queues.iter().map(depth).collect()),
        if receives {
            known_heat(queues.iter().map(|queue| missed(queue, missed_ps)).collect())
        } else {
            Cell::text("")
        },
        if receives {
            let total = missed_of_port.unwrap_or_else(|| rate(None));
            bad_rate(missed_ps).with_total(total)
        } else {
            Cell::text("")
        },
        Cell::text(because(app, model, port, direction)).tone(Tone::Warn),
    ]
}

/// A driver reports all queues of a port, or none.
fn known_heat(cells: Vec<HeatCell>) -> Cell {
    if cells.iter().all(|cell| cell.share.is_none()) {
        return Cell::text(UNSUPPORTED).tone(Tone::Dim);
    }
    Cell::graph(Graph::Heat { cells })
}

fn share((_, rates, hot): &ShownQueue) -> HeatCell {
    HeatCell { share: rates.share, text: known(rates.share, percent), marked: *hot }
}

/// How full it was at most in the last window, and how many packets wait now.
fn depth((queue, ..): &ShownQueue) -> HeatCell {
    let high = queue.depth_high_water.map(|high| high.window).max(queue.depth);
    let share = high.zip(queue.descriptors.filter(|of| *of > 0));
    HeatCell {
        share: share.map(|(high, of)| high as f64 / of as f64),
        text: known(queue.depth, |depth| si(depth as f64)),
        marked: is_high(high, queue.descriptors),
    }
}

/// Its part of what its port misses.
fn missed((_, rates, _): &ShownQueue, of_port: Option<f64>) -> HeatCell {
    let share = rates.missed_ps.zip(of_port);
    HeatCell {
        share: share.map(|(missed, all)| if all > 0.0 { missed / all } else { 0.0 }),
        text: known(rates.missed_ps, si),
        marked: rates.missed_ps.is_some_and(|missed| missed > 0.0),
    }
}

/// Why its packets are missed, or that a finding is about it.
fn because(app: &AppState, model: &Model, port: u16, direction: QueueDirection) -> String {
    let about = findings(app, model, port, direction);
    let causes: Vec<String> =
        about.iter().flat_map(|finding| &finding.causes).map(FindingCause::title).collect();
    match (causes.as_slice(), about.first()) {
        ([first], _) => first.clone(),
        ([first, others @ ..], _) => format!("{first} +{}", others.len()),
        ([], Some(finding)) => finding.lint.name().to_owned(),
        ([], None) => String::new(),
    }
}

/// Findings about packets that this side of the port loses.
pub(crate) fn findings<'a>(
    app: &'a AppState,
    model: &Model,
    port: u16,
    direction: QueueDirection,
) -> Vec<&'a Finding> {
    let lints: &[Lint] = match direction {
        QueueDirection::Rx => &[Lint::RxMissed, Lint::RxNombuf, Lint::QueueImbalance],
        QueueDirection::Tx => &[Lint::TxRefused, Lint::TxStuck],
    };
    let device =
        model.sample.ports.iter().find(|sample| sample.id == port).map(|sample| &sample.device);
    let is_about = |finding: &&Finding| match &finding.subject {
        FindingSubject::Port(subject) => Some(subject) == device && lints.contains(&finding.lint),
        _ => false,
    };
    app.findings.iter().filter(is_about).collect()
}

/// One line per queue, for its details.
pub(crate) fn details(
    model: &Model,
    view: &ViewState,
    port: u16,
    direction: QueueDirection,
) -> Vec<String> {
    let hot = balance::hot(model, &view.thresholds);
    let queues = model.sample.queues.iter().zip(&model.queues).zip(hot);
    let queues =
        queues.filter(|((queue, _), _)| (queue.port, queue.direction) == (port, direction));
    let line = |((queue, rates), hot): ((&QueueSample, &QueueRates), bool)| {
        let hot = if hot { ", hot" } else { "" };
        let depth = known(queue.depth, |depth| depth.to_string());
        let of = known(queue.descriptors, |of| of.to_string());
        let missed = match rates.missed_ps {
            Some(missed) => format!(", {} missed/s", si(missed)),
            None => String::new(),
        };
        let (pps, share) = (known(rates.pps, si), known(rates.share, percent));
        format!("{:>3}: {pps} pps, {share}{hot}, depth {depth} of {of}{missed}", queue.queue)
    };
    let lines: Vec<String> = queues.map(line).collect();
    if lines.is_empty() { vec![UNKNOWN.to_owned()] } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::fixture;
    use crate::screen::tests::text;
    use crate::state::PageTab;
    use crate::update::update;
    use pmdscope_telemetry::missed::MissedCause;

    #[test]
    fn the_heat_of_queues_says_which_miss_packets_and_why() {
        let mut model = fixture::leaking();
        for (queue, missed) in [(0, 400.0), (1, 12.0)] {
            model.queues[queue].missed_ps = Some(missed);
        }
        let mut finding = fixture::leaking_findings().remove(0);
        let cause = |cause, share| FindingCause { cause, share, evidence: "2 gaps".to_owned() };
        finding.causes =
            vec![cause(MissedCause::StalledLcore, Some(0.92)), cause(MissedCause::HotQueue, None)];
        let fleet = fixture::fleet_of(model, vec![finding]);
        let mut view = ViewState { tab: PageTab::Ports, ..fixture::view() };
        let screen = text(120, 24, &view, &fleet);
        let rx = screen.lines().find(|line| line.contains("rx ") && line.contains("▒50%")).unwrap();
        for part in ["▓!17", "▓!400", "░!12", "!412", "stalled_lcore (about 92 %) +1"] {
            assert!(rx.contains(part), "{part}: {screen}");
        }
        view.selected.insert(
            PageTab::Ports,
            Subject::Queues { app: "reflector".to_owned(), port: 0, direction: QueueDirection::Rx },
        );
        update(&mut view, Action::Open, &fleet);
        let details = text(100, 30, &view, &fleet);
        assert!(
            details.contains("cause           stalled_lcore (about 92 %): 2 gaps"),
            "{details}"
        );
        assert!(details.contains("0: 7.10M pps, 50%, depth 17 of 1024, 400 missed/s"), "{details}");
    }
}
