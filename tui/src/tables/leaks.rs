//! The leak ledger: where the mbufs of each pool are, which sites lose them, which stages keep them.

use pmdscope_telemetry::model::{LedgerRates, Model, SiteRates};
use pmdscope_telemetry::sample::{LedgerSample, SiteSample, StageSample};

use super::{alarm, app_cell, bad_rate, note_level_0, number, rate};
use crate::graph::Graph;
use crate::ledger::{legend, stage_ms};
use crate::number::{count, known, seconds, si};
use crate::subject::Subject;
use crate::table::{Cell, Column, Table};
use crate::theme::{Theme, Tone};
use pmdscope_telemetry::world::{Member, World};

/// One row per pool with a ledger.
pub(super) fn ledgers(world: &World, theme: Theme) -> Table {
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
    let mut table = Table::new("Ledger", columns);
    for (app, model) in world.models() {
        for (ledger, rates) in model.sample.ledger.iter().zip(&model.ledger) {
            let subject = Subject::Ledger { app: app.name.clone(), pool: ledger.name.clone() };
            table.push(subject, app.stale(), ledger_cells(app, ledger, rates));
        }
    }
    if !table.rows.is_empty() {
        table.notes.push(legend(theme));
    }
    note_level_0(&mut table, world, "where mbufs are, and who loses them:");
    table
}

fn ledger_cells(app: &Member, ledger: &LedgerSample, rates: &LedgerRates) -> Vec<Cell> {
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
        Cell::graph(Graph::Spark { values: rates.history.clone(), top: ledger.size }),
    ]
}

/// How much of the name of a source file to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// Its last part.
    Brief,
    /// All that is known.
    Full,
}

/// One row per site that lost or misused mbufs.
pub fn sites(world: &World, paths: Paths) -> Table {
    let columns = vec![
        Column::text("App"),
        Column::text("Pool").flex(8).drop_at(2),
        Column::text("Kind"),
        Column::number("Count"),
        Column::number("Rate/s"),
        Column::number("Oldest"),
        Column::number("Empty in").drop_at(1),
        Column::text("After").drop_at(3),
        Column::text("Site").flex(20),
    ];
    let mut table = Table::new("Leak sites", columns);
    for (app, model) in world.models() {
        for (site, rates) in model.sample.sites.iter().zip(&model.sites) {
            let place = if paths == Paths::Full { site.place() } else { site.brief_place() };
            let cells = site_cells(app, model, (site, rates), place);
            table.push(subject(app, site), app.stale(), cells);
        }
    }
    table
}

fn subject(app: &Member, site: &SiteSample) -> Subject {
    Subject::Site {
        app: app.name.clone(),
        pool: site.pool.clone(),
        id: site.id,
        kind: site.kind,
        site: site.site.clone(),
    }
}

fn site_cells(
    app: &Member,
    model: &Model,
    (site, rates): (&SiteSample, &SiteRates),
    place: String,
) -> Vec<Cell> {
    let loss = site.kind.is_loss();
    let found = if loss { site.count } else { site.events };
    let oldest = (found > 0).then_some(site.oldest_ms as f64 / 1000.0);
    let left = if loss { pool_left_s(model, &site.pool) } else { None };
    vec![
        app_cell(app),
        Cell::text(&site.pool),
        Cell::text(site.kind.to_string()),
        alarm(Cell::number(Some(found as f64), count(found)), found > 0, Tone::Bad),
        rate(rates.rate_ps),
        Cell::number(oldest, known(oldest, seconds)),
        Cell::number(left, known(left, seconds)),
        Cell::text(&site.operation),
        Cell::text(place).tone(if found > 0 { Tone::Bad } else { Tone::Dim }),
    ]
}

/// Seconds until a pool is empty; unknown when it does not drain.
pub(crate) fn pool_left_s(model: &Model, pool: &str) -> Option<f64> {
    model.pools.iter().find(|trend| trend.name == pool)?.exhausted_in_s
}

/// One row per place that keeps mbufs for a while.
pub(super) fn stages(world: &World) -> Table {
    let columns = vec![
        Column::text("App"),
        Column::text("Stage").flex(12),
        Column::number("Held"),
        Column::number("Longest"),
        Column::text("Suspect after"),
    ];
    let mut table = Table::new("Stages", columns);
    for (app, model) in world.models() {
        for stage in &model.sample.stages {
            let subject = Subject::Stage { app: app.name.clone(), stage: stage.stage.clone() };
            table.push(subject, app.stale(), stage_cells(app, stage));
        }
    }
    table
}

fn stage_cells(app: &Member, stage: &StageSample) -> Vec<Cell> {
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
