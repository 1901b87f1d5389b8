//! The heat strip of the Lcores page: gaps between the polls of one lcore, by time and length.

use pmdscope_render::number::micros;
use pmdscope_render::{Subject, Theme, Tone, cut};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::printable::harmless;
use pmdscope_telemetry::sample::LcoreSample;
use ratatui::text::{Line, Span};

use super::trends::{MARGIN, part_of_page, stretched, time_axis, trends};
use crate::clock::time_of_day;
use crate::state::ViewState;
use crate::style::{NAME_MIN, ThemeStyle};
use crate::timeline::gaps::{LENGTHS, length_of, shortest_us};
use crate::timeline::trends::{ColumnValue, Trends};

/// Least numbers of gaps of the shades, from the lightest to the darkest.
const SHADES: [u64; 4] = [1, 2, 16, 128];

/// The lines of the strip, where there is room for so many; none on a small screen, or where no gap is
/// known.
pub(crate) fn lines(
    view: &ViewState,
    fleet: &FleetState,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let Some((trends, (app, lcore, stall_us))) = trends(view, width).zip(shown(view, fleet)) else {
        return Vec::new();
    };
    let strip = GapStrip { trends, app, lcore: lcore.lcore, columns: width - MARGIN };
    let longest = strip.longest();
    let top = longest.max(stall_us.map(length_of)).unwrap_or(0);
    // The title and the axis of time have a line each.
    let rows = stretched(part_of_page(view, 4).clamp(3, 10), room.saturating_sub(2), view);
    let merged = (top + 1).div_ceil(rows);
    let mut lines = vec![title(app, lcore, view, width)];
    for first in (0..=top).step_by(merged).collect::<Vec<_>>().into_iter().rev() {
        let values = strip.values(first..(first + merged).min(LENGTHS));
        let is_stall = stall_us.is_some_and(|stall| shortest_us(first + merged) > stall);
        lines.push(row(first, &values, is_stall, view.theme));
    }
    lines.push(Line::from(time_axis(trends, view, strip.columns, trends.length_ns())));
    lines
}

/// The lcore of the selected row, else the one with the longest gap so far; with its app, and from how
/// long on a gap is a stall.
fn shown<'a>(
    view: &ViewState,
    fleet: &'a FleetState,
) -> Option<(&'a str, &'a LcoreSample, Option<u64>)> {
    let all = fleet.models().flat_map(|(app, model)| {
        let stall_us = model.sample.library.as_ref().map(|library| library.stall_us);
        model.sample.lcores.iter().map(move |lcore| (app.name.as_str(), lcore, stall_us))
    });
    let all: Vec<_> = all.collect();
    let selected = view.selected().and_then(|subject| match subject {
        Subject::Lcore { app, lcore } => {
            all.iter().find(|(of, sample, _)| of == app && sample.lcore == *lcore)
        }
        _ => None,
    });
    selected.or_else(|| all.iter().max_by_key(|(_, lcore, _)| lcore.gap_max_us)).copied()
}

/// On a narrow screen the name of the app is cut.
fn title(app: &str, lcore: &LcoreSample, view: &ViewState, width: usize) -> Line<'static> {
    let theme = view.theme;
    let worst = micros(lcore.gap_max_us);
    let at = time_of_day(lcore.gap_max_realtime_ns, &view.zone);
    let shades = theme.heat().into_iter().skip(1).zip(SHADES);
    let legend: Vec<_> = shades.map(|(shade, least)| format!("{shade} {least}+")).collect();
    let lcore = format!(" lcore {}", lcore.lcore);
    let (gaps, legend) = (format!("  gaps, worst {worst} at {at}  "), legend.join("  "));
    let others = lcore.len() + gaps.len() + legend.chars().count();
    let app = cut(&harmless(app, &[]), width.saturating_sub(others).max(NAME_MIN), theme);
    Line::from(vec![
        Span::styled(app + &lcore, theme.style(Tone::Title)),
        Span::raw(gaps),
        Span::styled(legend, theme.style(Tone::Dim)),
    ])
}

/// The gaps of one lcore over time.
struct GapStrip<'a> {
    trends: &'a Trends,
    app: &'a str,
    lcore: u32,
    columns: usize,
}

impl GapStrip<'_> {
    /// The longest class of which there is a gap.
    fn longest(&self) -> Option<usize> {
        let points = self.trends.points.iter();
        let gaps = points.filter_map(|point| point.app(self.app)?.gaps(self.lcore));
        gaps.filter_map(|gaps| gaps.levels.iter().rposition(|level| *level > 0)).max()
    }

    /// The highest level of these lengths in each column.
    fn values(&self, lengths: std::ops::Range<usize>) -> Vec<Option<f64>> {
        let highest = |levels: &[u8]| levels.iter().copied().max().map(f64::from);
        self.trends.columns(self.trends.length_ns(), self.columns, ColumnValue::Highest, |point| {
            highest(&point.app(self.app)?.gaps(self.lcore)?.levels[lengths.clone()])
        })
    }
}

/// One class of lengths over time.
fn row(first: usize, values: &[Option<f64>], is_stall: bool, theme: Theme) -> Line<'static> {
    let label = length(shortest_us(first));
    let text: String = values.iter().map(|level| level.map_or(' ', |l| shade(l, theme))).collect();
    let tone = match values.iter().flatten().any(|level| *level > 0.0) {
        true if is_stall => Tone::Bad,
        true => Tone::Graph,
        false => Tone::Dim,
    };
    let width = MARGIN - 1;
    Line::from(vec![
        Span::styled(format!("{label:>width$.width$}{}", theme.axis()), theme.style(Tone::Dim)),
        Span::styled(text, theme.style(tone)),
    ])
}

/// A power of two of microseconds, in four characters.
fn length(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", us / 1_000),
        _ => format!("{}s", us / 1_000_000),
    }
}

/// The character of a level; see [`crate::timeline::gaps::GapPoint`].
fn shade(level: f64, theme: Theme) -> char {
    let heat = theme.heat();
    let least = |count: u64| f64::from(count.ilog2() + 1);
    let shade = SHADES.iter().rposition(|count| level >= least(*count));
    heat[shade.map_or(0, |shade| shade + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::panels::trends::{HEIGHT_MIN, WIDTH_MIN};
    use crate::state::PageTab;

    fn view() -> ViewState {
        ViewState { tab: PageTab::Lcores, ..fixture::view() }
    }

    fn text(view: &ViewState, width: usize) -> Vec<String> {
        lines(view, &fixture::fleet(), width, 0).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_fit_and_small_screens_have_none() {
        for theme in [Theme::default(), Theme::ASCII] {
            for width in 0..200 {
                for height in [10, 18, 24, 60, 100] {
                    let view = ViewState { theme, height, ..view() };
                    let lines = text(&view, width);
                    assert_eq!(lines.is_empty(), height < HEIGHT_MIN || width < WIDTH_MIN);
                    let longest = lines.iter().skip(1).map(|line| line.chars().count()).max();
                    assert!(longest <= Some(width), "{width}x{height}");
                }
            }
        }
    }

    #[test]
    fn the_selected_lcore_is_shown() {
        let mut view = view();
        assert!(text(&view, 100)[0].starts_with("reflector lcore 2  "), "the last of the worst");
        let selected = Subject::Lcore { app: "reflector".to_owned(), lcore: 1 };
        view.selected.insert(PageTab::Lcores, selected);
        assert!(text(&view, 100)[0].starts_with("reflector lcore 1  "));
        let narrow = &text(&view, 74)[0];
        assert!(narrow.contains("… lcore 1  ") && narrow.ends_with(" 128+"), "{narrow}");
    }

    #[test]
    fn shades_are_steps_of_counts() {
        let theme = Theme::ASCII;
        let drawn: String = (0..10).map(|level| shade(f64::from(level), theme)).collect();
        assert_eq!(drawn, ".:+++***##");
    }
}
