//! Findings: what, where, how fast, since when.

use pmdscope_render::cells::app_cell;
use pmdscope_render::number::{known, seconds};
use pmdscope_render::{Cell, Column, ColumnUnit, Graph, Subject, TextTable};
use pmdscope_telemetry::{AppState, FleetState};

use crate::findings::ranking::{FindingRate, RankedFinding, ranked};
use crate::findings::rows::subject;
use crate::findings::text::{age_text, evidence, place};
use crate::state::ViewState;
use crate::style::severity_look;
use crate::timeline::trends::{FindingSpan, Trends};

/// One row per finding, in the order in which to look at them.
pub(super) fn findings(fleet: &FleetState, view: &ViewState) -> TextTable {
    let mut columns = Vec::from(columns(fleet, view, 2));
    columns.push(Column::text("Evidence").flex(20).drop_at(3));
    let mut table = TextTable::new("Findings", columns);
    for found in ranked(fleet, &view.thresholds) {
        let stale = found.app.is_some_and(AppState::stale);
        let (_, tone) = severity_look(found.finding.severity, view.theme);
        let mut row = cells(&found, view);
        row.push(Cell::text(evidence(&found)).tone(tone));
        table.push(subject(found.finding), stale, row);
    }
    note_none(&mut table, fleet);
    table
}

/// Nothing is wrong, and not only not known.
fn note_none(table: &mut TextTable, fleet: &FleetState) {
    let known = fleet.apps.iter().any(|app| app.model.is_some());
    if table.rows.is_empty() && (known || !fleet.interfaces.interfaces.is_empty()) {
        table.notes.push("none".to_owned());
    }
}

/// Columns of the curve that shows when a finding was there.
const HISTORY: usize = 20;

/// All findings, each with its history, its evidence and what to do.
pub(super) fn page(fleet: &FleetState, view: &ViewState) -> Vec<TextTable> {
    vec![present(fleet, view), ended(fleet, view)]
}

fn present(fleet: &FleetState, view: &ViewState) -> TextTable {
    let mut columns = Vec::from(columns(fleet, view, 3));
    columns.push(Column::number("Times").drop_at(2));
    columns.push(Column::text("Last 10m").flex(HISTORY).drop_at(5));
    let mut table = TextTable::new("Findings", columns);
    for found in ranked(fleet, &view.thresholds) {
        let stale = found.app.is_some_and(AppState::stale);
        let mut row = cells(&found, view);
        row.extend(history_cells(view, |span| span.is_of(found.finding)));
        let notes = explanation(&found);
        table.push_with_notes(subject(found.finding), stale, row, notes);
    }
    note_none(&mut table, fleet);
    table
}

/// Notes that the details of a finding have as well.
fn explanation(found: &RankedFinding) -> Vec<String> {
    let finding = found.finding;
    let mut notes = vec![evidence(found)];
    notes.extend(finding.causes.iter().map(|cause| {
        let (title, evidence) = (cause.title(), &cause.evidence);
        format!("cause: {title}: {evidence}")
    }));
    notes.push(format!("threshold: {}", finding.threshold));
    notes.push(format!("what to do: {}", finding.advice));
    notes
}

/// How often it was there, and when.
fn history_cells(view: &ViewState, is_it: impl Fn(&FindingSpan) -> bool) -> [Cell; 2] {
    let times = view.trends.as_ref().map(|trends| trends.times(&is_it).count());
    let values = view.trends.as_ref().map(|trends| trends.presence(HISTORY, &is_it));
    [
        Cell::number(times.map(|times| times as f64), known(times, |times| times.to_string())),
        Cell::graph(Graph::Spark { values: values.unwrap_or_default(), bottom: 0.0, top: 1.0 }),
    ]
}

/// Findings that have ended.
fn ended(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("Finding"),
        Column::text("App").drop_at(1),
        Column::text("Where").flex(26),
        Column::number("Began").unit(ColumnUnit::SECONDS),
        Column::number("Ended").unit(ColumnUnit::SECONDS),
        Column::number("Times").drop_at(2),
        Column::text("Last 10m").flex(HISTORY).drop_at(3),
    ];
    let mut table = TextTable::new("Ended in the last 10 minutes", columns);
    let Some(trends) = &view.trends else { return table };
    let present = fleet.findings();
    for span in trends.ended() {
        let subject =
            Subject::Finding { app: span.app.clone(), lint: span.lint, about: span.about.clone() };
        if present.iter().any(|(_, finding)| span.is_of(finding)) {
            continue;
        }
        let notes = vec![span.evidence.clone()];
        table.push_with_notes(subject, true, ended_cells(span, trends, view), notes);
    }
    table
}

fn ended_cells(span: &FindingSpan, trends: &Trends, view: &ViewState) -> Vec<Cell> {
    let (sign, _) = severity_look(span.severity, view.theme);
    let began = trends.age_of(span);
    let ago = span.ended.map(|ended| trends.now.saturating_sub(ended) as f64 / 1e9);
    let mut cells = vec![
        Cell::text(format!("{sign}{}", span.lint.name())),
        Cell::text(&span.app),
        Cell::text(place(&span.about)),
        Cell::number(Some(began.seconds), age_text(began)),
        Cell::number(ago, known(ago, seconds)),
    ];
    cells.extend(history_cells(view, |other| other.is_same(span)));
    cells
}

/// Screens with fewer columns cut the names of findings and apps rather than the line of code.
const NARROW: u16 = 60;

/// Least characters there of the name of a finding, and of an app.
const NAMES_MIN: [usize; 2] = [7, 5];

/// The columns that both tables of present findings begin with, and when the time left gives way.
fn columns(fleet: &FleetState, view: &ViewState, time_left_drop: u8) -> [Column; 7] {
    let (finding, app) = (Column::text("Finding"), Column::text("App"));
    // With several apps the row must name the app, if only by a part of its name.
    let (finding, app) = match (fleet.apps.len(), view.width) {
        (2.., ..NARROW) => (finding.flex(NAMES_MIN[0]), app.flex(NAMES_MIN[1])),
        _ => (finding, app.drop_at(1)),
    };
    [
        finding,
        Column::text("Severity").drop_at(4),
        app,
        Column::text("Where").flex(26),
        Column::number("Rate"),
        Column::number("Empty in").unit(ColumnUnit::SECONDS).drop_at(time_left_drop),
        Column::number("Since").unit(ColumnUnit::SECONDS),
    ]
}

/// The cells below [`columns`].
fn cells(found: &RankedFinding, view: &ViewState) -> Vec<Cell> {
    let finding = found.finding;
    let (sign, tone) = severity_look(finding.severity, view.theme);
    let rate = match found.rate {
        Some(FindingRate::PerSecond(rate) | FindingRate::Share(rate)) => Some(rate),
        None => None,
    };
    let age = found.age(view.trends.as_ref());
    vec![
        Cell::text(format!("{sign}{}", finding.lint.name())).tone(tone),
        Cell::text(finding.severity.word()).tone(tone),
        found.app.map_or_else(|| Cell::text(""), app_cell),
        Cell::text(place(&finding.subject)),
        Cell::number(rate, known(found.rate, FindingRate::text)),
        Cell::number(found.left_s, known(found.left_s, seconds)),
        Cell::number(age.map(|age| age.seconds), known(age, age_text)),
    ]
}
