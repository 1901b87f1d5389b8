//! The numbers of a filter: `1k`, `90%`, `50us`, `2GiB`.

use super::FilterError;
use crate::table::{Column, ColumnUnit, TextAlign};

/// A number as it was typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity {
    value: f64,
    unit: QuantityUnit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum QuantityUnit {
    None,
    /// A prefix, and what it multiplies by.
    Times(f64),
    Percent,
    /// A unit of time, in nanoseconds: there, short times are whole numbers.
    Nanos(f64),
}

use QuantityUnit::{Nanos, Percent, Times};

/// `m` is a minute: nothing here is in thousandths, but of a second.
const UNITS: [(&str, QuantityUnit); 27] = [
    ("", QuantityUnit::None),
    ("B", QuantityUnit::None),
    ("%", Percent),
    ("k", Times(1e3)),
    ("K", Times(1e3)),
    ("M", Times(1e6)),
    ("G", Times(1e9)),
    ("T", Times(1e12)),
    ("P", Times(1e15)),
    ("E", Times(1e18)),
    ("Ki", Times(1024.0)),
    ("KiB", Times(1024.0)),
    ("Mi", Times(1_048_576.0)),
    ("MiB", Times(1_048_576.0)),
    ("Gi", Times(1_073_741_824.0)),
    ("GiB", Times(1_073_741_824.0)),
    ("Ti", Times(1_099_511_627_776.0)),
    ("TiB", Times(1_099_511_627_776.0)),
    ("ns", Nanos(1.0)),
    ("us", Nanos(1e3)),
    ("µs", Nanos(1e3)),
    ("ms", Nanos(1e6)),
    ("s", Nanos(1e9)),
    ("m", Nanos(60e9)),
    ("min", Nanos(60e9)),
    ("h", Nanos(3_600e9)),
    ("d", Nanos(86_400e9)),
];

impl Quantity {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-' | '+');
        let end = text.find(|letter| !digits(letter)).unwrap_or(text.len());
        let value = text[..end].parse().ok()?;
        let (_, unit) = UNITS.iter().find(|(suffix, _)| *suffix == &text[end..])?;
        Some(Self { value, unit: *unit })
    }

    /// In the unit of the cells of that column.
    pub(super) fn of_column(self, column: &Column) -> Result<f64, FilterError> {
        if column.align == TextAlign::Left {
            return Err(FilterError::Words(column.title()));
        }
        let wants = |what| Err(FilterError::Unit(column.title(), what));
        match (column.unit, self.unit) {
            (ColumnUnit::Count, QuantityUnit::None) => Ok(self.value),
            (ColumnUnit::Count, Times(factor)) => Ok(self.value * factor),
            (ColumnUnit::Count, Percent | Nanos(_)) => wants("a number: 100, 1k, 2.5M"),
            (ColumnUnit::Share, QuantityUnit::None | Percent) => Ok(self.value / 100.0),
            (ColumnUnit::Share, Times(_) | Nanos(_)) => wants("a share: 90%"),
            (ColumnUnit::Time(_), QuantityUnit::None) if self.value == 0.0 => Ok(0.0),
            (ColumnUnit::Time(unit), Nanos(nanos)) => Ok(self.value * nanos / unit),
            (ColumnUnit::Time(_), QuantityUnit::None | Times(_) | Percent) => {
                wants("a time: 50us, 3ms, 10s, 2m, 1h")
            }
        }
    }
}
