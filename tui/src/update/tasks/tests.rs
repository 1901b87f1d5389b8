//! Tests of what the keys ask for, and of the windows.

use std::sync::Arc;

use insta::assert_snapshot;
use pmdscope_render::Subject;
use tui_input::InputRequest;

use super::*;
use crate::action::Action;
use crate::commands::equivalent::NO_OFFER;
use crate::fixture;
use crate::flows::{CaptureAccess, CapturedTraffic};
use crate::overlay;
use crate::screen::tests::text;
use crate::state::PageTab;
use crate::tables;
use crate::task::TaskContext;
use crate::task::command::CommandLine;
use crate::timeline::TimeSpan;
use crate::timeline::time_bar::{TimeBar, TimeBarKind};
use crate::update::tests::press;
use crate::update::update as act;
use pmdscope_telemetry::finding::{Finding, FindingSubject};

pub(super) fn select(view: &mut ViewState, fleet: &FleetState, tab: PageTab, title: &str) {
    act(view, Action::Go(tab), fleet);
    let tables = tables::shown(view, fleet);
    let mut subjects = tables.iter().flat_map(|table| &table.rows).map(|row| &row.subject);
    let subject = subjects.find(|subject| subject.title() == title);
    let subject = subject.unwrap_or_else(|| panic!("no row {title}")).clone();
    act(view, Action::Select(subject), fleet);
}

pub(super) fn moment_fleet() -> FleetState {
    let mut fleet = fixture::fleet();
    fleet.realtime_ns = 1_767_323_045_000_000_000;
    fleet
}

/// The command lines that were asked for since the last time.
pub(super) fn asked(view: &mut ViewState) -> Vec<String> {
    let requests = std::mem::take(&mut view.tasks.wanted).into_iter();
    requests
        .flat_map(|request| match request {
            TaskRequest::Run(plan) => {
                [plan.command].iter().chain(&plan.show).map(ToString::to_string).collect()
            }
            TaskRequest::Snapshot(snapshot) => {
                snapshot.commands.iter().map(ToString::to_string).collect()
            }
            TaskRequest::Stop => vec!["stop".to_owned()],
            TaskRequest::Copy(text) => vec![format!("copy {text}")],
            TaskRequest::Over => Vec::new(),
        })
        .collect()
}

pub(super) fn notice(view: &ViewState) -> String {
    view.tasks.notice.as_ref().map(|(text, _)| text.clone()).unwrap_or_default()
}

#[test]
fn a_capture_is_of_the_selected_row() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    for (tab, title, command) in [
        (
            PageTab::Overview,
            "app reflector",
            "-i reflector:any -c 10000 --duration 10 -w reflector-any-20260102-030405.pcapng",
        ),
        (
            PageTab::Ports,
            "port reflector:0",
            "-i reflector:0 -c 10000 --duration 10 -w reflector-0-20260102-030405.pcapng",
        ),
        (
            PageTab::Ports,
            "rx queue reflector:0:1",
            "-i reflector:0:1 -Q in -c 10000 --duration 10 -w reflector-0-1-20260102-030405.pcapng",
        ),
        (
            PageTab::Overview,
            "rx_missed: reflector net_vhost0",
            "-i reflector:0 -c 10000 --duration 10 -w reflector-0-20260102-030405.pcapng",
        ),
    ] {
        select(&mut view, &fleet, tab, title);
        press(&mut view, &fleet, "c\n");
        assert_eq!(asked(&mut view), [format!("pmdscope capture {command}")], "{title}");
        assert_eq!(view.mode, InputMode::Browse);
    }
}

#[test]
fn a_conversation_becomes_a_filter() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    act(&mut view, Action::Go(PageTab::Flows), &fleet);
    let tables = tables::shown(&view, &fleet);
    let subjects = tables.iter().flat_map(|table| &table.rows).map(|row| row.subject.clone());
    let conversations = subjects.filter(|s| matches!(s, Subject::Conversation { .. }));
    let mut filters = Vec::new();
    for subject in conversations {
        act(&mut view, Action::Select(subject), &fleet);
        press(&mut view, &fleet, "c");
        let words = shlex::split(view.tasks.form.text().0).unwrap();
        filters.push(words.last().unwrap().clone());
        press(&mut view, &fleet, "\x1b");
    }
    assert!(asked(&mut view).is_empty());
    assert_snapshot!(filters.join("\n"));
}

#[test]
fn the_command_line_can_be_edited_and_shown_on_the_screen() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Ports, "port reflector:0");
    press(&mut view, &fleet, "c vlan 7\x08\x088 and icmp\t");
    let (text, _) = view.tasks.form.text();
    assert_eq!(text, "capture -i reflector:0 -c 500 --duration 10 -nn vlan8 and icmp");
    press(&mut view, &fleet, "\t");
    let (text, _) = view.tasks.form.text();
    let file = "reflector-0-20260102-030405.pcapng";
    assert_eq!(
        text,
        format!("capture -i reflector:0 -c 10000 --duration 10 -w {file} vlan8 and icmp")
    );
    press(&mut view, &fleet, "\t\n");
    assert_eq!(view.mode, InputMode::Tasks);
    assert_eq!(asked(&mut view).len(), 1);
}

#[test]
fn what_is_no_capture_is_not_run() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Ports, "port reflector:0");
    press(&mut view, &fleet, "c");
    act(&mut view, Action::Task(TaskAction::Edit(InputRequest::DeleteLine)), &fleet);
    press(&mut view, &fleet, "bypass\n");
    assert_eq!(notice(&view), "the command line must begin with: capture");
    press(&mut view, &fleet, " 'x\n");
    assert_eq!(notice(&view), "a quotation mark is missing in the command line");
    assert!(asked(&mut view).is_empty());
    assert_eq!(view.mode, InputMode::CaptureForm);
}

#[test]
fn nothing_is_attached_to_an_app_before_it_is_confirmed() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Overview, "app testpmd");
    press(&mut view, &fleet, "c\n\n\n");
    assert!(asked(&mut view).is_empty() && view.tasks.form.asks);
    assert_snapshot!("confirm", text(100, 24, &view, &fleet));
    press(&mut view, &fleet, "\x1b");
    assert!(!view.tasks.form.asks && view.mode == InputMode::CaptureForm);
    press(&mut view, &fleet, "\nP");
    assert_eq!(asked(&mut view).len(), 1);
}

#[test]
fn however_an_app_is_named_its_helper_is_asked_about() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    let mut may_attach = |line: &str| {
        select(&mut view, &fleet, PageTab::Overview, "app reflector");
        press(&mut view, &fleet, "c");
        act(&mut view, Action::Task(TaskAction::Edit(InputRequest::DeleteLine)), &fleet);
        press(&mut view, &fleet, line);
        let may_attach = view.tasks.form.may_attach(&fleet);
        press(&mut view, &fleet, "\x1b");
        may_attach.unwrap()
    };
    assert!(!may_attach("capture -i reflector:0 -i reflector:1 -nn icmp"));
    assert!(!may_attach("capture -i testpmd:0 --no-pdump"));
    for asks in [
        "capture",
        "capture -i any",
        "capture -i testpmd:0",
        "capture -i reflector:0 -i testpmd:0",
        "capture -i reflector:0 -nni testpmd:0",
        "capture -i reflector:0 --interface=testpmd:0",
        "capture -a testpmd",
        "capture -i reflector:0 -itestpmd:0",
    ] {
        assert!(may_attach(asks), "{asks}");
    }
}

#[test]
fn a_leak_is_written_as_packets_and_all_else_as_a_snapshot() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    for (tab, title) in [
        (PageTab::Overview, "leak: reflector reflector_rx app_fwd.c:18"),
        (PageTab::Pools, "leak at app_fwd.c:18 of reflector"),
    ] {
        select(&mut view, &fleet, tab, title);
        press(&mut view, &fleet, "w");
        let file = "reflector-leaks-20260102-030405.pcapng";
        let write = format!("pmdscope leaks -a reflector --write {file}");
        let commands = [write, format!("pmdscope capture -nn -r {file}")];
        assert_eq!(asked(&mut view), commands, "{title}");
        assert_eq!(view.mode, InputMode::Tasks);
        press(&mut view, &fleet, "\x1b");
        let written = equivalent::commands(&view, &fleet).into_iter().filter(|(key, _)| key == "w");
        let written: Vec<_> = written.map(|(_, command)| command.unwrap().to_string()).collect();
        assert_eq!(written, commands, "{title}");
    }
    select(&mut view, &fleet, PageTab::Overview, "app testpmd");
    press(&mut view, &fleet, "w");
    let Some(TaskRequest::Snapshot(snapshot)) = view.tasks.wanted.first() else { panic!() };
    assert_eq!(snapshot.fleet.apps.len(), 2);
    assert!(snapshot.text.starts_with("pmdscope: 2 apps\n"), "{}", snapshot.text);
    let name = "pmdscope-20260102-030405";
    let json = format!("pmdscope top --once --json --flows >{name}.json");
    assert_eq!(asked(&mut view), [json, format!("pmdscope top --once --flows >{name}.txt")]);
    view.follow(Some(Arc::default()));
    press(&mut view, &fleet, "w");
    let json = format!("pmdscope top --once --json >{name}.json");
    assert_eq!(asked(&mut view)[0], json, "nothing is captured");
}

#[test]
fn a_pool_that_may_lose_mbufs_is_written_as_packets() {
    let (mut view, mut fleet) = (fixture::view(), moment_fleet());
    let about = FindingSubject::Pool("mb_pool_0".to_owned());
    let name = "testpmd".to_owned();
    let finding = Finding { app: name, subject: about, ..fixture::leaking_findings().remove(2) };
    let written = |view: &mut ViewState, fleet: &FleetState, tab, title: &str| {
        (view.mode, view.tasks.notice) = (InputMode::Browse, None);
        select(view, fleet, tab, title);
        press(view, fleet, "w");
        asked(view).remove(0)
    };
    let row = "pool mb_pool_0 of testpmd";
    let snapshot = "pmdscope top --once --json --flows >pmdscope-20260102-030405.json";
    assert_eq!(
        written(&mut view, &fleet, PageTab::Pools, row),
        snapshot,
        "nothing is wrong with it"
    );
    fleet.apply(fixture::sampled(fixture::stock(), vec![finding]));
    let packets = "pmdscope leaks -a testpmd --write testpmd-leaks-20260102-030405.pcapng";
    let found = "pool_exhausting: testpmd mb_pool_0";
    assert_eq!(written(&mut view, &fleet, PageTab::Overview, found), packets);
    assert_eq!(written(&mut view, &fleet, PageTab::Pools, row), packets);
    view.tasks.context.no_xray = true;
    assert_eq!(written(&mut view, &fleet, PageTab::Pools, row), snapshot);
    let leaking = written(&mut view, &fleet, PageTab::Pools, "pool reflector_rx of reflector");
    assert!(leaking.starts_with("pmdscope leaks -a reflector --write "), "{leaking}");
    view.tasks.context = TaskContext { recording: Some("x.zst".into()), ..TaskContext::default() };
    view.follow(None);
    let recorded = written(&mut view, &fleet, PageTab::Pools, row);
    assert!(recorded.starts_with("pmdscope top --once --json -r x.zst"), "{recorded}");
}

/// What the window of commands shows, without its borders.
fn commands_of(view: &mut ViewState, fleet: &FleetState) -> Vec<String> {
    press(view, fleet, "y");
    let lines = overlay::tasks::commands(view, fleet).iter().map(ToString::to_string).collect();
    press(view, fleet, "\x1b");
    lines
}

#[test]
fn every_key_that_does_something_has_a_command_or_a_reason() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    let mut shown = Vec::new();
    let mut show = |title: &str, view: &mut ViewState| {
        let lines = commands_of(view, &fleet);
        for key in ["c", "w", "a", "m"] {
            let names = |line: &String| {
                let label = line.chars().take(9).collect::<String>();
                label.split_whitespace().any(|name| name == key)
            };
            assert!(lines.iter().skip(2).any(names), "{title}, {key}: {lines:?}");
        }
        shown.push(format!("{title}\n{}\n", lines.join("\n")));
    };
    for tab in PageTab::ALL {
        act(&mut view, Action::Go(tab), &fleet);
        show(tab.title(), &mut view);
    }
    view.filter = crate::state::ViewFilter::of("miss>0 'x");
    act(&mut view, Action::Go(PageTab::Flows), &fleet);
    view.tasks.context.read_only = true;
    show("Flows, read only", &mut view);
    view.tasks.context = TaskContext { recording: Some("x.zst".into()), ..TaskContext::default() };
    view.follow(None);
    show("Flows, recorded", &mut view);
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn the_key_that_attaches_has_commands_for_the_apps_that_it_means() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    act(&mut view, Action::Go(PageTab::Flows), &fleet);
    let command = "P         pmdscope netstat -a testpmd -c".to_owned();
    assert!(commands_of(&mut view, &fleet).contains(&command));
    press(&mut view, &fleet, "P");
    let mut traffic = CapturedTraffic::clone(view.flows.traffic.as_ref().unwrap());
    for tap in traffic.taps.iter_mut().filter(|tap| tap.app == "testpmd") {
        tap.access = CaptureAccess::Armed { via: Some("pdump") };
    }
    view.follow(Some(Arc::new(traffic.clone())));
    assert!(commands_of(&mut view, &fleet).contains(&command), "{:?}", view.attach);
    traffic.taps.retain(|tap| tap.app != "testpmd");
    view.follow(Some(Arc::new(traffic)));
    let reason = format!("P         {NO_OFFER}");
    assert!(commands_of(&mut view, &fleet).contains(&reason));
}

#[test]
fn commands_of_the_past_say_that_they_are_not() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    let (span, place) = (TimeSpan { oldest: 1, newest: 2 }, TimeBarKind::Past { ago_ns: 1 });
    let bar = TimeBar { at: 1, realtime_ns: 1, span, marks: Vec::new(), place, remark: None };
    view.time_bar = Some(bar);
    press(&mut view, &fleet, "G");
    let lines = commands_of(&mut view, &fleet);
    assert_eq!(lines[2], "Commands are about the present. pmdscope record keeps the past.");
    let reason = "w         only top has this moment: pmdscope record keeps the past";
    assert!(lines.contains(&reason.to_owned()), "{lines:?}");
}

#[test]
fn stamps_are_armed_until_a_time() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Overview, "app reflector");
    press(&mut view, &fleet, "a");
    let Some(TaskRequest::Run(plan)) = view.tasks.wanted.first() else { panic!() };
    assert_eq!(plan.remark, ", until 03:05:05");
    assert_eq!(asked(&mut view), ["pmdscope leaks -a reflector --arm 60"]);
    act(&mut view, Action::Go(PageTab::Ports), &fleet);
    press(&mut view, &fleet, "a");
    assert_eq!(notice(&view), "select a row of an app first");
}

#[test]
fn an_app_that_does_not_answer_is_not_captured_from() {
    let (mut view, mut fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Overview, "app reflector");
    fleet.apps[0].model = None;
    press(&mut view, &fleet, "c");
    assert_eq!(notice(&view), "reflector does not answer");
}

#[test]
fn read_only_and_recordings_do_nothing() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Overview, "app reflector");
    view.tasks.context.read_only = true;
    for key in ["c", "w", "a"] {
        press(&mut view, &fleet, key);
        assert!(notice(&view).starts_with("read-only"), "{key}");
        view.tasks.notice = None;
    }
    act(&mut view, Action::Go(PageTab::Flows), &fleet);
    press(&mut view, &fleet, "P");
    assert!(notice(&view).starts_with("read-only") && view.attach.is_empty());
    view.tasks.context = TaskContext { recording: Some("x.zst".into()), ..TaskContext::default() };
    act(&mut view, Action::Go(PageTab::Overview), &fleet);
    for key in ["c", "a"] {
        press(&mut view, &fleet, key);
        assert!(notice(&view).starts_with("this is a recording"), "{key}");
    }
    assert!(view.tasks.wanted.is_empty());
    view.follow(None);
    press(&mut view, &fleet, "w");
    let at = "-r x.zst --at 2026-01-02T03:04:05Z";
    assert!(asked(&mut view)[0].starts_with(&format!("pmdscope top --once --json {at} >")));
}

#[test]
fn every_row_has_a_command_that_shows_the_same() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    let mut copied = Vec::new();
    for tab in PageTab::ALL {
        act(&mut view, Action::Go(tab), &fleet);
        view.selected.remove(&tab);
        press(&mut view, &fleet, "y");
        copied.extend(asked(&mut view).into_iter().map(|text| format!("{tab:?}: {text}")));
        act(&mut view, Action::Back, &fleet);
        let rows = tables::shown(&view, &fleet).into_iter().flat_map(|table| table.rows);
        for subject in rows.map(|row| row.subject) {
            let title = subject.title();
            act(&mut view, Action::Select(subject), &fleet);
            press(&mut view, &fleet, "y");
            copied.extend(asked(&mut view).into_iter().map(|text| format!("{title}: {text}")));
            act(&mut view, Action::Back, &fleet);
        }
    }
    assert_snapshot!(copied.join("\n"));
}

#[test]
fn windows() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    select(&mut view, &fleet, PageTab::Ports, "rx queue reflector:0:1");
    press(&mut view, &fleet, "c");
    assert_snapshot!("capture", text(80, 24, &view, &fleet));
    press(&mut view, &fleet, "\x1by");
    assert_snapshot!("commands", text(100, 24, &view, &fleet));
    press(&mut view, &fleet, "\x1bt");
    assert!(text(80, 24, &view, &fleet).contains("No task yet"));
}

fn task(state: TaskState, status: &str, lines: usize) -> Task {
    let commands = [CommandLine::new(["capture", "-i", "reflector:0"])];
    let mut task = Task::new(&commands, lines > 0);
    (task.state, task.status, task.cpu) = (state, status.to_owned(), Some(0.034));
    task.lines = (1..=lines).map(|n| format!("03:04:05.{n:06} IP packet {n}\x1b[2J")).collect();
    task
}

#[test]
fn the_newest_lines_of_a_task_are_in_sight() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    let counters = "12 packets captured";
    view.tasks.follow(Arc::new(vec![
        task(TaskState::Done, "10 packets captured", 0),
        task(TaskState::Running, counters, 100),
    ]));
    press(&mut view, &fleet, "t");
    let screen = text(80, 24, &view, &fleet);
    assert_snapshot!("tasks", screen);
    press(&mut view, &fleet, "kkkkk");
    let screen = text(80, 24, &view, &fleet);
    assert!(screen.contains("packet 96?[2J") && !screen.contains("packet 97"), "{screen}");
    press(&mut view, &fleet, "G");
    assert!(text(80, 24, &view, &fleet).contains("packet 100"));
    press(&mut view, &fleet, "\x1b");
    assert_eq!(asked(&mut view), ["stop"], "the capture on the screen ends first");
    view.tasks.follow(Arc::new(vec![task(TaskState::Done, counters, 100)]));
    press(&mut view, &fleet, "\x1b");
    assert_eq!(view.mode, InputMode::Browse);
}

#[test]
fn the_footer_tells_how_a_task_goes_and_how_it_ended() {
    let (mut view, fleet) = (fixture::view(), moment_fleet());
    let footer = |view: &ViewState| text(100, 24, view, &fleet).lines().last().unwrap().to_owned();
    view.tasks.follow(Arc::new(vec![task(TaskState::Running, "12 packets captured", 0)]));
    let running = "12 packets captured, 3 % of a core  (c ends it, t shows it)";
    assert!(footer(&view).starts_with(running), "{}", footer(&view));
    let long = "7504 packets captured, 7504 packets received by filter, 0 packets dropped by full capture rings";
    view.tasks.follow(Arc::new(vec![task(TaskState::Running, long, 0)]));
    let shown = footer(&view);
    assert!(
        shown.starts_with(&long[..70]) && shown.ends_with("…  (c ends it, t shows it)"),
        "{shown}"
    );
    press(&mut view, &fleet, "c");
    assert_eq!(asked(&mut view), ["stop"]);
    view.tasks.follow(Arc::new(vec![task(TaskState::Failed, "x exists", 0)]));
    assert!(footer(&view).starts_with("failed: x exists "), "{}", footer(&view));
    view.tasks.notice = None;
    view.tasks.follow(Arc::new(vec![task(TaskState::Failed, "x exists", 0)]));
    assert!(footer(&view).starts_with("? help"), "it is told once");
}
