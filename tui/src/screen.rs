//! Draws a view of the state: header, tabs, banner, tables, footer. Pure, for any size.

mod banner;
mod footer;
mod header;
mod position;
mod tab_line;
pub(crate) mod time_bar;

use std::rc::Rc;

use pmdscope_render::number::plural;
use pmdscope_render::{Subject, TableLayout, TableRow, TextTable, Theme, Tone};
use pmdscope_telemetry::printable::{harmless, is_printable};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use self::position::{HiddenLines, ScrollPosition};
use crate::action::Action;
use crate::app_state::lost;
use crate::layout::{ScreenLayout, is_spaced};
use crate::overlay;
use crate::panels::{gaps, pools, trends};
use crate::state::{InputMode, PageTab, ViewState};
use crate::style::{ThemeStyle, selected_row, styled};
use crate::tables;
use crate::timeline::SeekTarget;
use pmdscope_telemetry::{AppState, FleetState};

/// Indentation of a note below a row.
const INDENT: &str = "    ";

/// So many apps that do not answer are named above the tables of a page.
const MAX_AGES: usize = 3;

/// Draws everything.
pub(crate) fn render(frame: &mut Frame, view: &ViewState, fleet: &FleetState) {
    let layout = ScreenLayout::of(frame.area(), view);
    let width = usize::from(layout.body.width);
    let mut line = |area: Option<Rect>, line: Line<'static>| {
        if let Some(area) = area {
            frame.render_widget(line, area);
        }
    };
    line(layout.header, header::line(view, fleet, width));
    if let Some(time_bar) = &view.time_bar {
        line(layout.time_bar, self::time_bar::line(time_bar, width, view));
    }
    line(layout.tabs, tab_line::draw(view, width).0);
    line(layout.banner, banner::line(view, fleet, width));
    let page = tables::page(view, fleet);
    let visible = body(view, fleet, &page.tables, layout.body);
    let selected = tables::selected(view, &page.tables);
    let position = match view.mode {
        InputMode::Browse => ScrollPosition::new(&page, selected, visible.hidden),
        _ => ScrollPosition::default(),
    };
    line(layout.footer, footer::line(view, fleet, &page, position, width));
    for (line, y) in visible.lines.into_iter().zip(layout.body.y..) {
        frame.render_widget(line.text(view.theme), Rect { y, height: 1, ..layout.body });
    }
    overlay::draw(frame, layout.body, view, fleet);
    make_harmless(frame.buffer_mut());
}

/// Makes all cells harmless: none makes the terminal do more than show it.
fn make_harmless(screen: &mut Buffer) {
    for cell in &mut screen.content {
        if !cell.symbol().chars().all(is_printable) {
            let shown = cell.symbol().chars().filter(|letter| is_printable(*letter));
            let shown = shown.collect::<String>();
            cell.set_symbol(if shown.is_empty() { "?" } else { &shown });
        }
    }
}

/// What a click hits.
pub(crate) enum ClickTarget {
    /// The name of a page.
    Tab(PageTab),
    /// A row.
    Row(Subject),
    /// The title of a column.
    Title {
        /// Title of its table.
        table: &'static str,
        /// That title.
        column: &'static str,
    },
    /// A moment, on the clock of the shown past.
    Moment(u64),
}

/// What is drawn at `position` on a screen of `area`.
pub(crate) fn hit(
    area: Rect,
    position: Position,
    view: &ViewState,
    fleet: &FleetState,
) -> Option<ClickTarget> {
    let layout = ScreenLayout::of(area, view);
    if let Some(tabs) = layout.tabs.filter(|tabs| tabs.contains(position)) {
        let (_, ends) = tab_line::draw(view, usize::from(tabs.width));
        let (tab, _) = ends.into_iter().find(|(_, end)| usize::from(position.x) < *end)?;
        return Some(ClickTarget::Tab(tab));
    }
    if let (Some(line), Some(time_bar)) = (layout.time_bar, &view.time_bar)
        && line.contains(position)
    {
        let (column, width) = (usize::from(position.x), usize::from(area.width));
        return self::time_bar::pointed(time_bar, column, width, view).map(ClickTarget::Moment);
    }
    if !layout.body.contains(position) {
        return None;
    }
    let line = usize::from(position.y - layout.body.y);
    let tables = tables::shown(view, fleet);
    let line = body(view, fleet, &tables, layout.body).lines.into_iter().nth(line)?;
    match line.titles {
        Some(titles) => titles.at(usize::from(position.x)),
        None => line.subject.cloned().map(ClickTarget::Row),
    }
}

/// One line of the body.
#[derive(Clone)]
struct BodyLine<'a> {
    content: LineContent<'a>,
    subject: Option<&'a Subject>,
    /// Index of the line with the column headings above a row.
    header: Option<usize>,
    /// Where the column headings are, in such a line.
    titles: Option<ColumnTitles>,
    is_selected: bool,
}

/// What a line shows. Rows are drawn when they are visible.
#[derive(Clone)]
enum LineContent<'a> {
    Text(Line<'static>),
    Row(Rc<TableLayout<'a>>, &'a TableRow),
}

/// The column headings of a table: each with the column of the screen behind it.
#[derive(Clone)]
struct ColumnTitles {
    table: &'static str,
    ends: Vec<(&'static str, usize)>,
}

impl ColumnTitles {
    fn at(&self, x: usize) -> Option<ClickTarget> {
        let (column, _) = self.ends.iter().find(|(_, end)| x < *end)?;
        Some(ClickTarget::Title { table: self.table, column })
    }
}

impl BodyLine<'_> {
    fn plain(text: Line<'static>) -> Self {
        let content = LineContent::Text(text);
        Self { content, subject: None, header: None, titles: None, is_selected: false }
    }

    fn text(self, theme: Theme) -> Line<'static> {
        let text = match self.content {
            LineContent::Text(text) => text,
            LineContent::Row(layout, row) => styled(layout.row(row), theme),
        };
        if self.is_selected { text.patch_style(selected_row()) } else { text }
    }
}

/// The lines of a page that are on the screen.
struct VisibleLines<'a> {
    lines: Vec<BodyLine<'a>>,
    /// Those above and below them.
    hidden: [HiddenLines; 2],
}

fn count(lines: &[BodyLine]) -> HiddenLines {
    let rows = lines.iter().filter(|line| matches!(line.content, LineContent::Row(..))).count();
    HiddenLines { lines: lines.len(), rows }
}

/// The visible lines: the selected row stays in sight, and its column headings too.
fn body<'a>(
    view: &ViewState,
    fleet: &FleetState,
    tables: &'a [TextTable],
    area: Rect,
) -> VisibleLines<'a> {
    let height = usize::from(area.height);
    let mut lines = document(view, fleet, tables, usize::from(area.width), height);
    let selected = tables::selected(view, tables);
    let cursor = lines.iter().position(|line| line.subject.is_some() && line.subject == selected);
    if let Some(cursor) = cursor {
        lines[cursor].is_selected = true;
    }
    let last = lines.len().saturating_sub(height);
    let offset = cursor.unwrap_or(0).saturating_sub(height / 2).min(last);
    let end = (offset + height).min(lines.len());
    let hidden = [count(&lines[..offset]), count(&lines[end..])];
    if let Some(header) = lines.get(offset).and_then(|line| line.header)
        && header < offset
        && cursor != Some(offset)
    {
        lines[offset] = lines[header].clone();
    }
    VisibleLines { lines: lines.into_iter().skip(offset).take(height).collect(), hidden }
}

/// All lines of a page. Graphs take what its tables leave of `height`.
fn document<'a>(
    view: &ViewState,
    fleet: &FleetState,
    tables: &'a [TextTable],
    width: usize,
    height: usize,
) -> Vec<BodyLine<'a>> {
    let mut lines = Vec::new();
    for table in tables {
        if !table.rows.is_empty() || !table.notes.is_empty() {
            if is_spaced(view) && !lines.is_empty() {
                lines.push(BodyLine::plain(Line::default()));
            }
            append(&mut lines, table, view, width);
        }
    }
    if lines.is_empty() {
        return placeholder(view, fleet, width);
    }
    let mut all = prelude(view, fleet, width, height.saturating_sub(lines.len()));
    for line in &mut lines {
        line.header = line.header.map(|header| header + all.len());
    }
    all.append(&mut lines);
    all
}

/// The lines above the tables of a page, where there is room for so many.
fn prelude<'a>(
    view: &ViewState,
    fleet: &FleetState,
    width: usize,
    room: usize,
) -> Vec<BodyLine<'a>> {
    let mut lines = match view.tab {
        PageTab::Overview | PageTab::Flows | PageTab::Kernel | PageTab::Raw => Vec::new(),
        _ => ages(view, fleet),
    };
    let room = room.saturating_sub(lines.len());
    lines.extend(match view.tab {
        _ if view.expanded_table().is_some() => Vec::new(),
        PageTab::Overview => trends::lines(view, width, room),
        PageTab::Pools => pools::lines(view, fleet, width, room),
        PageTab::Lcores => gaps::lines(view, fleet, width, room),
        _ => Vec::new(),
    });
    lines.into_iter().map(BodyLine::plain).collect()
}

/// How old the values of apps that do not answer are. Of many, the Overview has a row each.
fn ages(view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
    let mut stale = fleet.models().filter(|(app, _)| app.stale());
    let text =
        |app: &AppState| format!("{}: {}, values are old", app.name, lost(app, fleet.now_ns));
    let mut texts: Vec<String> =
        stale.by_ref().take(MAX_AGES).map(|(app, _)| harmless(&text(app), &[])).collect();
    let more = stale.count();
    if more > 0 {
        let key = view.keys.label(&Action::Go(PageTab::Overview));
        let hint = key.map_or(String::new(), |key| format!(", {key}: all"));
        texts.push(format!("+{} without answer{hint}", plural(more as u64, "more app")));
    }
    texts.into_iter().map(|text| Line::styled(text, view.theme.style(Tone::Warn))).collect()
}

/// The Overview has no lines to spare: its tables are identified by the title of their first
/// column.
fn is_dense(view: &ViewState) -> bool {
    view.tab == PageTab::Overview
}

fn append<'a>(lines: &mut Vec<BodyLine<'a>>, table: &'a TextTable, view: &ViewState, width: usize) {
    let theme = view.theme;
    if !is_dense(view) || table.rows.is_empty() {
        let title = Span::styled(table.title, theme.style(Tone::Title));
        let remark =
            Span::styled(format!("  {}", harmless(&table.remark, &[])), theme.style(Tone::Warn));
        lines.push(BodyLine::plain(Line::from(vec![title, remark])));
    }
    if !table.rows.is_empty() {
        let layout = Rc::new(table.layout(Some(width), theme));
        let header = Some(lines.len());
        let titles = Some(ColumnTitles { table: table.title, ends: layout.ends() });
        let headings = layout.header(view.sort.get(table.title).copied());
        lines.push(BodyLine { titles, ..BodyLine::plain(styled(headings, theme)) });
        for row in &table.rows {
            lines.push(BodyLine {
                content: LineContent::Row(Rc::clone(&layout), row),
                subject: Some(&row.subject),
                header,
                titles: None,
                is_selected: false,
            });
            lines.extend(row_notes(row, width, view.theme, header));
        }
    }
    for line in table.notes.iter().flat_map(|note| wrapped(&harmless(note, &[]), width)) {
        lines.push(BodyLine::plain(Line::styled(line, theme.style(Tone::Dim))));
    }
}

/// The notes below a row; a click on them selects the row.
fn row_notes(
    row: &TableRow,
    width: usize,
    theme: Theme,
    header: Option<usize>,
) -> impl Iterator<Item = BodyLine<'_>> {
    let tone = if row.stale { Tone::Dim } else { Tone::Plain };
    let inner = width.saturating_sub(INDENT.len());
    let lines = row.notes.iter().flat_map(move |note| wrapped(&harmless(note, &[]), inner));
    lines.map(move |line| {
        let text = Line::styled(format!("{INDENT}{line}"), theme.style(tone));
        BodyLine { subject: Some(&row.subject), header, ..BodyLine::plain(text) }
    })
}

/// Cuts a text that is too long between words, into lines of at most `width` characters where words
/// allow that.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Instead of an empty page: why it is empty.
fn placeholder<'a>(view: &ViewState, fleet: &FleetState, width: usize) -> Vec<BodyLine<'a>> {
    let text = if !view.filter.is_empty() {
        "No row matches the filter."
    } else if !fleet.is_empty() {
        &nothing_there(view)
    } else if fleet.advice.is_empty() {
        "Searching for DPDK apps ..."
    } else {
        &fleet.advice
    };
    let lines = text.lines().flat_map(|line| wrapped(&harmless(line, &[]), width));
    lines.map(|line| BodyLine::plain(Line::raw(line))).collect()
}

/// The text of a page without rows.
fn nothing_there(view: &ViewState) -> String {
    let text = match view.tab {
        PageTab::Raw if view.replies.is_none() => "A recording has no replies.",
        PageTab::Raw if view.time_bar.is_some() => {
            let newest = view.keys.label(&Action::Seek(SeekTarget::Newest));
            let hint = newest.map_or(String::new(), |key| format!(": {key} shows the present"));
            return format!("Replies of the past are not kept{hint}.");
        }
        PageTab::Raw => "No reply since this page is shown.",
        PageTab::Rings => {
            "No app reports software rings: needs libpmdscope (level 1), or DPDK 24.03 and later."
        }
        PageTab::Captures => "No capture is running.",
        PageTab::Kernel => "No interface of the kernel has pmdscope's filter or a bypassed queue.",
        _ => "No data yet.",
    };
    text.to_owned()
}

#[cfg(test)]
pub(crate) mod any_tests;
#[cfg(test)]
mod flows_tests;
#[cfg(test)]
mod last_line_tests;
#[cfg(test)]
pub(crate) mod page_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod theme_tests;
