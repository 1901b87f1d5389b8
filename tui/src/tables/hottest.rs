//! The queues, pools and lcores of all apps that are used most.

use std::cmp::Reverse;

use pmdscope_render::cells::{alarm, app_cell, bad_count, bad_rate, number, rate, share};
use pmdscope_render::number::{known, micros, seconds, si};
use pmdscope_render::{Cell, Column, ColumnUnit, Subject, TextTable, Tone, direction_word};
use pmdscope_telemetry::finding::balance;
use pmdscope_telemetry::model::{LcoreRates, Model, PoolTrend, QueueRates};
use pmdscope_telemetry::sample::{LcoreSample, PoolSample, QueueSample, Sample};

use super::pools::{growth, spark};
use super::ports::{filled, high};
use super::totals;
use crate::state::ViewState;
use pmdscope_telemetry::{AppState, FleetState};

/// Rows of each table.
const MOST: usize = 3;

/// Those with the highest values first.
fn most<T>(mut items: Vec<T>, value: impl Fn(&T) -> [f64; 2]) -> Vec<T> {
    // Non-negative numbers are in the order of their bits.
    items.sort_by_cached_key(|item| Reverse(value(item).map(|value| value.max(0.0).to_bits())));
    items.truncate(MOST);
    items
}

/// Those whose rings were nearest to full in the last window, or else that have most packets.
pub(super) fn queues(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("Hottest queues"),
        Column::text("Dir"),
        Column::text("App"),
        Column::events("pps", "Packets"),
        Column::number("Share").unit(ColumnUnit::Share),
        Column::events("Miss/s", "Missed"),
        Column::number("Win max"),
        Column::text("Fill").flex(6).drop_at(1),
    ];
    let mut table = TextTable::new("Hottest queues", columns);
    let all = fleet.live_models().flat_map(|(app, model)| {
        let queues = model.sample.queues.iter().zip(&model.queues).enumerate();
        queues.map(move |(index, (queue, rates))| (app, model, index, queue, rates))
    });
    let all = most(all.collect(), |(.., queue, rates)| [filling(queue), rates.pps.unwrap_or(0.0)]);
    for (app, model, index, queue, rates) in all {
        let hot = balance::hot(model, &view.thresholds).get(index).copied().unwrap_or(false);
        let subject = Subject::Queue {
            app: app.name.clone(),
            port: queue.port,
            queue: queue.queue,
            direction: queue.direction,
        };
        let total = queue_totals(queue, model, view);
        table.push(subject, false, queue_cells(app, queue, (rates, total), hot));
    }
    table
}

/// In eighths: a packet more or less makes no queue hotter.
fn filling(queue: &QueueSample) -> f64 {
    let high = queue.depth_high_water.map(|high| high.window).max(queue.depth);
    let share = high.zip(queue.descriptors.filter(|&of| of > 0));
    share.map_or(0.0, |(used, of)| (used as f64 / of as f64 * 8.0).floor())
}

/// Packets that it received or sent, and missed.
fn queue_totals(queue: &QueueSample, model: &Model, view: &ViewState) -> [Cell; 2] {
    let before = view.baseline.of(&model.sample);
    let (packets, _) = totals::moved_by_queue(queue, &model.sample, before);
    let missed = totals::missed_of_queue(queue, &model.sample, before);
    [
        packets.map_or_else(|| rate(None), number),
        missed.map_or_else(|| rate(None), |missed| bad_count(missed, si(missed as f64))),
    ]
}

fn queue_cells(
    app: &AppState,
    queue: &QueueSample,
    (rates, [packets, missed]): (&QueueRates, [Cell; 2]),
    hot: bool,
) -> Vec<Cell> {
    vec![
        Cell::text(format!("{}:{}", queue.port, queue.queue)),
        Cell::text(direction_word(queue.direction)),
        app_cell(app),
        rate(rates.pps).with_total(packets),
        alarm(share(rates.share), hot, Tone::Warn),
        bad_rate(rates.missed_ps).with_total(missed),
        high(queue.depth_high_water.map(|high| high.window), queue.descriptors),
        filled(queue.depth, queue.descriptors),
    ]
}

/// Those that are empty soonest, or else fullest.
pub(super) fn pools(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("Hottest pools").flex(13),
        Column::text("App"),
        Column::number("Used").unit(ColumnUnit::Share),
        Column::number("Growth/s"),
        Column::number("Empty in").unit(ColumnUnit::SECONDS),
        Column::text("Trend").flex(8),
    ];
    let mut table = TextTable::new("Hottest pools", columns);
    let all = fleet.live_models().flat_map(|(app, model)| {
        let pools = model.sample.pools.iter().zip(&model.pools);
        pools.map(move |(pool, trend)| (app, pool, trend))
    });
    // The use of the pools of a stock app is not counted.
    let counted = all.filter(|(_, _, trend)| trend.used_ratio.is_some()).collect();
    let all = most(counted, |(_, _, trend)| {
        let haste = trend.exhausted_in_s.map_or(0.0, |left| 1.0 / left.max(1e-3));
        [haste, trend.used_ratio.unwrap_or(0.0)]
    });
    for (app, pool, trend) in all {
        let subject = Subject::Pool { app: app.name.clone(), pool: pool.name.clone() };
        table.push(subject, false, pool_cells(app, pool, trend));
    }
    table
}

fn pool_cells(app: &AppState, pool: &PoolSample, trend: &PoolTrend) -> Vec<Cell> {
    let left = Cell::number(trend.exhausted_in_s, known(trend.exhausted_in_s, seconds));
    vec![
        Cell::text(&pool.name),
        app_cell(app),
        share(trend.used_ratio),
        growth(trend),
        left,
        spark(pool, trend),
    ]
}

/// The busiest, or else those with the longest gap.
pub(super) fn lcores(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::number("Hottest lcores"),
        Column::text("App"),
        Column::text("Role"),
        Column::number("Busy").unit(ColumnUnit::Share),
        Column::events("pps", "Packets"),
        Column::number("Gap").unit(ColumnUnit::MICROS),
        Column::number("Worst gap").unit(ColumnUnit::MICROS),
        Column::events("Stalls/s", "Stalls"),
    ];
    let mut table = TextTable::new("Hottest lcores", columns);
    let all = fleet.live_models().flat_map(|(app, model)| {
        let lcores = model.sample.lcores.iter().zip(&model.lcores);
        lcores.map(move |(lcore, rates)| (app, model, lcore, rates))
    });
    let all = most(all.collect(), |(_, _, lcore, rates)| {
        // In percent: the busiest ones do not change places all the time.
        let busy = (rates.busy_ratio.unwrap_or(0.0) * 100.0).floor();
        [busy, lcore.gap_window_max_us as f64]
    });
    for (app, model, lcore, rates) in all {
        let subject = Subject::Lcore { app: app.name.clone(), lcore: lcore.lcore };
        let before = view.baseline.of(&model.sample);
        table.push(subject, false, lcore_cells(app, (lcore, before), rates));
    }
    table
}

fn lcore_cells(
    app: &AppState,
    (lcore, before): (&LcoreSample, Option<&Sample>),
    rates: &LcoreRates,
) -> Vec<Cell> {
    let total = |of: fn(&LcoreSample) -> u64| totals::of_lcore(lcore, before, of);
    let stalled = total(|lcore| lcore.stalls);
    let gap = |us: u64| Cell::number(Some(us as f64), micros(us));
    let stalls = rates.stalls_ps;
    vec![
        Cell::number(Some(f64::from(lcore.lcore)), lcore.lcore.to_string()),
        app_cell(app),
        Cell::text(&lcore.role),
        share(rates.busy_ratio),
        rate(rates.pps).with_total(number(total(|lcore| lcore.packets))),
        gap(lcore.gap_window_max_us),
        gap(lcore.gap_max_us),
        alarm(rate(stalls), stalls.is_some_and(|stalls| stalls > 0.0), Tone::Warn)
            .with_total(bad_count(stalled, si(stalled as f64))),
    ]
}
