//! `w`: the lost packets of a leak, or a snapshot of all apps.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::finding::FindingSubject;

use super::moment::{file_time, of_moment};
use super::{holders, target};
use crate::report;
use crate::state::ViewState;
use crate::task::command::{self, CommandLine};
use crate::task::{OutputFile, Snapshot, TaskPlan};

/// Writes the lost packets of the selected leak; `None` where no leak is selected.
pub(crate) fn leak_plan(view: &ViewState, fleet: &FleetState) -> Option<TaskPlan> {
    let app = view.subject().filter(|subject| is_leak(subject, view, fleet))?.app();
    let file = {
        let (app, moment) = (command::file_name(app), file_time(view, fleet));
        format!("{app}-leaks-{moment}{}", command::CAPTURE_EXTENSION)
    };
    let command = CommandLine::new(["leaks", "-a", app, "--write", &file]);
    let command = command.with_config(&view.tasks.context);
    let show = Some(CommandLine::new(["capture", "-nn", "-r", &file]));
    let file = Some(OutputFile { name: file, is_proposed: true });
    Some(TaskPlan { command, file, show, ..TaskPlan::default() })
}

/// It is a place or a pool that loses mbufs, or a finding about one.
fn is_leak(subject: &Subject, view: &ViewState, fleet: &FleetState) -> bool {
    match target::best(subject, view, fleet) {
        Some(Subject::Site { .. }) => true,
        Some(Subject::Pool { app, pool } | Subject::Ledger { app, pool }) => {
            may_lose(&app, &pool, view, fleet)
        }
        _ => false,
    }
}

/// Its ledger reports that a pool has lost mbufs; where there is none, a finding is about the pool, and a scan
/// of the memory of the app can tell.
fn may_lose(app: &str, pool: &str, view: &ViewState, fleet: &FleetState) -> bool {
    let context = &view.tasks.context;
    if context.recording.is_some() {
        return false;
    }
    if holders::has_ledger(app, fleet) {
        let model = fleet.find(app).and_then(|app| app.model.as_ref());
        let mut ledgers = model.iter().flat_map(|model| &model.sample.ledger);
        return ledgers.any(|ledger| ledger.name == pool && ledger.leaked > 0);
    }
    let about = FindingSubject::Pool(pool.to_owned());
    let mut findings = fleet.findings().into_iter().map(|(_, finding)| finding);
    !context.no_xray && findings.any(|found| found.app == app && found.subject == about)
}

/// All apps, at the moment that is shown.
pub(crate) fn snapshot(view: &ViewState, fleet: &FleetState) -> Snapshot {
    let name = format!("pmdscope-{}", file_time(view, fleet));
    // A moment that has passed cannot be written by a command, unless it was recorded.
    let past = view.time_bar.is_some() && view.tasks.context.recording.is_none();
    let traffic = view.flows.shown().is_ok().then(|| view.flows.traffic.clone()).flatten();
    let captured = traffic.as_ref().is_some_and(|traffic| !traffic.taps.is_empty());
    let command = |args: &[&str], extension: &str| {
        let command = CommandLine::new(args.iter().copied());
        let command = command.with(captured.then_some("--flows"));
        let command = of_moment(command, view, fleet);
        CommandLine { output: Some(format!("{name}.{extension}")), ..command }
    };
    let commands = if past {
        Vec::new()
    } else {
        vec![command(&["top", "--once", "--json"], "json"), command(&["top", "--once"], "txt")]
    };
    let text = report::text(fleet, view);
    Snapshot { name, commands, text, fleet: fleet.clone(), traffic }
}
