//! Tests of commands that run, and of those that the display names.

use std::fs;

use pmdscope_telemetry::FleetState;
use pmdscope_tui::task::OutputFile;
use pmdscope_tui::task::command::CommandLine;

use super::*;

/// What the display copies for every row of its tests.
const SHOWN: &str = include_str!(
    "../../tui/src/update/tasks/snapshots/pmdscope_tui__update__tasks__tests__every_row_has_a_command_that_shows_the_same.snap"
);
/// Its window of commands, of which each begins a line.
const KEYS: &str = include_str!(
    "../../tui/src/update/tasks/snapshots/pmdscope_tui__update__tasks__tests__commands.snap"
);

/// What that window shows on each page: commands, and reasons why there is none.
const PAGES: &str = include_str!(
    "../../tui/src/update/tasks/snapshots/pmdscope_tui__update__tasks__tests__every_key_that_does_something_has_a_command_or_a_reason.snap"
);

fn parses(line: &str) {
    let words = shlex::split(line).unwrap();
    let mut words = words.into_iter().take_while(|word| !word.starts_with('>'));
    let program = words.next().unwrap();
    let mut args = words.map(std::ffi::OsString::from).collect::<Vec<_>>();
    if args[0] == "netstat" {
        let adapted = crate::netstat::adapt(&args[1..]).unwrap();
        args.truncate(1);
        args.extend(adapted);
    }
    let parsed = crate::try_parse(std::iter::once(program.into()).chain(args).collect());
    assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
}

#[test]
fn every_command_that_is_shown_is_one_that_this_program_takes() {
    let copied = SHOWN.lines().filter_map(|line| line.split_once("copy ")).map(|(_, line)| line);
    assert!(copied.clone().count() > 20);
    copied.for_each(parses);
    for line in KEYS.lines().filter_map(|line| line.split_once(" pmdscope ")) {
        // The file is in the next line of the window.
        parses(&format!("pmdscope {}", line.1.trim_end_matches(['│', ' ']).replace(" -w", "")));
    }
    let of_pages = PAGES.lines().filter_map(|line| line.split_once(" pmdscope "));
    assert!(of_pages.clone().count() > 30);
    of_pages.for_each(|(_, line)| parses(&format!("pmdscope {line}")));
}

/// In a test this program is the test itself.
fn plan(args: &[&str], on_screen: bool) -> TaskPlan {
    let command = CommandLine::new(args.iter().copied());
    let file = (!on_screen).then(|| typed("/nonexistent/file"));
    TaskPlan { command, file, ..TaskPlan::default() }
}

fn typed(name: &str) -> OutputFile {
    OutputFile { name: name.to_owned(), is_proposed: false }
}

fn finished(plan: TaskPlan) -> Task {
    let mut tasks = TaskList::default();
    tasks.take(TaskRequest::Run(plan));
    let end = Instant::now() + Duration::from_secs(60);
    while tasks.is_running() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
        tasks.update();
    }
    tasks.tasks().pop().unwrap()
}

#[test]
fn what_a_command_prints_is_kept_up_to_a_limit() {
    let task = finished(plan(&["--list", "--format=terse"], true));
    assert_eq!(task.state, TaskState::Done, "{}", task.status);
    assert!(
        task.lines.iter().any(|line| line.contains("up_to_a_limit")) || task.lines.len() == 500
    );
}

#[test]
fn a_command_that_fails_says_why() {
    let task = finished(plan(&["--no-such-option"], true));
    assert_eq!(task.state, TaskState::Failed);
    assert!(task.status.contains("exit status"), "{}", task.status);
}

#[test]
fn what_was_written_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file").display().to_string();
    let show = Some(CommandLine::new(["--list", "--format=terse"]));
    let plan = |args: &[&str]| TaskPlan {
        file: Some(typed(&file)),
        show: show.clone(),
        ..plan(args, true)
    };
    let unwritten = finished(plan(&["--list", "no_such_test"]));
    assert_eq!((unwritten.commands.len(), unwritten.state), (1, TaskState::Done));
    // The test harness writes such a file.
    let shown = finished(plan(&["--list", "no_such_test", "--logfile", &file]));
    assert_eq!((shown.commands.len(), shown.state), (2, TaskState::Done));
    assert!(shown.lines.len() > 100, "{:?}", shown.lines);
}

#[test]
fn no_file_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("snapshot").display().to_string();
    let existing = format!("{name}.json");
    fs::write(&existing, "mine").unwrap();
    let capture = TaskPlan { file: Some(typed(&existing)), ..plan(&["--list"], true) };
    let task = finished(capture);
    assert_eq!(task.status, format!("{existing} exists: choose another name"));
    let snapshot = Snapshot {
        name: name.clone(),
        commands: Vec::new(),
        text: "none\x1b[2J\n".to_owned(),
        fleet: FleetState::default(),
        traffic: None,
    };
    assert_eq!(written(&snapshot).state, TaskState::Failed);
    assert_eq!(fs::read_to_string(&existing).unwrap(), "mine");
    fs::remove_file(&existing).unwrap();
    assert_eq!(written(&snapshot).state, TaskState::Done);
    let document = fs::read_to_string(&existing).unwrap();
    assert_eq!(document, "{\"schema\":1,\"apps\":[]}\n");
    assert_eq!(fs::read_to_string(format!("{name}.txt")).unwrap(), "none?[2J\n");
}

#[test]
fn old_tasks_are_forgotten_and_the_end_is_seen() {
    let mailbox = TaskMailbox::default();
    let snapshot = Snapshot {
        name: "/nonexistent/x".to_owned(),
        commands: Vec::new(),
        text: String::new(),
        fleet: FleetState::default(),
        traffic: None,
    };
    for _ in 0..2 * REMEMBERED {
        mailbox.ask(TaskRequest::Snapshot(Box::new(snapshot.clone())));
    }
    mailbox.ask(TaskRequest::Over);
    serve(&mailbox, || true);
    assert_eq!(mailbox.tasks().len(), REMEMBERED);
}

#[test]
fn files_that_nobody_named_get_other_names_than_those_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let proposed = OutputFile { name: path("fwd-0-1.pcapng"), is_proposed: true };
    let request = || {
        // The test itself runs, and takes the name for a filter of its tests.
        let command = CommandLine::new(["--list", &proposed.name]);
        let (file, remark) = (Some(proposed.clone()), String::new());
        TaskRequest::Run(TaskPlan { command, file, remark, ..TaskPlan::default() })
    };
    let mut tasks = TaskList::default();
    tasks.take(request());
    // The first one has not written anything yet.
    tasks.take(request());
    fs::write(path("fwd-0-1-3.pcapng.part"), "mine").unwrap();
    tasks.take(request());
    let commands: Vec<String> = tasks.tasks().into_iter().flat_map(|task| task.commands).collect();
    for (command, file) in commands.iter().zip(["1.pcapng", "1-2.pcapng", "1-4.pcapng"]) {
        assert!(command.ends_with(&format!("/fwd-0-{file}")), "{commands:?}");
    }
    assert_eq!(commands.len(), 3);
    tasks.end();

    let snapshot = Snapshot {
        name: path("snapshot"),
        commands: vec![CommandLine {
            output: Some(path("snapshot.json")),
            ..CommandLine::default()
        }],
        text: "none\n".to_owned(),
        fleet: FleetState::default(),
        traffic: None,
    };
    for expected in ["snapshot.json", "snapshot-2.json"] {
        tasks.take(TaskRequest::Snapshot(Box::new(snapshot.clone())));
        let task = tasks.tasks().pop().unwrap();
        assert_eq!(task.state, TaskState::Done, "{}", task.status);
        assert!(task.commands[0].ends_with(&path(expected)), "{:?}", task.commands);
        assert!(Path::new(&path(expected)).exists());
    }
}

#[test]
fn a_command_that_cannot_be_waited_for_has_failed() {
    let mut tasks = TaskList::default();
    tasks.take(TaskRequest::Run(plan(&["--list"], true)));
    let (_, running) = tasks.0.first().unwrap();
    let pid = rustix::process::Pid::from_raw(running.as_ref().unwrap().pid().cast_signed());
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
    assert!(tasks.update());
    let task = tasks.tasks().pop().unwrap();
    assert_eq!(task.state, TaskState::Failed);
    assert!(task.status.starts_with("exit status unknown: "), "{}", task.status);
}
