//! `w`: the lost packets of a leak, or a snapshot of all apps.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;

use super::command::{self, CommandLine};
use super::{
    OutputFile, Snapshot, TaskPlan, TaskRequest, check_live, equivalent, forbidden, moment, target,
};
use crate::report;
use crate::view::{InputMode, ViewState};

/// Writes the lost packets of a selected leak and shows them, otherwise writes a snapshot of all apps.
pub(super) fn write(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    if let Some(reason) = forbidden(view) {
        return Err(reason.to_owned());
    }
    let request = match leak_plan(view, fleet) {
        Some(plan) => {
            check_live(view)?;
            (view.mode, view.scroll) = (InputMode::Tasks, 0);
            TaskRequest::Run(plan)
        }
        None => TaskRequest::Snapshot(Box::new(snapshot(view, fleet))),
    };
    view.tasks.wanted.push(request);
    Ok(())
}

/// Writes the lost packets of the selected leak; `None` where no leak is selected.
pub(super) fn leak_plan(view: &ViewState, fleet: &FleetState) -> Option<TaskPlan> {
    let app = view.subject().filter(|subject| is_leak(subject, view, fleet))?.app();
    let file = {
        let (app, moment) = (command::file_name(app), moment(view, fleet));
        format!("{app}-leaks-{moment}{}", command::CAPTURE_EXTENSION)
    };
    let command = CommandLine::new(["leaks", "-a", app, "--write", &file]);
    let command = command.with_config(&view.tasks.context);
    let show = Some(CommandLine::new(["capture", "-nn", "-r", &file]));
    let file = Some(OutputFile { name: file, is_proposed: true });
    Some(TaskPlan { command, file, show, ..TaskPlan::default() })
}

/// It is a place that loses mbufs, or a finding about one.
fn is_leak(subject: &Subject, view: &ViewState, fleet: &FleetState) -> bool {
    matches!(target::best(subject, view, fleet), Some(Subject::Site { .. }))
}

pub(super) fn snapshot(view: &ViewState, fleet: &FleetState) -> Snapshot {
    let name = format!("pmdscope-{}", moment(view, fleet));
    // A moment that has passed cannot be written by a command, unless it was recorded.
    let past = view.time_bar.is_some() && view.tasks.context.recording.is_none();
    let command = |args: &[&str], extension: &str| {
        let command = CommandLine::new(args.iter().copied());
        let command = equivalent::of_moment(command, view, fleet);
        CommandLine { output: Some(format!("{name}.{extension}")), ..command }
    };
    let commands = if past {
        Vec::new()
    } else {
        vec![command(&["top", "--once", "--json"], "json"), command(&["top", "--once"], "txt")]
    };
    let text = report::text(fleet, view);
    let traffic = view.flows.shown().is_ok().then(|| view.flows.traffic.clone()).flatten();
    Snapshot { name, commands, text, fleet: fleet.clone(), traffic }
}
