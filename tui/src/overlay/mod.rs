//! The windows over a page: help, columns, tasks, and the details of one row.

mod columns;
mod help;
pub(crate) mod tasks;

use pmdscope_render::Tone;
use pmdscope_telemetry::printable::harmless;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph, Wrap};

use crate::action::{Action, SelectionMotion};
use crate::detail;
use crate::keys::{Hint, KeyContext};
use crate::state::{InputMode, ViewState};
use crate::style::ThemeStyle;
use pmdscope_telemetry::FleetState;

/// What moves the text of a window.
const SCROLL: Hint<'static> =
    (&[Action::Move(SelectionMotion::Down), Action::Move(SelectionMotion::Up)], "scroll");

/// What closes a window.
const CLOSE: Hint<'static> = (&[Action::Back], "closes");

/// Columns of the borders of a window and of the space within.
const FRAME: usize = 4;

/// Columns that lines may lose because they are wrapped between words.
const RAGGED: usize = 8;

/// Draws the overlay of the current mode, if there is one.
pub(crate) fn draw(frame: &mut Frame, area: Rect, view: &ViewState, fleet: &FleetState) {
    let (title, keys) = match &view.mode {
        InputMode::Browse | InputMode::Filter { .. } => return,
        InputMode::Help { .. } => ("Keys".to_owned(), None),
        InputMode::Columns(window) => (window.title(), Some(columns::keys(view))),
        InputMode::Detail(subject) => (harmless(&subject.title(), &[]), None),
        InputMode::CaptureForm | InputMode::Tasks | InputMode::Commands => {
            let (title, keys) = tasks::titles(view).unwrap_or_default();
            (title.to_owned(), Some(keys))
        }
    };
    let lines = match view.mode {
        InputMode::Tasks => tasks::tasks(view, text_columns(width(area))),
        _ => lines(view, fleet),
    };
    let (area, hidden) = window(area, &lines);
    let default_keys = || {
        let entries: &[_] = if hidden { &[SCROLL, CLOSE] } else { &[CLOSE] };
        view.keys.phrase(KeyContext::Page, entries)
    };
    let border = if view.theme.ascii { ASCII_BORDER } else { BorderType::Plain.to_border_set() };
    let block = Block::bordered()
        .border_set(border)
        .title(Span::styled(format!(" {title} "), view.theme.style(Tone::Title)))
        .title_bottom(format!(" {} ", keys.unwrap_or_else(default_keys)))
        .padding(Padding::horizontal(1));
    let scroll = match view.mode {
        // Those of tasks are chosen where they are made.
        InputMode::Tasks => 0,
        // The cursor stays in the middle.
        InputMode::Columns(_) => view.scroll.saturating_sub(usize::from(area.height) / 2),
        _ => view.scroll,
    };
    let scroll = u16::try_from(scroll).unwrap_or(u16::MAX);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((scroll, 0)).block(block);
    frame.render_widget(Clear, area);
    frame.render_widget(text, area);
}

const ASCII_BORDER: ratatui::symbols::border::Set<'static> = ratatui::symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Number of lines of the current overlay.
pub(crate) fn length(view: &ViewState, fleet: &FleetState) -> usize {
    lines(view, fleet).len()
}

fn lines(view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
    match &view.mode {
        InputMode::Help { over, .. } => help::lines(over, view),
        InputMode::Columns(window) => columns::lines(window, view, fleet),
        InputMode::Detail(subject) => detail::lines(subject, view, fleet),
        InputMode::CaptureForm => tasks::form(view, fleet),
        InputMode::Tasks => tasks::all_tasks(view),
        InputMode::Commands => tasks::commands(view, fleet),
        InputMode::Browse | InputMode::Filter { .. } => Vec::new(),
    }
}

fn width(area: Rect) -> u16 {
    area.width.min(100).max(area.width.saturating_sub(8).min(100))
}

/// Columns of text in a window of that width.
fn text_columns(width: u16) -> usize {
    usize::from(width).saturating_sub(FRAME + RAGGED).max(1)
}

/// As large as needed, as small as must be; and whether that hides something.
fn window(area: Rect, lines: &[Line]) -> (Rect, bool) {
    let width = width(area);
    let columns = text_columns(width);
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(columns).max(1)).sum();
    let height = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    (Rect { x, y, width, height }, rows + 2 > usize::from(height))
}
