//! [`Action`] → [`ViewState`]: carries out all actions of the user, without a terminal.

mod columns;
mod drill;
mod prompt;
mod sort;
mod tasks;

use crate::action::{Action, PromptAction, SelectionMotion};
use crate::commands::equivalent::NO_OFFER;
use crate::flows::{AppRun, CaptureAccess};
use crate::overlay;
use crate::state::{HelpPage, InputMode, PageTab, ViewFilter, ViewState};
use crate::tables;
use crate::timeline::Timeline;
use pmdscope_render::{CounterMode, Subject, Tone};
use pmdscope_telemetry::{FleetState, TotalsBaseline};

/// Steps of the interval keys, milliseconds.
const INTERVALS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopControl {
    /// Go on.
    Continue,
    /// Leave.
    Quit,
    /// Leave, with the last screen left on the terminal.
    QuitKeepingScreen,
    /// Stop until the process is continued.
    Suspend,
    /// The process was continued.
    Resume,
}

/// Carries out an action on a view that goes through time.
pub(crate) fn perform(
    view: &mut ViewState,
    action: Action,
    timeline: &mut impl Timeline,
) -> LoopControl {
    match action {
        // A command may be an action of the timeline.
        Action::Prompt(PromptAction::Run) => {
            return match prompt::update(view, PromptAction::Run, timeline.fleet()) {
                Some(action) => perform(view, action, timeline),
                None => LoopControl::Continue,
            };
        }
        Action::Hold => timeline.hold(),
        Action::Seek(to) => timeline.seek(to),
        // The key for a longer interval of samples makes a replay faster.
        Action::Slower | Action::Faster if timeline.hasten(action == Action::Slower) => {}
        other => return update(view, other, timeline.fleet()),
    }
    LoopControl::Continue
}

/// Carries out an action on the view of one moment.
pub(crate) fn update(view: &mut ViewState, action: Action, fleet: &FleetState) -> LoopControl {
    if acts_on_row(&action) {
        select_finding(view, fleet);
    }
    match action {
        Action::Quit => return LoopControl::Quit,
        Action::QuitKeepingScreen => return LoopControl::QuitKeepingScreen,
        Action::Suspend => return LoopControl::Suspend,
        Action::Help => toggle_help(view),
        Action::Go(tab) => go(view, tab),
        Action::Next | Action::Sort if is_help(view) => turn_help(view, 1),
        Action::Previous | Action::SortPrevious if is_help(view) => {
            turn_help(view, HelpPage::ALL.len() - 1);
        }
        Action::Next => go(view, view.tab.step(1)),
        Action::Previous => go(view, view.tab.step(PageTab::ALL.len() - 1)),
        Action::Move(motion) => travel(view, motion, fleet),
        Action::Select(subject) => {
            view.selected.insert(view.tab, subject);
        }
        Action::Open => open(view, fleet),
        Action::Details => details(view, fleet),
        Action::Back => back(view),
        Action::Sort => sort::by_neighbour(view, true, fleet),
        Action::SortPrevious => sort::by_neighbour(view, false, fleet),
        Action::SortBy { table, column } => sort::by_click(view, table, column),
        Action::Invert => sort::invert(view, fleet),
        Action::Expand => expand(view, fleet),
        Action::Reset => reset(view),
        Action::Filter => view.mode = InputMode::Filter { before: view.filter.text().to_owned() },
        Action::Type(letter) => view.filter.push(letter, &tables::of(view.tab, fleet, view)),
        Action::Erase => view.filter.pop(&tables::of(view.tab, fleet, view)),
        Action::Accept if view.filter.problem().is_none() => view.mode = InputMode::Browse,
        // Those of time are the timeline's, and what is not valid cannot be kept.
        Action::Accept | Action::Hold | Action::Seek(_) => {}
        Action::Mark => view.baseline = TotalsBaseline::mark(fleet),
        Action::Unmark => view.baseline = TotalsBaseline::default(),
        Action::Columns(action) => {
            columns::update(view, action, fleet, tables::selected_table(view, fleet));
        }
        Action::Bytes => view.counters.bytes = !view.counters.bytes,
        Action::Totals => view.counters.totals = !view.counters.totals,
        Action::Attach => attach(view, fleet),
        Action::Task(action) => tasks::update(view, action, fleet),
        Action::Prompt(action) => {
            if let Some(action) = prompt::update(view, action, fleet) {
                return update(view, action, fleet);
            }
        }
        Action::Faster => faster(view),
        Action::Slower => slower(view),
    }
    LoopControl::Continue
}

/// Help lies over the window that it describes, which is shown again afterwards.
fn toggle_help(view: &mut ViewState) {
    match std::mem::take(&mut view.mode) {
        InputMode::Help { over, scroll, .. } => (view.mode, view.scroll) = (*over, scroll),
        over => {
            let page = HelpPage::default();
            view.mode = InputMode::Help { page, over: Box::new(over), scroll: view.scroll };
            view.scroll = 0;
        }
    }
}

fn is_help(view: &ViewState) -> bool {
    matches!(view.mode, InputMode::Help { .. })
}

/// Shows the page of the help that is so many further.
fn turn_help(view: &mut ViewState, step: usize) {
    if let InputMode::Help { page, .. } = &mut view.mode {
        *page = page.step(step);
        view.scroll = 0;
    }
}

/// What an action does depends on the selected row.
fn acts_on_row(action: &Action) -> bool {
    matches!(
        action,
        Action::Move(_)
            | Action::Open
            | Action::Details
            | Action::Sort
            | Action::SortPrevious
            | Action::Invert
            | Action::Expand
            | Action::Columns(_)
            | Action::Task(_)
    )
}

/// Where findings are listed, one is always selected, as the screen shows it.
fn select_finding(view: &mut ViewState, fleet: &FleetState) {
    if view.mode == InputMode::Browse && view.tab.lists_findings() {
        let tables = tables::shown(view, fleet);
        if let Some(selected) = tables::selected(view, &tables).cloned() {
            view.selected.insert(view.tab, selected);
        }
    }
}

fn go(view: &mut ViewState, tab: PageTab) {
    view.tab = tab;
    view.mode = InputMode::Browse;
    view.origin = None;
}

fn open(view: &mut ViewState, fleet: &FleetState) {
    if view.mode != InputMode::Browse || !drill::follow(view, fleet) {
        details(view, fleet);
    }
}

fn details(view: &mut ViewState, fleet: &FleetState) {
    if view.selected().is_none() {
        travel(view, SelectionMotion::Top, fleet);
    }
    if let (InputMode::Browse, Some(subject)) = (&view.mode, view.selected().cloned()) {
        view.mode = InputMode::Detail(subject);
        view.scroll = 0;
    }
}

fn back(view: &mut ViewState) {
    match std::mem::take(&mut view.mode) {
        InputMode::Filter { before } => view.filter = ViewFilter::of(before),
        InputMode::Help { over, scroll, .. } => (view.mode, view.scroll) = (*over, scroll),
        InputMode::Detail(_) | InputMode::Commands | InputMode::Columns(_) | InputMode::Prompt => {}
        mode @ (InputMode::CaptureForm | InputMode::Tasks) => {
            view.mode = mode;
            tasks::leave(view);
        }
        InputMode::Browse if !view.filter.is_empty() => view.filter = ViewFilter::default(),
        InputMode::Browse => match view.origin.take() {
            Some(origin) => drill::go_back(view, origin),
            None => {
                view.selected.remove(&view.tab);
            }
        },
    }
}

fn travel(view: &mut ViewState, motion: SelectionMotion, fleet: &FleetState) {
    let page = usize::from(view.height.saturating_sub(6)).max(1);
    if view.mode != InputMode::Browse {
        // The newest line of a task is at the bottom, and the place that one begins from.
        let motion = if view.mode == InputMode::Tasks { motion.reversed() } else { motion };
        view.scroll = moved(view.scroll, motion, page, overlay::positions(view, fleet));
        return;
    }
    let rows: Vec<Subject> = tables::shown(view, fleet)
        .into_iter()
        .flat_map(|t| t.rows)
        .map(|row| row.subject)
        .collect();
    let now = view.selected().and_then(|selected| rows.iter().position(|row| row == selected));
    let next = match now {
        Some(now) => moved(now, motion, page, rows.len()),
        None if motion == SelectionMotion::Bottom => rows.len().saturating_sub(1),
        None => 0,
    };
    if let Some(subject) = rows.into_iter().nth(next) {
        view.selected.insert(view.tab, subject);
    }
}

fn moved(now: usize, motion: SelectionMotion, page: usize, length: usize) -> usize {
    let next = match motion {
        SelectionMotion::Up => now.saturating_sub(1),
        SelectionMotion::Down => now + 1,
        SelectionMotion::PageUp => now.saturating_sub(page),
        SelectionMotion::PageDown => now + page,
        SelectionMotion::Top => 0,
        SelectionMotion::Bottom => length,
    };
    next.min(length.saturating_sub(1))
}

/// A window that lies over the page hides its tables.
fn expand(view: &mut ViewState, fleet: &FleetState) {
    if view.mode == InputMode::Browse {
        let title = tables::selected_table(view, fleet).map(|table| (view.tab, table.title));
        view.expanded = if view.expanded_table().is_some() { None } else { title };
    }
}

fn reset(view: &mut ViewState) {
    view.filter = ViewFilter::of(view.default_filter.as_str());
    view.sort.clear();
    view.selected.clear();
    view.origin = None;
    view.expanded = None;
    view.counters = CounterMode::default();
    view.baseline = TotalsBaseline::default();
}

/// What was not asked for comes first: only when nothing is offered any more, it is ended.
fn attach(view: &mut ViewState, fleet: &FleetState) {
    if (view.tab, &view.mode) != (PageTab::Flows, &InputMode::Browse) {
        return;
    }
    if let Some(reason) = view.tasks.context.forbidden() {
        view.tasks.notice = Some((reason.to_owned(), Tone::Warn));
        return;
    }
    let Ok(traffic) = view.flows.shown() else { return };
    let run = |app: &str| {
        let model = fleet.find(app)?.model.as_ref()?;
        Some((app.to_owned(), AppRun::of(&model.sample.app)))
    };
    let offered = traffic.apps(|access| *access == CaptureAccess::Offered).filter_map(run);
    let is_new = |(app, run): &(String, AppRun)| view.attach.get(app) != Some(run);
    let offered = offered.filter(is_new).collect::<Vec<_>>();
    if offered.is_empty() && view.attach.is_empty() {
        view.tasks.notice = Some((NO_OFFER.to_owned(), Tone::Warn));
    } else if offered.is_empty() {
        view.attach.clear();
    } else {
        view.attach.extend(offered);
    }
}

fn slower(view: &mut ViewState) {
    let next = INTERVALS.iter().find(|&&ms| ms > view.interval_ms);
    view.interval_ms = next.copied().unwrap_or(view.interval_ms);
}

fn faster(view: &mut ViewState) {
    let next = INTERVALS.iter().rev().find(|&&ms| ms < view.interval_ms);
    view.interval_ms = next.copied().unwrap_or(view.interval_ms);
}

#[cfg(test)]
pub(crate) mod tests;
