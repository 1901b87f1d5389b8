//! `m`: who holds the mbufs of a pool. The ledger tells it of apps with libpmdscope; of others a scan of
//! their memory, which only reads.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;

use super::command::CommandLine;
use super::{TaskPlan, TaskRequest, equivalent, target};
use crate::action::Action;
use crate::panels::pools;
use crate::timeline::SeekTarget;
use crate::view::{InputMode, PageTab, ViewState};

/// Has them looked for, and shows them in the window of tasks.
pub(super) fn show(view: &mut ViewState, fleet: &FleetState) -> Result<(), String> {
    let plan = plan(view, fleet)?;
    // A scan reads much memory: two at a time would only be slower.
    let command = plan.command.to_string();
    let mut running = view.tasks.tasks.iter().filter(|task| task.state.is_running());
    if !running.any(|task| task.commands.contains(&command)) {
        view.tasks.wanted.push(TaskRequest::Run(plan));
    }
    (view.mode, view.scroll) = (InputMode::Tasks, 0);
    Ok(())
}

/// The command, for the pool that the selection means, or else all pools of the app.
///
/// # Errors
/// Why nobody can tell.
pub(super) fn plan(view: &ViewState, fleet: &FleetState) -> Result<TaskPlan, String> {
    let (app, pool) = pool(view, fleet)?;
    check(&app, view, fleet)?;
    let command = CommandLine::new(["leaks", "--explain"]).with(pool.as_deref()).with(["-a", &app]);
    let command = equivalent::of_moment_of(command, view, fleet);
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

/// Whether the app itself tells where its mbufs are.
pub(super) fn has_ledger(app: &str, fleet: &FleetState) -> bool {
    let model = fleet.find(app).and_then(|app| app.model.as_ref());
    model.is_some_and(|model| !model.sample.ledger.is_empty())
}

/// Whether the command can tell it of the shown moment.
fn check(app: &str, view: &ViewState, fleet: &FleetState) -> Result<(), String> {
    let has_ledger = has_ledger(app, fleet);
    let context = &view.tasks.context;
    if context.recording.is_some() {
        let why = "this is a recording: it has holders of mbufs of apps with libpmdscope only";
        return if has_ledger { Ok(()) } else { Err(why.to_owned()) };
    }
    if view.time_bar.is_some() {
        let newest: &[_] = &[(&[Action::Seek(SeekTarget::Newest)][..], "returns there")];
        let keys = view.keys.remark(crate::keys::KeyContext::Page, newest);
        return Err(format!("holders of mbufs are found by a live scan{keys}"));
    }
    if context.no_xray && !has_ledger {
        return Err(
            "top was started with --no-xray: it does not read the memory of apps".to_owned()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::TaskContext;
    use super::super::tests::{asked, moment_fleet, notice, select};
    use super::*;
    use crate::fixture;
    use crate::timeline::TimeSpan;
    use crate::timeline::time_bar::{TimeBar, TimeBarKind};
    use crate::update::tests::press;
    use crate::update::update;

    #[test]
    fn they_are_those_of_the_selected_pool_or_app() {
        let (mut view, fleet) = (fixture::view(), moment_fleet());
        for (tab, title, command) in [
            (PageTab::Pools, "pool mb_pool_0 of testpmd", "mb_pool_0 -a testpmd"),
            (
                PageTab::Pools,
                "ledger of pool reflector_rx of reflector",
                "reflector_rx -a reflector",
            ),
            (PageTab::Pools, "leak at app_fwd.c:18 of reflector", "reflector_rx -a reflector"),
            (
                PageTab::Overview,
                "pool_exhausting: reflector reflector_rx",
                "reflector_rx -a reflector",
            ),
            (
                PageTab::Overview,
                "leak: reflector reflector_rx app_fwd.c:18",
                "reflector_rx -a reflector",
            ),
            (PageTab::Overview, "app testpmd", "-a testpmd"),
        ] {
            select(&mut view, &fleet, tab, title);
            press(&mut view, &fleet, "m");
            assert_eq!(
                asked(&mut view),
                [format!("pmdscope leaks --explain {command}")],
                "{title}"
            );
            assert_eq!(view.mode, InputMode::Tasks);
            press(&mut view, &fleet, "\x1b");
        }
        // The pool of the graph.
        view.selected.clear();
        press(&mut view, &fleet, "3m");
        assert_eq!(asked(&mut view), ["pmdscope leaks --explain reflector_rx -a reflector"]);
        press(&mut view, &fleet, "2m");
        assert_eq!(notice(&view), "select a row of an app first");
    }

    #[test]
    fn they_may_be_read_where_nothing_may_be_changed() {
        let (mut view, fleet) = (fixture::view(), moment_fleet());
        view.tasks.context.read_only = true;
        select(&mut view, &fleet, PageTab::Pools, "pool mb_pool_0 of testpmd");
        press(&mut view, &fleet, "m");
        assert_eq!(asked(&mut view).len(), 1);
    }

    #[test]
    fn nobody_tells_them_of_memory_that_is_not_read() {
        let (mut view, fleet) = (fixture::view(), moment_fleet());
        let stock = "pool mb_pool_0 of testpmd";
        let linked = "pool reflector_rx of reflector";
        let said = |view: &mut ViewState, title| {
            view.mode = InputMode::Browse;
            view.tasks.notice = None;
            select(view, &fleet, PageTab::Pools, title);
            press(view, &fleet, "m");
            (asked(view).pop().unwrap_or_default(), notice(view))
        };
        view.tasks.context.no_xray = true;
        assert!(said(&mut view, stock).1.contains("--no-xray"));
        assert!(said(&mut view, linked).1.is_empty());
        let recording = Some("x.zst".to_owned());
        view.tasks.context = TaskContext { recording, ..TaskContext::default() };
        assert!(said(&mut view, stock).1.starts_with("this is a recording"));
        let (command, _) = said(&mut view, linked);
        let at = "--replay x.zst --at 2026-01-02T03:04:05Z";
        assert_eq!(command, format!("pmdscope leaks --explain reflector_rx -a reflector {at}"));
        view.tasks.context = TaskContext::default();
        let span = TimeSpan { oldest: 1, newest: 2 };
        let place = TimeBarKind::Past { ago_ns: 1 };
        let past = TimeBar { at: 1, realtime_ns: 1, span, marks: Vec::new(), place, remark: None };
        view.time_bar = Some(past);
        let why = "holders of mbufs are found by a live scan  (End returns there)";
        assert_eq!(said(&mut view, stock), (String::new(), why.to_owned()));
    }

    #[test]
    fn one_search_of_a_pool_runs_at_a_time() {
        let (mut view, fleet) = (fixture::view(), moment_fleet());
        select(&mut view, &fleet, PageTab::Pools, "pool mb_pool_0 of testpmd");
        let command = plan(&view, &fleet).unwrap().command;
        view.tasks.follow(std::sync::Arc::new(vec![super::super::Task::new(&[command], true)]));
        press(&mut view, &fleet, "m");
        assert!(asked(&mut view).is_empty() && view.mode == InputMode::Tasks);
        update(&mut view, Action::Back, &fleet);
        assert_eq!(asked(&mut view), ["stop"]);
    }
}
