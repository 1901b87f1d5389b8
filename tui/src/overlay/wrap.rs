//! Lines of a window, cut into rows that fit its width.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Cuts lines between words into rows of at most `columns`, and longer words where they must be.
pub(super) fn rows(lines: Vec<Line<'static>>, columns: usize) -> Vec<Line<'static>> {
    lines.into_iter().flat_map(|line| cut(line, columns.max(1))).collect()
}

fn cut(line: Line<'static>, columns: usize) -> Vec<Line<'static>> {
    if line.width() <= columns {
        return vec![line];
    }
    let style = line.style;
    let styled = |span: &Span<'static>| {
        let style = span.style;
        span.content.chars().map(move |letter| (letter, style)).collect::<Vec<_>>()
    };
    let letters: Vec<(char, Style)> = line.spans.iter().flat_map(styled).collect();
    let mut rows = Vec::new();
    let mut rest = &letters[..];
    while !rest.is_empty() {
        let fitting = fitting(rest, columns);
        let is_blank = |at: usize| rest.get(at).is_some_and(|(letter, _)| *letter == ' ');
        let blank = (1..=fitting).rev().find(|at| is_blank(*at));
        let (end, next) = match blank {
            _ if fitting == rest.len() => (fitting, fitting),
            Some(blank) => (blank, blank + 1),
            None => (fitting, fitting),
        };
        rows.push(row(&rest[..end]).style(style));
        rest = &rest[next..];
    }
    rows
}

/// So many of these fit into `columns`, and one at least.
fn fitting(letters: &[(char, Style)], columns: usize) -> usize {
    let mut used = 0;
    let fits = |(letter, _): &&(char, Style)| {
        used += Span::raw(&*letter.encode_utf8(&mut [0; 4])).width();
        used <= columns
    };
    letters.iter().take_while(fits).count().max(1)
}

fn row(letters: &[(char, Style)]) -> Line<'static> {
    let spans = letters.chunk_by(|a, b| a.1 == b.1).map(|run| {
        let text: String = run.iter().map(|(letter, _)| letter).collect();
        Span::styled(text, run[0].1)
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::style::Modifier;

    use super::*;

    fn text(rows: &[Line]) -> Vec<String> {
        rows.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_are_cut_between_words_and_keep_their_styles() {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let line = Line::from(vec![Span::styled("label  ", bold), Span::raw("some more words")]);
        let cut = rows(vec![line, Line::raw("short")], 12);
        assert_eq!(text(&cut), ["label  some", "more words", "short"]);
        assert_eq!(cut[0].spans[0].style, bold);
        assert_eq!(cut[1].spans[0].style, Style::default());
        assert_eq!(text(&rows(vec![Line::raw("abcdefgh ij")], 3)), ["abc", "def", "gh", "ij"]);
        assert_eq!(text(&rows(vec![Line::raw("漢字漢字")], 5)), ["漢字", "漢字"]);
        assert_eq!(text(&rows(vec![Line::raw("漢字")], 0)), ["漢", "字"]);
        let whole = rows(vec![Line::styled("two words", bold)], 4);
        assert!(whole.iter().all(|row| row.style == bold));
    }

    proptest! {
        #[test]
        fn nothing_but_blanks_is_lost_and_rows_fit(line in "[a-z ä漢]{0,60}", columns in 2..20_usize) {
            let cut = rows(vec![Line::raw(line.clone())], columns);
            let joined: String = text(&cut).concat();
            prop_assert_eq!(joined.replace(' ', ""), line.replace(' ', ""));
            prop_assert!(cut.iter().all(|row| row.width() <= columns));
        }
    }
}
