//! The same tables without a terminal: plain text and JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::screen::plural;
use crate::table::Table;
use crate::tables;
use crate::theme::Theme;
use crate::view::{Tab, View};
use pmdscope_telemetry::world::{Member, World};

/// Version of the JSON of [`Document`]; raised when a field changes its meaning.
pub const REPORT_SCHEMA: u32 = 1;

/// One moment of all apps, as JSON.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// By name; each with its state, newest model and findings.
    pub apps: &'a [Member],
}

impl<'a> Document<'a> {
    /// The world as it is.
    pub fn of(world: &'a World) -> Self {
        Self { schema: REPORT_SCHEMA, apps: &world.apps }
    }
}

/// All pages, one after the other, without escape codes.
pub fn text(world: &World, view: &View) -> String {
    if world.apps.is_empty() {
        return format!("{}\n", world.advice);
    }
    let mut out = format!("pmdscope: {}\n", plural(world.apps.len(), "app"));
    for tab in Tab::ALL {
        for table in tables::of(tab, world, view) {
            if !table.rows.is_empty() || !table.notes.is_empty() {
                let _ = write!(out, "\n{}\n{}", table.title, table_text(&table, view.theme));
            }
        }
    }
    out
}

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
        let _ = writeln!(out, "{note}");
    }
    out
}

#[cfg(test)]
mod tests;
