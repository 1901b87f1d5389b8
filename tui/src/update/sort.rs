//! Carries out actions about the order of rows.

use pmdscope_render::{Column, SortOrder};
use pmdscope_telemetry::FleetState;

use crate::columns;
use crate::state::{InputMode, ViewState};
use crate::tables;

/// Sorts the selected table by the next or the previous of its visible columns, from its own order round
/// and round. Whether the highest or the lowest come first stays.
pub(super) fn by_neighbour(view: &mut ViewState, forward: bool, fleet: &FleetState) {
    // A window that lies over the page hides its tables.
    if view.mode != InputMode::Browse {
        return;
    }
    let Some(table) = tables::selected_table(view, fleet) else { return };
    let names = columns::visible(table.title, view, fleet);
    let order = view.sort.get(table.title);
    // Place 0 is the table's own order.
    let places = names.len() + 1;
    let now = order.and_then(|order| names.iter().position(|name| *name == order.column));
    let now = now.map_or(0, |at| at + 1);
    let next = (now + if forward { 1 } else { places - 1 }) % places;
    let descending = order.is_none_or(|order| order.descending);
    match next.checked_sub(1).and_then(|at| names.get(at)) {
        Some(column) => view.sort.insert(table.title, SortOrder { column, descending }),
        None => view.sort.remove(table.title),
    };
}

/// The highest first, then the lowest first, then the table's own order.
pub(super) fn by_click(view: &mut ViewState, table: &'static str, column: &'static str) {
    let descending = match view.sort.get(table) {
        Some(sort) if sort.column == column => sort.descending.then_some(false),
        _ => Some(true),
    };
    match descending {
        Some(descending) => view.sort.insert(table, SortOrder { column, descending }),
        None => view.sort.remove(table),
    };
}

/// Turns the order of the selected table round; without one it begins with its first column.
pub(super) fn invert(view: &mut ViewState, fleet: &FleetState) {
    if view.mode != InputMode::Browse {
        return;
    }
    let Some(table) = tables::selected_table(view, fleet) else { return };
    let Some(column) = table.columns.first().map(Column::name) else { return };
    let sort = view.sort.entry(table.title).or_insert(SortOrder { column, descending: false });
    sort.descending = !sort.descending;
}
