//! Captures.

use pmdscope_render::cells::{app_cell, bad_count, number, share};
use pmdscope_render::number::{bytes, si};
use pmdscope_render::{Cell, Column, ColumnUnit, Subject, TextTable, Tone};
use pmdscope_telemetry::sample::TeeSample;
use pmdscope_telemetry::{AppState, FleetState};

/// One row per ring of a capture session.
pub(super) fn captures(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Session"),
        Column::number("PID"),
        Column::number("Lcore"),
        Column::text("State"),
        Column::number("Packets"),
        Column::number("Dropped"),
        Column::number("Filtered").drop_at(1),
        Column::number("Sampled out").drop_at(2),
        Column::number("Ring").drop_at(3),
        Column::number("Filled").unit(ColumnUnit::Share),
    ];
    let mut table = TextTable::new("Captures", columns);
    for (app, model) in fleet.models() {
        for tee in &model.sample.tee {
            let subject =
                Subject::Tee { app: app.name.clone(), session: tee.session, lcore: tee.lcore };
            table.push(subject, app.stale(), capture_cells(app, tee));
        }
    }
    table
}

fn capture_cells(app: &AppState, tee: &TeeSample) -> Vec<Cell> {
    let filled = (tee.ring_bytes > 0).then(|| tee.used_bytes as f64 / tee.ring_bytes as f64);
    let state =
        if tee.armed { Cell::text("armed") } else { Cell::text("disarmed").tone(Tone::Warn) };
    vec![
        app_cell(app),
        Cell::number(Some(tee.session as f64), tee.session.to_string()),
        Cell::number(Some(tee.pid as f64), tee.pid.to_string()),
        Cell::number(Some(f64::from(tee.lcore)), tee.lcore.to_string()),
        state,
        number(tee.records),
        bad_count(tee.dropped, si(tee.dropped as f64)),
        number(tee.filtered),
        number(tee.sampled_out),
        Cell::number(Some(tee.ring_bytes as f64), bytes(tee.ring_bytes)),
        share(filled),
    ]
}
