//! The right end of the last line: which row is selected of how many, and how many rows are above and
//! below the screen.

use pmdscope_render::{Subject, TextTable, Theme};

use crate::tables::PageTables;

/// Where the screen is in the tables of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScrollPosition {
    /// The table of the selected row, the number of the row from 1 on, and all rows.
    selected: Option<(&'static str, usize, usize)>,
    /// Lines above and below the screen, and how many of them are rows.
    above: HiddenLines,
    below: HiddenLines,
}

/// Lines of a page that are not on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HiddenLines {
    /// All.
    pub(super) lines: usize,
    /// Those that begin a row.
    pub(super) rows: usize,
}

impl ScrollPosition {
    /// `[above, below]` the screen, where this row is selected.
    pub(super) fn new(
        page: &PageTables,
        selected: Option<&Subject>,
        [above, below]: [HiddenLines; 2],
    ) -> Self {
        let number = |table: &TextTable| {
            let at = table.rows.iter().position(|row| Some(&row.subject) == selected)?;
            let listed = table.rows.len();
            Some((table.title, at + 1, listed + page.left_out_of(table.title)))
        };
        Self { selected: page.tables.iter().find_map(number), above, below }
    }

    /// The same in words where they leave `room` for something else, or in signs.
    pub(super) fn text(&self, width: usize, room: usize, theme: Theme) -> String {
        let [up, down] = theme.sort_marks();
        let number = self.selected.map(|(table, number, all)| (table, format!("{number}/{all}")));
        let hidden = |sign: char, hidden: HiddenLines, place: &str| match (hidden.rows, place) {
            _ if hidden.lines == 0 => None,
            (0, "") => Some(sign.to_string()),
            (0, place) => Some(format!("{sign} {place}")),
            (rows, "") => Some(format!("{sign}{rows}")),
            (rows, place) => Some(format!("{sign} {rows} {place}")),
        };
        let words = [
            number.as_ref().map(|(table, number)| format!("{table} {number}")),
            hidden(up, self.above, "above"),
            hidden(down, self.below, "more below"),
        ];
        let words = words.into_iter().flatten().collect::<Vec<_>>().join("  ");
        if words.chars().count() + room <= width {
            return words;
        }
        let signs = [
            number.map(|(_, number)| number),
            hidden(up, self.above, ""),
            hidden(down, self.below, ""),
        ];
        signs.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(above: (usize, usize), below: (usize, usize), width: usize) -> String {
        let hidden = |(lines, rows)| HiddenLines { lines, rows };
        let selected = Some(("Queues", 5, 64));
        let position = ScrollPosition { selected, above: hidden(above), below: hidden(below) };
        position.text(width, 40, Theme::ASCII)
    }

    #[test]
    fn rows_that_are_not_shown_are_counted_in_words_or_signs() {
        assert_eq!(shown((0, 0), (0, 0), 120), "Queues 5/64");
        assert_eq!(shown((3, 2), (30, 23), 120), "Queues 5/64  ^ 2 above  v 23 more below");
        assert_eq!(shown((3, 2), (30, 23), 78), "5/64 ^2 v23");
        assert_eq!(shown((0, 0), (2, 0), 120), "Queues 5/64  v more below", "notes");
        assert_eq!(shown((0, 0), (2, 0), 60), "5/64 v");
        let nothing = ScrollPosition { selected: None, ..ScrollPosition::default() };
        assert_eq!(nothing.text(120, 40, Theme::ASCII), "");
    }
}
