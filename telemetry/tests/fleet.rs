//! Tests of fleets of apps that start, end, hang and change their names.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::{
    self, DiscoverOptions, DiscoveredApp, FindError, Reachability, UnreachableReason,
};
use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::{AppNames, AppStatus, ErrorClass, ExpectedApp, Fleet, FleetSettings};
use support::{Machine, Recording};

/// Long, since machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longer than any wait that ends without a failure.
const LONG: Duration = Duration::from_secs(60);

/// Timeout for apps that hang, while others answer.
const SHORT: Duration = Duration::from_secs(2);

fn recording() -> Recording {
    Recording::read("dpdk-22.11/testpmd-null.jsonl")
}

/// Samples once; returns the names of the apps, with a star after those that answered.
fn round(fleet: &mut Fleet) -> Vec<String> {
    fleet.look();
    fleet.sample(TIMEOUT);
    let star = |live| if live { "*" } else { "" };
    let name = |app: &pmdscope_telemetry::AppState| {
        format!("{}{}", app.name, star(app.status == AppStatus::Live))
    };
    fleet.state.apps.iter().map(name).collect()
}

fn lints(fleet: &Fleet, app: &str) -> Vec<Lint> {
    fleet.state.find(app).unwrap().findings.iter().map(|finding| finding.lint).collect()
}

#[test]
fn an_app_that_ends_stays_visible_and_comes_back() {
    let machine = Machine::new();
    let mut fleet = Fleet::new(machine.settings());
    assert!(round(&mut fleet).is_empty());
    let app = machine.run("a", &recording());
    assert_eq!(round(&mut fleet), ["a*"]);
    drop(app);
    for _ in 0..2 {
        assert_eq!(round(&mut fleet), ["a"]);
        assert_eq!(lints(&fleet, "a"), [Lint::Unreachable]);
    }
    let lost = fleet.state.find("a").unwrap();
    assert!(lost.model.is_some() && lost.errors[&ErrorClass::Refused] == 1, "{:?}", lost.errors);
    let _again = machine.run("a", &recording());
    assert_eq!(round(&mut fleet), ["a*"]);
}

#[test]
fn nobody_connects_to_an_app_that_is_connected_already() {
    let machine = Machine::new();
    let options = DiscoverOptions { timeout: SHORT, ..machine.settings().discover };
    let _silent = machine.run_silent("a");
    let found = discover::look(&options, &[]).remove(0);
    assert_eq!(found.state, Reachability::Unreachable(UnreachableReason::Timeout));
    let connected = DiscoveredApp { state: Reachability::Live, name: "mapped".into(), ..found };
    let again = discover::look(&options, std::slice::from_ref(&connected));
    assert_eq!(again, [DiscoveredApp { name: "a".into(), ..connected }]);
}

#[test]
fn an_app_that_ended_long_ago_is_removed_unless_expected() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.keep_lost = Duration::from_millis(50);
    let expected = ExpectedApp { name: "b".into(), ..ExpectedApp::default() };
    settings.rules.expected.apps.push(expected);
    let apps = ["a", "b"].map(|name| machine.run(name, &recording()));
    let mut fleet = Fleet::start(None, settings).unwrap();
    assert_eq!(round(&mut fleet), ["a*", "b*"]);
    drop(apps);
    assert_eq!(round(&mut fleet), ["a", "b"]);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(round(&mut fleet), ["b"]);
    assert_eq!(lints(&fleet, "b"), [Lint::AppMissing]);
}

#[test]
fn a_running_app_is_never_removed() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.keep_lost = Duration::ZERO;
    let app = machine.run("a", &recording());
    let _silent = machine.run_silent("s");
    settings.discover.timeout = SHORT;
    let mut fleet = Fleet::new(settings);
    for _ in 0..2 {
        assert_eq!(round(&mut fleet), ["a*", "s"]);
    }
    drop(app);
    assert_eq!(round(&mut fleet), ["s"]);
}

#[test]
fn an_expected_app_that_ended_is_missing_for_every_reader() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.rules.expected.apps.push(ExpectedApp { name: "a".into(), ..ExpectedApp::default() });
    let app = machine.run("a", &recording());
    let mut fleet = Fleet::start(None, settings).unwrap();
    fleet.sample(TIMEOUT);
    drop(app);
    fleet.sample(TIMEOUT);
    assert_eq!(lints(&fleet, "a"), [Lint::Unreachable]);
    let mut checked_out = fleet.check_out("a").unwrap();
    fleet.see(Vec::new());
    let event = checked_out.sample(TIMEOUT);
    fleet.check_in(checked_out, event);
    for _ in 0..2 {
        assert_eq!(lints(&fleet, "a"), [Lint::AppMissing]);
        assert!(fleet.state.find("a").unwrap().model.is_some());
        assert_eq!(round(&mut fleet), ["a"]);
    }
    let _again = machine.run("a", &recording());
    assert_eq!(round(&mut fleet), ["a*"]);
    assert!(lints(&fleet, "a").is_empty());
}

#[test]
fn an_app_that_ended_is_asked_again_once_a_look_finds_it() {
    let machine = Machine::new();
    let app = machine.run("a", &recording());
    let mut fleet = Fleet::start(None, machine.settings()).unwrap();
    fleet.sample(TIMEOUT);
    drop(app);
    for _ in 0..3 {
        fleet.sample(TIMEOUT);
    }
    assert_eq!(fleet.state.find("a").unwrap().errors[&ErrorClass::Refused], 3, "nobody looked");
    for _ in 0..3 {
        assert_eq!(round(&mut fleet), ["a"]);
        assert!(fleet.asked().count() == 0 && fleet.check_out("a").is_none());
    }
    assert_eq!(fleet.state.find("a").unwrap().errors[&ErrorClass::Refused], 3);
    let _again = machine.run("a", &recording());
    fleet.look();
    assert_eq!(fleet.asked().collect::<Vec<_>>(), ["a"]);
    assert_eq!(round(&mut fleet), ["a*"]);
}

#[test]
fn an_expected_app_is_missed_until_it_runs() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.rules.expected.apps.push(ExpectedApp { name: "a".into(), ..ExpectedApp::default() });
    let mut fleet = Fleet::start(None, settings).unwrap();
    assert_eq!(round(&mut fleet), ["a"]);
    assert_eq!(lints(&fleet, "a"), [Lint::AppMissing]);
    let _app = machine.run("a", &recording());
    assert_eq!(round(&mut fleet), ["a*"]);
    assert!(lints(&fleet, "a").is_empty());
}

#[test]
fn apps_that_are_stuck_fail_and_the_others_answer() {
    let machine = Machine::new();
    let mut fleet = Fleet::new(machine.settings());
    let _apps = ["a", "c"].map(|name| machine.run(name, &recording()));
    let _stuck = ["b", "d"].map(|name| machine.run_stuck(name));
    fleet.look();
    for _ in 0..2 {
        fleet.sample(SHORT);
        for app in &fleet.state.apps {
            assert_eq!(app.status == AppStatus::Live, ["a", "c"].contains(&app.name.as_str()));
        }
    }
    assert_eq!(fleet.state.find("b").unwrap().errors[&ErrorClass::Timeout], 2);
}

/// Waits until `expected` threads wait here.
fn meet(met: &(Mutex<usize>, Condvar), expected: usize) {
    let (met, more) = met;
    let mut met = met.lock().unwrap();
    *met += 1;
    more.notify_all();
    let _met = more.wait_while(met, |met| *met < expected).unwrap();
}

#[test]
fn many_apps_are_asked_at_the_same_time() {
    let machine = Machine::new();
    let met = Arc::<(Mutex<usize>, Condvar)>::default();
    let names: Vec<_> = (0..20).map(|n| format!("slow-{n}")).collect();
    let run = |name: &String| {
        let (met, recording, asked) = (Arc::clone(&met), recording(), Once::new());
        // The first answer of each app waits until all have been queried.
        machine.serve(name, move |request| {
            asked.call_once(|| meet(&met, 20));
            Some(recording.answer(request))
        })
    };
    let _apps: Vec<_> = names.iter().map(run).collect();
    let mut fleet = Fleet::new(machine.settings());
    fleet.look();
    fleet.sample(LONG);
    assert!(fleet.state.apps.iter().all(|app| app.status == AppStatus::Live));
    assert_eq!(*met.0.lock().unwrap(), 20);
}

#[test]
fn many_apps_are_looked_at_at_the_same_time() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.discover.timeout = LONG;
    let met = Arc::<(Mutex<usize>, Condvar)>::default();
    let names: Vec<_> = (0..20).map(|n| format!("slow-{n}")).collect();
    let run = |name: &String| {
        let met = Arc::clone(&met);
        machine.greet_after(name, move || meet(&met, 20))
    };
    let _apps: Vec<_> = names.iter().map(run).collect();
    let mut fleet = Fleet::new(settings);
    fleet.look();
    assert_eq!(fleet.asked().count(), 20);
}

#[test]
fn apps_that_are_silent_are_not_asked() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.discover.timeout = SHORT;
    let _live = machine.run("live", &recording());
    let names: Vec<_> = (0..20).map(|n| format!("silent-{n}")).collect();
    let _silent: Vec<_> = names.iter().map(|name| machine.run_silent(name)).collect();
    let mut fleet = Fleet::new(settings);
    fleet.look();
    assert_eq!(fleet.state.apps.len(), 21);
    assert_eq!(fleet.asked().collect::<Vec<_>>(), ["live"]);
    assert_eq!(lints(&fleet, "silent-7"), [Lint::Unreachable]);
}

#[test]
fn an_app_with_a_new_prefix_replaces_the_one_that_ended() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.names = AppNames::new(vec![(r"fwd-\d+".into(), "fwd".into())]).unwrap();
    let mut fleet = Fleet::new(settings);
    let first = machine.run("fwd-1", &recording());
    assert_eq!(round(&mut fleet), ["fwd*"]);
    drop(first);
    assert_eq!(round(&mut fleet), ["fwd"]);
    let second = machine.run("fwd-2", &recording());
    for _ in 0..3 {
        assert_eq!(round(&mut fleet), ["fwd*"]);
    }
    let third = machine.run("fwd-3", &recording());
    assert_eq!(round(&mut fleet), ["fwd-2*", "fwd-3*"]);
    let names: Vec<_> = fleet.state.models().map(|(_, model)| &model.sample.app.name).collect();
    assert_eq!(names, ["fwd-2", "fwd-3"]);
    drop(second);
    // The fake app notices only at a request that it has ended.
    round(&mut fleet);
    assert_eq!(round(&mut fleet), ["fwd*", "fwd-2"]);
    drop(third);
    assert_eq!(round(&mut fleet), ["fwd", "fwd-2"]);
}

#[test]
fn a_chosen_app_is_found_again_under_another_prefix() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.names = AppNames::new(vec![(r"fwd-\d+".into(), "fwd".into())]).unwrap();
    let first = machine.run("fwd-1", &recording());
    let _other = machine.run("gen", &recording());
    let mut fleet = Fleet::start(Some("fwd"), settings).unwrap();
    let mut prefix = || {
        fleet.look();
        fleet.sample(TIMEOUT);
        let [app] = &fleet.state.apps[..] else { panic!("{:?}", fleet.state.apps) };
        (app.status == AppStatus::Live)
            .then(|| fleet.connected()[0].dir.file_name().unwrap().to_owned())
    };
    assert_eq!(prefix().unwrap(), "fwd-1");
    drop(first);
    for _ in 0..2 {
        assert_eq!(prefix(), None);
    }
    let _second = machine.run("fwd-2", &recording());
    assert_eq!(prefix().unwrap(), "fwd-2");
}

/// The names of apps that a command is about, or why there are none.
fn about(settings: &FleetSettings, name: &str, connected: &[DiscoveredApp]) -> Vec<String> {
    match settings.apps(Some(name), connected) {
        Ok(apps) => apps.into_iter().map(|app| app.name).collect(),
        Err(error) => vec![error.to_string()],
    }
}

#[test]
fn an_app_stays_chosen_when_another_one_gets_the_same_name() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.names = AppNames::new(vec![(r"fwd-\d+".into(), "fwd".into())]).unwrap();
    let _first = machine.run("fwd-1", &recording());
    let mut fleet = Fleet::start(Some("fwd"), settings.clone()).unwrap();
    fleet.sample(TIMEOUT);
    let _second = machine.run("fwd-2", &recording());
    assert_eq!(about(&settings, "fwd", &fleet.connected()), ["fwd-1"]);
    let error = about(&settings, "fwd", &[]).remove(0);
    assert!(error.ends_with("fwd-1, fwd-2"), "{error}");
    assert_eq!(about(&settings, "fwd-2", &[]), ["fwd-2"]);
    // An expected app that does not run is absent, but one that is named and not expected is an error.
    assert!(about(&settings, "fw", &[])[0].ends_with("running: fwd-1, fwd-2"));
    let fw = ExpectedApp { name: "fw".to_owned(), ..ExpectedApp::default() };
    settings.rules.expected.apps = vec![fw];
    assert_eq!(settings.apps(Some("fw"), &[]).unwrap(), []);
}

#[test]
fn only_the_app_that_is_named_is_asked() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.discover.timeout = LONG;
    let _named = machine.run("fwd", &recording());
    let greeted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&greeted);
    let _other = machine.greet_after("gen", move || _ = count.fetch_add(1, Ordering::SeqCst));
    // A search of all would wait for it.
    let _silent = machine.run_silent("silent");
    assert_eq!(about(&settings, "fwd", &[]), ["fwd"]);
    assert_eq!(greeted.load(Ordering::SeqCst), 0);
}

#[test]
fn many_that_are_silent_cost_one_timeout_together() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.discover.timeout = Duration::from_secs(1);
    let names: Vec<_> = (0..200).map(|n| format!("silent-{n:03}")).collect();
    let _silent: Vec<_> = names.iter().map(|name| machine.run_silent(name)).collect();
    // It comes last.
    let _live = machine.run("zebra", &recording());
    let begun = Instant::now();
    let running = settings.running();
    assert!(begun.elapsed() < 5 * settings.discover.timeout, "{:?}", begun.elapsed());
    assert_eq!(running.len(), 201);
    let live = running.iter().filter(|app| app.state == Reachability::Live);
    assert!(live.map(|app| app.name.as_str()).eq(["zebra"]));
}

#[test]
fn a_search_ends_when_it_is_interrupted() {
    let machine = Machine::new();
    let mut settings = machine.settings();
    settings.discover.timeout = LONG;
    let _silent = machine.run_silent("silent");
    let stop = Arc::new(AtomicBool::new(false));
    settings.discover.stop = Arc::clone(&stop).into();
    let interrupted = std::thread::spawn(move || settings.apps(None, &[]).unwrap_err());
    std::thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let error = interrupted.join().unwrap();
    assert!(begun.elapsed() < LONG / 6, "{:?}", begun.elapsed());
    assert!(matches!(error, FindError::Interrupted), "{error}");
}
