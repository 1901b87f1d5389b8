use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::*;
use crate::ModelTracker;
use crate::error::ErrorClass;
use crate::finding::Lint;
use crate::fixture::{FakeInterfaces, filtered_interface, split_interface};
use crate::inventory::ExpectedApp;
use crate::sample::tests::empty_sample;

fn app(name: &str) -> DiscoveredApp {
    let dir = std::path::PathBuf::from("/nonexistent").join(name);
    DiscoveredApp::in_dir(dir, name, "socket", Reachability::Live)
}

#[test]
fn an_expected_but_absent_app_is_a_finding_and_no_error() {
    let mut settings = FleetSettings::default();
    settings.discover.roots = vec!["/nonexistent".into()];
    settings.discover.proc = None;
    assert!(Fleet::start(None, settings.clone()).is_err());
    for name in ["a", "b"] {
        let app = ExpectedApp { name: name.to_owned(), ..ExpectedApp::default() };
        settings.rules.expected.apps.push(app);
    }
    let missing = |name| {
        let fleet = Fleet::start(name, settings.clone()).unwrap();
        let findings = fleet.state.findings().into_iter();
        findings.map(|(_, found)| format!("{} {}", found.app, found.lint)).collect::<Vec<_>>()
    };
    assert_eq!(missing(None), ["a app_missing", "b app_missing"]);
    assert_eq!(missing(Some("b")), ["b app_missing"]);
    let unknown = Fleet::start(Some("c"), settings.clone());
    assert!(matches!(unknown, Err(FindError::Unknown { .. })));
}

#[test]
fn a_sampler_is_checked_out_once_and_returns_its_events() {
    let mut fleet = Fleet::new(FleetSettings::default());
    fleet.see(vec![app("a"), app("b")]);
    let mut sampler = fleet.check_out("a").unwrap();
    assert!(fleet.check_out("a").is_none() && fleet.check_out("x").is_none());
    fleet.see(vec![app("a"), app("b")]);
    fleet.sample(Duration::ZERO);
    assert_eq!(fleet.asked().collect::<Vec<_>>(), ["a", "b"]);
    assert!(fleet.state.find("a").unwrap().errors.is_empty(), "it was checked_out");
    let event = sampler.sample(Duration::ZERO);
    fleet.check_in(sampler, event);
    assert_eq!(fleet.state.find("a").unwrap().errors[&ErrorClass::Refused], 1);
    assert!(fleet.check_out("a").is_some());
}

#[test]
fn rounds_wait_less_for_an_app_that_did_not_answer() {
    let mut fleet = Fleet::new(FleetSettings::default());
    fleet.see(vec![app("a"), app("b")]);
    let round = |fleet: &mut Fleet, hangs: bool| {
        let timeouts = std::sync::Mutex::new(BTreeMap::new());
        fleet.sample_with(ROUND_TIMEOUT, |sampler, timeout| {
            let app = sampler.app().name.clone();
            timeouts.lock().unwrap().insert(app.clone(), timeout);
            if hangs && app == "a" {
                return app_sampler::lost(sampler.app(), &TelemetryError::Timeout("waiting"));
            }
            let model = Arc::new(ModelTracker::default().update(empty_sample()));
            FleetEvent::Sampled { app, model, findings: Vec::new() }
        });
        let timeouts = timeouts.into_inner().unwrap();
        assert_eq!(timeouts["b"], ROUND_TIMEOUT);
        timeouts["a"]
    };
    assert_eq!(round(&mut fleet, false), ROUND_TIMEOUT);
    assert_eq!(round(&mut fleet, true), ROUND_TIMEOUT);
    let shorter = round(&mut fleet, true);
    assert!(shorter < ROUND_TIMEOUT / 4, "{shorter:?}");
    let lost = fleet.state.find("a").unwrap();
    assert!(lost.model.is_some() && lost.stale(), "the last answer is shown, with its age");
    assert_eq!(round(&mut fleet, false), shorter);
    assert_eq!(round(&mut fleet, false), ROUND_TIMEOUT);
}

/// Panics in the sampler of the app of that name.
fn breaking(name: &str) -> impl Fn(&mut AppSampler, Duration) -> FleetEvent {
    move |sampler, timeout| {
        assert_ne!(sampler.app().name, name, "a bug");
        sampler.ask(timeout)
    }
}

#[test]
fn an_app_whose_sampler_panics_is_lost_and_queried_again() {
    for names in [&["a"][..], &["a", "b"]] {
        let mut fleet = Fleet::new(FleetSettings::default());
        fleet.see(names.iter().map(|name| app(name)).collect());
        let model = Arc::new(ModelTracker::default().update(empty_sample()));
        let sampled = FleetEvent::Sampled { app: "a".into(), model, findings: Vec::new() };
        fleet.state.apply(sampled);
        fleet.sample_with(Duration::ZERO, breaking("a"));
        let lost = fleet.state.find("a").unwrap();
        let AppStatus::Lost { reason } = &lost.status else { panic!("{lost:?}") };
        assert!(reason.contains("a bug"), "{reason}");
        assert_eq!(lost.errors[&ErrorClass::Internal], 1);
        assert_eq!(lost.findings[0].lint, Lint::Unreachable);
        assert!(lost.findings[0].evidence.contains("a bug"), "{:?}", lost.findings);
        fleet.sample(Duration::ZERO);
        let asked = fleet.state.find("a").unwrap();
        assert_eq!(asked.errors[&ErrorClass::Refused], 1, "it was asked anew: {asked:?}");
    }
}

#[test]
fn a_sampler_that_was_lost_while_checked_out_is_replaced() {
    let mut fleet = Fleet::new(FleetSettings::default());
    fleet.see(vec![app("a")]);
    let checked_out = fleet.check_out("a").unwrap();
    let (of, error) = (checked_out.app().clone(), TelemetryError::Panicked("a bug".into()));
    drop(checked_out);
    fleet.replace_lost(&of, &error);
    assert_eq!(fleet.state.find("a").unwrap().errors[&ErrorClass::Internal], 1);
    assert!(fleet.check_out("a").is_some());
}

#[test]
fn a_missing_app_is_missing_since_it_was_looked_for() {
    let mut settings = FleetSettings::default();
    let app = ExpectedApp { name: "gone".to_owned(), ..ExpectedApp::default() };
    settings.rules.expected.apps.push(app);
    let mut fleet = Fleet::new(settings);
    fleet.see(Vec::new());
    let since = fleet.state.find("gone").unwrap().silent_ns.unwrap();
    fleet.see(Vec::new());
    let missing = fleet.state.find("gone").unwrap();
    assert_eq!(missing.silent_ns, Some(since));
    assert_eq!(missing.silent_s(since + 2_000_000_000), Some(2.0));
}

#[test]
fn an_app_dropped_during_its_query_does_not_return() {
    let mut fleet = Fleet::new(FleetSettings::default());
    fleet.see(vec![app("a")]);
    let mut sampler = fleet.check_out("a").unwrap();
    fleet.slots.clear();
    fleet.see(Vec::new());
    let event = sampler.sample(Duration::ZERO);
    fleet.check_in(sampler, event);
    assert!(fleet.state.apps.is_empty());
}

#[test]
fn an_app_that_loses_telemetry_is_reported() {
    let mut fleet = Fleet::new(FleetSettings::default());
    let off = DiscoveredApp { state: Reachability::NoTelemetry, ..app("a") };
    let lint = |fleet: &Fleet| fleet.state.find("a").unwrap().findings.first().map(|f| f.lint);
    fleet.see(vec![app("a")]);
    assert_eq!((fleet.asked().count(), lint(&fleet)), (1, None));
    fleet.see(vec![off]);
    assert_eq!((fleet.asked().count(), lint(&fleet)), (0, Some(Lint::TelemetryOff)));
    fleet.see(vec![app("a")]);
    assert_eq!(fleet.asked().count(), 1);
}

#[test]
fn an_expected_app_without_telemetry_is_missing_once_it_has_ended() {
    let mut settings = FleetSettings::default();
    settings.rules.expected.apps = vec![ExpectedApp { name: "a".into(), ..ExpectedApp::default() }];
    let mut fleet = Fleet::new(settings);
    let lint = |fleet: &Fleet| fleet.state.find("a").unwrap().findings[0].lint;
    fleet.see(vec![DiscoveredApp { state: Reachability::NoTelemetry, ..app("a") }]);
    assert_eq!(lint(&fleet), Lint::TelemetryOff);
    fleet.see(Vec::new());
    assert_eq!(lint(&fleet), Lint::AppMissing);
}

#[test]
fn a_sampler_that_was_checked_out_comes_back_under_its_new_name() {
    let mut fleet = Fleet::new(FleetSettings::default());
    fleet.see(vec![app("a")]);
    let mut sampler = fleet.check_out("a").unwrap();
    fleet.see(vec![DiscoveredApp { name: "b".into(), ..app("a") }]);
    let event = sampler.sample(Duration::ZERO);
    fleet.check_in(sampler, event);
    assert!(fleet.state.find("a").is_none(), "{:?}", fleet.state);
    let [b] = &fleet.state.apps[..] else { panic!("{:?}", fleet.state) };
    assert_eq!((b.name.as_str(), b.findings[0].app.as_str()), ("b", "b"));
    assert_eq!(b.errors[&ErrorClass::Refused], 1);
    fleet.sample(Duration::ZERO);
    assert_eq!(fleet.state.find("b").unwrap().errors[&ErrorClass::Refused], 2);
}

#[test]
fn the_sample_of_a_renamed_app_tells_its_new_name() {
    let sampled = Evaluator::new(LintRules::default()).sampled(empty_sample());
    let mut fleet = FleetState::default();
    fleet.apply(sampled.renamed("new"));
    let [app] = &fleet.apps[..] else { panic!("{fleet:?}") };
    let sample = &app.model.as_ref().unwrap().sample;
    assert_eq!((app.name.as_str(), sample.app.name.as_str()), ("new", "new"));
}

#[test]
fn an_app_that_was_never_asked_stays_visible_as_down_when_it_ends() {
    let mut settings =
        FleetSettings { keep_lost: Duration::from_millis(50), ..FleetSettings::default() };
    let mut fleet = Fleet::new(settings.clone());
    fleet.see(vec![DiscoveredApp { state: Reachability::NoTelemetry, ..app("a") }]);
    for _ in 0..2 {
        fleet.see(Vec::new());
        let down = fleet.state.find("a").unwrap();
        assert_eq!(down.findings[0].lint, Lint::Unreachable);
        assert_eq!((down.errors[&ErrorClass::Refused], fleet.asked().count()), (1, 0));
    }
    thread::sleep(settings.keep_lost);
    fleet.see(Vec::new());
    assert!(fleet.state.apps.is_empty());
    settings.keep_lost = Duration::ZERO;
    let mut fleet = Fleet::new(settings);
    fleet.see(vec![DiscoveredApp { state: Reachability::NoTelemetry, ..app("a") }]);
    fleet.see(Vec::new());
    assert!(fleet.state.apps.is_empty());
}

#[test]
fn a_chosen_app_keeps_what_is_expected_of_it_whatever_it_is_called() {
    let mut settings = FleetSettings::default();
    settings.discover.roots = vec!["/nonexistent".into()];
    settings.discover.proc = None;
    settings.names = AppNames::new(vec![(r"fwd-\d+".into(), "fwd".into())]).unwrap();
    settings.rules.expected.apps = ["fwd", "gen"]
        .map(|name| ExpectedApp { name: name.to_owned(), ..ExpectedApp::default() })
        .into();
    let left = |name: &str, found: &[DiscoveredApp]| {
        let mut settings = settings.clone();
        settings.only(name, found);
        let left = settings.rules.expected.apps.into_iter();
        left.map(|app| app.name).collect::<Vec<_>>()
    };
    for name in ["fwd", "fwd-7", "/run/dpdk/fwd-7"] {
        assert_eq!(left(name, &[]), ["fwd"]);
        assert_eq!(settings.apps(Some(name), &[]).unwrap(), []);
    }
    assert_eq!(left("fwd-7", &[app("fwd")]), ["fwd"]);
    assert!(left("fwd-7", &[app("fwd-7")]).is_empty(), "another has the name");
    assert!(left("x", &[]).is_empty() && settings.apps(Some("x"), &[]).is_err());
}

#[test]
fn interfaces_are_read_once_a_round_whatever_the_number_of_apps() {
    let reader = FakeInterfaces::new(vec![filtered_interface(1)]);
    let settings = FleetSettings { interfaces: Some(reader.clone()), ..FleetSettings::default() };
    let mut fleet = Fleet::new(settings);
    fleet.see(vec![app("a"), app("b"), app("c")]);
    fleet.sample(Duration::ZERO);
    assert_eq!(reader.reads.load(Ordering::Relaxed), 1);
    assert!(fleet.state.interfaces.findings().next().is_none(), "there are no rates yet");
    thread::sleep(Duration::from_millis(30));
    reader.set(Ok(vec![filtered_interface(1000)]));
    fleet.sample(Duration::ZERO);
    let findings = fleet.state.findings();
    let flood = findings.iter().find(|(app, _)| app.is_none()).unwrap().1;
    assert_eq!((flood.lint, flood.app.as_str()), (Lint::Flood, ""));
    reader.set(Err("cannot read the filter".to_owned()));
    fleet.sample(Duration::ZERO);
    assert_eq!(fleet.state.interfaces.error.as_deref(), Some("cannot read the filter"));
    assert!(fleet.state.interfaces.interfaces.is_empty(), "old numbers would look current");
}

#[test]
fn thresholds_of_floods_change_with_the_next_read() {
    let reader = FakeInterfaces::new(vec![filtered_interface(1)]);
    let settings = FleetSettings { interfaces: Some(reader.clone()), ..FleetSettings::default() };
    let mut fleet = Fleet::new(settings);
    let many = Thresholds { flood_ps: f64::INFINITY, ..Thresholds::default() };
    fleet.set_thresholds(many);
    for (times, thresholds, found) in
        [(1, many, 0), (1000, many, 0), (2000, Thresholds::default(), 1)]
    {
        fleet.set_thresholds(thresholds);
        reader.set(Ok(vec![filtered_interface(times)]));
        fleet.read_interfaces();
        assert_eq!(fleet.state.findings().len(), found, "{times}");
        thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn a_host_without_apps_is_watched_for_its_interfaces() {
    let reader = FakeInterfaces::new(vec![filtered_interface(1)]);
    let mut settings =
        FleetSettings { interfaces: Some(reader.clone()), ..FleetSettings::default() };
    settings.discover.roots = vec!["/nonexistent".into()];
    settings.discover.proc = None;
    assert!(Fleet::start(None, settings.clone()).is_ok());
    assert!(Fleet::start(Some("a"), settings.clone()).is_err());
    reader.set(Ok(Vec::new()));
    assert!(Fleet::start(None, settings).is_err());
}

#[test]
fn of_one_app_the_interface_that_bypasses_the_kernel_to_it_is_shown() {
    let interfaces = vec![filtered_interface(1), split_interface(1)];
    let rules = vec![("dns".to_owned(), "resolver".to_owned())];
    let settings = FleetSettings {
        interfaces: Some(FakeInterfaces::new(interfaces)),
        names: AppNames::new(rules).unwrap(),
        ..FleetSettings::default()
    };
    let names = |only: Option<&str>| {
        let mut fleet = Fleet::new(settings.clone());
        if let Some(only) = only {
            fleet.only_interfaces_of(only, &[]);
        }
        fleet.read_interfaces();
        let interfaces = fleet.state.interfaces.interfaces.iter();
        interfaces.map(|interface| interface.sample.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["eth0", "eth1"]);
    assert_eq!(names(Some("dns")), ["eth1"]);
    assert_eq!(names(Some("resolver")), ["eth1"]);
    assert_eq!(names(Some("other")), [""; 0]);
    let mut settings = settings.clone();
    settings.set_only(Some("dns"));
    let mut fleet = Fleet::new(settings);
    fleet.read_interfaces();
    assert_eq!(fleet.state.interfaces.interfaces.len(), 1);
}

#[test]
fn an_uncounted_bypass_is_that_which_the_app_receives() {
    use crate::sample::tests::port;
    let mut split = split_interface(1);
    split.queues.iter_mut().for_each(|queue| queue.redirected = None);
    let mut fleet = FleetState::default();
    let (mut interfaces, mut app) =
        (InterfaceEvaluator::new(Thresholds::default()), Evaluator::new(LintRules::default()));
    for second in 1..=2 {
        split.rx_packets = Some(10_000 * second);
        split.queues[0].packets = Some(4000 * second);
        split.queues[1].packets = Some(6000 * second);
        fleet.apply(interfaces.event(Ok(vec![split.clone()]), second * 1_000_000_000));
        let mut sample = empty_sample();
        sample.app.name = "dns".to_owned();
        sample.monotonic_ns = second * 1_000_000_000;
        sample.ports = vec![port(0, 6000 * second)];
        fleet.apply(app.sampled(sample));
    }
    let interface = &fleet.interfaces.interfaces[0];
    assert_eq!(interface.rates.bypassed_pps, None);
    assert_eq!(fleet.split_rates(interface), (Some(6000.0), Some(4000.0)));
}
