//! The tables of the shown page: filtered, sorted, and as many as there is room for.

use pmdscope_render::{FilterError, Subject, TextTable};
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
    /// Rows of the first table that there is no room to list.
    left_out: usize,
}

impl PageTables {
    /// Rows of that table that there is no room to list.
    pub(crate) fn left_out_of(&self, table: &str) -> usize {
        let is_first = self.tables.first().is_some_and(|first| first.title == table);
        if is_first { self.left_out } else { 0 }
    }
}

/// The row that keys act on: the selected one, and without one the first finding where they are listed.
pub(crate) fn selected<'a>(view: &'a ViewState, tables: &'a [TextTable]) -> Option<&'a Subject> {
    let subjects = || tables.iter().flat_map(|table| &table.rows).map(|row| &row.subject);
    let selected = view.selected();
    if !view.tab.lists_findings() || selected.is_some_and(|it| subjects().any(|row| row == it)) {
        return selected;
    }
    subjects().find(|row| matches!(row, Subject::Finding { .. })).or(selected)
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
    }
    let mut left_out = 0;
    if view.expanded_table().is_none() && view.tab == PageTab::Overview {
        let (lines, spacing) = overview_room(view);
        left_out = limit_findings(&mut tables, lines, spacing, view);
    }
    // Last: filters and orders are about numbers, and only what is shown is looked up.
    if let Some(names) = &view.names {
        for table in &mut tables {
            flows::name_ends(table, names.as_ref());
        }
    }
    PageTables { tables, filter_problem, left_out }
}

/// The table that holds the selected row, else the first with rows.
pub(crate) fn selected_table(view: &ViewState, fleet: &FleetState) -> Option<TextTable> {
    let mut tables = shown(view, fleet);
    let holds = |subject: &Subject| {
        tables.iter().position(|table| table.rows.iter().any(|row| row.subject == *subject))
    };
    let at = view.selected().and_then(holds);
    let at = at.or_else(|| tables.iter().position(|table| !table.rows.is_empty()))?;
    Some(tables.swap_remove(at))
}

/// Apps that the Overview shows at least, whatever is wrong with them.
const APPS_MIN: usize = 3;

/// Leaves out findings of the Overview, so that its first tables fit into so many lines, of which one
/// in `spacing` is empty between them. The selected one stays. Returns how many are left out.
fn limit_findings(
    tables: &mut [TextTable],
    lines: usize,
    spacing: usize,
    view: &ViewState,
) -> usize {
    let [findings, apps, ..] = tables else { return 0 };
    let apps = 1 + apps.rows.len().min(APPS_MIN) + spacing;
    // The headings.
    let room = lines.saturating_sub(apps + 1);
    let all = findings.rows.len();
    if all <= room.max(1) {
        return 0;
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
    all - shown
}
