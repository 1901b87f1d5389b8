//! Since when rows have findings.

use pmdscope_render::{Cell, Column, ColumnUnit, Subject, TextTable};
use pmdscope_telemetry::FleetState;

use super::lcores::LCORES;
use crate::findings::ranking::ranked;
use crate::findings::rows;
use crate::findings::text::age_text;
use crate::state::ViewState;
use crate::timeline::trends::FindingAge;

/// Tables with rows that findings are about.
const TABLES: [&str; 3] = ["Ports", "Pools", LCORES];

/// Adds a column for the longest time that a finding about the row has been there. A report does not
/// know it.
pub(super) fn add(table: &mut TextTable, fleet: &FleetState, view: &ViewState) {
    if view.trends.is_none() || !TABLES.contains(&table.title) {
        return;
    }
    let ages = ages(fleet, view);
    table.columns.push(Column::number("Since").unit(ColumnUnit::SECONDS).drop_at(5));
    for row in &mut table.rows {
        let about = ages.iter().filter(|(subject, _)| *subject == row.subject);
        let oldest = about.map(|(_, age)| *age).max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let text = oldest.map(age_text).unwrap_or_default();
        row.cells.push(Cell::number(oldest.map(|age| age.seconds), text));
    }
}

/// The rows that findings are about.
fn ages(fleet: &FleetState, view: &ViewState) -> Vec<(Subject, FindingAge)> {
    let mut ages = Vec::new();
    for found in ranked(fleet, &view.thresholds) {
        if let Some(age) = found.age(view.trends.as_ref()) {
            let targets = rows::targets(found.finding, &view.thresholds, fleet);
            ages.extend(targets.into_iter().map(|target| (target, age)));
        }
    }
    ages
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint};

    use crate::fixture;
    use crate::screen::tests::{on, text};
    use crate::state::PageTab;
    use crate::timeline::trends::{FindingLog, Trends};

    /// Findings that began 90 and 20 seconds ago, seen by a display that was started before.
    fn seen(old: &Finding, new: &Finding) -> Trends {
        let mut log = FindingLog::default();
        let now = fixture::MONOTONIC_NS;
        let fleet = |findings: &[&Finding]| {
            let findings = findings.iter().map(|&finding| finding.clone()).collect();
            fixture::fleet_of(fixture::leaking(), findings)
        };
        log.update(now - 300_000_000_000, &fleet(&[]));
        log.update(now - 90_000_000_000, &fleet(&[old]));
        log.update(now - 20_000_000_000, &fleet(&[old, new]));
        Trends { now, findings: log.spans().to_vec(), ..Trends::default() }
    }

    #[test]
    fn rows_say_since_when_they_have_had_a_finding() {
        let [missed, leak, exhausting] =
            <[Finding; 3]>::try_from(fixture::leaking_findings()).unwrap();
        let about = |lint, subject| Finding { lint, subject, ..missed.clone() };
        let stall = about(Lint::Stall, FindingSubject::Lcore(2));
        let stolen = about(Lint::LcoreStolen, FindingSubject::Lcore(2));
        let down = about(Lint::LinkDown, missed.subject.clone());
        for (tab, old, new, row) in [
            (PageTab::Ports, &down, &missed, "net_vhost0"),
            (PageTab::Pools, &exhausting, &leak, "reflector_rx"),
            (PageTab::Lcores, &stall, &stolen, "03:03:04"),
        ] {
            let mut view = on(tab);
            view.trends = Some(seen(old, new));
            let fleet = fixture::fleet_of(fixture::leaking(), vec![old.clone(), new.clone()]);
            let screen = text(140, 40, &view, &fleet);
            let rows = screen.lines().filter(|line| line.contains(row));
            assert_eq!(rows.filter(|line| line.ends_with(" 1m30s")).count(), 1, "{screen}");
            view.trends = None;
            assert!(!text(140, 40, &view, &fleet).contains("Since"));
        }
    }
}
