//! Mempools: where the mbufs are, and when a pool will be empty.

use pmdscope_render::cells::{alarm, app_cell, number, number_or, rate, share};
use pmdscope_render::number::{known, seconds, signed};
use pmdscope_render::{Cell, Column, ColumnUnit, Graph, Subject, TextTable, Tone};
use pmdscope_telemetry::model::PoolTrend;
use pmdscope_telemetry::sample::{CountSource, PoolOccupancy, PoolSample, Sample};

use super::notes::{NEEDS_LIBRARY, UNSUPPORTED, note_counted, note_uncounted};
use pmdscope_telemetry::{AppState, FleetState};

/// Pools that run out sooner than this are marked.
const SOON_S: f64 = 600.0;

/// One row per pool.
pub(super) fn pools(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Pool").flex(12),
        Column::number("Size"),
        Column::number("In use"),
        Column::number("Used").unit(ColumnUnit::Share),
        Column::number("Cached").drop_at(3),
        Column::number("Common").drop_at(3),
        Column::number("Win max").drop_at(4),
        Column::number("Max").drop_at(2),
        Column::number("Growth/s"),
        Column::number("Empty in").unit(ColumnUnit::SECONDS),
        Column::text("Split").flex(8).drop_at(1),
        Column::text("Trend").flex(8).drop_at(5),
    ];
    let mut table = TextTable::new("Pools", columns);
    for (app, model) in fleet.models() {
        for (pool, trend) in model.sample.pools.iter().zip(&model.pools) {
            let subject = Subject::Pool { app: app.name.clone(), pool: pool.name.clone() };
            table.push(subject, app.stale(), pool_cells(app, pool, trend));
        }
    }
    let of_xray = |pool: &PoolSample| pool.source == Some(CountSource::Xray);
    note_counted(&mut table, fleet, |sample| sample.pools.iter().any(of_xray));
    note_uncounted(&mut table, fleet);
    note_unknown(&mut table, fleet);
    table
}

/// How to get the counts of apps that do not report them.
fn note_unknown(table: &mut TextTable, fleet: &FleetState) {
    let unknown = |sample: &Sample| {
        let problem = sample.xray.as_ref().is_some_and(|xray| xray.problem.is_some());
        sample.library.is_none() && !problem && sample.pools.iter().any(|p| p.occupancy.is_none())
    };
    let apps = fleet.models().filter(|(_, model)| unknown(&model.sample));
    let apps: Vec<&str> = apps.map(|(app, _)| app.name.as_str()).collect();
    if !apps.is_empty() {
        table.notes.push(format!("{}: pool occupancy: {NEEDS_LIBRARY}", apps.join(", ")));
    }
}

fn pool_cells(app: &AppState, pool: &PoolSample, trend: &PoolTrend) -> Vec<Cell> {
    let part = |of: fn(PoolOccupancy) -> u64| number_or(pool.occupancy.map(of), UNSUPPORTED);
    let full = trend.used_ratio.is_some_and(|ratio| ratio >= 1.0);
    let soon = trend.exhausted_in_s.is_some_and(|s| s < SOON_S);
    let empty_in = match trend.exhausted_in_s {
        _ if full => Cell::number(Some(0.0), "empty"),
        eta => Cell::number(eta, known(eta, seconds)),
    };
    vec![
        app_cell(app),
        Cell::text(&pool.name),
        number(pool.size),
        part(|o| o.in_use),
        alarm(share(trend.used_ratio), full, Tone::Bad),
        part(|o| o.cached),
        part(|o| o.common),
        number_or(pool.high_water.map(|high| high.window), UNSUPPORTED),
        number_or(pool.high_water.map(|high| high.ever), UNSUPPORTED),
        growth(trend),
        alarm(empty_in, full || soon, Tone::Bad),
        split(pool),
        spark(pool, trend),
    ]
}

pub(super) fn growth(trend: &PoolTrend) -> Cell {
    let cell = Cell::number(trend.slope_ps, known(trend.slope_ps, signed));
    if trend.exhausted_in_s.is_some() { cell.tone(Tone::Warn) } else { cell }
}

fn split(pool: &PoolSample) -> Cell {
    match pool.occupancy {
        Some(parts) => {
            let graph = Graph::Bar { used: parts.in_use, cached: parts.cached, size: pool.size };
            Cell::graph(graph)
        }
        None => Cell::text(NEEDS_LIBRARY).tone(Tone::Dim),
    }
}

/// From 0 to the size, or while it drains on a scale of its own: else a large pool would look flat
/// until it is empty.
pub(super) fn spark(pool: &PoolSample, trend: &PoolTrend) -> Cell {
    let history = trend.history.as_slice();
    let ends = history.iter().min().zip(history.iter().max());
    match ends {
        None => rate(None),
        Some((&bottom, &top)) if trend.exhausted_in_s.is_some() && bottom < top => {
            let values = history.iter().map(|&value| Some(value as f64)).collect();
            Cell::graph(Graph::Spark { values, bottom: bottom as f64, top: top as f64 })
        }
        Some(_) => Cell::graph(Graph::counts(history, pool.size)),
    }
}
