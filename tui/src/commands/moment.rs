//! Command lines and names of files for the moment that is shown.

use pmdscope_telemetry::FleetState;

use crate::state::ViewState;
use crate::task::command::{self, CommandLine};

/// That command for the apps and the moment that are shown.
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
    let command = command.with(["-r", recording]);
    // A check is of a whole recording.
    if command.args.first().is_some_and(|name| name == "check") {
        return command;
    }
    let ns = view.time_bar.as_ref().map_or(fleet.realtime_ns, |bar| bar.realtime_ns);
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default();
    command.with(["--at", &time.to_string()])
}

/// The shown moment, for names of files.
pub(crate) fn file_time(view: &ViewState, fleet: &FleetState) -> String {
    let ns = view.time_bar.as_ref().map_or(fleet.realtime_ns, |bar| bar.realtime_ns);
    command::compact_time(ns, &view.zone)
}
