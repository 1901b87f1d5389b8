//! Poll loops.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use pmdscope_render::cells::{alarm, app_cell, bad_count, number, rate, share};
use pmdscope_render::number::{UNKNOWN, micros, si};
use pmdscope_render::{Cell, Column, ColumnUnit, Subject, TextTable, Tone};
use pmdscope_telemetry::model::{LcoreRates, Model};
use pmdscope_telemetry::sample::{LcoreSample, Sample};

use super::notes::note_level_0;
use super::{stolen, totals};
use crate::clock::time_of_day;
use crate::state::ViewState;
use pmdscope_telemetry::FleetState;

/// The heading of the table.
pub(crate) const LCORES: &str = "Lcores";

/// One row per lcore.
pub(super) fn lcores(fleet: &FleetState, view: &ViewState) -> TextTable {
    let mut columns = vec![
        Column::text("App"),
        Column::number("Lcore"),
        Column::text("Role").drop_at(6),
        Column::text("CPUs").drop_at(4),
        Column::number("Busy").unit(ColumnUnit::Share),
        Column::events("Polls/s", "Polls"),
        Column::events("pps", "Packets"),
        Column::number("Idle for").unit(ColumnUnit::MICROS).drop_at(2),
        Column::number("Gap").unit(ColumnUnit::MICROS),
        Column::number("Worst gap").unit(ColumnUnit::MICROS),
        Column::text("at").drop_at(3),
    ];
    let (traced, behind_gaps) = (stolen::is_traced(fleet), columns.len());
    if traced {
        columns.extend(stolen::columns());
    }
    columns.extend([
        Column::number("Stalls"),
        Column::events("Stalls/s", "Stalls").drop_at(7),
        Column::events("Preempt/s", "Preempted").drop_at(1),
    ]);
    let mut table = TextTable::new(LCORES, columns);
    for (app, model) in fleet.models() {
        let stall_us = model.sample.library.as_ref().map(|library| library.stall_us);
        for lcore in ids(model) {
            let subject = Subject::Lcore { app: app.name.clone(), lcore };
            let mut cells = vec![app_cell(app), id(lcore)];
            cells.extend(lcore_cells(model, lcore, stall_us, view));
            if traced {
                let stolen = stolen::cells(model, lcore, view.thresholds.stolen_ratio);
                cells.splice(behind_gaps..behind_gaps, stolen);
            }
            table.push(subject, app.stale(), cells);
        }
    }
    stolen::note_missing(&mut table, fleet);
    note_level_0(&mut table, fleet, "busy share, gaps and stalls:");
    table
}

/// The lcores that poll through the library, those whose threads the kernel knows, those that the EAL
/// lists, and those that are traced.
fn ids(model: &Model) -> BTreeSet<u32> {
    let polling = model.sample.lcores.iter().map(|lcore| lcore.lcore);
    let threads = model.sample.threads.iter().map(|thread| thread.lcore);
    let listed = model.sample.roles.iter().map(|role| role.lcore);
    let traced = model.sample.tracing.iter().flat_map(|tracing| &tracing.lcores).copied();
    polling.chain(threads).chain(listed).chain(traced).collect()
}

fn id(number: u32) -> Cell {
    Cell::number(Some(f64::from(number)), number.to_string())
}

/// All cells behind the number of the lcore.
fn lcore_cells(model: &Model, id: u32, stall_us: Option<u64>, view: &ViewState) -> Vec<Cell> {
    let before = view.baseline.of(&model.sample);
    let threads = model.sample.threads.iter().zip(&model.threads);
    let thread = threads.clone().find(|(thread, _)| thread.lcore == id);
    let lcores = model.sample.lcores.iter().zip(&model.lcores);
    let polling = lcores.clone().find(|(lcore, _)| lcore.lcore == id);
    let cpus = Cell::text(thread.map_or(UNKNOWN, |(thread, _)| &thread.cpus));
    let preempted_ps = thread.and_then(|(_, rates)| rates.involuntary_ps);
    let mut preempted =
        alarm(rate(preempted_ps), preempted_ps.is_some_and(|p| p > 0.0), Tone::Warn);
    if let Some((thread, _)) = thread {
        let then = before.and_then(|sample| sample.threads.iter().find(|t| t.tid == thread.tid));
        let count = totals::since(
            thread.involuntary_switches,
            then.map(|thread| thread.involuntary_switches),
        );
        preempted = preempted.with_total(bad_count(count, si(count as f64)));
    }
    let role = Cell::text(model.sample.role_of(id).unwrap_or(UNKNOWN));
    let Some((lcore, rates)) = polling else {
        let mut cells = vec![role, cpus];
        cells.resize_with(11, || Cell::text(UNKNOWN).tone(Tone::Dim));
        cells.push(preempted);
        return cells;
    };
    let mut cells = vec![role, cpus];
    cells.extend(polling_cells((lcore, before), rates, stall_us, &view.zone));
    cells.push(preempted);
    cells
}

fn polling_cells(
    (lcore, before): (&LcoreSample, Option<&Sample>),
    rates: &LcoreRates,
    stall_us: Option<u64>,
    zone: &TimeZone,
) -> [Cell; 9] {
    let gap = |us: u64| {
        let stalled = stall_us.is_some_and(|stall| us >= stall);
        alarm(Cell::number(Some(us as f64), micros(us)), stalled, Tone::Warn)
    };
    let total = |of: fn(&LcoreSample) -> u64| totals::of_lcore(lcore, before, of);
    let stalls = total(|lcore| lcore.stalls);
    [
        share(rates.busy_ratio),
        rate(rates.polls_ps).with_total(number(total(|lcore| lcore.polls))),
        rate(rates.pps).with_total(number(total(|lcore| lcore.packets))),
        gap(lcore.idle_us),
        gap(lcore.gap_window_max_us),
        gap(lcore.gap_max_us),
        Cell::text(time_of_day(lcore.gap_max_realtime_ns, zone)),
        bad_count(lcore.stalls, si(lcore.stalls as f64)),
        alarm(rate(rates.stalls_ps), rates.stalls_ps.is_some_and(|s| s > 0.0), Tone::Warn)
            .with_total(bad_count(stalls, si(stalls as f64))),
    ]
}
