//! Tables without a terminal.

use std::fmt::Write;

use pmdscope_telemetry::printable::harmless;

use crate::table::Table;
use crate::theme::Theme;

/// One table, as wide as it likes.
pub fn table_text(table: &Table, theme: Theme) -> String {
    let mut out = String::new();
    if !table.rows.is_empty() {
        let lines = table.lines(None, theme, None);
        for line in std::iter::once(lines.header).chain(lines.rows) {
            let _ = writeln!(out, "{}", line.to_string().trim_end());
        }
    }
    for note in &table.notes {
        let _ = writeln!(out, "{}", harmless(note, &[]));
    }
    out
}
