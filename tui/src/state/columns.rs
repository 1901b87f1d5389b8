//! Which columns tables show, and the window in which they are chosen.

use std::collections::BTreeMap;

use pmdscope_render::TextTable;

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

    /// Has a table show its own again.
    pub(crate) fn forget(&mut self, table: &str) {
        self.tables.remove(&kebab(table));
    }

    /// Leaves a table the columns that were chosen.
    pub(crate) fn apply(&self, table: &mut TextTable) {
        if let Some(columns) = self.get(table.title) {
            table.choose(columns);
        }
    }
}

/// The window in which columns are chosen. The cursor is where other windows are scrolled to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnWindow {
    /// Title of the table.
    pub(crate) table: &'static str,
    /// Names of all columns, and whether they are shown.
    pub(crate) columns: Vec<(&'static str, bool)>,
}

impl ColumnWindow {
    /// Names of those that are shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter(|(_, shown)| *shown).map(|(name, _)| *name)
    }

    /// Shows a column, or hides it; one is always shown.
    pub(crate) fn toggle(&mut self, at: usize) {
        let others = self.shown().count() > 1;
        if let Some((_, shown)) = self.columns.get_mut(at) {
            *shown = !*shown || !others;
        }
    }

    /// Exchanges two columns: where the first one is then.
    pub(crate) fn exchange(&mut self, at: usize, with: usize) -> usize {
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
}

/// The title of a table as a name: `Queue heat` is `queue-heat`.
pub(crate) fn kebab(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).map(str::to_lowercase);
    words.collect::<Vec<_>>().join("-")
}
