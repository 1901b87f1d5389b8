//! The command lines that show, or do, the same as the screen.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;

use super::holders;
use super::moment::{file_time, of_moment, of_moment_of};
use super::target::{self, filter};
use super::write::{leak_plan, snapshot};
use crate::action::{Action, TaskAction};
use crate::flows::{AppTraffic, CaptureAccess};
use crate::state::{PageTab, ViewState};
use crate::task::TaskContext;
use crate::task::command::CommandLine;
use crate::task::form::CaptureForm;

/// How long stamps are armed, seconds.
pub(crate) const ARM_SECONDS: u64 = 60;

/// Shown where no app needs a helper process.
pub(crate) const NO_OFFER: &str =
    "there is no app to attach to: pmdscope-pdump is for those without libpmdscope";

/// A command, or why there is none, and what it is for: the name of its key, or `page` or `findings`.
type KeyCommand = (String, Result<CommandLine, String>);

/// Besides that of the selection: the commands of the page, and of all keys that run a task.
pub(crate) fn commands(view: &ViewState, fleet: &FleetState) -> Vec<KeyCommand> {
    let key = |action| view.keys.label(&action).unwrap_or_default();
    let task = |action| key(Action::Task(action));
    let mut commands = vec![("page".to_owned(), Ok(of_display(view, fleet)))];
    if let Some(Subject::Finding { .. }) = view.subject() {
        let check = of_moment(CommandLine::new(["check"]), view, fleet);
        commands.push(("findings".to_owned(), Ok(check)));
    }
    let capture =
        view.tasks.context.check_live().and_then(|()| target::of(view, fleet)).and_then(|target| {
            let form =
                CaptureForm::new(&target, &file_time(view, fleet), &view.tasks.context, fleet);
            Ok(form.plan()?.command)
        });
    commands.push((task(TaskAction::Capture), capture));
    commands.extend(written(view, fleet).into_iter().map(|it| (task(TaskAction::Write), it)));
    let armed = view.tasks.context.check_live().and_then(|()| target::app(view, fleet));
    commands.push((task(TaskAction::Arm), armed.map(|app| arm(&app, &view.tasks.context))));
    let holders = holders::plan(view, fleet).map(|plan| plan.command);
    commands.push((task(TaskAction::Holders), holders));
    if view.tab == PageTab::Flows {
        commands.extend(attached(view).into_iter().map(|it| (key(Action::Attach), it)));
    }
    commands
}

/// What the key does that writes.
fn written(view: &ViewState, fleet: &FleetState) -> Vec<Result<CommandLine, String>> {
    if let Some(reason) = view.tasks.context.forbidden() {
        return vec![Err(reason.to_owned())];
    }
    let commands: Vec<_> = match leak_plan(view, fleet) {
        Some(plan) => match view.tasks.context.check_live() {
            Ok(()) => std::iter::once(plan.command).chain(plan.show).collect(),
            Err(reason) => return vec![Err(reason)],
        },
        None => snapshot(view, fleet).commands,
    };
    if commands.is_empty() {
        return vec![Err("only top has this moment: pmdscope record keeps the past".to_owned())];
    }
    commands.into_iter().map(Ok).collect()
}

/// Arms the stamps of an app for a while.
pub(crate) fn arm(app: &str, context: &TaskContext) -> CommandLine {
    CommandLine::new(["leaks", "-a", app, "--arm", &ARM_SECONDS.to_string()]).with_config(context)
}

/// Commands that count the packets of the apps that the display would attach to, or is attached to.
fn attached(view: &ViewState) -> Vec<Result<CommandLine, String>> {
    let traffic = match (view.tasks.context.forbidden(), view.flows.shown()) {
        (Some(reason), _) | (None, Err(reason)) => return vec![Err(reason.to_owned())],
        (None, Ok(traffic)) => traffic,
    };
    let is_meant = |tap: &&AppTraffic| {
        tap.access == CaptureAccess::Offered || view.attach.contains_key(&tap.app)
    };
    let count = |tap: &AppTraffic| {
        let command = CommandLine::new(["netstat", "-a", &tap.app, "-c"]);
        Ok(command.with_config(&view.tasks.context))
    };
    let commands: Vec<_> = traffic.taps.iter().filter(is_meant).map(count).collect();
    if commands.is_empty() { vec![Err(NO_OFFER.to_owned())] } else { commands }
}

/// A command that starts a display with the present settings.
fn of_display(view: &ViewState, fleet: &FleetState) -> CommandLine {
    let context = &view.tasks.context;
    let page = view.tab.title().to_lowercase();
    let mut command = CommandLine::new(["top", "--page", &page]);
    if !view.filter.is_empty() {
        command = command.with(["--filter", view.filter.text()]);
    }
    if context.recording.is_none() {
        command = command.with(["-i", &(view.interval_ms as f64 / 1000.0).to_string()]);
    }
    command = command.with(context.read_only.then_some("--read-only"));
    command = command.with(context.no_xray.then_some("--no-xray"));
    of_moment(command, view, fleet)
}

/// The command that shows the selected row, or the page.
pub(crate) fn shown(view: &ViewState, fleet: &FleetState) -> CommandLine {
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
        PageTab::Findings => &["check"],
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
