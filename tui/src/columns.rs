//! Which columns tables show, and in which order: chosen in a window.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use pmdscope_render::{Column, TextTable, Theme, Tone};
use pmdscope_telemetry::FleetState;
use ratatui::text::{Line, Span};

use crate::action::{Action, ColumnAction, SelectionMotion};
use crate::keys::{Hint, KeyContext};
use crate::state::{InputMode, PageTab, ViewState};
use crate::style::{ThemeStyle, selected_row};
use crate::tables;
use crate::timeline::trends::Trends;

/// The columns of tables that do not show their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnChoices {
    /// Names of columns by the name of a table.
    tables: BTreeMap<String, Vec<String>>,
}

impl ColumnChoices {
    /// Has a table show these columns in this order.
    pub fn set<'a>(&mut self, table: &str, columns: impl IntoIterator<Item = &'a str>) {
        self.tables.insert(kebab(table), columns.into_iter().map(str::to_owned).collect());
    }

    /// The columns that were chosen for a table.
    pub fn get(&self, table: &str) -> Option<&[String]> {
        self.tables.get(&kebab(table)).map(Vec::as_slice)
    }

    /// Leaves the columns that were chosen.
    pub(crate) fn apply(&self, table: &mut TextTable) {
        if let Some(columns) = self.get(table.title) {
            table.choose(columns);
        }
    }
}

/// A table and the columns that it may have.
#[derive(Clone, Debug)]
pub struct KnownTable {
    /// Its title as a name, such as `queue-heat`.
    pub name: String,
    /// As it shows them by default.
    pub columns: Vec<Column>,
}

/// All tables, in the order of their pages. They have all columns, also those that are shown on demand.
pub fn known_tables() -> Vec<KnownTable> {
    let mut view = ViewState::new(Theme::default(), 1000, TimeZone::UTC);
    (view.width, view.height) = (u16::MAX, u16::MAX);
    view.flows.traffic = Some(Arc::default());
    view.trends = Some(Trends::default());
    let fleet = FleetState::default();
    let mut known: Vec<KnownTable> = Vec::new();
    for table in PageTab::ALL.into_iter().flat_map(|tab| tables::of(tab, &fleet, &view)) {
        let columns = match table.title {
            tables::flows::CONVERSATIONS => tables::flows::conversation_columns().collect(),
            tables::lcores::LCORES => {
                table.columns.into_iter().chain(tables::stolen::columns()).collect()
            }
            _ => table.columns,
        };
        let name = kebab(table.title);
        match known.iter_mut().find(|known| known.name == name) {
            Some(known) => known.add(columns),
            None => known.push(KnownTable { name, columns }),
        }
    }
    known
}

impl KnownTable {
    /// A table of this title is on several pages.
    fn add(&mut self, columns: Vec<Column>) {
        for column in columns {
            if !self.columns.iter().any(|known| known.is(column.name())) {
                self.columns.push(column);
            }
        }
    }
}

/// The title of a table as a name: `Queue heat` is `queue-heat`.
fn kebab(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).map(str::to_lowercase);
    words.collect::<Vec<_>>().join("-")
}

/// The window in which columns are chosen. The cursor is where other windows are scrolled to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnWindow {
    /// Title of the table.
    table: &'static str,
    /// Names of all columns, and whether they are shown.
    columns: Vec<(&'static str, bool)>,
}

/// Carries that out; `table` is the one that is selected.
pub(crate) fn update(
    view: &mut ViewState,
    action: ColumnAction,
    fleet: &FleetState,
    table: Option<TextTable>,
) {
    let InputMode::Columns(mut window) = view.mode.clone() else {
        if let (InputMode::Browse, Some(table), ColumnAction::Window) = (&view.mode, table, action)
        {
            view.mode = InputMode::Columns(ColumnWindow::of(table.title, view, fleet));
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
            view.columns.tables.remove(&kebab(window.table));
            view.mode = InputMode::Columns(ColumnWindow::of(window.table, view, fleet));
            return;
        }
        ColumnAction::Toggle => window.toggle(at),
        ColumnAction::Left => view.scroll = window.exchange(at, at.saturating_sub(1)),
        ColumnAction::Right => view.scroll = window.exchange(at, at + 1),
    }
    view.columns.set(window.table, window.shown());
    view.mode = InputMode::Columns(window);
}

impl ColumnWindow {
    /// Columns that were chosen come first, in their order.
    fn of(table: &'static str, view: &ViewState, fleet: &FleetState) -> Self {
        let own = tables::of(view.tab, fleet, view).into_iter().find(|own| own.title == table);
        let (shown, first) = match view.columns.get(table) {
            Some(_) => (columns_of(table, view, fleet), columns_of(table, view, fleet)),
            None => (visible(table, view, fleet), Vec::new()),
        };
        let own = own.iter().flat_map(|own| &own.columns).map(Column::name);
        let others = own.filter(|name| !first.contains(name));
        let columns = first.iter().copied().chain(others);
        Self { table, columns: columns.map(|name| (name, shown.contains(&name))).collect() }
    }

    fn shown(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter(|(_, shown)| *shown).map(|(name, _)| *name)
    }

    /// One is always shown.
    fn toggle(&mut self, at: usize) {
        let others = self.shown().count() > 1;
        if let Some((_, shown)) = self.columns.get_mut(at) {
            *shown = !*shown || !others;
        }
    }

    /// Where the column is then.
    fn exchange(&mut self, at: usize, with: usize) -> usize {
        if with >= self.columns.len() {
            return at;
        }
        self.columns.swap(at, with);
        with
    }

    /// The heading of the window.
    pub(crate) fn title(&self) -> String {
        format!("Columns of {}", self.table)
    }

    /// One line for each column.
    pub(crate) fn lines(&self, view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
        let visible = visible(self.table, view, fleet);
        let line = |(at, (name, shown)): (usize, &(&'static str, bool))| {
            let mark = if *shown { "[x]" } else { "[ ]" };
            let cursor = if at == view.scroll { '>' } else { ' ' };
            let text = Span::raw(format!("{cursor} {mark} {name:<16}"));
            let text = if at == view.scroll { text.style(selected_row()) } else { text };
            let note = if *shown && !visible.contains(name) { " no room" } else { "" };
            Line::from(vec![text, Span::styled(note, view.theme.style(Tone::Dim))])
        };
        self.columns.iter().enumerate().map(line).collect()
    }
}

/// What the keys of the window do.
pub(crate) fn keys(view: &ViewState) -> String {
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

fn columns_of(table: &str, view: &ViewState, fleet: &FleetState) -> Vec<&'static str> {
    let found = view.tables(fleet).into_iter().find(|found| found.title == table);
    found.iter().flat_map(|found| &found.columns).map(Column::name).collect()
}

/// Those that the screen has room for.
fn visible(table: &str, view: &ViewState, fleet: &FleetState) -> Vec<&'static str> {
    let found = view.tables(fleet).into_iter().find(|found| found.title == table);
    let ends = found.map(|found| found.layout(Some(usize::from(view.width)), view.theme).ends());
    ends.into_iter().flatten().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn all_tables_and_columns_are_known() {
        let known = known_tables();
        let view = ViewState { width: 200, height: 60, ..fixture::view() };
        let fleet = fixture::fleet();
        for table in PageTab::ALL.into_iter().flat_map(|tab| tables::of(tab, &fleet, &view)) {
            let known = known.iter().find(|known| known.name == kebab(table.title)).unwrap();
            for column in &table.columns {
                assert!(known.columns.iter().any(|k| k.is(column.name())), "{}", column.name());
            }
        }
    }
}
