//! Carries out actions of tasks: asks for what is to be done outside, or shows how that goes.

use pmdscope_telemetry::FleetState;

use crate::action::TaskAction;
use crate::clock::{NS_PER_SECOND, time_of_day};
use crate::commands::moment::file_time;
use crate::commands::{equivalent, holders, target, write};
use crate::state::{InputMode, ViewState};
use crate::task::form::CaptureForm;
use crate::task::{Task, TaskPlan, TaskRequest, TaskState};

/// Carries out an action of tasks.
pub(super) fn update(view: &mut ViewState, action: TaskAction, fleet: &FleetState) {
    let outcome = match action {
        TaskAction::Capture => capture(view, fleet),
        TaskAction::Write => write(view, fleet),
        TaskAction::Arm => arm(view, fleet),
        TaskAction::Holders => holders(view, fleet),
        TaskAction::Copy => {
            copy(view, fleet);
            Ok(())
        }
        TaskAction::Show => {
            show(view);
            Ok(())
        }
        TaskAction::Edit(request) => {
            view.tasks.form.edit(request);
            Ok(())
        }
        TaskAction::Toggle => {
            view.tasks.form.toggle();
            Ok(())
        }
        TaskAction::Start => start(view, fleet),
        TaskAction::Confirm if view.tasks.form.asks => begin(view),
        TaskAction::Confirm => Ok(()),
    };
    if let Err(reason) = outcome {
        view.tasks.tell(reason);
    }
}

/// Ends what runs, or prepares a capture.
fn capture(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    if view.tasks.is_running() {
        view.tasks.wanted.push(TaskRequest::Stop);
        return Ok(());
    }
    view.tasks.context.check_live()?;
    let target = target::of(view, fleet)?;
    view.tasks.form =
        CaptureForm::new(&target, &file_time(view, fleet), &view.tasks.context, fleet);
    view.mode = InputMode::CaptureForm;
    view.scroll = 0;
    Ok(())
}

/// Starts a prepared capture; one that may attach to an app is confirmed first.
fn start(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    let form = &mut view.tasks.form;
    if form.may_attach(fleet)? && !form.asks {
        form.asks = true;
        return Ok(());
    }
    // What was asked about is to be confirmed.
    if form.asks { Ok(()) } else { begin(view) }
}

fn begin(view: &mut ViewState) -> Result<(), String> {
    let plan = view.tasks.form.plan()?;
    let on_screen = plan.file.is_none();
    view.tasks.wanted.push(TaskRequest::Run(plan));
    view.mode = if on_screen { InputMode::Tasks } else { InputMode::Browse };
    view.scroll = 0;
    Ok(())
}

/// Writes the lost packets of a selected leak and shows them, otherwise writes a snapshot of all apps.
fn write(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    if let Some(reason) = view.tasks.context.forbidden() {
        return Err(reason.to_owned());
    }
    let request = match write::leak_plan(view, fleet) {
        Some(plan) => {
            view.tasks.context.check_live()?;
            (view.mode, view.scroll) = (InputMode::Tasks, 0);
            TaskRequest::Run(plan)
        }
        None => TaskRequest::Snapshot(Box::new(write::snapshot(view, fleet))),
    };
    view.tasks.wanted.push(request);
    Ok(())
}

/// Arms the stamps of the app that is selected.
fn arm(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    view.tasks.context.check_live()?;
    let app = target::app(view, fleet)?;
    let command = equivalent::arm(&app, &view.tasks.context);
    let until = fleet.realtime_ns + equivalent::ARM_SECONDS * NS_PER_SECOND;
    let remark = format!(", until {}", time_of_day(until, &view.zone));
    view.tasks.wanted.push(TaskRequest::Run(TaskPlan { command, remark, ..TaskPlan::default() }));
    Ok(())
}

/// Has the holders of mbufs looked for, and shows them in the window of tasks.
fn holders(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    let plan = holders::plan(view, fleet)?;
    // A scan reads much memory: two at a time would only be slower.
    let command = plan.command.to_string();
    let mut running = view.tasks.tasks.iter().filter(|task| task.state.is_running());
    if !running.any(|task| task.commands.contains(&command)) {
        view.tasks.wanted.push(TaskRequest::Run(plan));
    }
    (view.mode, view.scroll) = (InputMode::Tasks, 0);
    Ok(())
}

fn copy(view: &mut ViewState, fleet: &FleetState) {
    let command = equivalent::shown(view, fleet);
    view.tasks.wanted.push(TaskRequest::Copy(command.to_string()));
    view.mode = InputMode::Commands;
    view.scroll = 0;
}

fn show(view: &mut ViewState) {
    view.mode = if view.mode == InputMode::Tasks { InputMode::Browse } else { InputMode::Tasks };
    view.scroll = 0;
}

/// `Esc`: in the window of tasks it ends a task that writes no file, and otherwise closes the window; a
/// question about a capture leads back to its command line.
pub(super) fn leave(view: &mut ViewState) {
    let shown = |task: &Task| task.on_screen && task.state == TaskState::Running;
    match view.mode {
        InputMode::Tasks if view.tasks.tasks.iter().any(shown) => {
            view.tasks.wanted.push(TaskRequest::Stop);
        }
        InputMode::CaptureForm if view.tasks.form.asks => view.tasks.form.asks = false,
        _ => view.mode = InputMode::Browse,
    }
}

#[cfg(test)]
mod holders_tests;
#[cfg(test)]
mod tests;
