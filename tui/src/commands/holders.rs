//! `m`: who holds the mbufs of a pool. For apps with libpmdscope the ledger reports it; for others a
//! scan of their memory does, which only reads.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;

use super::moment::of_moment_of;
use super::target;
use crate::action::Action;
use crate::keys::KeyContext;
use crate::panels::pools;
use crate::state::{PageTab, ViewState};
use crate::task::TaskPlan;
use crate::task::command::CommandLine;
use crate::timeline::SeekTarget;

/// The command, for the pool that the selection means, or else all pools of the app.
///
/// # Errors
/// Why this is unknown.
pub(crate) fn plan(view: &ViewState, fleet: &FleetState) -> Result<TaskPlan, String> {
    let (app, pool) = pool(view, fleet)?;
    check(&app, view, fleet)?;
    let command = CommandLine::new(["leaks", "--explain"]).with(pool.as_deref()).with(["-a", &app]);
    let command = of_moment_of(command, view, fleet);
    let about = format!("who holds the mbufs of {}", pool.as_ref().unwrap_or(&app));
    Ok(TaskPlan { command, about, ..TaskPlan::default() })
}

/// The pool of the selected row, or of what a finding is about; without a selection that of the graph.
fn pool(view: &ViewState, fleet: &FleetState) -> Result<(String, Option<String>), String> {
    let subject = view.subject().and_then(|subject| target::best(subject, view, fleet));
    match subject {
        Some(
            Subject::Pool { app, pool }
            | Subject::Ledger { app, pool }
            | Subject::Site { app, pool, .. }
            | Subject::Lost { app, pool, .. },
        ) => Ok((app, Some(pool))),
        None if view.tab == PageTab::Pools && view.subject().is_none() => {
            match pools::shown(view, fleet) {
                Some((app, pool, _)) => Ok((app.name.clone(), Some(pool.name.clone()))),
                None => Ok((target::named_app(view, fleet)?, None)),
            }
        }
        _ => Ok((target::named_app(view, fleet)?, None)),
    }
}

/// Whether the app itself reports where its mbufs are.
pub(super) fn has_ledger(app: &str, fleet: &FleetState) -> bool {
    let model = fleet.find(app).and_then(|app| app.model.as_ref());
    model.is_some_and(|model| !model.sample.ledger.is_empty())
}

/// Whether the command can report it for the shown moment.
fn check(app: &str, view: &ViewState, fleet: &FleetState) -> Result<(), String> {
    let has_ledger = has_ledger(app, fleet);
    let context = &view.tasks.context;
    if context.recording.is_some() {
        let why = "this is a recording: it has holders of mbufs of apps with libpmdscope only";
        return if has_ledger { Ok(()) } else { Err(why.to_owned()) };
    }
    if view.time_bar.is_some() {
        let newest: &[_] = &[(&[Action::Seek(SeekTarget::Newest)][..], "returns there")];
        let keys = view.keys.remark(KeyContext::Page, newest);
        return Err(format!("holders of mbufs are found by a live scan{keys}"));
    }
    if context.no_xray && !has_ledger {
        return Err(
            "top was started with --no-xray: it does not read the memory of apps".to_owned()
        );
    }
    Ok(())
}
