//! The pages of the help. That of the keys begins with those that matter where it is asked for.

mod text;

use pmdscope_render::{Column, Tone};
use pmdscope_telemetry::FleetState;
use ratatui::text::{Line, Span};

use super::{CLOSE, SCROLL, text_columns, wrap};
use crate::action::{Action, SelectionMotion, TIME_STEPS, TaskAction};
use crate::keys::{BINDINGS, Hint, KeyBinding, KeyContext, KeySection, LABEL};
use crate::prompt::{Verb, actions};
use crate::state::{HelpPage, InputMode, PageTab, ViewState};
use crate::style::ThemeStyle;
use crate::tables;
use crate::timeline::SeekTarget;

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

/// The heading of the window: all pages, the shown one in brackets.
pub(super) fn title(shown: HelpPage) -> String {
    let name = |page: HelpPage| match page.title() {
        title if page == shown => format!("[{title}]"),
        title => format!(" {title} "),
    };
    HelpPage::ALL.map(name).concat()
}

/// What the keys of the window do.
pub(super) fn keys(view: &ViewState) -> String {
    let keys: &[Hint] = &[(&[Action::Next, Action::Previous], "pages"), SCROLL, CLOSE];
    view.keys.phrase(KeyContext::Page, keys)
}

/// A page of the help for what it lies over.
pub(super) fn lines(
    page: HelpPage,
    over: &InputMode,
    view: &ViewState,
    fleet: &FleetState,
) -> Vec<Line<'static>> {
    let mut help = HelpText { view, lines: Vec::new() };
    match page {
        HelpPage::Keys => help.keys(over),
        HelpPage::Filters => help.filters(fleet),
        HelpPage::Commands => help.commands(),
        HelpPage::Signs => help.signs(),
    }
    help.lines
}

struct HelpText<'a> {
    view: &'a ViewState,
    lines: Vec<Line<'static>>,
}

impl HelpText<'_> {
    /// A heading, behind an empty line.
    fn heading(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.lines.push(Line::styled(text.to_owned(), self.view.theme.style(Tone::Title)));
    }

    /// What is explained, and its explanation, all of it behind a column.
    fn entry(&mut self, what: &str, text: &str, column: usize) {
        let room =
            text_columns(self.view.width).saturating_sub(what.chars().count().max(column) + 1);
        for (at, row) in wrap::rows(vec![Line::raw(text.to_owned())], room).into_iter().enumerate()
        {
            let (what, tone) = if at == 0 { (what, Tone::Label) } else { ("", Tone::Plain) };
            let what = Span::styled(format!("{what:<column$}"), self.view.theme.style(tone));
            self.lines.push(Line::from(vec![what, Span::raw(format!(" {row}"))]));
        }
    }

    fn entries(&mut self, entries: &[(&str, &str)]) {
        let column = entries.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        for (what, text) in entries {
            self.entry(what, text, column + 1);
        }
    }

    fn keys(&mut self, over: &InputMode) {
        let (title, hints) = here(over, self.view.tab);
        self.heading(&title);
        for (actions, text) in hints {
            let keys = self.view.keys.labels(KeyContext::Page, actions);
            if !keys.is_empty() {
                self.entry(&keys, text, LABEL);
            }
        }
        let past = self.view.time_bar.is_some();
        let is_of_time = |lines: &&[KeyBinding]| lines[0].section == KeySection::Time;
        let sections = || BINDINGS.chunk_by(|a, b| a.section == b.section);
        let first = sections().filter(|lines| past && is_of_time(lines));
        let others = sections().filter(|lines| !(past && is_of_time(lines)));
        for lines in first.chain(others) {
            self.heading(lines[0].section.title());
            for (keys, text) in lines.iter().filter_map(|line| self.view.keys.help_line(line)) {
                self.entry(&keys, &text, LABEL);
            }
        }
    }

    fn filters(&mut self, fleet: &FleetState) {
        self.heading("A row must match all terms between which there is no or");
        self.entries(&text::TERMS);
        self.heading("Numbers have the unit of the column");
        self.entries(&text::NUMBERS);
        self.heading("Examples");
        self.entries(&text::EXAMPLES);
        self.heading(&format!("Columns of page {}", self.view.tab.title()));
        for table in tables::of(self.view.tab, fleet, self.view) {
            let names: Vec<_> = table.columns.iter().map(Column::typed_name).collect();
            if !names.is_empty() {
                self.entry(table.title, &names.join(" "), LABEL);
            }
        }
    }

    fn commands(&mut self) {
        self.heading("Commands");
        let verbs: Vec<_> = Verb::ALL.map(|verb| (verb.usage(), verb.meaning())).to_vec();
        self.entries(&verbs);
        self.heading("Pages: the beginning of the name is enough");
        let pages = PageTab::ALL.map(PageTab::name).join(" ");
        self.lines.push(Line::raw(pages));
        self.heading("Actions, as [top.keys] of the configuration names them");
        let others = actions().filter(|named| !matches!(named.action, Action::Go(_)));
        let entries: Vec<_> = others.map(|named| (named.name, named.meaning)).collect();
        self.entries(&entries);
    }

    fn signs(&mut self) {
        self.heading("Values");
        self.entries(&text::VALUES);
        self.heading("Columns");
        self.entries(&text::COLUMNS);
        let theme = self.view.theme;
        let [critical, warning, info] = theme.signs().map(str::trim_end);
        self.heading("Findings");
        self.entries(&[
            (critical, "critical: packets are lost, or will be soon"),
            (warning, "warning: something is wrong, or about to be"),
            (info, "information"),
        ]);
        let [up, down] = theme.sort_marks().map(String::from);
        let [used, cached, free] = theme.bar().map(String::from);
        self.heading("Tables and graphs");
        self.entries(&[
            (up.as_str(), "beside a column: sorted by it, the lowest first; rows above the screen"),
            (down.as_str(), "the same with the highest first; rows below the screen"),
            ("5/64", "the fifth of 64 rows is selected"),
            (used.as_str(), "a part that is in use"),
            (cached.as_str(), "a part that is in caches"),
            (free.as_str(), "a part that is free"),
            ("gap", "in a graph: nothing is known of that time"),
        ]);
    }
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

    /// Lines of a page of the help for the tables.
    fn of_page(page: HelpPage, view: &ViewState) -> Vec<String> {
        let lines = lines(page, &InputMode::Browse, view, &fixture::fleet());
        lines.into_iter().map(|line| line.to_string()).collect()
    }

    #[test]
    fn every_page_of_the_help_on_two_sizes() {
        let fleet = fixture::fleet();
        for (width, height) in [(80, 24), (120, 40)] {
            let mut view = ViewState { width, height, tab: PageTab::Pools, ..fixture::view() };
            update(&mut view, Action::Help, &fleet);
            let mut screens = Vec::new();
            for page in HelpPage::ALL {
                assert!(matches!(view.mode, InputMode::Help { page: shown, .. } if shown == page));
                screens.push(text(width, height, &view, &fleet));
                update(&mut view, Action::Next, &fleet);
            }
            assert_snapshot!(format!("pages_{width}x{height}"), screens.join("----\n"));
        }
    }

    #[test]
    fn pages_are_turned_and_end_with_a_full_screen() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        update(&mut view, Action::Help, &fleet);
        update(&mut view, Action::Previous, &fleet);
        assert!(matches!(view.mode, InputMode::Help { page: HelpPage::Signs, .. }));
        update(&mut view, Action::Sort, &fleet);
        assert!(view.sort.is_empty(), "arrows turn its pages");
        update(&mut view, Action::Move(SelectionMotion::Bottom), &fleet);
        let screen = text(80, 24, &view, &fleet);
        let filled = screen.lines().filter(|line| line.starts_with('│') && line.contains("  "));
        assert!(filled.count() > 15, "{screen}");
        assert!(screen.contains(" of ") && screen.contains("before a capture that attaches"));
        update(&mut view, Action::Move(SelectionMotion::Up), &fleet);
        assert_ne!(screen, text(80, 24, &view, &fleet), "one line up is seen at once");
        update(&mut view, Action::Next, &fleet);
        assert_eq!(view.scroll, 0);
    }

    #[test]
    fn filters_name_the_columns_that_they_may_have() {
        let view = ViewState { tab: PageTab::Pools, ..fixture::view() };
        let lines = of_page(HelpPage::Filters, &view).join("\n");
        for part in ["Columns of page Pools", "in_use", "growth/s", "Leak sites"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        let fleet = fixture::fleet();
        for (example, _) in text::EXAMPLES {
            let valid = |tab| {
                let view = ViewState { tab, ..fixture::view() };
                let tables = tables::of(tab, &fleet, &view);
                crate::state::ViewFilter::checked(example, &tables).is_ok()
            };
            assert!(PageTab::ALL.into_iter().any(valid), "{example}");
        }
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
        let lines = of_page(HelpPage::Keys, &view);
        assert_snapshot!("all", lines.join("\n"));
        assert!(lines.iter().all(|line| line.chars().count() <= 76), "fits into 80 columns");
    }

    #[test]
    fn keys_of_time_come_before_others_where_the_past_is_shown() {
        let (span, place) = (TimeSpan { oldest: 1, newest: 2 }, TimeBarKind::Past { ago_ns: 1 });
        let time_bar =
            TimeBar { at: 1, realtime_ns: 1, span, marks: Vec::new(), place, remark: None };
        let view = ViewState { time_bar: Some(time_bar), ..fixture::view() };
        let lines = of_page(HelpPage::Keys, &view);
        let at = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
        assert!(at("10 seconds back") < at("Pages and rows"), "{lines:?}");
        assert!(at("sort by the next") > at("Pages and rows"), "{lines:?}");
    }
}
