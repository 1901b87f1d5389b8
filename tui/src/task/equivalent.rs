//! The command lines that show, or do, the same as the screen.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;

use super::command::CommandLine;
use super::form::CaptureForm;
use super::target::{self, filter};
use super::write::{leak_plan, snapshot};
use super::{ARM_SECONDS, TaskAction, check_live, forbidden, holders, moment};
use crate::action::Action;
use crate::view::{PageTab, ViewState};

/// Commands with what they are for: that of the selection first, then those of the keys.
pub(super) fn commands(view: &ViewState, fleet: &FleetState) -> Vec<(String, CommandLine)> {
    let key = |action| view.keys.label(&Action::Task(action)).unwrap_or_default();
    let mut commands = vec![(String::new(), shown(view, fleet))];
    if let Some(Subject::Finding { .. }) = view.subject() {
        commands.push(("findings".to_owned(), of_moment(CommandLine::new(["check"]), view, fleet)));
    }
    if let Ok(target) = check_live(view).and_then(|()| target::of(view, fleet)) {
        let form = CaptureForm::new(&target, &moment(view, fleet), &view.tasks.context, fleet);
        commands.extend(form.plan().ok().map(|plan| (key(TaskAction::Capture), plan.command)));
    }
    if forbidden(view).is_none() {
        let written = match leak_plan(view, fleet) {
            Some(plan) if check_live(view).is_ok() => {
                std::iter::once(plan.command).chain(plan.show).collect()
            }
            Some(_) => Vec::new(),
            None => snapshot(view, fleet).commands,
        };
        commands.extend(written.into_iter().map(|command| (key(TaskAction::Write), command)));
    }
    if let Ok(app) = check_live(view).and_then(|()| target::app(view, fleet)) {
        let seconds = ARM_SECONDS.to_string();
        let arm = CommandLine::new(["leaks", "-a", &app, "--arm", &seconds]);
        commands.push((key(TaskAction::Arm), arm.with_config(&view.tasks.context)));
    }
    if let Ok(plan) = holders::plan(view, fleet) {
        commands.push((key(TaskAction::Holders), plan.command));
    }
    commands
}

/// The command that shows the selected row, or the page.
fn shown(view: &ViewState, fleet: &FleetState) -> CommandLine {
    match view.subject() {
        Some(subject) if !subject.app().is_empty() => of_subject(subject, view, fleet),
        _ => of_page(view, fleet),
    }
}

fn of_page(view: &ViewState, fleet: &FleetState) -> CommandLine {
    let args: &[&str] = match view.tab {
        PageTab::Ports => &["netstat", "-i"],
        PageTab::Pools => &["leaks"],
        PageTab::Lcores if view.tasks.context.recording.is_none() => &["lcores"],
        PageTab::Flows if view.tasks.context.recording.is_none() => &["netstat"],
        PageTab::Raw => &["top", "--page", "raw"],
        _ => &["top", "--once"],
    };
    of_moment(CommandLine::new(args.iter().copied()), view, fleet)
}

fn of_subject(subject: &Subject, view: &ViewState, fleet: &FleetState) -> CommandLine {
    let app = subject.app();
    let of_app = |args: &[&str]| {
        of_moment_of(CommandLine::new(args.iter().copied()).with(["-a", app]), view, fleet)
    };
    let live = view.tasks.context.recording.is_none();
    match subject {
        Subject::Finding { .. } => of_app(&["check"]),
        Subject::Port { .. } => of_app(&["netstat", "-i"]),
        Subject::Queue { port, .. } | Subject::Queues { port, .. } | Subject::Load { port, .. } => {
            of_app(&["netstat", "--queues", "--port", &format!("{app}:{port}")])
        }
        // A recording has no holders of an app without a ledger.
        Subject::Pool { pool, .. } | Subject::Ledger { pool, .. }
            if live || holders::has_ledger(app, fleet) =>
        {
            of_app(&["leaks", "--explain", pool])
        }
        Subject::Site { .. } | Subject::Stage { .. } | Subject::Lost { .. } => of_app(&["leaks"]),
        Subject::Lcore { .. } if live => of_app(&["lcores"]),
        Subject::Tap { .. } => of_app(&["netstat"]),
        Subject::Reply { .. } => of_app(&["top", "--page", "raw"]),
        Subject::Conversation { key, .. } => of_app(&["netstat"]).with([filter(key).0.as_str()]),
        _ => of_app(&["top", "--once"]),
    }
}

/// The same for the apps and the moment that are shown.
pub(super) fn of_moment(command: CommandLine, view: &ViewState, fleet: &FleetState) -> CommandLine {
    let command = match &view.tasks.context.app {
        Some(app) => command.with(["-a", app]),
        None => command,
    };
    of_moment_of(command, view, fleet)
}

/// The same where the command has an app already.
pub(super) fn of_moment_of(
    command: CommandLine,
    view: &ViewState,
    fleet: &FleetState,
) -> CommandLine {
    let command = command.with_config(&view.tasks.context);
    let Some(recording) = &view.tasks.context.recording else { return command };
    let command = command.with(["--replay", recording]);
    // A check is of a whole recording.
    if command.args.first().is_some_and(|name| name == "check") {
        return command;
    }
    let ns = view.time_bar.as_ref().map_or(fleet.realtime_ns, |bar| bar.realtime_ns);
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default();
    command.with(["--at", &time.to_string()])
}
