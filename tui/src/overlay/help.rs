//! The help: first the keys that matter where it is asked for, then all others.

use pmdscope_render::Tone;
use ratatui::text::{Line, Span};

use crate::action::{Action, SelectionMotion, TIME_STEPS, TaskAction};
use crate::keys::{BINDINGS, Hint, KeyBinding, KeyContext, LABEL};
use crate::state::{InputMode, PageTab, ViewState};
use crate::style::ThemeStyle;
use crate::timeline::SeekTarget;

const LEGEND: [&str; 6] = [
    "!value   unhealthy",
    "-        unknown, for example a rate before the second sample",
    "n/a      not provided by the driver, or needs libpmdscope",
    "Win max  maximum in the last complete window; Max: since the start",
    "Gap      longest time between two polls of a poll loop in that window",
    "Split    objects in use, in lcore caches, and free in the common pool",
];

const CAPTURE: Action = Action::Task(TaskAction::Capture);
const WRITE: Action = Action::Task(TaskAction::Write);
const ARM: Action = Action::Task(TaskAction::Arm);
const HOLDERS: Action = Action::Task(TaskAction::Holders);
const COPY: Action = Action::Task(TaskAction::Copy);
const TASKS: Action = Action::Task(TaskAction::Show);
const DOWN_UP: [Action; 2] =
    [Action::Move(SelectionMotion::Down), Action::Move(SelectionMotion::Up)];

const OVERVIEW: &[Hint<'static>] = &[
    (&[Action::Open], "go to the row that the finding is about; again: details"),
    (&[Action::Back], "back to the finding"),
    (&[Action::Details], "evidence, threshold, and what to do"),
    (&[HOLDERS], "who holds the mbufs of a pool that leaks or drains"),
    (&[WRITE], "write and show lost packets of a leak"),
    (&[CAPTURE], "capture what the finding is about"),
];
const PORTS: &[Hint<'static>] = &[
    (&[Action::Open], "queues, findings, and causes of missed packets"),
    (&[CAPTURE], "capture packets of the selected port or queue"),
    (&[Action::Mark, Action::Unmark], "count totals from now; from the start of the app"),
    (&[Action::Go(PageTab::Flows)], "conversations that load a queue"),
];
const POOLS: &[Hint<'static>] = &[
    (&[Action::Open], "where the mbufs of a pool are; what happened to lost ones"),
    (&[HOLDERS], "who holds the mbufs of the pool, also without libpmdscope"),
    (&[WRITE], "write and show lost packets of the selected leak or pool"),
    (&[ARM], "arm the stamps of the app for a minute"),
];
const LCORES: &[Hint<'static>] = &[
    (&[Action::Open], "longest gaps, and who took the CPU"),
    (&[CAPTURE], "capture packets of the app"),
];
const FLOWS: &[Hint<'static>] = &[
    (&[Action::Attach], "attach to apps without libpmdscope; detach"),
    (&[Action::Open], "all that is known of a conversation"),
    (&[CAPTURE], "capture the selected conversation"),
    (&[COPY], "copy a command that follows it"),
];
const RINGS: &[Hint<'static>] = &[(&[Action::Open], "all that is known of a ring")];
const CAPTURES: &[Hint<'static>] = &[
    (&[Action::Open], "packets, drops and rings of a capture"),
    (&[TASKS], "captures that were started here"),
];
const FINDINGS: &[Hint<'static>] = &[
    (&[Action::Open], "go to the row that the finding is about; again: details"),
    (&[Action::Back], "back to the finding"),
    (&[Action::Details], "evidence, what to do, and all times it began"),
    (
        &[Action::Seek(SeekTarget::NextMark), Action::Seek(SeekTarget::PreviousMark)],
        "show the next, the previous time a finding began",
    ),
];
const KERNEL: &[Hint<'static>] = &[(&[Action::Open], "counters, and reasons of dropped packets")];
const RAW: &[Hint<'static>] = &[(&[Action::Open], "the whole reply")];

const DETAIL: &[Hint<'static>] = &[
    (&DOWN_UP, "scroll"),
    (&[Action::Back], "close"),
    (&TIME_STEPS, "the same one step earlier, later"),
    (&[CAPTURE], "capture it"),
    (&[COPY], "copy the command line that shows the same"),
];
const TASK_WINDOW: &[Hint<'static>] = &[
    (&DOWN_UP, "scroll"),
    (&[CAPTURE], "end the task that runs"),
    (&[Action::Back], "end a task that writes no file; close"),
];
const COMMANDS: &[Hint<'static>] =
    &[(&[Action::Back], "close"), (&[CAPTURE, WRITE, ARM, HOLDERS], "run these commands")];

/// What keys do on a page, or in the window that lies over it.
fn here(over: &InputMode, tab: PageTab) -> (String, &'static [Hint<'static>]) {
    let window = |hints| ("This window".to_owned(), hints);
    match over {
        InputMode::Detail(_) => window(DETAIL),
        InputMode::Tasks => window(TASK_WINDOW),
        InputMode::Commands => window(COMMANDS),
        _ => (format!("Page {}", tab.title()), of_page(tab)),
    }
}

fn of_page(tab: PageTab) -> &'static [Hint<'static>] {
    match tab {
        PageTab::Overview => OVERVIEW,
        PageTab::Ports => PORTS,
        PageTab::Pools => POOLS,
        PageTab::Lcores => LCORES,
        PageTab::Flows => FLOWS,
        PageTab::Rings => RINGS,
        PageTab::Captures => CAPTURES,
        PageTab::Findings => FINDINGS,
        PageTab::Kernel => KERNEL,
        PageTab::Raw => RAW,
    }
}

/// Keys that go through time.
fn is_of_time(line: &KeyBinding) -> bool {
    line.actions.iter().any(|named| matches!(named.action, Action::Seek(_) | Action::Hold))
}

/// The help for what it lies over.
pub(super) fn lines(over: &InputMode, view: &ViewState) -> Vec<Line<'static>> {
    let heading = |text: &str| Line::styled(text.to_owned(), view.theme.style(Tone::Title));
    let line = |(keys, text): (String, String)| {
        let keys = Span::styled(format!("{keys:<LABEL$}"), view.theme.style(Tone::Label));
        Line::from(vec![keys, Span::raw(format!(" {text}"))])
    };
    let of_table = |binding: &'static KeyBinding| view.keys.help_line(binding).map(line);
    let (title, hints) = here(over, view.tab);
    let mut lines = vec![heading(&title)];
    let keys =
        hints.iter().map(|(actions, text)| (view.keys.labels(KeyContext::Page, actions), text));
    let keys = keys.filter(|(keys, _)| !keys.is_empty());
    lines.extend(keys.map(|(keys, text)| line((keys, (*text).to_owned()))));
    let past = view.time_bar.is_some();
    if past {
        lines.push(heading("Past and replay"));
        lines.extend(BINDINGS.iter().filter(|binding| is_of_time(binding)).filter_map(of_table));
    }
    lines.push(heading("All pages"));
    let general = BINDINGS.iter().filter(|binding| !(past && is_of_time(binding)));
    lines.extend(general.filter_map(of_table));
    lines.push(Line::default());
    lines.extend(LEGEND.iter().map(|&text| Line::raw(text)));
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;

    use super::*;
    use crate::fixture;
    use crate::keys::{KeyMap, named_actions};
    use crate::screen::tests::text;
    use crate::timeline::TimeSpan;
    use crate::timeline::time_bar::{TimeBar, TimeBarKind};
    use crate::update::update;

    fn help(view: &mut ViewState) -> String {
        update(view, Action::Help, &fixture::fleet());
        text(80, 24, view, &fixture::fleet())
    }

    #[test]
    fn each_page_has_its_keys_first() {
        for tab in PageTab::ALL {
            let mut view = ViewState { tab, ..fixture::view() };
            assert_snapshot!(format!("{tab:?}").to_lowercase(), help(&mut view));
        }
    }

    #[test]
    fn each_window_has_its_keys_first() {
        let fleet = fixture::fleet();
        let windows = [Action::Details, COPY, TASKS].map(|window| {
            let mut view = fixture::view();
            update(&mut view, window, &fleet);
            help(&mut view).lines().take(12).collect::<Vec<_>>().join("\n")
        });
        assert_snapshot!("windows", windows.join("\n----\n"));
    }

    #[test]
    fn the_rest_is_below_and_names_the_keys_that_are_mapped() {
        let mut keys = KeyMap::default();
        for (name, mapped) in [("filter", &["F", "ctrl-f"][..]), ("sort", &[]), ("reset", &[])] {
            let (_, named) = named_actions().find(|(_, named)| named.name == name).unwrap();
            keys.set(named, mapped.iter().map(|key| key.parse().unwrap()).collect());
        }
        let view = ViewState { keys: Arc::new(keys), ..fixture::view() };
        let lines = lines(&InputMode::Browse, &view).into_iter().map(|line| line.to_string());
        let lines = lines.collect::<Vec<_>>();
        assert_snapshot!("all", lines.join("\n"));
        assert!(lines.iter().all(|line| line.chars().count() <= 76), "fits into 80 columns");
    }

    #[test]
    fn keys_of_time_come_before_others_where_the_past_is_shown() {
        let (span, place) = (TimeSpan { oldest: 1, newest: 2 }, TimeBarKind::Past { ago_ns: 1 });
        let time_bar =
            TimeBar { at: 1, realtime_ns: 1, span, marks: Vec::new(), place, remark: None };
        let view = ViewState { time_bar: Some(time_bar), ..fixture::view() };
        let lines = lines(&InputMode::Browse, &view);
        let at =
            |text: &str| lines.iter().position(|line| line.to_string().contains(text)).unwrap();
        assert!(at("10 seconds back") < at("All pages") && at("sort the table") > at("All pages"));
    }
}
