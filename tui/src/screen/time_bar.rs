//! The time bar: the displayed time, and a bar to click.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_render::number::{UNKNOWN, seconds};
use pmdscope_render::{Theme, Tone};
use ratatui::text::{Line, Span};

use crate::action::Action;
use crate::clock::NS_PER_SECOND;
use crate::state::ViewState;
use crate::style::ThemeStyle;
use crate::timeline::time_bar::{PlaybackState, TimeBar, TimeBarKind};
use crate::timeline::{SeekTarget, TimeSpan, marks};

/// A narrower bar shows nothing.
const BAR_MIN: usize = 8;

/// The line, cut up.
struct TimeBarParts {
    left: String,
    bar: usize,
    right: String,
}

/// Draws it in `width` columns.
pub(crate) fn line(bar: &TimeBar, width: usize, view: &ViewState) -> Line<'static> {
    let (parts, theme) = (parts(bar, width, view), view.theme);
    let style = theme.style(Tone::Warn);
    let mut line = Line::styled(parts.left, style);
    if parts.bar > 0 {
        line.push_span(Span::raw(" ["));
        for (sign, tone) in cells(bar, parts.bar, theme) {
            line.push_span(Span::styled(sign.to_string(), theme.style(tone)));
        }
        line.push_span(Span::raw("] "));
    } else {
        line.push_span(Span::raw("  "));
    }
    line.push_span(Span::styled(parts.right, style));
    line
}

/// The moment that the bar shows in that column of the line; `None` beside the bar.
pub(crate) fn pointed(bar: &TimeBar, column: usize, width: usize, view: &ViewState) -> Option<u64> {
    let parts = parts(bar, width, view);
    let cell = column.checked_sub(parts.left.chars().count() + 2)?;
    (cell < parts.bar).then(|| time(bar, cell, parts.bar))
}

fn parts(bar: &TimeBar, width: usize, view: &ViewState) -> TimeBarParts {
    let zone = &view.zone;
    let (left, right) = match bar.place {
        TimeBarKind::Past { ago_ns } => {
            let ago = seconds(ago_ns as f64 / 1e9);
            let time = wall_clock(bar.realtime_ns, zone, "%H:%M:%S");
            let newest = view.keys.label(&Action::Seek(SeekTarget::Newest));
            let live = newest.map_or_else(|| "past".to_owned(), |key| format!("{key}: live"));
            (format!("{ago} ago {time}"), live)
        }
        TimeBarKind::Replay { motion, speed } => {
            let what = match motion {
                PlaybackState::Playing if speed > 1 => format!("replay x{speed}"),
                PlaybackState::Playing => "replay".to_owned(),
                PlaybackState::Held => "paused".to_owned(),
                PlaybackState::Ended => "end of recording".to_owned(),
            };
            let time = wall_clock(bar.realtime_ns, zone, "%Y-%m-%d %H:%M:%S");
            let into = TimeSpan { oldest: bar.span.oldest, newest: bar.at }.length();
            let of = bar.span.length();
            (format!("{what} {time}"), format!("{} of {}", duration(into), duration(of)))
        }
    };
    let used = left.chars().count() + right.chars().count() + " [] ".len();
    let bar = width.checked_sub(used).filter(|&bar| bar >= BAR_MIN).unwrap_or(0);
    TimeBarParts { left, bar, right }
}

fn cells(bar: &TimeBar, width: usize, theme: Theme) -> Vec<(char, Tone)> {
    let [before, cursor, after] = theme.time_bar();
    let now = cell(bar, bar.at, width);
    let mut cells: Vec<_> = (0..width)
        .map(|cell| if cell < now { (before, Tone::Plain) } else { (after, Tone::Dim) })
        .collect();
    cells[now] = (cursor, Tone::Title);
    let marks = bar.marks.iter().map(|mark| (cell(bar, mark.at, width), *mark));
    marks::write(&mut cells, marks.collect(), theme, &[before, after]);
    cells[now] = (cursor, Tone::Title);
    cells
}

/// Where a moment is on a bar of `width` > 0 cells.
fn cell(bar: &TimeBar, at: u64, width: usize) -> usize {
    let into = u128::from(bar.span.clamp(at) - bar.span.oldest);
    let length = u128::from(bar.span.length()).max(1);
    let last = width - 1;
    usize::try_from((into * last as u128 + length / 2) / length).map_or(last, |c| c.min(last))
}

fn time(bar: &TimeBar, cell: usize, width: usize) -> u64 {
    let last = (width as u128).saturating_sub(1).max(1);
    let into = u128::from(bar.span.length()) * cell as u128 / last;
    bar.span.clamp(bar.span.oldest.saturating_add(u64::try_from(into).unwrap_or(u64::MAX)))
}

/// Minutes and seconds, or hours and minutes: a length that does not wobble while it grows.
fn duration(ns: u64) -> String {
    let whole = ns / NS_PER_SECOND;
    match whole {
        0..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3_600, whole / 60 % 60),
    }
}

/// To tenths of a second, since moments are closer than one.
fn wall_clock(realtime_ns: u64, zone: &TimeZone, format: &str) -> String {
    Timestamp::from_nanosecond(i128::from(realtime_ns)).map_or_else(
        |_| UNKNOWN.to_owned(),
        |time| {
            let tenths = realtime_ns % NS_PER_SECOND / (NS_PER_SECOND / 10);
            format!("{}.{tenths}", time.to_zoned(zone.clone()).strftime(format))
        },
    )
}
