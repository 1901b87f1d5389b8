//! The tables of the shown page: filtered, sorted, and as many as there is room for.

use pmdscope_render::{FilterError, TextTable};
use pmdscope_telemetry::FleetState;

use super::{flows, totals};
use crate::action::Action;
use crate::layout::overview_room;
use crate::state::{PageTab, ViewState};

/// What a page shows.
pub(crate) struct PageTables {
    /// From top to bottom.
    pub(crate) tables: Vec<TextTable>,
    /// Why no row can match the filter.
    pub(crate) filter_problem: Option<FilterError>,
}

/// The tables of the shown page, filtered and sorted.
pub(crate) fn shown(view: &ViewState, fleet: &FleetState) -> Vec<TextTable> {
    page(view, fleet).tables
}

/// The same, and what is wrong with the filter there.
pub(crate) fn page(view: &ViewState, fleet: &FleetState) -> PageTables {
    let mut tables = super::of(view.tab, fleet, view);
    // Also about columns that are not shown.
    let filter_problem = view.filter.problem_in(&tables);
    for table in &mut tables {
        table.count(view.counters);
        if table.shows_totals() && table.remark.is_empty() {
            totals::origin(fleet, view).clone_into(&mut table.remark);
        }
        table.filter(view.filter.rows());
        if let Some(sort) = view.sort.get(table.title) {
            table.sort(*sort);
        }
        table.drop_repeated();
        view.columns.apply(table);
    }
    if let Some(title) = view.expanded_table() {
        tables.retain(|table| table.title == title);
    } else if view.tab == PageTab::Overview {
        let (lines, spacing) = overview_room(view);
        limit_findings(&mut tables, lines, spacing, view);
    }
    // Last: filters and orders are about numbers, and only what is shown is looked up.
    if let Some(names) = &view.names {
        for table in &mut tables {
            flows::name_ends(table, names.as_ref());
        }
    }
    PageTables { tables, filter_problem }
}

/// Apps that the Overview shows at least, whatever is wrong with them.
const APPS_MIN: usize = 3;

/// Leaves out findings of the Overview, so that its first tables fit into so many lines, of which one
/// in `spacing` is empty between them. The selected one stays.
fn limit_findings(tables: &mut [TextTable], lines: usize, spacing: usize, view: &ViewState) {
    let [findings, apps, ..] = tables else { return };
    let apps = 1 + apps.rows.len().min(APPS_MIN) + spacing;
    // The headings.
    let room = lines.saturating_sub(apps + 1);
    let all = findings.rows.len();
    if all <= room.max(1) {
        return;
    }
    // The note.
    let shown = room.saturating_sub(1).max(1);
    let at = findings.rows.iter().position(|row| Some(&row.subject) == view.selected());
    if let Some(at) = at.filter(|&at| at >= shown) {
        findings.rows.swap(at, shown - 1);
    }
    findings.rows.truncate(shown);
    let key = view.keys.label(&Action::Go(PageTab::Findings));
    let hint = key.map_or(String::new(), |key| format!(", {key}: all"));
    findings.notes.push(format!("+{} more{hint}", all - shown));
}
