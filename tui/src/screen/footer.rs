//! The last line of the screen: what is typed, what is going on, or the keys that matter most.

use pmdscope_render::{CounterMode, Tone};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::printable::harmless;
use ratatui::text::{Line, Span};

use crate::action::{Action, TIME_STEPS, TaskAction};
use crate::keys::{Hint, KeyContext};
use crate::state::{InputMode, PageTab, ViewState};
use crate::style::ThemeStyle;
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

/// The line below a page.
pub(super) fn line(view: &ViewState, fleet: &FleetState, page: &PageTables) -> Line<'static> {
    let style = |tone| view.theme.style(tone);
    if let InputMode::Filter { .. } = &view.mode {
        return typed(view);
    }
    if let Some((text, tone)) = view.tasks.status(&view.keys) {
        return Line::styled(harmless(&text, &[]), style(tone));
    }
    if !view.filter.is_empty() {
        return Line::styled(filtered(view, page), style(Tone::Warn));
    }
    if view.counters != CounterMode::default() {
        return Line::styled(counters(view, fleet), style(Tone::Warn));
    }
    match view.time_bar.as_ref().and_then(|time_bar| time_bar.remark.as_ref()) {
        Some(remark) => Line::styled(harmless(remark, &[]), style(Tone::Warn)),
        None => Line::styled(keys(view), style(Tone::Dim)),
    }
}

/// The filter while it is typed, and what is wrong with it.
fn typed(view: &ViewState) -> Line<'static> {
    let cursor = if view.theme.ascii { "_" } else { "▏" };
    let typed = Span::raw(harmless(&format!("/{}{cursor}  ", view.filter.text()), &[]));
    let said = if let Some(problem) = view.filter.problem() {
        Span::styled(harmless(&problem.to_string(), &[]), view.theme.style(Tone::Bad))
    } else {
        let keys: &[Hint] = &[(&[Action::Accept], "applies"), (&[Action::Back], "cancels")];
        Span::raw(view.keys.phrase(KeyContext::Filter, keys))
    };
    Line::from(vec![typed, said])
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

/// The keys that matter most now.
fn keys(view: &ViewState) -> String {
    let may_write = view.tasks.context.forbidden().is_none();
    if view.time_bar.is_some() {
        let write = may_write.then_some((7, WRITE.1));
        return fitting(view, PAST.iter().copied().chain(write).collect());
    }
    let pages = PageTab::ALL.map(Action::Go);
    let details = match view.expanded_table() {
        Some(_) => (2, (&[Action::Expand][..], "all tables")),
        None => (10, (&[Action::Details][..], "details")),
    };
    let begin: [FooterKey; 5] = [
        (0, (&[Action::Help], "help")),
        (1, (&[Action::Quit], "quit")),
        (9, (&pages, "page")),
        (2, (&[Action::Open], "open")),
        details,
    ];
    let tasks = [CAPTURE, WRITE].into_iter().filter(|_| may_write);
    let holders = (view.tab == PageTab::Pools).then_some(HOLDERS);
    let end: [FooterKey; 3] = [
        (7, (&[Action::Sort], "sort")),
        (6, (&[Action::Filter], "filter")),
        (8, (&TIME_STEPS, "past")),
    ];
    fitting(view, begin.into_iter().chain(tasks).chain(holders).chain(end).collect())
}

/// As many of the keys as there is room for.
fn fitting(view: &ViewState, mut keys: Vec<FooterKey>) -> String {
    loop {
        let hints = keys.iter().map(|(_, hint)| *hint).collect::<Vec<_>>();
        let line = view.keys.list(KeyContext::Page, &hints);
        let last = (0..keys.len()).max_by_key(|&place| keys[place].0);
        match last.filter(|_| line.chars().count() > usize::from(view.width) && keys.len() > 1) {
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
        keys(&view)
    }

    #[test]
    fn keys_that_matter_less_give_way_where_there_is_no_room() {
        let overview = |width| at(width, PageTab::Overview, TaskContext::default());
        let wide = "? help  q quit  0-9 page  Enter open  i details  c capture  w save  s sort  \
                    / filter  , . past";
        assert_eq!(overview(120), wide);
        let ssh = "? help  q quit  Enter open  c capture  w save  s sort  / filter  , . past";
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
