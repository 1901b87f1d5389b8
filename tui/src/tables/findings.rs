//! Findings: what, where, how fast, since when.

use pmdscope_render::cells::app_cell;
use pmdscope_render::number::{known, seconds};
use pmdscope_render::{Cell, Column, Subject, TextTable};
use pmdscope_telemetry::finding::{Finding, FindingSubject};
use pmdscope_telemetry::{AppState, FleetState};

use super::apps::severity_look;
use crate::ranking::{FindingRate, RankedFinding, ranked};
use crate::timeline::trends::FindingAge;
use crate::view::ViewState;

/// One row per finding, in the order in which to look at them.
pub(super) fn findings(fleet: &FleetState, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("Finding"),
        Column::text("Severity").drop_at(4),
        Column::text("App").drop_at(1),
        Column::text("Where").flex(26),
        Column::number("Rate"),
        Column::number("Empty in").drop_at(2),
        Column::number("Since"),
        Column::text("Evidence").flex(20).drop_at(3),
    ];
    let mut table = TextTable::new("Findings", columns);
    for found in ranked(fleet, &view.thresholds) {
        let stale = found.app.is_some_and(AppState::stale);
        table.push(subject(found.finding), stale, cells(&found, view));
    }
    let known = fleet.apps.iter().any(|app| app.model.is_some());
    if table.rows.is_empty() && (known || !fleet.interfaces.interfaces.is_empty()) {
        table.notes.push("none".to_owned());
    }
    table
}

/// The row of a finding.
pub(crate) fn subject(finding: &Finding) -> Subject {
    Subject::Finding {
        app: finding.app.clone(),
        lint: finding.lint,
        about: finding.subject.clone(),
    }
}

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
        Cell::text(place(finding)),
        Cell::number(rate, known(found.rate, FindingRate::text)),
        Cell::number(found.left_s, known(found.left_s, seconds)),
        Cell::number(age.map(|age| age.seconds), known(age, age_text)),
        Cell::text(evidence(found)).tone(tone),
    ]
}

/// A line of code says more than the pool that loses its mbufs, and comes first.
fn place(finding: &Finding) -> String {
    match &finding.subject {
        FindingSubject::Site { pool, site } => format!("{site} {pool}"),
        subject => subject.to_string(),
    }
}

/// With what was folded into the finding.
pub(crate) fn evidence(found: &RankedFinding) -> String {
    let folded = found.folded.iter().map(|folded| format!("; {}", folded.evidence));
    std::iter::once(found.finding.evidence.clone()).chain(folded).collect()
}

/// `1m30s`, or `>1m30s` for one that was there before.
pub(crate) fn age_text(age: FindingAge) -> String {
    format!("{}{}", if age.at_least { ">" } else { "" }, seconds(age.seconds))
}
