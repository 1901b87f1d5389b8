//! The last line of the screen: what is typed, what is going on, or the keys that matter most.

use pmdscope_render::{CounterMode, Tone, cut};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::printable::harmless;
use ratatui::text::{Line, Span};

use super::position::ScrollPosition;
use crate::action::{Action, PromptAction, TIME_STEPS, TaskAction};
use crate::keys::{Hint, KeyContext};
use crate::prompt::{CommandScope, complete};
use crate::state::{InputMode, PageTab, ViewState};
use crate::style::{ThemeStyle, edited};
use crate::tables::{self, PageTables};
use crate::timeline::SeekTarget;

/// A key of the last line, and its drop priority where there is no room: the highest is dropped
/// first.
type FooterKey<'a> = (u8, Hint<'a>);

const CAPTURE: FooterKey<'static> = (3, (&[Action::Task(TaskAction::Capture)], "capture"));
const WRITE: FooterKey<'static> = (4, (&[Action::Task(TaskAction::Write)], "save"));
const HOLDERS: FooterKey<'static> = (5, (&[Action::Task(TaskAction::Holders)], "holders"));

/// The keys that matter most where the past is shown.
const PAST: &[FooterKey<'static>] = &[
    (0, (&[Action::Help], "help")),
    (1, (&[Action::Quit], "quit")),
    (2, (&TIME_STEPS, "step")),
    (5, (&[Action::Seek(SeekTarget::seconds(-10)), Action::Seek(SeekTarget::seconds(10))], "10 s")),
    (
        6,
        (&[Action::Seek(SeekTarget::seconds(-60)), Action::Seek(SeekTarget::seconds(60))], "1 min"),
    ),
    (
        4,
        (&[Action::Seek(SeekTarget::NextMark), Action::Seek(SeekTarget::PreviousMark)], "findings"),
    ),
    (3, (&[Action::Hold], "pause, play")),
];

/// Columns between the text and the position.
const GAP: usize = 2;

/// Columns from which on the position is told in words beside keys.
const WIDE: usize = 100;

/// The line below a page in `width` columns, with the position at its right end where there is room.
pub(super) fn line(
    view: &ViewState,
    fleet: &FleetState,
    page: &PageTables,
    position: ScrollPosition,
    width: usize,
) -> Line<'static> {
    match view.mode {
        InputMode::Filter { .. } => return typed(view, width),
        InputMode::Prompt => return prompt(view, fleet, width),
        _ => {}
    }
    let (text, tone) = said(view, fleet, page, width).map_or_else(
        || {
            // On narrow screens keys say more than words about the position.
            let least = if width < WIDE { width } else { width / 2 };
            let position = position.text(width, least, view.theme);
            let room = width.saturating_sub(columns(&position) + GAP);
            (keys(view, room), Tone::Dim)
        },
        |(text, tone)| (harmless(&text, &[]), tone),
    );
    let position = position.text(width, columns(&text) + GAP, view.theme);
    let gap = width.saturating_sub(columns(&text) + columns(&position));
    if gap < GAP || position.is_empty() {
        return Line::styled(cut(&text, width, view.theme), view.theme.style(tone));
    }
    Line::from(vec![
        Span::styled(text, view.theme.style(tone)),
        Span::raw(" ".repeat(gap)),
        Span::styled(position, view.theme.style(Tone::Title)),
    ])
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// What is to be known now; `None` for the keys.
fn said(
    view: &ViewState,
    fleet: &FleetState,
    page: &PageTables,
    width: usize,
) -> Option<(String, Tone)> {
    if let Some(status) = view.tasks.status(&view.keys, width, view.theme) {
        return Some(status);
    }
    if !view.filter.is_empty() {
        return Some((filtered(view, page), Tone::Warn));
    }
    if view.counters != CounterMode::default() {
        return Some((counters(view, fleet), Tone::Warn));
    }
    let remark = view.time_bar.as_ref().and_then(|time_bar| time_bar.remark.clone());
    remark.map(|remark| (remark, Tone::Warn))
}

/// The filter while it is typed, and what is wrong with it.
fn typed(view: &ViewState, width: usize) -> Line<'static> {
    let cursor = if view.theme.ascii { "_" } else { "▏" };
    let typed = harmless(&format!("/{}{cursor}  ", view.filter.text()), &[]);
    let room = width.saturating_sub(columns(&typed));
    let said = if let Some(problem) = view.filter.problem() {
        let problem = cut(&harmless(&problem.to_string(), &[]), room, view.theme);
        Span::styled(problem, view.theme.style(Tone::Bad))
    } else {
        let keys: &[Hint] = &[(&[Action::Accept], "applies"), (&[Action::Back], "cancels")];
        Span::raw(view.keys.phrase(KeyContext::Filter, keys))
    };
    Line::from(vec![Span::raw(typed), said])
}

/// The command while it is typed, and what is wrong with it, or the ways to complete it. Of a long one
/// the part at the cursor is shown.
fn prompt(view: &ViewState, fleet: &FleetState, width: usize) -> Line<'static> {
    let (text, cursor) = (view.prompt.text(), view.prompt.cursor());
    let hidden = (cursor + 2).saturating_sub(width).min(cursor);
    let text: String = text.chars().skip(hidden).collect();
    let room = width.saturating_sub(columns(&text) + 2 + GAP);
    let said = match &view.prompt.problem {
        Some(problem) => (harmless(problem, &[]), Tone::Bad),
        None => (ways(view, fleet), Tone::Dim),
    };
    let mut spans = vec![Span::raw(":")];
    spans.extend(edited(&text, cursor - hidden));
    let said = Span::styled(cut(&said.0, room, view.theme), view.theme.style(said.1));
    spans.extend([Span::raw(" ".repeat(GAP)), said]);
    Line::from(spans)
}

/// The ways to complete what is typed, that which is shown first; without one the keys.
fn ways(view: &ViewState, fleet: &FleetState) -> String {
    let words = match (&view.prompt.choice, view.prompt.text()) {
        (Some(choice), _) => {
            let mut words = choice.words.clone();
            words.rotate_left(choice.at);
            words
        }
        (None, "") => Vec::new(),
        (None, text) => complete(text, &CommandScope::of(view, fleet)).words,
    };
    if !words.is_empty() {
        return words.join("  ");
    }
    let keys: &[Hint] = &[
        (&[Action::Prompt(PromptAction::Run)], "runs"),
        (&[Action::Prompt(PromptAction::Complete)], "completes"),
        (&[Action::Back], "cancels"),
    ];
    view.keys.phrase(KeyContext::Prompt, keys)
}

/// The filter that was typed, and why nothing on this page can match it.
fn filtered(view: &ViewState, page: &PageTables) -> String {
    let problem = page.filter_problem.as_ref();
    let problem = problem.map_or(String::new(), |problem| format!(": {problem}"));
    let keys: &[Hint] = &[(&[Action::Back], "clears"), (&[Action::Filter], "edits")];
    let keys = view.keys.remark(KeyContext::Page, keys);
    harmless(&format!("filter: {}{problem}{keys}", view.filter.text()), &[])
}

/// What columns of counters show, where that is not what they show at first.
fn counters(view: &ViewState, fleet: &FleetState) -> String {
    let CounterMode { totals, bytes } = view.counters;
    let (mut shown, mut keys): (Vec<&str>, Vec<Hint>) = (Vec::new(), Vec::new());
    if totals {
        shown.push(tables::totals::origin(fleet, view));
        keys.push((&[Action::Totals], "rates"));
    }
    if bytes {
        shown.push("bytes");
        keys.push((&[Action::Bytes], "bits"));
    }
    keys.push((&[Action::Help], "help"));
    format!("{}  ({})", shown.join(", "), view.keys.phrase(KeyContext::Page, &keys))
}

/// The keys that matter most now, in so many columns.
fn keys(view: &ViewState, room: usize) -> String {
    let may_write = view.tasks.context.forbidden().is_none();
    if view.time_bar.is_some() {
        let write = may_write.then_some((7, WRITE.1));
        return fitting(view, PAST.iter().copied().chain(write).collect(), room);
    }
    let pages = PageTab::ALL.map(Action::Go);
    let details = match view.expanded_table() {
        Some(_) => (2, (&[Action::Expand][..], "all tables")),
        None => (11, (&[Action::Details][..], "details")),
    };
    let begin: [FooterKey; 5] = [
        (0, (&[Action::Help], "help")),
        (1, (&[Action::Quit], "quit")),
        (10, (&pages, "page")),
        (2, (&[Action::Open], "open")),
        details,
    ];
    let tasks = [CAPTURE, WRITE].into_iter().filter(|_| may_write);
    let holders = (view.tab == PageTab::Pools).then_some(HOLDERS);
    let end: [FooterKey; 4] = [
        (7, (&[Action::Sort], "sort")),
        (6, (&[Action::Filter], "filter")),
        (8, (&[Action::Prompt(PromptAction::Open)], "command")),
        (9, (&TIME_STEPS, "past")),
    ];
    fitting(view, begin.into_iter().chain(tasks).chain(holders).chain(end).collect(), room)
}

/// As many of the keys as there is room for.
fn fitting(view: &ViewState, mut keys: Vec<FooterKey>, room: usize) -> String {
    loop {
        let hints = keys.iter().map(|(_, hint)| *hint).collect::<Vec<_>>();
        let line = view.keys.list(KeyContext::Page, &hints);
        let last = (0..keys.len()).max_by_key(|&place| keys[place].0);
        match last.filter(|_| columns(&line) > room && keys.len() > 1) {
            Some(place) => {
                keys.remove(place);
            }
            None => return line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::task::TaskContext;

    fn at(width: u16, tab: PageTab, context: TaskContext) -> String {
        let mut view = ViewState { tab, width, ..fixture::view() };
        view.tasks.context = context;
        keys(&view, usize::from(width))
    }

    #[test]
    fn keys_that_matter_less_give_way_where_there_is_no_room() {
        let overview = |width| at(width, PageTab::Overview, TaskContext::default());
        let wide = "? help  q quit  0-9 page  Enter open  i details  c capture  w save  s sort  \
                    / filter  : command  , . past";
        assert_eq!(overview(120), wide);
        let ssh = "? help  q quit  Enter open  c capture  w save  s sort  / filter  : command";
        assert_eq!(overview(80), ssh);
        assert_eq!(overview(40), "? help  q quit  Enter open  c capture");
        assert_eq!(overview(1), "? help");
        let pools = at(80, PageTab::Pools, TaskContext::default());
        assert!(pools.contains("c capture  w save  m holders"), "{pools}");
    }

    #[test]
    fn keys_that_do_nothing_are_not_named() {
        let context = TaskContext { read_only: true, ..TaskContext::default() };
        let line = at(80, PageTab::Pools, context);
        assert!(!line.contains("capture") && !line.contains("save"), "{line}");
        assert!(line.contains("m holders"), "{line}");
    }
}
