//! Cells that tables share: rates, counts, shares, names of apps.

use pmdscope_telemetry::AppState;

use crate::number::{known, percent, si};
use crate::table::Cell;
use crate::theme::Tone;

/// A rate.
pub fn rate(value: Option<f64>) -> Cell {
    Cell::number(value, known(value, si))
}

/// A rate that should be zero.
pub fn bad_rate(value: Option<f64>) -> Cell {
    alarm(rate(value), value.is_some_and(|v| v > 0.0), Tone::Bad)
}

/// A count that should be zero.
pub fn bad_count(value: u64, text: String) -> Cell {
    alarm(Cell::number(Some(value as f64), text), value > 0, Tone::Warn)
}

/// Marks a value by a tone and, for those who see no colours, the sign that [`Cell::flag`] adds.
pub fn alarm(cell: Cell, alarming: bool, tone: Tone) -> Cell {
    if alarming { cell.tone(tone).flag() } else { cell }
}

/// A plain count.
pub fn number(value: u64) -> Cell {
    Cell::number(Some(value as f64), si(value as f64))
}

/// A count that may be unknown for a named reason.
pub fn number_or(value: Option<u64>, otherwise: &str) -> Cell {
    value.map_or_else(|| Cell::text(otherwise).tone(Tone::Dim), number)
}

/// A share of 1.
pub fn share(value: Option<f64>) -> Cell {
    Cell::number(value, known(value, percent))
}

/// Name cell of the app that a row belongs to.
pub fn app_cell(app: &AppState) -> Cell {
    Cell::text(&app.name)
}
