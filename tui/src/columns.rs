//! The columns of tables: those that there are, those that are chosen, and those that are visible.

use std::sync::Arc;

use jiff::tz::TimeZone;
use pmdscope_render::{Column, FilterError, TextTable, Theme};
use pmdscope_telemetry::FleetState;

use crate::state::{PageTab, ViewFilter, ViewState, kebab};
use crate::tables;
use crate::timeline::trends::Trends;

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
    let mut known: Vec<KnownTable> = Vec::new();
    for table in all_tables() {
        let name = kebab(table.title);
        match known.iter_mut().find(|known| known.name == name) {
            Some(known) => known.add(table.columns),
            None => known.push(KnownTable { name, columns: table.columns }),
        }
    }
    known
}

/// The tables of all pages, without rows.
fn all_tables() -> Vec<TextTable> {
    let mut view = ViewState::new(Theme::default(), 1000, TimeZone::UTC);
    (view.width, view.height) = (u16::MAX, u16::MAX);
    view.flows.traffic = Some(Arc::default());
    view.trends = Some(Trends::default());
    let fleet = FleetState::default();
    let pages = PageTab::ALL.into_iter();
    let mut tables: Vec<_> = pages.flat_map(|tab| tables::of(tab, &fleet, &view)).collect();
    for table in &mut tables {
        match table.title {
            tables::flows::CONVERSATIONS => {
                table.columns = tables::flows::conversation_columns().collect();
            }
            tables::lcores::LCORES => table.columns.extend(tables::stolen::columns()),
            _ => {}
        }
    }
    tables
}

/// Checks that some page has what a filter names.
///
/// # Errors
/// What none has.
pub fn check_filter(filter: &ViewFilter) -> Result<(), FilterError> {
    filter.rows().check(&all_tables())
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

/// Those that a table of the shown page has.
pub(crate) fn chosen(table: &str, view: &ViewState, fleet: &FleetState) -> Vec<&'static str> {
    let found = tables::shown(view, fleet).into_iter().find(|found| found.title == table);
    found.iter().flat_map(|found| &found.columns).map(Column::name).collect()
}

/// Those that the screen has room for.
pub(crate) fn visible(table: &str, view: &ViewState, fleet: &FleetState) -> Vec<&'static str> {
    let found = tables::shown(view, fleet).into_iter().find(|found| found.title == table);
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
