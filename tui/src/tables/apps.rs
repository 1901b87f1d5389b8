//! Overview: the apps.

use pmdscope_render::cells::{alarm, app_cell, bad_count, bad_rate, number_or, rate, share};
use pmdscope_render::number::{UNKNOWN, known, micros, nanos, si};
use pmdscope_render::{Cell, Column, ColumnUnit, Graph, Subject, TextTable, Tone};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::PortStats;

use super::totals;
use crate::app_state::{lost, missing_ports};
use crate::clock::NS_PER_SECOND;
use crate::state::ViewState;
use crate::timeline::trends::{AppPoint, ColumnValue, TrendPoint, Trends};
use pmdscope_telemetry::{AppState, AppStatus, FleetState};

/// Pools fuller than this are marked; the findings judge more finely.
const POOL_NEARLY_USED: f64 = 0.9;

/// Columns of a curve, and the time that it shows, nanoseconds.
const CURVE: (usize, u64) = (12, 60 * NS_PER_SECOND);

/// Columns of what else is known of an app that does not answer.
const OTHERS: usize = 60;

/// Titles of the curves, which a report has not.
const CURVES: [&str; 2] = ["RX, 1m", "Pool, 1m"];

/// Columns that the state of an app keeps on a screen of that width: why it does not answer matters more
/// than how it is started.
fn state_columns(width: u16) -> usize {
    usize::from(width).saturating_sub(OTHERS).max(13)
}

/// One row per app.
pub(super) fn apps(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("PID").drop_at(9),
        Column::text("DPDK").drop_at(11),
        Column::number("Lvl").drop_at(7),
        Column::number("Ports").drop_at(8),
        Column::events("RX pps", "RX total"),
        Column::text(CURVES[0]).flex(8).drop_at(3),
        Column::events("TX pps", "TX total").drop_at(6),
        Column::traffic(["RX bit/s", "RX B/s", "RX bits", "RX bytes"]).drop_at(10),
        Column::traffic(["TX bit/s", "TX B/s", "TX bits", "TX bytes"]).drop_at(10),
        Column::events("Miss/s", "Missed"),
        Column::number("Pool").unit(ColumnUnit::Share).drop_at(1),
        Column::text(CURVES[1]).flex(8).drop_at(4),
        Column::number("Gap").unit(ColumnUnit::MICROS).drop_at(2),
        Column::number("Scrape").unit(ColumnUnit::NANOS).drop_at(12),
        Column::text("State").flex(state_columns(view.width)),
    ];
    let mut table = TextTable::new("Apps", columns);
    for app in &fleet.apps {
        let subject = Subject::App { app: app.name.clone() };
        table.push(subject, app.stale(), app_cells(app, fleet.now_ns, view));
    }
    if view.trends.is_none() {
        for title in CURVES {
            table.hide_column(title);
        }
    }
    table
}

fn app_cells(app: &AppState, now_ns: u64, view: &ViewState) -> Vec<Cell> {
    let trends = view.trends.as_ref();
    let state = state(app, now_ns);
    let Some(model) = &app.model else {
        let mut cells = vec![app_cell(app)];
        cells.resize_with(15, || Cell::text(UNKNOWN));
        cells.push(state);
        return cells;
    };
    let drains = model.pools.iter().any(|pool| pool.exhausted_in_s.is_some());
    let sample = &model.sample;
    let version = sample.app.dpdk_version.trim_start_matches("DPDK ").to_owned();
    let before = view.baseline.of(sample);
    let total = |of: fn(&PortStats) -> u64| totals::of_ports(model, before, of);
    let count = |total: Option<u64>| number_or(total, UNKNOWN);
    let missed = total(|sum| sum.rx_missed);
    // The library of an app at "1+" is too old to tell level 1 from level 2.
    let more = if sample.level_may_be_higher() { "+" } else { "" };
    vec![
        app_cell(app),
        Cell::number(Some(f64::from(sample.app.pid)), sample.app.pid.to_string()),
        Cell::text(version),
        Cell::number(Some(f64::from(sample.level())), format!("{}{more}", sample.level())),
        ports_started(app, model),
        rate(model.sum_of_ports(|rates| rates.rx_pps))
            .with_total(count(total(|sum| sum.rx_packets))),
        curve(app, trends, |point| point.rx_pps, CurveScale::FromZero),
        rate(model.sum_of_ports(|rates| rates.tx_pps))
            .with_total(count(total(|sum| sum.tx_packets))),
        rate(model.sum_of_ports(|rates| rates.rx_bps)).with_bytes(total(|sum| sum.rx_bytes)),
        rate(model.sum_of_ports(|rates| rates.tx_bps)).with_bytes(total(|sum| sum.tx_bytes)),
        bad_rate(model.sum_of_ports(|rates| rates.rx_missed_ps)).with_total(
            missed.map_or_else(|| count(None), |missed| bad_count(missed, si(missed as f64))),
        ),
        fullest_pool(model),
        curve(
            app,
            trends,
            |point| point.pool_used,
            if drains { CurveScale::Own } else { CurveScale::Share },
        ),
        longest_gap(model),
        Cell::number(Some(sample.duration_ns as f64), nanos(sample.duration_ns)),
        state,
    ]
}

/// The ends of a curve.
#[derive(Clone, Copy)]
enum CurveScale {
    /// From 0 to the highest value.
    FromZero,
    /// From 0 to 1.
    Share,
    /// From the lowest to the highest value: a pool that drains slowly would look flat.
    Own,
}

/// A value of the app over the last minute.
fn curve(
    app: &AppState,
    trends: Option<&Trends>,
    of: impl Fn(&AppPoint) -> Option<f64>,
    scale: CurveScale,
) -> Cell {
    let (columns, length_ns) = CURVE;
    let value = |point: &TrendPoint| of(point.app(&app.name)?);
    let values = trends
        .map(|trends| trends.columns(length_ns, columns, ColumnValue::Mean, value))
        .unwrap_or_default();
    let known = || values.iter().flatten().copied();
    let highest = known().reduce(f64::max).unwrap_or(1.0);
    let lowest = known().reduce(f64::min).filter(|lowest| *lowest < highest);
    let (bottom, top) = match scale {
        CurveScale::FromZero => (0.0, highest),
        CurveScale::Share => (0.0, 1.0),
        CurveScale::Own => (lowest.unwrap_or(0.0), highest),
    };
    Cell::graph(Graph::Spark { values, bottom, top })
}

/// The ports that are started, of those that the app has and ought to have.
fn ports_started(app: &AppState, model: &Model) -> Cell {
    let ports = &model.sample.ports;
    let started = ports.iter().filter(|port| port.started).count();
    let all = ports.len() + missing_ports(app).count();
    let cell = Cell::number(Some(started as f64), format!("{started}/{all}"));
    alarm(cell, started < all || all == 0, Tone::Bad)
}

fn fullest_pool(model: &Model) -> Cell {
    let fullest = model.fullest_pool_ratio();
    alarm(share(fullest), fullest.is_some_and(|r| r >= POOL_NEARLY_USED), Tone::Bad)
}

fn longest_gap(model: &Model) -> Cell {
    let gap = model.longest_gap_us();
    Cell::number(gap.map(|us| us as f64), known(gap, micros))
}

/// The state of an app, and the age of its numbers.
fn state(app: &AppState, now_ns: u64) -> Cell {
    match &app.status {
        AppStatus::Waiting => Cell::text("waiting for an answer").tone(Tone::Dim),
        AppStatus::Lost { reason } => {
            Cell::text(format!("{}: {reason}", lost(app, now_ns))).tone(Tone::Bad)
        }
        AppStatus::Live => live_state(app),
    }
}

fn live_state(app: &AppState) -> Cell {
    let Some(model) = &app.model else { return Cell::text("live") };
    if model.restarted {
        Cell::text("restarted").tone(Tone::Warn)
    } else if model.ports.iter().any(|port| port.reset) {
        Cell::text("live, counters reset").tone(Tone::Warn)
    } else if let Some(part) = model.sample.partial.first() {
        Cell::text(format!("live, partly: {part}")).tone(Tone::Warn)
    } else {
        Cell::text("live").tone(Tone::Good)
    }
}
