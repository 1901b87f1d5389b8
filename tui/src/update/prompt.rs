//! Carries out what is typed on the command line.

use pmdscope_telemetry::FleetState;

use crate::action::{Action, PromptAction};
use crate::prompt::{Command, CommandScope, complete, parse};
use crate::state::{CompletionChoice, InputMode, ViewState};

/// Carries out an action of the command line; an action that is left to do is returned.
pub(super) fn update(
    view: &mut ViewState,
    action: PromptAction,
    fleet: &FleetState,
) -> Option<Action> {
    match action {
        PromptAction::Open => {
            view.prompt.clear();
            view.mode = InputMode::Prompt;
        }
        PromptAction::Edit(request) => view.prompt.edit(request),
        PromptAction::Complete => complete_with(view, true, fleet),
        PromptAction::CompleteBack => complete_with(view, false, fleet),
        PromptAction::Older => view.prompt.older(),
        PromptAction::Newer => view.prompt.newer(),
        PromptAction::Run => return run(view, fleet),
    }
    None
}

/// Runs what is typed. What is no command stays there, with the reason.
fn run(view: &mut ViewState, fleet: &FleetState) -> Option<Action> {
    if view.mode != InputMode::Prompt {
        return None;
    }
    let command = match parse(view.prompt.text(), &CommandScope::of(view, fleet)) {
        Ok(command) => command,
        Err(reason) => {
            view.prompt.problem = Some(reason);
            return None;
        }
    };
    view.prompt.remember();
    view.mode = InputMode::Browse;
    match command? {
        Command::Act(action) => return Some(action),
        Command::Help(page) => {
            let over = Box::new(InputMode::Browse);
            view.mode = InputMode::Help { page, over, scroll: 0 };
            view.scroll = 0;
        }
        Command::Filter(filter) => view.filter = filter,
        Command::Sort(table, Some(order)) => {
            view.sort.insert(table, order);
        }
        Command::Sort(table, None) => {
            view.sort.remove(table);
        }
        Command::Columns(table, Some(columns)) => view.columns.set(table, columns),
        Command::Columns(table, None) => view.columns.forget(table),
    }
    None
}

/// Completes as far as all ways are the same; again: with one way after the other.
fn complete_with(view: &mut ViewState, forward: bool, fleet: &FleetState) {
    if let Some(mut choice) = view.prompt.choice.take() {
        let count = choice.words.len();
        choice.at = (choice.at + if forward { 1 } else { count - 1 }) % count;
        show(view, choice);
        return;
    }
    let text = view.prompt.text().to_owned();
    let found = complete(&text, &CommandScope::of(view, fleet));
    let common = common_beginning(&found.words);
    match &found.words[..] {
        [] => {}
        [word] => {
            let space = if found.spaced { " " } else { "" };
            view.prompt.replace(found.start, &format!("{word}{space}"));
        }
        _ if common.len() > text.len() - found.start => view.prompt.replace(found.start, &common),
        _ => {
            let at = if forward { 0 } else { found.words.len() - 1 };
            show(view, CompletionChoice { start: found.start, words: found.words, at });
        }
    }
}

fn show(view: &mut ViewState, choice: CompletionChoice) {
    if let Some(word) = choice.words.get(choice.at) {
        view.prompt.replace(choice.start, word);
        view.prompt.choice = Some(choice);
    }
}

/// What all words begin with.
fn common_beginning(words: &[String]) -> String {
    let Some((first, others)) = words.split_first() else { return String::new() };
    let same = |other: &String| {
        let pairs = first.chars().zip(other.chars());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let length = others.iter().map(same).min().unwrap_or(first.chars().count());
    first.chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use pmdscope_render::SortOrder;

    use super::*;
    use crate::fixture;
    use crate::input::action_of;
    use crate::state::{HelpPage, PageTab};
    use crate::update::tests::press;
    use crate::update::{LoopControl, update};

    fn typed(view: &ViewState) -> &str {
        view.prompt.text()
    }

    #[test]
    fn commands_turn_pages_filter_sort_and_quit() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        press(&mut view, &fleet, ":po\n");
        assert_eq!(view.mode, InputMode::Prompt, "ports or pools");
        assert_eq!(
            view.prompt.problem.as_deref(),
            Some("'po' is the beginning of several commands")
        );
        press(&mut view, &fleet, "r\n");
        assert_eq!((view.tab, &view.mode), (PageTab::Ports, &InputMode::Browse));
        press(&mut view, &fleet, ":sort miss asc\n");
        let order = SortOrder { column: "Miss/s", descending: false };
        assert_eq!(view.sort.get("Ports"), Some(&order));
        press(&mut view, &fleet, ":sort\n");
        assert!(view.sort.is_empty());
        press(&mut view, &fleet, ":columns port rx_pps\n");
        assert_eq!(view.columns.get("Ports").map(<[_]>::len), Some(2));
        press(&mut view, &fleet, ":columns default\n");
        assert_eq!(view.columns.get("Ports"), None);
        press(&mut view, &fleet, ":filter miss>0\n");
        assert_eq!(view.filter.text(), "miss>0");
        press(&mut view, &fleet, ":filter nosuch:x\n");
        assert_eq!((view.filter.text(), &view.mode), ("miss>0", &InputMode::Prompt));
        press(&mut view, &fleet, "\x1b:filter\n");
        assert!(view.filter.is_empty());
        press(&mut view, &fleet, ":help signs\n");
        assert!(matches!(view.mode, InputMode::Help { page: HelpPage::Signs, .. }));
        press(&mut view, &fleet, ":columns\n");
        assert!(matches!(view.mode, InputMode::Columns(_)));
        assert_eq!(press(&mut view, &fleet, "\x1b:q\n"), LoopControl::Quit);
    }

    #[test]
    fn actions_are_commands_with_the_same_limits_as_keys() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        view.tasks.context.read_only = true;
        press(&mut view, &fleet, ":capture\n");
        assert_eq!(view.mode, InputMode::Browse);
        let notice = view.tasks.notice.as_ref().map(|(text, _)| text.as_str());
        assert!(notice.is_some_and(|text| text.starts_with("read-only: ")), "{notice:?}");
        press(&mut view, &fleet, ":rates-or-totals\n");
        assert!(view.counters.totals);
    }

    #[test]
    fn tab_completes_as_far_as_it_is_clear_and_then_one_after_the_other() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        press(&mut view, &fleet, ":lc\t");
        assert_eq!(typed(&view), "lcores ");
        press(&mut view, &fleet, "\n:page-o\t");
        assert_eq!(typed(&view), "page-overview ");
        press(&mut view, &fleet, "\x1b1:filter !gr\t");
        assert_eq!(typed(&view), "filter !gr", "nothing on this page begins so");
        press(&mut view, &fleet, "\x1b:filter !mis\t");
        assert_eq!(typed(&view), "filter !miss/s");
        press(&mut view, &fleet, "\x1b2:sort rx\t");
        assert_eq!(typed(&view), "sort rx_pps", "rxerr/s begins so as well");
        press(&mut view, &fleet, "\t\t");
        assert_eq!(typed(&view), "sort rxerr/s");
        let back = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        for expected in ["sort rx_bit/s", "sort rx_pps", "sort rx_total"] {
            let action = action_of(back, &view).unwrap();
            update(&mut view, action, &fleet);
            assert_eq!(typed(&view), expected);
        }
        press(&mut view, &fleet, "\n");
        assert_eq!(view.sort.get("Ports").map(|order| order.column), Some("RX total"));
    }

    #[test]
    fn what_was_run_is_recalled() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        press(&mut view, &fleet, ":ports\n:filter x\n:nonsense\n\x1b:");
        let up = KeyEvent::new(KeyCode::Up, KeyModifiers::NONE);
        for expected in ["filter x", "ports", "ports"] {
            let action = action_of(up, &view).unwrap();
            update(&mut view, action, &fleet);
            assert_eq!(typed(&view), expected);
        }
        press(&mut view, &fleet, "\n");
        assert_eq!(view.mode, InputMode::Browse);
    }
}
