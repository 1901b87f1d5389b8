//! The windows over a page: help, columns, tasks, and the details of one row.

mod columns;
mod help;
pub(crate) mod tasks;
mod wrap;

use pmdscope_render::Tone;
use pmdscope_telemetry::printable::harmless;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph};

use crate::action::{Action, SelectionMotion};
use crate::detail;
use crate::keys::{Hint, KeyContext};
use crate::layout::ScreenLayout;
use crate::state::{InputMode, ViewState};
use crate::style::ThemeStyle;
use pmdscope_telemetry::FleetState;

/// What moves the text of a window.
const SCROLL: Hint<'static> =
    (&[Action::Move(SelectionMotion::Down), Action::Move(SelectionMotion::Up)], "scroll");

/// What closes a window.
const CLOSE: Hint<'static> = (&[Action::Back], "closes");

/// Columns of the borders of a window and of the space within.
const FRAME: u16 = 4;

/// Columns of a window at most.
const WIDTH_MAX: u16 = 100;

/// Lines of the borders.
const BORDERS: u16 = 2;

/// Draws the overlay of the current mode, if there is one.
pub(crate) fn draw(frame: &mut Frame, area: Rect, view: &ViewState, fleet: &FleetState) {
    let (title, keys) = match &view.mode {
        InputMode::Browse | InputMode::Filter { .. } | InputMode::Prompt => return,
        InputMode::Help { page, .. } => (help::title(*page), Some(help::keys(view))),
        InputMode::Columns(window) => (window.title(), Some(columns::keys(view))),
        InputMode::Detail(subject) => (harmless(&subject.title(), &[]), None),
        InputMode::CaptureForm | InputMode::Tasks | InputMode::Commands => {
            let (title, keys) = tasks::titles(view).unwrap_or_default();
            (title.to_owned(), Some(keys))
        }
    };
    let window = Window::new(area, view, fleet);
    let default_keys = || {
        let entries: &[_] = if window.last() > 0 { &[SCROLL, CLOSE] } else { &[CLOSE] };
        view.keys.phrase(KeyContext::Page, entries)
    };
    let border = if view.theme.ascii { ASCII_BORDER } else { BorderType::Plain.to_border_set() };
    let mut block = Block::bordered()
        .border_set(border)
        .title(Span::styled(format!(" {title} "), view.theme.style(Tone::Title)))
        .title_bottom(format!(" {} ", keys.unwrap_or_else(default_keys)))
        .padding(Padding::horizontal(1));
    if window.last() > 0 {
        block = block.title_bottom(Line::raw(window.position(view)).right_aligned());
    }
    frame.render_widget(Clear, window.area);
    let area = window.area;
    frame.render_widget(Paragraph::new(window.visible(view)).block(block), area);
}

/// Columns of text in a window on a screen of that width.
fn text_columns(width: u16) -> usize {
    usize::from(width.min(WIDTH_MAX).saturating_sub(FRAME))
}

/// A window over a page.
struct Window {
    area: Rect,
    /// Its text in its width.
    rows: Vec<Line<'static>>,
}

impl Window {
    /// As large as needed, as small as must be.
    fn new(area: Rect, view: &ViewState, fleet: &FleetState) -> Self {
        let width = area.width.min(WIDTH_MAX);
        let rows = wrap::rows(lines(view, fleet), text_columns(area.width));
        let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        let height = height.saturating_add(BORDERS).min(area.height);
        let x = area.x + (area.width - width) / 2;
        let y = area.y + (area.height - height) / 2;
        Self { area: Rect { x, y, width, height }, rows }
    }

    /// Rows that it has room for.
    fn height(&self) -> usize {
        usize::from(self.area.height.saturating_sub(BORDERS)).max(1)
    }

    /// The first row where its end is shown.
    fn last(&self) -> usize {
        self.rows.len().saturating_sub(self.height())
    }

    /// The first row that is shown.
    fn first(&self, view: &ViewState) -> usize {
        let first = match view.mode {
            // The newest line of a task is at the bottom, and the place that one begins from.
            InputMode::Tasks => self.last().saturating_sub(view.scroll),
            // The cursor stays in the middle.
            InputMode::Columns(_) => view.scroll.saturating_sub(self.height() / 2),
            _ => view.scroll,
        };
        first.min(self.last())
    }

    /// Which rows are shown of how many.
    fn position(&self, view: &ViewState) -> String {
        let first = self.first(view);
        format!(" {}-{} of {} ", first + 1, first + self.height(), self.rows.len())
    }

    fn visible(mut self, view: &ViewState) -> Vec<Line<'static>> {
        let (first, height) = (self.first(view), self.height());
        self.rows.drain(..first);
        self.rows.truncate(height);
        self.rows
    }
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

/// Number of places that the current overlay can be scrolled to.
pub(crate) fn positions(view: &ViewState, fleet: &FleetState) -> usize {
    let screen = Rect::new(0, 0, view.width, view.height);
    match &view.mode {
        InputMode::Columns(window) => window.columns.len(),
        _ => Window::new(ScreenLayout::of(screen, view).body, view, fleet).last() + 1,
    }
}

fn lines(view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
    match &view.mode {
        InputMode::Help { page, over, .. } => help::lines(*page, over, view, fleet),
        InputMode::Columns(window) => columns::lines(window, view, fleet),
        InputMode::Detail(subject) => detail::lines(subject, view, fleet),
        InputMode::CaptureForm => tasks::form(view, fleet),
        InputMode::Tasks => tasks::all_tasks(view),
        InputMode::Commands => tasks::commands(view, fleet),
        InputMode::Browse | InputMode::Filter { .. } | InputMode::Prompt => Vec::new(),
    }
}
