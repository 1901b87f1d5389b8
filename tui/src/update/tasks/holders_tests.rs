//! Tests of the key that shows who holds mbufs.

use std::sync::Arc;

use super::tests::{asked, moment_fleet, notice, select};
use super::*;
use crate::action::Action;
use crate::fixture;
use crate::state::PageTab;
use crate::task::TaskContext;
use crate::timeline::TimeSpan;
use crate::timeline::time_bar::{TimeBar, TimeBarKind};
use crate::update::tests::press;
use crate::update::update as act;

#[test]
fn they_are_those_of_the_selected_pool_or_app() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    for (tab, title, command) in [
        (PageTab::Pools, "pool mb_pool_0 of testpmd", "mb_pool_0 -a testpmd"),
        (PageTab::Pools, "ledger of pool reflector_rx of reflector", "reflector_rx -a reflector"),
        (PageTab::Pools, "leak at app_fwd.c:18 of reflector", "reflector_rx -a reflector"),
        (PageTab::Overview, "pool_exhausting: reflector reflector_rx", "reflector_rx -a reflector"),
        (
            PageTab::Overview,
            "leak: reflector reflector_rx app_fwd.c:18",
            "reflector_rx -a reflector",
        ),
        (PageTab::Overview, "app testpmd", "-a testpmd"),
    ] {
        select(&mut view, &fleet, tab, title);
        press(&mut view, &fleet, "m");
        assert_eq!(asked(&mut view), [format!("pmdscope leaks --explain {command}")], "{title}");
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
    let at = "-r x.zst --at 2026-01-02T03:04:05Z";
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
    let command = holders::plan(&view, &fleet).unwrap().command;
    view.tasks.follow(Arc::new(vec![Task::new(&[command], true)]));
    press(&mut view, &fleet, "m");
    assert!(asked(&mut view).is_empty() && view.mode == InputMode::Tasks);
    act(&mut view, Action::Back, &fleet);
    assert_eq!(asked(&mut view), ["stop"]);
}
