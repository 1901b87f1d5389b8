//! The layout of reports: columns and rows of the terminal that shows them, or no limits.

use pmdscope_render::{TextTable, Theme, table_text};

use super::args::{Args, ROWS};
use crate::output::StandardOutput;

/// Lines of a report that are no rows, at most.
const OTHER_LINES: usize = 10;
/// Fewer rows are of no use, however low the terminal is.
const ROWS_MIN: usize = 5;

/// Width and height of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportLayout {
    /// Columns, where lines must not be longer.
    width: Option<usize>,
    /// Most rows.
    rows: Option<usize>,
    redrawn: bool,
}

impl ReportLayout {
    /// The layout for standard output.
    pub(super) fn new(args: &Args) -> Self {
        let redrawn = args.continuous && !args.json && StandardOutput::is_terminal();
        let size = StandardOutput::size();
        let fitting = size.filter(|_| redrawn && args.rows().is_none());
        let fitting =
            fitting.map(|size| usize::from(size.ws_row).saturating_sub(OTHER_LINES).max(ROWS_MIN));
        let rows = args.rows().or(fitting).unwrap_or(ROWS);
        Self { width: StandardOutput::width(), rows: (!args.all).then_some(rows), redrawn }
    }

    /// Any width.
    #[cfg(test)]
    pub(super) fn wide(args: &Args) -> Self {
        let rows = (!args.all).then(|| args.rows().unwrap_or(ROWS));
        Self { rows, ..Self::default() }
    }

    /// A terminal.
    #[cfg(test)]
    pub(super) fn narrow(columns: usize) -> Self {
        Self { width: Some(columns), ..Self::default() }
    }

    /// A report replaces the one before it.
    pub(super) fn is_redrawn(self) -> bool {
        self.redrawn
    }

    /// Rows that are shown, of so many.
    pub(super) fn rows(self, all: usize) -> usize {
        self.rows.map_or(all, |most| most.min(all))
    }

    /// A table without its title; its notes below.
    pub(super) fn table(self, table: &TextTable) -> String {
        table_text(table, self.width, Theme::ASCII)
    }
}
