//! The graphs of the Overview: packets received, sent and missed by all apps, side by side.

use std::ops::Range;

use pmdscope_render::number::{known, si};
use pmdscope_render::{AreaGraph, Theme, Tone, axis_top};
use ratatui::text::{Line, Span};

use crate::clock::NS_PER_SECOND;
use crate::state::ViewState;
use crate::style::ThemeStyle;
use crate::timeline::marks;
use crate::timeline::trends::{AppPoint, ColumnValue, TrendPoint, Trends};

/// A screen with fewer lines has none.
pub(super) const HEIGHT_MIN: u16 = 18;

/// Lines of the screen that are not for graphs.
const TABLES_MIN: u16 = 12;

/// Graphs grow by so many lines at a time: a row that comes and goes does not move everything.
const GROWTH: usize = 2;

/// Lines of the title and the axis of time.
const TITLE_AND_AXIS: usize = 2;

/// Columns between two graphs.
const GUTTER: usize = 2;

/// Columns of a graph with its axis at least.
pub(super) const WIDTH_MIN: usize = 22;

/// Columns of the numbers of an axis.
const AXIS: usize = 5;

/// Columns of an axis with its line.
pub(super) const MARGIN: usize = AXIS + 1;

/// The right edge of an axis of time.
const NOW: &str = "now";

/// What a graph shows.
struct Panel {
    title: &'static str,
    value: fn(&AppPoint) -> Option<f64>,
    joined: ColumnValue,
    tone: Tone,
}

/// The first is the last that is dropped where there is no room.
const PANELS: [Panel; 3] = [
    Panel { title: "rx pps", value: |app| app.rx_pps, joined: ColumnValue::Mean, tone: Tone::Good },
    Panel {
        title: "missed/s",
        value: |app| app.missed_ps,
        joined: ColumnValue::Highest,
        tone: Tone::Bad,
    },
    Panel { title: "tx pps", value: |app| app.tx_pps, joined: ColumnValue::Mean, tone: Tone::Good },
];

/// The order of the graphs on the screen.
const SHOWN: [usize; 3] = [0, 2, 1];

/// What graphs over the whole width show; `None` on a small screen.
pub(super) fn trends(view: &ViewState, width: usize) -> Option<&Trends> {
    view.trends.as_ref().filter(|_| view.height >= HEIGHT_MIN && width >= WIDTH_MIN)
}

/// Number of the lines that all graphs have at least.
pub(crate) fn least_height(view: &ViewState, width: usize) -> usize {
    if shown(view, width).is_empty() { 0 } else { least_graph(view) + TITLE_AND_AXIS }
}

fn least_graph(view: &ViewState) -> usize {
    part_of_page(view, 4).clamp(2, 9)
}

/// Lines of one of so many equal parts of a page, without the least that its tables need.
pub(super) fn part_of_page(view: &ViewState, parts: u16) -> usize {
    usize::from(view.height.saturating_sub(TABLES_MIN) / parts)
}

/// Lines of a graph that has `least` of them, where there is room for so many: at most half of the screen.
pub(super) fn stretched(least: usize, room: usize, view: &ViewState) -> usize {
    let most = usize::from(view.height / 2).max(least);
    (least + room.saturating_sub(least) / GROWTH * GROWTH).min(most)
}

fn shown(view: &ViewState, width: usize) -> Vec<&'static Panel> {
    if view.trends.is_none() || view.height < HEIGHT_MIN {
        return Vec::new();
    }
    let count = ((width + GUTTER) / (WIDTH_MIN + GUTTER)).min(PANELS.len());
    SHOWN.iter().filter(|&&panel| panel < count).map(|&panel| &PANELS[panel]).collect()
}

/// The lines of all graphs, where there is room for so many: none on a small screen.
pub(crate) fn lines(view: &ViewState, width: usize, room: usize) -> Vec<Line<'static>> {
    let shown = shown(view, width);
    let Some(trends) = view.trends.as_ref().filter(|_| !shown.is_empty()) else {
        return Vec::new();
    };
    let each = (width + GUTTER) / shown.len() - GUTTER;
    let height = stretched(least_graph(view), room.saturating_sub(TITLE_AND_AXIS), view);
    let mut lines = vec![Line::default(); height + TITLE_AND_AXIS];
    for (index, panel) in shown.into_iter().enumerate() {
        for (line, spans) in lines.iter_mut().zip(panel.lines(trends, view, each, height)) {
            if index > 0 {
                line.push_span(Span::raw(" ".repeat(GUTTER)));
            }
            line.spans.extend(spans);
        }
    }
    lines
}

impl Panel {
    /// Title, graph and time axis, each `width` columns wide.
    fn lines(
        &self,
        trends: &Trends,
        view: &ViewState,
        width: usize,
        height: usize,
    ) -> Vec<Vec<Span<'static>>> {
        let theme = view.theme;
        let inner = width - MARGIN;
        let sum = |point: &TrendPoint| point.sum(self.value);
        let length_ns = trends.length_ns();
        let columns = AreaGraph::columns(inner, theme);
        let values = trends.columns(length_ns, columns, self.joined, sum);
        let top = axis_top(values.iter().flatten().copied().fold(0.0, f64::max));
        let lost = values.iter().flatten().any(|value| *value > 0.0);
        let tone = if self.tone == Tone::Bad && !lost { Tone::Dim } else { self.tone };
        let mut lines = vec![self.title(trends, view, width)];
        lines.extend(area(
            &AreaGraph { values, top },
            [round(top), "0".to_owned()],
            height,
            theme,
            tone,
        ));
        lines.push(time_axis(trends, view, inner, length_ns));
        lines
    }

    /// What is shown, its newest value, and how old that is where no app answers.
    fn title(&self, trends: &Trends, view: &ViewState, width: usize) -> Vec<Span<'static>> {
        let newest = trends.points.last().and_then(|point| point.sum(self.value));
        let value = format!(" {}", known(newest, si));
        let tone = match newest {
            None => Tone::Dim,
            Some(value) if self.tone == Tone::Bad && value > 0.0 => Tone::Bad,
            Some(_) => Tone::Plain,
        };
        let room = width - self.title.len();
        vec![
            Span::styled(self.title, view.theme.style(Tone::Title)),
            Span::styled(format!("{value:<room$.room$}"), view.theme.style(tone)),
        ]
    }
}

/// An area beside its axis, which has a number at its upper and its lower end.
pub(super) fn area(
    graph: &AreaGraph,
    [top, bottom]: [String; 2],
    height: usize,
    theme: Theme,
    tone: Tone,
) -> Vec<Vec<Span<'static>>> {
    let line = |(row, text): (usize, String)| {
        let label = match row {
            0 => &top,
            row if row + 1 == height => &bottom,
            _ => "",
        };
        vec![
            Span::styled(format!("{label:>AXIS$}{}", theme.axis()), theme.style(Tone::Dim)),
            Span::styled(text, theme.style(tone)),
        ]
    };
    graph.lines(height, theme).into_iter().enumerate().map(line).collect()
}

/// The span of time, and signs below the moments in which findings began. A sign at an edge takes the
/// place of what is written there.
pub(super) fn time_axis(
    trends: &Trends,
    view: &ViewState,
    inner: usize,
    length_ns: u64,
) -> Vec<Span<'static>> {
    let theme = view.theme;
    let begin = format!("-{}m", length_ns / (60 * NS_PER_SECOND));
    let marked = trends.marked(length_ns, inner);
    let fits = |columns: Range<usize>| !marked.iter().any(|(column, _)| columns.contains(column));
    let end = if fits(inner.saturating_sub(NOW.len())..inner) { NOW } else { "" };
    let room = inner.saturating_sub(begin.len());
    let begin = if fits(0..begin.len()) { begin } else { " ".repeat(begin.len()) };
    let mut cells: Vec<(char, Tone)> =
        format!("{begin}{end:>room$}").chars().map(|letter| (letter, Tone::Dim)).collect();
    marks::write(&mut cells, marked, theme, &[' ']);
    let margin = Span::raw(" ".repeat(MARGIN));
    let cells = cells.chunk_by(|a, b| a.1 == b.1).map(|run| {
        let text: String = run.iter().map(|(letter, _)| letter).collect();
        Span::styled(text, theme.style(run[0].1))
    });
    std::iter::once(margin).chain(cells).collect()
}

/// The end of an axis: `20M`, `500`.
fn round(top: f64) -> String {
    let text = si(top);
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = &text[digits.len()..];
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::finding::{Lint, Severity};

    use super::*;
    use crate::fixture;
    use crate::timeline::marks::{FindingMark, NewFindings};

    #[test]
    fn axes_end_at_short_numbers() {
        let cases =
            [(1.0, "1"), (10.0, "10"), (500.0, "500"), (2_000.0, "2k"), (5e4, "50k"), (2e7, "20M")];
        for (top, text) in cases {
            assert_eq!(round(top), text);
        }
    }

    #[test]
    fn signs_at_the_edges_replace_what_is_written_there() {
        let axis = |at: u64| {
            let began = NewFindings { severity: Severity::Critical, lint: Lint::Leak, others: 0 };
            let trends = Trends { marks: vec![FindingMark { at, began }], ..fixture::trends() };
            let spans = time_axis(&trends, &fixture::view(), 24, trends.length_ns());
            Line::from(spans).to_string().trim_end().to_owned()
        };
        let now = fixture::trends().now;
        let begin = now - 120 * NS_PER_SECOND;
        insta::assert_snapshot!(
            [
                now,
                now - 10 * NS_PER_SECOND,
                now - 20 * NS_PER_SECOND,
                begin + 10 * NS_PER_SECOND,
                begin
            ]
            .map(axis)
            .join("\n")
        );
    }

    #[test]
    fn lines_are_as_wide_as_the_screen_at_most() {
        for theme in [Theme::default(), Theme::ASCII] {
            for width in 0..260 {
                for height in [10, 18, 24, 60, 200] {
                    let view = ViewState { theme, height, ..fixture::view() };
                    for line in lines(&view, width, 0) {
                        assert!(line.width() <= width, "{width}x{height}: {line}");
                    }
                }
            }
        }
    }

    #[test]
    fn graphs_take_the_room_that_there_is_up_to_half_of_the_screen() {
        let at = |height, room| lines(&ViewState { height, ..fixture::view() }, 80, room).len();
        let heights = [0, 5, 6, 7, 12, 13, 14, 40].map(|room| at(24, room));
        assert_eq!(heights, [5, 5, 5, 7, 11, 13, 13, 14]);
        assert_eq!(at(17, 40), 0, "a small screen");
        for room in 0..60 {
            let least = least_height(&ViewState { height: 24, ..fixture::view() }, 80);
            assert!(at(24, room) <= room.max(least), "{room}");
        }
    }
}
