//! Columns of counters: as rates or totals, in bits or bytes.

use super::{Cell, Column, TextTable};
use crate::number::{UNKNOWN, si};

/// Bits of a byte.
const BITS: f64 = 8.0;

/// What columns of counters show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterMode {
    /// Totals instead of rates per second.
    pub totals: bool,
    /// Bytes instead of bits.
    pub bytes: bool,
}

/// What a column counts, and its titles in other modes than rates in bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counted {
    /// No counter: the mode does not matter.
    Nothing,
    /// Events per second: the title of their total.
    Events(&'static str),
    /// Bits per second without a total: the title in bytes.
    Speed(&'static str),
    /// Bits per second: the titles in bytes per second, of the total in bits, and in bytes.
    Traffic([&'static str; 3]),
}

impl Counted {
    fn has_total(self) -> bool {
        matches!(self, Self::Events(_) | Self::Traffic(_))
    }

    fn is_traffic(self) -> bool {
        matches!(self, Self::Speed(_) | Self::Traffic(_))
    }
}

/// A number of a column, which may not be the one that is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ColumnNumber {
    /// That of the other mode, of rates and totals.
    other: bool,
    /// What a number of that title is in the numbers of cells.
    pub(crate) factor: f64,
}

impl Column {
    /// A column of events per second; their total has a title of its own.
    pub const fn events(title: &'static str, total: &'static str) -> Self {
        Self { counted: Counted::Events(total), ..Self::number(title) }
    }

    /// A column of bits per second: titles of rates in bits and bytes, and of totals in both.
    pub const fn traffic([title, others @ ..]: [&'static str; 4]) -> Self {
        Self { counted: Counted::Traffic(others), ..Self::number(title) }
    }

    /// A column of bits per second without a total: titles in bits and bytes.
    pub const fn speed(title: &'static str, bytes: &'static str) -> Self {
        Self { counted: Counted::Speed(bytes), ..Self::number(title) }
    }

    /// Heading in that mode.
    const fn title_in(&self, mode: CounterMode) -> &'static str {
        match (self.counted, mode.totals, mode.bytes) {
            (Counted::Events(total), true, _) => total,
            (Counted::Traffic([_, bits, _]), true, false) => bits,
            (Counted::Traffic([_, _, bytes]), true, true) => bytes,
            (Counted::Speed(bytes), _, true) | (Counted::Traffic([bytes, ..]), false, true) => {
                bytes
            }
            _ => self.name,
        }
    }

    /// Heading.
    pub const fn title(&self) -> &'static str {
        self.title_in(self.mode)
    }

    /// Its headings in all modes, its name first, and the numbers that they are about.
    pub(crate) fn titles(&self) -> impl Iterator<Item = (&'static str, ColumnNumber)> + use<> {
        let column = *self;
        let modes = [(false, false), (false, true), (true, false), (true, true)];
        modes.into_iter().map(move |(totals, bytes)| {
            let title = column.title_in(CounterMode { totals, bytes });
            let other = column.counted.has_total() && totals != column.mode.totals;
            let factor = if bytes && column.counted.is_traffic() { BITS } else { 1.0 };
            (title, ColumnNumber { other, factor })
        })
    }

    /// The same column in that mode.
    #[must_use]
    pub const fn counting(mut self, mode: CounterMode) -> Self {
        self.mode = mode;
        self
    }
}

impl Cell {
    /// A rate with the total of what it is the rate of.
    #[must_use]
    pub fn with_total(mut self, total: Self) -> Self {
        self.other = Some(Box::new(total));
        self
    }

    /// Traffic as a rate in bits, with its total in bytes.
    #[must_use]
    pub fn with_bytes(self, total: Option<u64>) -> Self {
        let bits = total.map(|bytes| bytes as f64 * BITS);
        self.with_total(Self::number(bits, bits.map_or_else(|| UNKNOWN.to_owned(), si)))
    }

    /// One of the numbers of its column.
    pub(crate) fn number_of(&self, which: ColumnNumber) -> Option<f64> {
        if which.other { self.other.as_ref()?.number } else { self.number }
    }

    /// As a column shows it after a change of the mode.
    #[must_use]
    pub fn counting(mut self, column: &Column, mode: CounterMode) -> Self {
        let counted = column.counted;
        if counted.has_total() && column.mode.totals != mode.totals {
            self = self.exchanged();
        }
        if let (true, Some(bits)) = (counted.is_traffic(), self.number) {
            self.text = si(if mode.bytes { bits / BITS } else { bits });
        }
        self
    }

    /// A total in place of its rate, or the other way round. A cell without a number shows the
    /// reason in both modes.
    fn exchanged(mut self) -> Self {
        let is_number = self.number.is_some() || self.text == UNKNOWN;
        match self.other.take() {
            Some(other) => other.with_total(self),
            None if is_number => Self::number(None, UNKNOWN).with_total(self),
            None => self,
        }
    }
}

impl TextTable {
    /// Shows counters in that mode.
    pub fn count(&mut self, mode: CounterMode) {
        // Long tables are mostly shown as they were made.
        for (at, column) in self.columns.iter_mut().enumerate().filter(|(_, c)| c.mode != mode) {
            for row in &mut self.rows {
                row.cells[at] = std::mem::take(&mut row.cells[at]).counting(column, mode);
            }
            *column = column.counting(mode);
        }
    }

    /// It has a column that shows totals because of its mode.
    pub fn shows_totals(&self) -> bool {
        self.columns.iter().any(|column| column.counted.has_total() && column.mode.totals)
    }

    /// Removes columns that repeat a column of counters in this mode.
    pub fn drop_repeated(&mut self) {
        let is_counted = |column: &&Column| column.title() != column.name;
        let shown: Vec<&str> = self.columns.iter().filter(is_counted).map(Column::title).collect();
        for title in shown {
            self.hide_column(title);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{bad_count, bad_rate, number, rate};
    use crate::filter::RowFilter;
    use crate::subject::Subject;
    use crate::table::tests::names;
    use crate::table::{SortOrder, table_text};
    use crate::theme::{Palette, Theme};

    fn table() -> TextTable {
        let columns = vec![
            Column::text("App"),
            Column::events("pps", "Packets"),
            Column::traffic(["bit/s", "B/s", "bits", "bytes"]),
            Column::speed("bit/s 2s", "B/s 2s"),
            Column::events("Miss/s", "Missed"),
            Column::number("Packets"),
        ];
        let mut table = TextTable::new("Apps", columns);
        for (name, pps, packets) in
            [("a", Some(10.0), 5_u64), ("b", None, 2_000), ("c", Some(1.0), 7)]
        {
            let bps = pps.map(|pps| pps * 800.0);
            let cells = vec![
                Cell::text(name),
                rate(pps).with_total(number(packets)),
                rate(bps).with_bytes(Some(packets * 100)),
                rate(bps),
                bad_rate(Some(0.0)).with_total(bad_count(packets, packets.to_string())),
                number(packets),
            ];
            table.push(Subject::App { app: name.to_owned() }, false, cells);
        }
        table.rows[2].cells[1] = Cell::text("n/a");
        table.rows[2].cells[4] = rate(Some(3.0));
        table
    }

    fn text(table: &TextTable) -> String {
        table_text(table, None, Theme { palette: Palette::Mono, ascii: true })
    }

    #[test]
    fn rates_and_totals_in_bits_and_bytes() {
        let mut shown = vec![text(&table())];
        for (totals, bytes) in [(false, true), (true, false), (true, true)] {
            let mut table = table();
            table.count(CounterMode { totals, bytes });
            table.drop_repeated();
            shown.push(text(&table));
        }
        insta::assert_snapshot!(shown.join("----\n"));
    }

    #[test]
    fn a_mode_that_is_left_leaves_nothing() {
        let mut changed = table();
        let modes = [(true, true), (true, true), (false, true), (true, false), (false, false)];
        for (totals, bytes) in modes {
            changed.count(CounterMode { totals, bytes });
        }
        assert_eq!(text(&changed), text(&table()));
    }

    #[test]
    fn filters_name_what_they_mean_whatever_is_shown() {
        for (filter, rows) in [
            ("bit/s>=8k", "a"),
            ("b/s>=1k", "a"),
            ("b/s_2s<1k", "c"),
            ("bytes>1k", "b"),
            ("missed>5", "b"),
            ("miss>0", "c"),
        ] {
            for (totals, bytes) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut table = table();
                table.count(CounterMode { totals, bytes });
                table.filter(&RowFilter::parse(filter).unwrap());
                assert_eq!(names(&table), rows, "{filter} {totals} {bytes}");
            }
        }
    }

    #[test]
    fn rows_are_sorted_by_what_is_shown() {
        let sort = SortOrder { column: "bit/s", descending: true };
        let mut table = table();
        table.sort(sort);
        assert_eq!(names(&table), "acb");
        table.count(CounterMode { totals: true, bytes: false });
        table.sort(sort);
        assert_eq!(names(&table), "bca");
    }
}
