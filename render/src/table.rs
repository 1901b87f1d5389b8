//! Tables that fit any width: columns are dropped by priority, never the whole table.
//!
//! The same table is drawn on a terminal and printed as plain text.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use pmdscope_telemetry::printable::harmless;

use crate::graph::Graph;
use crate::subject::Subject;
use crate::theme::{Theme, Tone};

/// Words are not cut to less than so many characters.
const WORD_MIN: usize = 4;

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAlign {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    align: TextAlign,
    priority: u8,
    flex: Option<usize>,
}

impl Column {
    /// A column of words.
    pub const fn text(title: &'static str) -> Self {
        Self { title, align: TextAlign::Left, priority: 0, flex: None }
    }

    /// A column of numbers.
    pub const fn number(title: &'static str) -> Self {
        Self { title, align: TextAlign::Right, priority: 0, flex: None }
    }

    /// May be dropped when space is short; the highest priority goes first. 0 stays always.
    #[must_use]
    pub const fn drop_at(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Shrinks down to `least` characters before anything is dropped, and takes of what is left over.
    #[must_use]
    pub const fn flex(mut self, least: usize) -> Self {
        self.flex = Some(least);
        self
    }

    /// Heading.
    pub const fn title(&self) -> &'static str {
        self.title
    }

    /// Order of two values in this column; unknown ones come last either way.
    pub fn compare(&self, a: &Cell, b: &Cell, descending: bool) -> Ordering {
        let unknown = self.align == TextAlign::Right && (a.number.is_none() || b.number.is_none());
        if unknown || descending { b.compare(a) } else { a.compare(b) }
    }
}

/// One value.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
    number: Option<f64>,
    graph: Option<Graph>,
}

impl Cell {
    /// A word.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number as `text`, sorted by `number`; unknown numbers come last.
    pub fn number(number: Option<f64>, text: impl Into<String>) -> Self {
        Self { text: text.into(), number, ..Self::default() }
    }

    /// A graph that fills its column; `text` stands for it in filters.
    pub fn graph(graph: Graph) -> Self {
        Self { graph: Some(graph), ..Self::default() }
    }

    /// Says what the value means.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// Puts a sign before the value: a tone alone is lost on those who see no colours.
    #[must_use]
    pub fn flag(mut self) -> Self {
        self.text.insert(0, '!');
        self
    }

    fn width(&self) -> usize {
        self.graph.as_ref().map_or_else(|| width(&self.text), Graph::width)
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// What the row is about.
    pub subject: Subject,
    /// One cell per column.
    pub cells: Vec<Cell>,
    /// The values are old: drawn dimmed.
    pub stale: bool,
    /// Said below the row.
    pub notes: Vec<String>,
}

impl TableRow {
    /// Matches every word of `filter`.
    pub fn passes(&self, filter: &str, columns: &[Column]) -> bool {
        filter.split_whitespace().all(|term| matches(self, columns, term))
    }
}

/// Order of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOrder {
    /// Index of the column.
    pub column: usize,
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
}

/// A table cut into lines.
#[derive(Debug)]
pub struct TableLines {
    /// Column headings.
    pub header: TextLine,
    /// One line per row.
    pub rows: Vec<TextLine>,
}

/// A line of pieces of text, each with its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextLine {
    /// The pieces, from left to right.
    pub spans: Vec<TextSpan>,
}

/// A piece of text of one tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextSpan {
    /// What is shown.
    pub text: String,
    /// What it means.
    pub tone: Tone,
}

impl fmt::Display for TextLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| f.write_str(&span.text))
    }
}

impl TextTable {
    /// An empty table.
    pub fn new(title: &'static str, columns: Vec<Column>) -> Self {
        Self { title, remark: String::new(), columns, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, subject: Subject, stale: bool, cells: Vec<Cell>) {
        self.push_with_notes(subject, stale, cells, Vec::new());
    }

    /// Adds a row with something to say below it.
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

    /// Takes out a column that says the same in all rows.
    pub fn hide_column(&mut self, title: &str) {
        if let Some(index) = self.columns.iter().position(|column| column.title == title) {
            self.columns.remove(index);
            for row in &mut self.rows {
                row.cells.remove(index);
            }
        }
    }

    /// Sorts the rows; equal rows keep their order.
    pub fn sort(&mut self, sort: SortOrder) {
        let Some(column) = self.columns.get(sort.column) else { return };
        self.rows.sort_by(|a, b| {
            column.compare(&a.cells[sort.column], &b.cells[sort.column], sort.descending)
        });
    }

    /// Keeps the rows that match every word of `filter`: `word`, `!word`, `column:word`.
    pub fn filter(&mut self, filter: &str) {
        let columns = &self.columns;
        self.rows.retain(|row| row.passes(filter, columns));
    }

    /// Lays the table out in `width` characters, or as wide as it likes.
    pub fn lines(&self, width: Option<usize>, theme: Theme, sort: Option<SortOrder>) -> TableLines {
        let widths = self.widths(width);
        let header = self.header(&widths, theme, sort);
        let rows = self.rows.iter().map(|row| line(row, &self.columns, &widths, theme)).collect();
        TableLines { header, rows }
    }

    /// Width of each column; `None` for those dropped.
    fn widths(&self, available: Option<usize>) -> Vec<Option<usize>> {
        let natural: Vec<usize> = (0..self.columns.len()).map(|c| self.natural(c)).collect();
        let Some(available) = available else {
            return natural.into_iter().map(Some).collect();
        };
        let mut kept: Vec<Option<usize>> = std::iter::zip(&self.columns, &natural)
            .map(|(column, &natural)| Some(column.flex.map_or(natural, |least| least.min(natural))))
            .collect();
        while total(&kept) > available {
            let candidate = (0..kept.len())
                .filter(|&c| kept[c].is_some() && self.columns[c].priority > 0)
                .max_by_key(|&c| self.columns[c].priority);
            let Some(column) = candidate else { break };
            kept[column] = None;
        }
        self.squeeze(&mut kept, available);
        let mut spare = available.saturating_sub(total(&kept));
        // The narrowest grows first, so that of several none has all.
        while spare > 0 {
            let grows = |&c: &usize| self.columns[c].flex.is_some() && kept[c] < Some(natural[c]);
            let shown = (0..kept.len()).filter(|&c| kept[c].is_some());
            let Some(column) = shown.filter(grows).min_by_key(|&c| kept[c]) else { break };
            kept[column] = kept[column].map(|width| width + 1);
            spare -= 1;
        }
        kept
    }

    /// Where nothing can be dropped any more, words become shorter, the longest first: numbers would be
    /// others if they were cut.
    fn squeeze(&self, kept: &mut [Option<usize>], available: usize) {
        while total(kept) > available {
            let words = |&c: &usize| self.columns[c].align == TextAlign::Left;
            let longest = (0..kept.len()).filter(words).max_by_key(|&c| kept[c]);
            match longest.and_then(|column| kept[column].as_mut()) {
                Some(width) if *width > WORD_MIN => *width -= 1,
                _ => return,
            }
        }
    }

    fn natural(&self, column: usize) -> usize {
        // One more for the mark of the sorted column.
        let title = width(self.columns[column].title) + 1;
        self.rows.iter().map(|row| row.cells[column].width()).max().unwrap_or(0).max(title)
    }

    fn header(&self, widths: &[Option<usize>], theme: Theme, sort: Option<SortOrder>) -> TextLine {
        let shown = self.columns.iter().zip(widths).enumerate();
        let spans = shown.filter_map(|(index, (column, width))| {
            let mark = sort.filter(|sort| sort.column == index);
            let mark = mark.map_or(' ', |sort| theme.sort_marks()[usize::from(sort.descending)]);
            let title = match column.align {
                TextAlign::Left => format!("{}{mark}", column.title),
                TextAlign::Right => format!("{mark}{}", column.title),
            };
            let text = fit(&title, (*width)?, column.align, theme);
            Some(vec![TextSpan { text, tone: Tone::Label }])
        });
        joined(spans)
    }
}

/// Width of a text on a terminal. Our own texts are narrow; names from outside are made printable.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown: Vec<usize> = widths.iter().flatten().copied().collect();
    shown.iter().sum::<usize>() + shown.len().saturating_sub(1)
}

fn matches(row: &TableRow, columns: &[Column], term: &str) -> bool {
    if let Some(rest) = term.strip_prefix('!') {
        return rest.is_empty() || !matches(row, columns, rest);
    }
    let holds = |text: &str, word: &str| text.to_lowercase().contains(&word.to_lowercase());
    if let Some((key, word)) = term.split_once(':') {
        let column = columns.iter().position(|c| c.title.eq_ignore_ascii_case(key));
        if let Some(column) = column {
            return holds(&row.cells[column].text, word);
        }
    }
    let cells = row.cells.iter().map(|cell| &cell.text);
    cells.chain(&row.notes).any(|text| holds(text, term))
}

fn line(row: &TableRow, columns: &[Column], widths: &[Option<usize>], theme: Theme) -> TextLine {
    let spans = row.cells.iter().zip(columns).zip(widths).filter_map(|((cell, column), width)| {
        let width = (*width)?;
        let tone = if row.stale { Tone::Dim } else { cell.tone };
        let mut pieces = match &cell.graph {
            Some(graph) => graph.pieces(width, theme, tone),
            None => vec![TextSpan { text: fit(&cell.text, width, column.align, theme), tone }],
        };
        if row.stale {
            for piece in &mut pieces {
                piece.tone = Tone::Dim;
            }
        }
        Some(pieces)
    });
    joined(spans)
}

fn joined(cells: impl Iterator<Item = Vec<TextSpan>>) -> TextLine {
    let mut spans = Vec::new();
    for cell in cells {
        if !spans.is_empty() {
            spans.push(TextSpan { text: " ".to_owned(), tone: Tone::Plain });
        }
        spans.extend(cell);
    }
    TextLine { spans }
}

/// Pads or cuts `text` to `width`, and makes it harmless.
fn fit(text: &str, width: usize, align: TextAlign, theme: Theme) -> String {
    let mut clean = harmless(text, &[]);
    if clean.chars().count() > width {
        clean = clean.chars().take(width.saturating_sub(1)).collect();
        if width > 0 {
            clean.push(theme.ellipsis());
        }
    }
    match align {
        TextAlign::Left => format!("{clean:<width$}"),
        TextAlign::Right => format!("{clean:>width$}"),
    }
}

/// One table, as wide as it likes.
pub fn table_text(table: &TextTable, theme: Theme) -> String {
    let mut out = String::new();
    if !table.rows.is_empty() {
        let lines = table.lines(None, theme, None);
        let _ = writeln!(out, "{}", lines.header.to_string().trim_end());
        for (line, row) in lines.rows.into_iter().zip(&table.rows) {
            let _ = writeln!(out, "{}", line.to_string().trim_end());
            for note in &row.notes {
                let _ = writeln!(out, "  {}", harmless(note, &[]));
            }
        }
    }
    for note in &table.notes {
        let _ = writeln!(out, "{}", harmless(note, &[]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
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

    fn names(table: &TextTable) -> String {
        table.rows.iter().map(|row| row.cells[0].text.as_str()).collect()
    }

    fn text(table: &TextTable, width: Option<usize>) -> Vec<String> {
        let lines = table.lines(width, Theme { mono: true, ascii: true }, None);
        std::iter::once(lines.header).chain(lines.rows).map(|line| line.to_string()).collect()
    }

    #[test]
    fn drops_by_priority_and_shrinks_flexible_columns_first() {
        assert_eq!(text(&table(), None)[1], "a        10     7 held by the app");
        assert_eq!(text(&table(), Some(24))[1], "a        10     7 held ~");
        assert_eq!(text(&table(), Some(18))[1], "a         7 held ~");
        assert_eq!(text(&table(), Some(10))[1], "a     hel~");
        assert_eq!(text(&table(), Some(9))[1], "a    hel~");
    }

    #[test]
    fn every_line_has_the_width_of_the_header() {
        for width in 10..60 {
            let lines = text(&table(), Some(width));
            let lengths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
            assert!(lengths.iter().all(|&l| l == lengths[0] && l <= width), "{width}: {lengths:?}");
        }
    }

    #[test]
    fn sorts_unknown_values_last_both_ways() {
        let mut table = table();
        table.sort(SortOrder { column: 2, descending: true });
        assert_eq!(names(&table), "cab");
        table.sort(SortOrder { column: 2, descending: false });
        assert_eq!(names(&table), "acb");
        table.sort(SortOrder { column: 9, descending: false });
        assert_eq!(names(&table), "acb");
    }

    #[test]
    fn filters_by_word_negation_and_column() {
        for (filter, left) in [
            ("", "abc"),
            ("HELD", "abc"),
            ("!200", "ac"),
            ("size:30", "c"),
            ("used:30 name:c", "c"),
        ] {
            let mut table = table();
            table.filter(filter);
            assert_eq!(names(&table), left, "{filter}");
        }
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(fit("a\x1b[2J\u{202e}b", 8, TextAlign::Left, Theme::default()), "a?[2J?b ");
    }

    #[test]
    fn hides_a_column() {
        let mut table = table();
        table.hide_column("Size");
        assert_eq!(text(&table, Some(80))[1], "a         7 held by the app");
    }
}
