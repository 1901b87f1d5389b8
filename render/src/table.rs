//! Tables that fit any width: columns are dropped by priority, never the whole table.
//!
//! The same table is drawn on a terminal and printed as plain text.

mod column;
mod counters;
mod layout;

pub(crate) use self::column::plain;
pub use self::column::{Cell, Column, ColumnUnit, TextAlign};
pub(crate) use self::counters::ColumnNumber;
pub use self::counters::CounterMode;
pub use self::layout::{TableLayout, cut, table_lines, table_text};
use crate::subject::Subject;

/// One row.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// What the row is about.
    pub subject: Subject,
    /// One cell per column.
    pub cells: Vec<Cell>,
    /// The values are old: drawn dimmed.
    pub stale: bool,
    /// Notes below the row.
    pub notes: Vec<String>,
}

/// Order of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOrder {
    /// Name of the column.
    pub column: &'static str,
    /// Highest first.
    pub descending: bool,
}

/// A titled table with notes below.
#[derive(Clone, Debug)]
pub struct TextTable {
    /// Heading; also names the table in the settings of the view.
    pub title: &'static str,
    /// Added to the heading, for instance what totals are counted from.
    pub remark: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<TableRow>,
    /// What the table does not show, and why.
    pub notes: Vec<String>,
    /// Rows are conversations, and were filtered as they were made.
    pub of_conversations: bool,
}

impl TextTable {
    /// An empty table.
    pub fn new(title: &'static str, columns: Vec<Column>) -> Self {
        let (remark, rows, notes) = (String::new(), Vec::new(), Vec::new());
        Self { title, remark, columns, rows, notes, of_conversations: false }
    }

    /// Adds a row.
    pub fn push(&mut self, subject: Subject, stale: bool, cells: Vec<Cell>) {
        self.push_with_notes(subject, stale, cells, Vec::new());
    }

    /// Adds a row with notes below it.
    pub fn push_with_notes(
        &mut self,
        subject: Subject,
        stale: bool,
        cells: Vec<Cell>,
        notes: Vec<String>,
    ) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(TableRow { subject, cells, stale, notes });
    }

    /// Removes a column with the same value in all rows.
    pub fn hide_column(&mut self, name: &str) {
        if let Some(index) = self.columns.iter().position(|column| column.name == name) {
            self.columns.remove(index);
            for row in &mut self.rows {
                row.cells.remove(index);
            }
        }
    }

    /// Leaves the columns with these names, in this order, if it has any of them. Where there is no
    /// room for all, the first are shown.
    pub fn choose(&mut self, names: &[String]) {
        let position = |name: &String| self.columns.iter().position(|column| column.is(name));
        let mut chosen: Vec<usize> = Vec::new();
        for at in names.iter().filter_map(position) {
            if !chosen.contains(&at) {
                chosen.push(at);
            }
        }
        if chosen.is_empty() {
            return;
        }
        let priority = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
        let columns = chosen.iter().enumerate();
        self.columns =
            columns.map(|(at, &from)| self.columns[from].drop_at(priority(at))).collect();
        for row in &mut self.rows {
            row.cells = chosen.iter().map(|&from| std::mem::take(&mut row.cells[from])).collect();
        }
    }

    /// Sorts the rows; equal rows keep their order.
    pub fn sort(&mut self, sort: SortOrder) {
        let Some(at) = self.columns.iter().position(|column| column.name == sort.column) else {
            return;
        };
        let column = &self.columns[at];
        self.rows.sort_by(|a, b| column.compare(&a.cells[at], &b.cells[at], sort.descending));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn table() -> TextTable {
        let columns = vec![
            Column::text("Name"),
            Column::number("Size").drop_at(2),
            Column::number("Used").drop_at(1),
            Column::text("Remark").flex(4),
        ];
        let mut table = TextTable::new("Pools", columns);
        for (name, size, used) in [("a", 10, Some(7)), ("b", 200, None), ("c", 30, Some(30))] {
            let cells = vec![
                Cell::text(name),
                Cell::number(Some(f64::from(size)), size.to_string()),
                Cell::number(used.map(f64::from), crate::number::known(used, |u| u.to_string())),
                Cell::text("held by the app"),
            ];
            table.push(Subject::App { app: name.to_owned() }, false, cells);
        }
        table
    }

    pub(crate) fn names(table: &TextTable) -> String {
        table.rows.iter().map(|row| row.cells[0].text.as_str()).collect()
    }

    #[test]
    fn sorts_unknown_values_last_both_ways() {
        let mut table = table();
        table.sort(SortOrder { column: "Used", descending: true });
        assert_eq!(names(&table), "cab");
        table.sort(SortOrder { column: "Used", descending: false });
        assert_eq!(names(&table), "acb");
        table.sort(SortOrder { column: "Nothing", descending: false });
        assert_eq!(names(&table), "acb");
    }
}
