//! The window in which columns are chosen, as lines.

use pmdscope_render::Tone;
use pmdscope_telemetry::FleetState;
use ratatui::text::{Line, Span};

use crate::action::{Action, ColumnAction, SelectionMotion};
use crate::columns;
use crate::keys::{Hint, KeyContext};
use crate::state::{ColumnWindow, ViewState};
use crate::style::{ThemeStyle, selected_row};

/// One line for each column.
pub(super) fn lines(
    window: &ColumnWindow,
    view: &ViewState,
    fleet: &FleetState,
) -> Vec<Line<'static>> {
    let visible = columns::visible(window.table, view, fleet);
    let line = |(at, (name, shown)): (usize, &(&'static str, bool))| {
        let mark = if *shown { "[x]" } else { "[ ]" };
        let cursor = if at == view.scroll { '>' } else { ' ' };
        let text = Span::raw(format!("{cursor} {mark} {name:<16}"));
        let text = if at == view.scroll { text.style(selected_row()) } else { text };
        let note = if *shown && !visible.contains(name) { " no room" } else { "" };
        Line::from(vec![text, Span::styled(note, view.theme.style(Tone::Dim))])
    };
    window.columns.iter().enumerate().map(line).collect()
}

/// What the keys of the window do.
pub(super) fn keys(view: &ViewState) -> String {
    let column = Action::Columns;
    let cursor = [SelectionMotion::Down, SelectionMotion::Up].map(Action::Move);
    let cursor: &[Hint] = &[(&cursor, "select")];
    let actions: &[Hint] = &[
        (&[column(ColumnAction::Toggle)], "shows or hides"),
        (&[column(ColumnAction::Right), column(ColumnAction::Left)], "move"),
        (&[column(ColumnAction::Reset)], "default"),
        (&[column(ColumnAction::Window)], "closes"),
    ];
    let phrases = [
        view.keys.phrase(KeyContext::Page, cursor),
        view.keys.phrase(KeyContext::Columns, actions),
    ];
    phrases.join(", ")
}
