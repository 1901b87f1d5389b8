//! Software rings.

use pmdscope_render::cells::{app_cell, number};
use pmdscope_render::{Cell, Column, Subject, TextTable};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::sample::{CountSource, HighWater, RingSample};

use super::notes::note_counted;
use super::ports::{filled, high};

/// One row per software ring.
pub(super) fn rings(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Ring"),
        Column::number("Used"),
        Column::number("Win max"),
        Column::number("Max").drop_at(1),
        Column::number("Of"),
        Column::text("Fill").flex(6).drop_at(2),
    ];
    let mut table = TextTable::new("Software rings", columns);
    for (app, model) in fleet.models() {
        for ring in &model.sample.rings {
            let subject = Subject::Ring { app: app.name.clone(), ring: ring.name.clone() };
            let mark =
                |of: fn(HighWater) -> u64| high(ring.high_water.map(of), Some(ring.capacity));
            let cells = vec![
                app_cell(app),
                Cell::text(&ring.name),
                number(ring.used),
                mark(|high| high.window),
                mark(|high| high.ever),
                number(ring.capacity),
                filled(Some(ring.used), Some(ring.capacity)),
            ];
            table.push(subject, app.stale(), cells);
        }
    }
    let of_xray = |ring: &RingSample| ring.source == Some(CountSource::Xray);
    note_counted(&mut table, fleet, |sample| sample.rings.iter().any(of_xray));
    table
}
