//! The last line of the screen: what is typed, what is going on, or the keys that matter most.

use pmdscope_render::{CounterMode, Tone};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::printable::harmless;
use ratatui::text::{Line, Span};

use crate::action::Action;
use crate::keys::{Hint, KeyContext};
use crate::style::ThemeStyle;
use crate::tables;
use crate::timeline::SeekTarget;
use crate::view::{InputMode, PageTab, PageTables, ViewState};

const STEP: [Action; 2] = [Action::Seek(SeekTarget::Step(-1)), Action::Seek(SeekTarget::Step(1))];

/// The keys that matter most where the past is shown.
const PAST: &[Hint<'static>] = &[
    (&[Action::Help], "help"),
    (&[Action::Quit], "quit"),
    (&STEP, "step"),
    (&[Action::Seek(SeekTarget::seconds(-10)), Action::Seek(SeekTarget::seconds(10))], "10 s"),
    (&[Action::Seek(SeekTarget::seconds(-60)), Action::Seek(SeekTarget::seconds(60))], "1 min"),
    (&[Action::Seek(SeekTarget::NextMark), Action::Seek(SeekTarget::PreviousMark)], "findings"),
    (&[Action::Hold], "pause, play"),
];

/// The line below a page.
pub(crate) fn line(view: &ViewState, fleet: &FleetState, page: &PageTables) -> Line<'static> {
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
    if view.time_bar.is_some() {
        return view.keys.list(KeyContext::Page, PAST);
    }
    let pages = PageTab::ALL.map(Action::Go);
    let details = match view.expanded_table() {
        Some(_) => (&[Action::Expand][..], "all tables"),
        None => (&[Action::Details][..], "details"),
    };
    let present: &[Hint] = &[
        (&[Action::Help], "help"),
        (&[Action::Quit], "quit"),
        (&pages, "page"),
        (&[Action::Open], "open"),
        details,
        (&[Action::Sort], "sort"),
        (&[Action::Filter], "filter"),
        (&STEP, "past"),
    ];
    view.keys.list(KeyContext::Page, present)
}
