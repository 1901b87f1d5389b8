//! The leak ledger: where the mbufs of each pool are, and which stages hold them.

use pmdscope_render::cells::{alarm, app_cell, bad_rate, number};
use pmdscope_render::ledger::{legend, stage_ms};
use pmdscope_render::number::{seconds, si};
use pmdscope_render::{Cell, Column, ColumnUnit, Graph, Subject, TextTable, Tone};
use pmdscope_telemetry::model::LedgerRates;
use pmdscope_telemetry::sample::{LedgerSample, LostGroupSample, StageSample};

use super::notes::{holders_hint, note_level_0};
use crate::state::ViewState;
use pmdscope_telemetry::{AppState, FleetState};

/// One row per pool with a ledger.
pub(super) fn ledgers(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Ledger").flex(12),
        Column::number("Free").drop_at(5),
        Column::number("Cached").drop_at(4),
        Column::number("RX").drop_at(3),
        Column::number("TX").drop_at(3),
        Column::number("Rings").drop_at(3),
        Column::number("Held"),
        Column::number("Leaked"),
        Column::number("Unplaced"),
        Column::number("Leaked/s"),
        Column::text("Stamps").drop_at(2),
        Column::text("Where").flex(12).drop_at(1),
        Column::text("Leaked over time").flex(8).drop_at(6),
    ];
    let mut table = TextTable::new("Ledger", columns);
    for (app, model) in fleet.models() {
        for (ledger, rates) in model.sample.ledger.iter().zip(&model.ledger) {
            let subject = Subject::Ledger { app: app.name.clone(), pool: ledger.name.clone() };
            table.push(subject, app.stale(), ledger_cells(app, ledger, rates));
        }
    }
    if !table.rows.is_empty() {
        table.notes.push(legend(view.theme));
    }
    let what = format!("{}; line of a leak:", holders_hint(view));
    note_level_0(&mut table, fleet, &what);
    table
}

fn ledger_cells(app: &AppState, ledger: &LedgerSample, rates: &LedgerRates) -> Vec<Cell> {
    let stamps = if ledger.armed { "armed" } else { "off" };
    vec![
        app_cell(app),
        Cell::text(&ledger.name),
        number(ledger.common),
        number(ledger.cached),
        number(ledger.rx_posted),
        number(ledger.tx_pending),
        number(ledger.rings),
        number(ledger.held),
        alarm(number(ledger.leaked), ledger.leaked > 0, Tone::Bad),
        number(ledger.unplaced),
        bad_rate(rates.leaked_ps),
        Cell::text(format!("{stamps} ({})", ledger.mode)),
        Cell::graph(Graph::Ledger { parts: ledger.parts().to_vec() }),
        Cell::graph(Graph::counts(&rates.history, ledger.size)),
    ]
}

/// One row per group of lost packets that a scan of the app's memory found.
pub(super) fn lost_packets(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Pool").flex(8).drop_at(2),
        Column::number("Lost"),
        Column::number("Oldest").unit(ColumnUnit::SECONDS).drop_at(1),
        Column::text("Packets").flex(20),
    ];
    let mut table = TextTable::new("Lost packets", columns);
    for (app, model) in fleet.models() {
        for pool in model.sample.scanned_pools() {
            for (index, group) in pool.groups.iter().enumerate() {
                let subject =
                    Subject::Lost { app: app.name.clone(), pool: pool.name.clone(), group: index };
                table.push(subject, app.stale(), lost_cells(app, &pool.name, group));
            }
        }
    }
    table
}

fn lost_cells(app: &AppState, pool: &str, group: &LostGroupSample) -> Vec<Cell> {
    let oldest = group.oldest_at_least_ms as f64 / 1000.0;
    vec![
        app_cell(app),
        Cell::text(pool),
        alarm(number(group.mbufs), group.mbufs > 0, Tone::Bad),
        Cell::number(Some(oldest), format!(">{}", seconds(oldest))),
        Cell::text(group.words()),
    ]
}

/// One row per place that keeps mbufs for a while.
pub(super) fn stages(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Stage").flex(12),
        Column::number("Held"),
        Column::number("Longest").unit(ColumnUnit::MILLIS),
        Column::text("Suspect after"),
    ];
    let mut table = TextTable::new("Stages", columns);
    for (app, model) in fleet.models() {
        for stage in &model.sample.stages {
            let subject = Subject::Stage { app: app.name.clone(), stage: stage.stage.clone() };
            table.push(subject, app.stale(), stage_cells(app, stage));
        }
    }
    table
}

fn stage_cells(app: &AppState, stage: &StageSample) -> Vec<Cell> {
    let longest = Some(stage.longest_ms as f64).filter(|ms| *ms > 0.0);
    let bound = if stage.hold { "never".to_owned() } else { stage_ms(stage.bound_ms) };
    vec![
        app_cell(app),
        Cell::text(&stage.stage),
        Cell::number(Some(stage.held as f64), si(stage.held as f64)),
        Cell::number(longest, stage_ms(stage.longest_ms)),
        Cell::text(bound),
    ]
}
