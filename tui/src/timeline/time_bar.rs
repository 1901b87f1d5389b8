//! The time bar: the displayed time, and a bar to click.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_render::number::{UNKNOWN, seconds};
use pmdscope_render::{Theme, Tone};
use ratatui::text::{Line, Span as Piece};

use super::marks::{self, FindingMark};
use super::{SeekTarget, TimeSpan};
use crate::action::Action;
use crate::clock::NS_PER_SECOND;
use crate::style::ThemeStyle;
use crate::view::ViewState;

/// A narrower bar shows nothing.
const BAR_MIN: usize = 8;

/// Which moment is shown, of what.
#[derive(Clone, Debug)]
pub struct TimeBar {
    /// The shown moment, on the clock of `span`.
    pub at: u64,
    /// Wall clock at that moment, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// What can be shown.
    pub span: TimeSpan,
    /// Moments in which a finding began, oldest first.
    pub marks: Vec<FindingMark>,
    /// Of what.
    pub place: TimeBarKind,
    /// What is wrong with the recording, or what is being done.
    pub remark: Option<String>,
}

/// What the moment is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBarKind {
    /// The history of a running machine.
    Past {
        /// Nanoseconds before the present.
        ago_ns: u64,
    },
    /// A recording.
    Replay {
        /// How it goes on.
        motion: PlaybackState,
        /// Seconds of the recording per second.
        speed: u32,
    },
}

/// How a recording goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaybackState {
    /// By itself.
    Playing,
    /// It stands still.
    Held,
    /// There is no more.
    Ended,
}

/// The line, cut up.
struct TimeBarParts {
    left: String,
    bar: usize,
    right: String,
}

impl TimeBar {
    /// Draws it in `width` columns.
    pub(crate) fn line(&self, width: usize, view: &ViewState) -> Line<'static> {
        let (parts, theme) = (self.parts(width, view), view.theme);
        let style = theme.style(Tone::Warn);
        let mut line = Line::styled(parts.left, style);
        if parts.bar > 0 {
            line.push_span(Piece::raw(" ["));
            for (sign, tone) in self.cells(parts.bar, theme) {
                line.push_span(Piece::styled(sign.to_string(), theme.style(tone)));
            }
            line.push_span(Piece::raw("] "));
        } else {
            line.push_span(Piece::raw("  "));
        }
        line.push_span(Piece::styled(parts.right, style));
        line
    }

    /// The moment that the bar shows in that column of the line; `None` beside the bar.
    pub(crate) fn pointed(&self, column: usize, width: usize, view: &ViewState) -> Option<u64> {
        let parts = self.parts(width, view);
        let cell = column.checked_sub(parts.left.chars().count() + 2)?;
        (cell < parts.bar).then(|| self.time(cell, parts.bar))
    }

    fn parts(&self, width: usize, view: &ViewState) -> TimeBarParts {
        let zone = &view.zone;
        let (left, right) = match self.place {
            TimeBarKind::Past { ago_ns } => {
                let ago = seconds(ago_ns as f64 / 1e9);
                let time = wall_clock(self.realtime_ns, zone, "%H:%M:%S");
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
                let time = wall_clock(self.realtime_ns, zone, "%Y-%m-%d %H:%M:%S");
                let into = TimeSpan { oldest: self.span.oldest, newest: self.at }.length();
                let of = self.span.length();
                (format!("{what} {time}"), format!("{} of {}", duration(into), duration(of)))
            }
        };
        let used = left.chars().count() + right.chars().count() + " [] ".len();
        let bar = width.checked_sub(used).filter(|&bar| bar >= BAR_MIN).unwrap_or(0);
        TimeBarParts { left, bar, right }
    }

    fn cells(&self, width: usize, theme: Theme) -> Vec<(char, Tone)> {
        let [before, cursor, after] = theme.time_bar();
        let now = self.cell(self.at, width);
        let mut cells: Vec<_> = (0..width)
            .map(|cell| if cell < now { (before, Tone::Plain) } else { (after, Tone::Dim) })
            .collect();
        cells[now] = (cursor, Tone::Title);
        let marks = self.marks.iter().map(|mark| (self.cell(mark.at, width), *mark));
        marks::write(&mut cells, marks.collect(), theme, &[before, after]);
        cells[now] = (cursor, Tone::Title);
        cells
    }

    /// Where a moment is on a bar of `width` > 0 cells.
    fn cell(&self, at: u64, width: usize) -> usize {
        let into = u128::from(self.span.clamp(at) - self.span.oldest);
        let length = u128::from(self.span.length()).max(1);
        let last = width - 1;
        usize::try_from((into * last as u128 + length / 2) / length).map_or(last, |c| c.min(last))
    }

    fn time(&self, cell: usize, width: usize) -> u64 {
        let last = (width as u128).saturating_sub(1).max(1);
        let into = u128::from(self.span.length()) * cell as u128 / last;
        self.span.clamp(self.span.oldest.saturating_add(u64::try_from(into).unwrap_or(u64::MAX)))
    }
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
