//! The tables of `top` as tables of the page.

use maud::{Markup, html};
use pmdscope_render::{Cell, Column, TableRow, TextAlign, TextTable, Theme, Tone};

use super::text::{name, sentence};

/// Most rows of a table, and most notes below it or below a row.
const MOST_ROWS: usize = 100;
const MOST_NOTES: usize = 20;

/// A table with its notes.
pub(super) fn table(table: &TextTable) -> Markup {
    let left_out = table.rows.len().saturating_sub(MOST_ROWS);
    html! {
        section {
            h3 {
                (table.title)
                @if !table.remark.is_empty() { " " small { (sentence(&table.remark)) } }
            }
            @if !table.rows.is_empty() {
                div.scroll tabindex="0" {
                    table {
                        thead {
                            tr {
                                @for column in &table.columns {
                                    th class=[number_class(column)] scope="col" { (column.title()) }
                                }
                            }
                        }
                        tbody {
                            @for row in table.rows.iter().take(MOST_ROWS) {
                                (table_row(row, &table.columns))
                            }
                        }
                    }
                }
            }
            @if left_out > 0 {
                p.note { (left_out) " more rows are in the recording: pmdscope top --replay" }
            }
            @for note in table.notes.iter().take(MOST_NOTES) {
                p.note { (sentence(note)) }
            }
        }
    }
}

fn table_row(row: &TableRow, columns: &[Column]) -> Markup {
    html! {
        tr class=[row.stale.then_some("old")] {
            @for (cell, column) in row.cells.iter().zip(columns) {
                (table_cell(cell, column))
            }
        }
        @for note in row.notes.iter().take(MOST_NOTES) {
            tr { td.note colspan=(columns.len()) { (sentence(note)) } }
        }
    }
}

fn table_cell(cell: &Cell, column: &Column) -> Markup {
    let drawing = cell.drawing(Theme::default());
    let tone = match cell.meaning() {
        Tone::Bad => Some("bad"),
        Tone::Warn => Some("warn"),
        Tone::Dim => Some("dim"),
        _ => None,
    };
    let class = drawing.as_ref().map(|_| "drawing").or_else(|| number_class(column));
    html! {
        td class=[class] {
            @match tone {
                Some(tone) => span class=(tone) { (value(cell, drawing.as_deref())) },
                None => (value(cell, drawing.as_deref())),
            }
        }
    }
}

/// A drawing, or the text of a value.
fn value(cell: &Cell, drawing: Option<&str>) -> String {
    drawing.map_or_else(|| name(&cell.to_string()), name)
}

fn number_class(column: &Column) -> Option<&'static str> {
    (column.alignment() == TextAlign::Right).then_some("number")
}
