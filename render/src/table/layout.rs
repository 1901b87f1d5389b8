//! A table cut into lines that fit a width.

use pmdscope_telemetry::printable::harmless;

use super::column::TextAlign;
use super::{SortOrder, TableRow, TextTable};
use crate::text_line::{TextLine, TextSpan, plain_text, width};
use crate::theme::{Theme, Tone};

/// Words are not cut to less than so many characters.
const WORD_MIN: usize = 4;

/// How a table fits a width. A line is cut when it is asked for: most rows of a long table are never seen.
#[derive(Debug)]
pub struct TableLayout<'a> {
    table: &'a TextTable,
    /// Width of each column; `None` for those dropped.
    widths: Vec<Option<usize>>,
    theme: Theme,
}

impl TextTable {
    /// Lays the table out in `width` characters, or as wide as it likes.
    pub fn layout(&self, width: Option<usize>, theme: Theme) -> TableLayout<'_> {
        TableLayout { table: self, widths: self.widths(width), theme }
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
            let words =
                |&c: &usize| self.columns[c].align == TextAlign::Left && !self.columns[c].whole;
            let longest = (0..kept.len()).filter(words).max_by_key(|&c| kept[c]);
            match longest.and_then(|column| kept[column].as_mut()) {
                Some(width) if *width > WORD_MIN => *width -= 1,
                _ => return,
            }
        }
    }

    fn natural(&self, column: usize) -> usize {
        // One more for the mark of the sorted column.
        let title = width(self.columns[column].title()) + 1;
        self.rows.iter().map(|row| row.cells[column].width()).max().unwrap_or(0).max(title)
    }
}

impl TableLayout<'_> {
    /// Name of each column that is shown, and where it ends.
    pub fn ends(&self) -> Vec<(&'static str, usize)> {
        let shown = self.table.columns.iter().zip(&self.widths);
        let shown = shown.filter_map(|(column, width)| Some((column.name, (*width)?)));
        let mut begin = 0;
        shown
            .map(|(name, width)| {
                let end = begin + width;
                begin = end + 1;
                (name, end)
            })
            .collect()
    }

    /// The column headings.
    pub fn header(&self, sort: Option<SortOrder>) -> TextLine {
        let spans = self.table.columns.iter().zip(&self.widths).filter_map(|(column, width)| {
            let mark = sort.filter(|sort| sort.column == column.name);
            let mark =
                mark.map_or(' ', |sort| self.theme.sort_marks()[usize::from(sort.descending)]);
            let title = match column.align {
                TextAlign::Left => format!("{}{mark}", column.title()),
                TextAlign::Right => format!("{mark}{}", column.title()),
            };
            let text = fit(&title, (*width)?, column.align, self.theme);
            Some(vec![TextSpan { text, tone: Tone::Label }])
        });
        joined(spans)
    }

    /// A row of the table.
    pub fn row(&self, row: &TableRow) -> TextLine {
        let cells = row.cells.iter().zip(&self.table.columns).zip(&self.widths);
        let spans = cells.filter_map(|((cell, column), width)| {
            let width = (*width)?;
            let tone = if row.stale { Tone::Dim } else { cell.tone };
            let mut pieces = match &cell.graph {
                Some(graph) => graph.pieces(width, self.theme, tone),
                None => {
                    vec![TextSpan { text: fit(&cell.text, width, column.align, self.theme), tone }]
                }
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
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown: Vec<usize> = widths.iter().flatten().copied().collect();
    shown.iter().sum::<usize>() + shown.len().saturating_sub(1)
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

/// A text in at most `max` characters; an ellipsis replaces the rest.
pub fn cut(text: &str, max: usize, theme: Theme) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain([theme.ellipsis()]).take(max).collect()
}

/// Pads or cuts `text` to `width`, and makes it harmless.
fn fit(text: &str, width: usize, align: TextAlign, theme: Theme) -> String {
    let clean = cut(&harmless(text, &[]), width, theme);
    match align {
        TextAlign::Left => format!("{clean:<width$}"),
        TextAlign::Right => format!("{clean:>width$}"),
    }
}

/// One table, in `width` characters or as wide as it likes, as text without tones.
pub fn table_text(table: &TextTable, width: Option<usize>, theme: Theme) -> String {
    plain_text(&table_lines(table, width, theme))
}

/// One table, in `width` characters or as wide as it likes. Notes are wrapped between words.
pub fn table_lines(table: &TextTable, width: Option<usize>, theme: Theme) -> Vec<TextLine> {
    const INDENT: &str = "  ";
    let mut lines = Vec::new();
    if !table.rows.is_empty() {
        let layout = table.layout(width, theme);
        lines.push(layout.header(None));
        for row in &table.rows {
            lines.push(layout.row(row));
            let room = width.map(|width| width.saturating_sub(INDENT.len()));
            let notes = row.notes.iter().flat_map(|note| wrapped(note, room));
            lines.extend(notes.map(|line| TextLine::from(format!("{INDENT}{line}"))));
        }
    }
    lines.extend(table.notes.iter().flat_map(|note| wrapped(note, width)).map(TextLine::from));
    lines
}

/// A text in lines of at most `width` characters, or in one.
fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let text = harmless(text, &[]);
    match width {
        Some(width) => {
            let lines = textwrap::wrap(&text, width.max(WORD_MIN));
            lines.into_iter().map(Into::into).collect()
        }
        None => vec![text],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::*;

    fn text(table: &TextTable, width: Option<usize>) -> Vec<String> {
        let layout = table.layout(width, Theme::ASCII);
        let rows = table.rows.iter().map(|row| layout.row(row));
        std::iter::once(layout.header(None)).chain(rows).map(|line| line.to_string()).collect()
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
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(fit("a\x1b[2J\u{202e}b", 8, TextAlign::Left, Theme::default()), "a?[2J?b ");
    }

    #[test]
    fn a_cut_text_fits() {
        let cuts = [0, 1, 3, 4, 9].map(|max| cut("p\u{f6}ol", max, Theme::ASCII));
        assert_eq!(cuts, ["", "~", "p\u{f6}~", "p\u{f6}ol", "p\u{f6}ol"]);
    }

    #[test]
    fn hides_a_column() {
        let mut table = table();
        table.hide_column("Size");
        assert_eq!(text(&table, Some(80))[1], "a         7 held by the app");
    }
}
