//! Time stolen from lcores: columns of the table of lcores, and lines of their details.

use std::fmt::Write;

use jiff::tz::TimeZone;
use pmdscope_render::cells::{alarm, share};
use pmdscope_render::number::{UNKNOWN, count, known, nanos, percent, plural, si};
use pmdscope_render::{Cell, Column, ColumnUnit, TextTable, Tone};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::model::{Model, StolenRates};
use pmdscope_telemetry::sample::{StolenSample, TracingMethod, TracingSample};

use crate::clock::time_of_day;

/// Most thieves in the details of an lcore.
const THIEVES: usize = 12;

/// Whether any app is traced, so that there is something to show.
pub(super) fn is_traced(fleet: &FleetState) -> bool {
    fleet.models().any(|(_, model)| model.sample.tracing.is_some())
}

pub(crate) fn columns() -> [Column; 2] {
    [Column::number("Stolen").unit(ColumnUnit::Share), Column::text("by").flex(9)]
}

/// The share of the time that was stolen, and the worst thief.
pub(super) fn cells(model: &Model, lcore: u32, tolerated: f64) -> [Cell; 2] {
    let Some(rates) = rates(model, lcore) else {
        return [(); 2].map(|()| Cell::text(UNKNOWN).tone(Tone::Dim));
    };
    let too_much = rates.ratio.is_some_and(|ratio| ratio > tolerated);
    let thief = rates.worst.as_ref().map(|worst| worst.thief.as_str());
    let nobody = if rates.events_ps == Some(0.0) { "" } else { UNKNOWN };
    [alarm(share(rates.ratio), too_much, Tone::Warn), Cell::text(thief.unwrap_or(nobody))]
}

fn rates(model: &Model, lcore: u32) -> Option<&StolenRates> {
    model.stolen.iter().find(|rates| rates.lcore == lcore)
}

/// A note for each app, of what the numbers lack.
pub(super) fn note_missing(table: &mut TextTable, fleet: &FleetState) {
    for (app, model) in fleet.models() {
        let Some(tracing) = &model.sample.tracing else { continue };
        let lacks = lacks(tracing);
        if !lacks.is_empty() {
            table.notes.push(format!("{}: stolen time lacks {}", app.name, lacks.join("; ")));
        }
    }
}

fn lacks(tracing: &TracingSample) -> Vec<String> {
    let mut lacks = tracing.missing.clone();
    if tracing.method == TracingMethod::Proc && lacks.is_empty() {
        lacks.push("all times but the scheduler's, without BPF".to_owned());
    }
    if tracing.lost_events > 0 {
        lacks.push(format!("{} that the tracer lost", plural(tracing.lost_events, "event")));
    }
    lacks
}

/// Name and value of each line about one lcore; none if it is not traced.
pub(crate) fn details(model: &Model, lcore: u32, zone: &TimeZone) -> Vec<(String, String)> {
    let Some((tracing, rates)) = model.sample.tracing.as_ref().zip(rates(model, lcore)) else {
        return Vec::new();
    };
    let now = format!("{}, {} times/s", known(rates.ratio, percent), known(rates.events_ps, si));
    let since = time_of_day(tracing.since_realtime_ns, zone);
    let mut lines = vec![
        ("stolen".to_owned(), now),
        ("traced since".to_owned(), format!("{since}, by {}", tracing.method.name())),
    ];
    let mut thieves: Vec<_> = tracing.stolen.iter().filter(|row| row.lcore == lcore).collect();
    thieves.sort_by_key(|row| std::cmp::Reverse((row.stolen_ns, row.count)));
    let more = thieves.len().saturating_sub(THIEVES);
    lines.extend(thieves.iter().take(THIEVES).map(|row| thief(row, zone)));
    if more > 0 {
        lines.push(("others".to_owned(), format!("{more} that took less")));
    }
    lines.extend(lacks(tracing).into_iter().map(|lack| ("not traced".to_owned(), lack)));
    lines
}

fn thief(row: &StolenSample, zone: &TimeZone) -> (String, String) {
    let mut text = format!("{}: {} times", row.thief, count(row.count));
    if let Some(ns) = row.stolen_ns {
        let _ = write!(text, ", {}", nanos(ns));
    }
    if let Some(ns) = row.longest_ns {
        let at = row.longest_realtime_ns.map(|at| format!(" at {}", time_of_day(at, zone)));
        let _ = write!(text, ", longest {}{}", nanos(ns), at.unwrap_or_default());
    }
    (row.cause.to_string(), text)
}
