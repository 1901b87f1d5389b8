//! Carries out actions of the window in which columns are chosen.

use pmdscope_render::{Column, TextTable};
use pmdscope_telemetry::FleetState;

use crate::action::ColumnAction;
use crate::columns;
use crate::state::{ColumnWindow, InputMode, ViewState};
use crate::tables;

/// Carries out an action of that window; `table` is the one that is selected.
pub(super) fn update(
    view: &mut ViewState,
    action: ColumnAction,
    fleet: &FleetState,
    table: Option<TextTable>,
) {
    let InputMode::Columns(mut window) = view.mode.clone() else {
        if let (InputMode::Browse, Some(table), ColumnAction::Window) = (&view.mode, table, action)
        {
            view.mode = InputMode::Columns(window_of(table.title, view, fleet));
            view.scroll = 0;
        }
        return;
    };
    let at = view.scroll.min(window.columns.len().saturating_sub(1));
    match action {
        ColumnAction::Window => {
            view.mode = InputMode::Browse;
            return;
        }
        ColumnAction::Reset => {
            view.columns.forget(window.table);
            view.mode = InputMode::Columns(window_of(window.table, view, fleet));
            return;
        }
        ColumnAction::Toggle => window.toggle(at),
        ColumnAction::Left => view.scroll = window.exchange(at, at.saturating_sub(1)),
        ColumnAction::Right => view.scroll = window.exchange(at, at + 1),
    }
    view.columns.set(window.table, window.shown());
    view.mode = InputMode::Columns(window);
}

/// The window for a table. Columns that were chosen come first, in their order.
fn window_of(table: &'static str, view: &ViewState, fleet: &FleetState) -> ColumnWindow {
    let own = tables::of(view.tab, fleet, view).into_iter().find(|own| own.title == table);
    let (shown, first) = match view.columns.get(table) {
        Some(_) => (columns::chosen(table, view, fleet), columns::chosen(table, view, fleet)),
        None => (columns::visible(table, view, fleet), Vec::new()),
    };
    let own = own.iter().flat_map(|own| &own.columns).map(Column::name);
    let others = own.filter(|name| !first.contains(name));
    let columns = first.iter().copied().chain(others);
    ColumnWindow { table, columns: columns.map(|name| (name, shown.contains(&name))).collect() }
}
