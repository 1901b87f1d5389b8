//! The sites that lose or misuse mbufs, as a table.

use pmdscope_telemetry::model::{Model, SiteRates};
use pmdscope_telemetry::sample::SiteSample;
use pmdscope_telemetry::{AppState, FleetState};

use crate::cells::{alarm, app_cell, rate};
use crate::number::{count, known, seconds};
use crate::subject::Subject;
use crate::table::{Cell, Column, ColumnUnit, TextTable};
use crate::theme::Tone;

/// How much of the name of a source file to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStyle {
    /// Its last part.
    Brief,
    /// All that is known.
    Full,
}

/// One row per site that lost or misused mbufs.
pub fn leak_sites(fleet: &FleetState, paths: PathStyle) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Pool").flex(8).drop_at(2),
        Column::text("Kind"),
        Column::number("Count"),
        Column::number("Rate/s"),
        Column::number("Oldest").unit(ColumnUnit::SECONDS),
        Column::number("Empty in").unit(ColumnUnit::SECONDS).drop_at(1),
        Column::text("After").drop_at(3),
        Column::text("Site").flex(20),
    ];
    let mut table = TextTable::new("Leak sites", columns);
    for (app, model) in fleet.models() {
        for (site, rates) in model.sample.sites.iter().zip(&model.sites) {
            let place = if paths == PathStyle::Full { site.place() } else { site.brief_place() };
            let cells = site_cells(app, model, (site, rates), place);
            table.push(subject(app, site), app.stale(), cells);
        }
    }
    table
}

fn subject(app: &AppState, site: &SiteSample) -> Subject {
    Subject::Site {
        app: app.name.clone(),
        pool: site.pool.clone(),
        id: site.id,
        kind: site.kind,
        site: site.site.clone(),
    }
}

fn site_cells(
    app: &AppState,
    model: &Model,
    (site, rates): (&SiteSample, &SiteRates),
    place: String,
) -> Vec<Cell> {
    let loss = site.kind.is_loss();
    let found = if loss { site.count } else { site.events };
    let oldest = (found > 0).then_some(site.oldest_ms as f64 / 1000.0);
    let left = if loss { model.pool_left_s(&site.pool) } else { None };
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
