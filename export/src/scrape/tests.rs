//! Tests of requests about fake apps, each with a socket and a thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pmdscope_telemetry::AppStatus;
use pmdscope_telemetry::ErrorClass;
use pmdscope_telemetry::discover::DiscoverOptions;
use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::fixture::{FakeInterfaces, filtered_interface};
use pmdscope_telemetry::interface::{InterfaceReader, InterfaceSample};
use tokio::task::JoinHandle;

use super::scheduler::DISCOVERY_INTERVAL;
use super::*;
use crate::fake::{DEADLINE, NEVER, PoolApp, WAIT, until};
use crate::snapshot::ExpositionForm;
use crate::text::TextFormat;

fn settings(root: &std::path::Path) -> FleetSettings {
    let discover =
        DiscoverOptions { roots: vec![root.to_owned()], proc: None, ..DiscoverOptions::default() };
    FleetSettings { discover, ..FleetSettings::default() }
}

fn scraper(root: &std::path::Path) -> Arc<Scraper> {
    Scraper::new(settings(root), RenderOptions::default(), NEVER, WAIT)
}

fn soon() -> Instant {
    Instant::now() + DEADLINE
}

fn app(name: &str) -> ScrapeScope {
    ScrapeScope::App(name.to_owned())
}

/// Starts a scrape of all apps.
fn spawn(scraper: &Arc<Scraper>, deadline: Instant) -> JoinHandle<Arc<ScrapeSnapshot>> {
    let scraper = Arc::clone(scraper);
    tokio::spawn(async move { scraper.snapshot(ScrapeScope::All, deadline).await })
}

async fn text(snapshot: &Arc<ScrapeSnapshot>) -> String {
    let form = ExpositionForm { format: TextFormat::Text, gzip: false, only: None };
    String::from_utf8(snapshot.text(&form).await.unwrap().document.read().unwrap()).unwrap()
}

#[tokio::test]
async fn a_new_app_is_queried_in_the_same_scrape() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = PoolApp::start(root.path(), "a");
    let snapshot = scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(snapshot.fleet.find("a").unwrap().status, AppStatus::Live);
    let text = text(&snapshot).await;
    assert!(text.contains("dpdk_up{app=\"a\"} 1\n"));
    assert!(text.contains("\ndpdk_exporter_collections_total 1\n"));
    assert_eq!(fake.rounds(), 1);
}

#[tokio::test]
async fn concurrent_requests_share_one_query() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = PoolApp::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::Names, soon()).await;
    fake.hold(true);
    let requests: Vec<_> = (0..100).map(|_| spawn(&scraper, soon())).collect();
    fake.asked().await;
    fake.hold(false);
    let mut last = None;
    for request in requests {
        let snapshot = request.await.unwrap();
        assert_eq!(snapshot.fleet.find("a").unwrap().status, AppStatus::Live);
        last = Some(snapshot);
    }
    assert_eq!(fake.rounds(), 1);
    let text = text(&last.unwrap()).await;
    assert!(text.contains("\ndpdk_exporter_collections_total 1\n"), "{text}");
    assert!(text.contains("\ndpdk_exporter_shared_scrapes_total 99\n"), "{text}");
}

#[tokio::test]
async fn results_are_not_cached_for_later_requests() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = PoolApp::start(root.path(), "a");
    for round in 1..=3 {
        scraper.snapshot(ScrapeScope::All, soon()).await;
        assert_eq!(fake.rounds(), round);
    }
}

#[tokio::test]
async fn a_stuck_app_loses_only_its_own_series() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let (_well, stuck) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b"));
    scraper.snapshot(ScrapeScope::All, soon()).await;
    stuck.hold(true);
    let all = spawn(&scraper, Instant::now() + NEVER);
    stuck.asked().await;
    // A request for another app does not wait for it.
    let other = scraper.snapshot(app("a"), soon()).await;
    assert!(!all.is_finished());
    all.abort();
    assert_eq!(other.fleet.find("a").unwrap().status, AppStatus::Live);
    // A request at its deadline reports the app as late.
    let hurried = scraper.snapshot(app("b"), Instant::now()).await;
    assert!(hurried.fleet.find("b").unwrap().stale());
    assert_eq!(hurried.fleet.find("b").unwrap().findings[0].lint, Lint::Unreachable);
    let all = spawn(&scraper, Instant::now() + Duration::from_secs(1));
    let all = tokio::time::timeout(DEADLINE, all).await.unwrap().unwrap();
    let text = text(&all).await;
    assert!(text.contains("dpdk_up{app=\"a\"} 1\n") && text.contains("dpdk_up{app=\"b\"} 0\n"));
    assert!(text.contains("dpdk_collect_errors_total{app=\"b\",reason=\"timeout\"} 1\n"), "{text}");
}

#[tokio::test]
async fn new_thresholds_apply_from_the_next_round_on() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = PoolApp::start(root.path(), "a");
    let lints = async || {
        let snapshot = scraper.snapshot(ScrapeScope::All, soon()).await;
        let findings = &snapshot.fleet.find("a").unwrap().findings;
        let lints = findings.iter().map(|finding| finding.lint);
        lints.filter(|lint| *lint != Lint::NoPorts).collect::<Vec<_>>()
    };
    assert_eq!(lints().await, []);
    let low = Thresholds { pool_used: 0.001, ..Thresholds::default() };
    scraper.set_thresholds(low);
    assert_eq!(lints().await, [Lint::PoolExhausting]);
    scraper.set_thresholds(Thresholds::default());
    assert_eq!(lints().await, []);
    // This also applies to an app with a running query.
    fake.hold(true);
    scraper.snapshot(ScrapeScope::All, Instant::now()).await;
    scraper.set_thresholds(low);
    fake.hold(false);
    until(async || lints().await == [Lint::PoolExhausting]).await;
}

/// Returns the objects in use, which the fake app increments in each round, and the time of the sample.
fn in_use(snapshot: &ScrapeSnapshot, app: &str) -> (u64, u64) {
    let app = snapshot.fleet.find(app).unwrap();
    assert_eq!(app.status, AppStatus::Live);
    let sample = &app.model.as_ref().unwrap().sample;
    (sample.pools[0].occupancy.unwrap().in_use, sample.realtime_ns)
}

#[tokio::test]
async fn a_scrape_has_the_values_of_its_own_time_while_another_app_hangs() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let (well, stuck) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b"));
    scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(well.rounds(), 1);
    stuck.hold(true);
    // Two scrapes wait for the app that hangs, and had the answer of the other app long before.
    let first = spawn(&scraper, soon());
    until(async || well.rounds() == 2 && in_use(&*names(&scraper).await, "a").0 == 2).await;
    let second = spawn(&scraper, soon());
    until(async || well.rounds() == 3 && in_use(&*names(&scraper).await, "a").0 == 3).await;
    // A third client requests only the other app, as probes do.
    let mut probed = Vec::new();
    for _ in 0..3 {
        probed.push(in_use(&*scraper.snapshot(app("a"), soon()).await, "a"));
    }
    assert!(!first.is_finished() && !second.is_finished());
    stuck.hold(false);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let (first, second) = (in_use(&first, "a"), in_use(&second, "a"));
    let values: Vec<u64> = [first, second].iter().chain(&probed).map(|(value, _)| *value).collect();
    assert_eq!(values, [2, 3, 4, 5, 6]);
    assert!(first.1 < second.1 && second.1 < probed[0].1, "the time is that of the value");
}

#[tokio::test]
async fn a_scrape_that_gives_up_does_not_call_those_late_that_others_ask_again() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let (well, stuck) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b"));
    scraper.snapshot(ScrapeScope::All, soon()).await;
    stuck.hold(true);
    let scrape = spawn(&scraper, Instant::now() + Duration::from_secs(2));
    until(async || in_use(&*names(&scraper).await, "a").0 == 2).await;
    well.hold(true);
    let other = {
        let scraper = Arc::clone(&scraper);
        tokio::spawn(async move { scraper.snapshot(app("a"), soon()).await })
    };
    well.asked().await;
    let scrape = scrape.await.unwrap();
    assert_eq!(in_use(&scrape, "a").0, 2, "it has answered this scrape");
    assert!(scrape.fleet.find("b").unwrap().stale());
    assert_eq!(scrape.fleet.find("a").unwrap().errors.get(&ErrorClass::Timeout), None);
    well.hold(false);
    assert_eq!(in_use(&other.await.unwrap(), "a").0, 3);
}

/// Returns the known state without a query.
async fn names(scraper: &Arc<Scraper>) -> Arc<ScrapeSnapshot> {
    scraper.snapshot(ScrapeScope::Names, soon()).await
}

#[tokio::test]
async fn discoveries_are_a_second_apart() {
    loop {
        let root = tempfile::tempdir().unwrap();
        let scraper = scraper(root.path());
        let began = Instant::now();
        assert!(scraper.snapshot(ScrapeScope::Names, soon()).await.fleet.apps.is_empty());
        let fake = PoolApp::start(root.path(), "a");
        let found = !scraper.snapshot(app("a"), soon()).await.fleet.apps.is_empty();
        if began.elapsed() >= DISCOVERY_INTERVAL {
            // The machine was too slow for this test.
            continue;
        }
        assert!(!found);
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
        assert_eq!(scraper.snapshot(ScrapeScope::Names, soon()).await.fleet.apps.len(), 1);
        assert_eq!(fake.rounds(), 0, "names alone ask nobody");
        return;
    }
}

#[tokio::test]
async fn an_answer_after_the_deadline_does_no_harm() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = PoolApp::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::Names, soon()).await;
    fake.hold(true);
    let gone = spawn(&scraper, soon());
    fake.asked().await;
    gone.abort();
    let patient = spawn(&scraper, soon());
    tokio::task::yield_now().await;
    fake.hold(false);
    let snapshot = patient.await.unwrap();
    assert_eq!(snapshot.fleet.find("a").unwrap().status, AppStatus::Live);
    assert_eq!(fake.rounds(), 1);
}

#[tokio::test]
async fn a_short_deadline_does_not_shorten_longer_ones() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = PoolApp::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::All, soon()).await;
    fake.hold(true);
    for _ in 0..2 {
        let hurried = scraper.snapshot(ScrapeScope::All, Instant::now()).await;
        assert!(hurried.fleet.find("a").unwrap().stale());
        let text = text(&hurried).await;
        let late = "dpdk_collect_errors_total{app=\"a\",reason=\"timeout\"} 1\n";
        assert!(text.contains(late), "once per round: {text}");
    }
    let patient = spawn(&scraper, soon());
    tokio::task::yield_now().await;
    fake.hold(false);
    let patient = patient.await.unwrap();
    assert_eq!(patient.fleet.find("a").unwrap().status, AppStatus::Live);
    assert_eq!(fake.rounds(), 2, "it shared the round that was begun in a hurry");
}

#[tokio::test]
async fn an_app_renamed_during_a_query_delays_no_other() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut settings = settings(root.path());
    settings.discover.roots.push(other.path().to_owned());
    let scraper = Scraper::new(settings, RenderOptions::default(), NEVER, WAIT);
    let fake = PoolApp::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::All, soon()).await;
    tokio::time::sleep(DISCOVERY_INTERVAL).await;
    fake.hold(true);
    scraper.snapshot(app("a"), Instant::now()).await;
    // Two apps with the same name are named after their directories.
    let _namesake = PoolApp::start(other.path(), "a");
    let scrape = spawn(&scraper, Instant::now() + NEVER);
    until(async || scraper.snapshot(ScrapeScope::Names, soon()).await.fleet.find("a").is_none())
        .await;
    fake.hold(false);
    let snapshot = tokio::time::timeout(DEADLINE, scrape).await.expect("it waits for ever");
    let snapshot = snapshot.unwrap();
    assert!(snapshot.fleet.apps.iter().any(|app| app.status == AppStatus::Live));
}

static FIXED: AtomicBool = AtomicBool::new(false);

/// A discovery that panics the first time.
fn discover(settings: &FleetSettings, connected: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
    static DISCOVERED: AtomicBool = AtomicBool::new(false);
    assert!(DISCOVERED.swap(true, Ordering::SeqCst), "a bug");
    settings.running_beside(connected)
}

/// A query of the app "a" that panics until this is fixed.
fn sample(session: &mut AppSampler, timeout: Duration) -> FleetEvent {
    assert!(session.app().name != "a" || FIXED.load(Ordering::SeqCst), "a bug");
    session.sample(timeout)
}

#[tokio::test]
async fn a_query_that_panics_is_reported_at_once_and_repeated() {
    let root = tempfile::tempdir().unwrap();
    let _apps = ["a", "b"].map(|name| PoolApp::start(root.path(), name));
    let queries = BlockingQueries { discover, sample };
    let scraper = Scraper::with_queries(
        settings(root.path()),
        RenderOptions::default(),
        NEVER,
        WAIT,
        queries,
    );
    // Without an answer, this would wait forever, as a scrape would until its deadline.
    let scrape = || async {
        let scrape = scraper.snapshot(ScrapeScope::All, Instant::now() + NEVER);
        tokio::time::timeout(DEADLINE, scrape).await.unwrap()
    };
    assert!(scrape().await.fleet.apps.is_empty(), "the discovery failed");
    for round in 1..=2 {
        let fleet = &scrape().await.fleet;
        let lost = fleet.find("a").unwrap();
        let AppStatus::Lost { reason } = &lost.status else { panic!("{lost:?}") };
        assert!(reason.contains("a bug"), "{reason}");
        assert_eq!(lost.errors[&ErrorClass::Internal], round);
        assert_eq!(fleet.find("b").unwrap().status, AppStatus::Live);
    }
    FIXED.store(true, Ordering::SeqCst);
    assert_eq!(scrape().await.fleet.find("a").unwrap().status, AppStatus::Live);
}

/// A query that gives the app "b" little time in its first round only.
fn sample_b_briefly_once(session: &mut AppSampler, timeout: Duration) -> FleetEvent {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let first = session.app().name == "b" && !ASKED.swap(true, Ordering::SeqCst);
    session.sample(if first { Duration::from_millis(300) } else { timeout })
}

#[tokio::test]
async fn a_scrape_does_not_wait_for_an_app_that_hung_the_last_time() {
    let root = tempfile::tempdir().unwrap();
    let (well, stuck) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b"));
    stuck.hold(true);
    let queries =
        BlockingQueries { discover: FleetSettings::running_beside, sample: sample_b_briefly_once };
    let scraper = Scraper::with_queries(
        settings(root.path()),
        RenderOptions::default(),
        NEVER,
        WAIT,
        queries,
    );
    scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(well.rounds(), 1);
    for round in 2..=4 {
        // The scrape and the app have no deadline.
        let scrape = scraper.snapshot(ScrapeScope::All, Instant::now() + NEVER);
        let scrape = tokio::time::timeout(DEADLINE, scrape).await.expect("it waits for b");
        assert_eq!(in_use(&scrape, "a").0, round);
        assert!(scrape.fleet.find("b").unwrap().stale());
    }
    stuck.hold(false);
    until(async || {
        scraper.snapshot(app("b"), soon()).await.fleet.find("b").is_some_and(|b| !b.stale())
    })
    .await;
    let scrape = scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(scrape.fleet.find("b").unwrap().status, AppStatus::Live);
}

#[tokio::test]
async fn a_scrape_does_not_wait_for_an_app_that_never_answered() {
    let root = tempfile::tempdir().unwrap();
    let (well, stuck) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b"));
    let limits = WaitLimits { first: Duration::ZERO, ..WAIT };
    let scraper = Scraper::new(settings(root.path()), RenderOptions::default(), NEVER, limits);
    // Both are known after this, but only one has answered.
    stuck.hold(true);
    scraper.snapshot(app("a"), soon()).await;
    assert_eq!(well.rounds(), 1);
    for round in 2..=4 {
        // The scrape and the app have no deadline.
        let scrape = scraper.snapshot(ScrapeScope::All, Instant::now() + NEVER);
        let scrape = tokio::time::timeout(DEADLINE, scrape).await.expect("it waits for b");
        assert_eq!(in_use(&scrape, "a").0, round);
        assert_eq!(scrape.fleet.find("b").unwrap().status, AppStatus::Waiting);
        let text = text(&scrape).await;
        assert!(text.contains("\ndpdk_apps_discovered 2\n"), "{text}");
        assert!(
            !text.contains("dpdk_up{app=\"b\"}") && !text.contains("reason=\"timeout\"} 1"),
            "{text}"
        );
    }
    // A request at its deadline reports the app as late.
    let hurried = scraper.snapshot(app("b"), Instant::now()).await;
    assert_eq!(hurried.fleet.find("b").unwrap().findings[0].lint, Lint::Unreachable);
    stuck.hold(false);
    until(async || {
        scraper.snapshot(app("b"), soon()).await.fleet.find("b").is_some_and(|b| !b.stale())
    })
    .await;
}

static BEING_ASKED: AtomicUsize = AtomicUsize::new(0);
static MOST_ASKED: AtomicUsize = AtomicUsize::new(0);

fn many(_: &FleetSettings, _: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
    let app = |number: usize| {
        let dir = std::path::PathBuf::from(format!("/nowhere/{number:03}"));
        let state = pmdscope_telemetry::discover::Reachability::Live;
        DiscoveredApp::in_dir(dir, format!("app{number:03}"), "socket", state)
    };
    (0..200).map(app).collect()
}

fn count_asked(session: &mut AppSampler, _: Duration) -> FleetEvent {
    let asked = 1 + BEING_ASKED.fetch_add(1, Ordering::SeqCst);
    MOST_ASKED.fetch_max(asked, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(2));
    BEING_ASKED.fetch_sub(1, Ordering::SeqCst);
    FleetEvent::Found { app: session.app().name.clone() }
}

#[tokio::test]
async fn many_apps_are_asked_by_few_threads() {
    let root = tempfile::tempdir().unwrap();
    let queries = BlockingQueries { discover: many, sample: count_asked };
    let scraper = Scraper::with_queries(
        settings(root.path()),
        RenderOptions::default(),
        NEVER,
        WAIT,
        queries,
    );
    let snapshot = scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(snapshot.fleet.apps.len(), 200);
    assert_eq!(BEING_ASKED.load(Ordering::SeqCst), 0);
    let most = MOST_ASKED.load(Ordering::SeqCst);
    assert!((2..=AT_ONCE).contains(&most), "{most} at once");
}

fn interfaces(root: &std::path::Path, reader: Arc<FakeInterfaces>) -> Arc<Scraper> {
    let settings = FleetSettings { interfaces: Some(reader), ..settings(root) };
    Scraper::new(settings, RenderOptions::default(), NEVER, WAIT)
}

#[tokio::test]
async fn interfaces_are_read_once_a_scrape_and_not_for_one_app() {
    let root = tempfile::tempdir().unwrap();
    let _apps = ["a", "b", "c"].map(|name| PoolApp::start(root.path(), name));
    let reader = FakeInterfaces::new(vec![filtered_interface(1)]);
    let scraper = interfaces(root.path(), reader.clone());
    let reads = || reader.reads.load(Ordering::Relaxed);
    let snapshot = scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(reads(), 1);
    let all = text(&snapshot).await;
    assert!(all.contains(
        "dpdk_xdp_filter_packets_total{interface=\"eth0\",reason=\"rate_limit\"} 8000\n"
    ));
    scraper.snapshot(app("a"), soon()).await;
    assert_eq!(reads(), 1);
    reader.set(Err("no permission".to_owned()));
    let later = text(&scraper.snapshot(ScrapeScope::Names, soon()).await).await;
    assert_eq!(reads(), 2);
    assert!(later.contains("\ndpdk_interfaces_readable 0\n"), "{later}");
    assert!(!later.contains("dpdk_xdp_filter_packets_total{"), "{later}");
}

#[tokio::test]
async fn a_reader_that_panics_is_reported_and_asked_again() {
    #[derive(Debug)]
    struct Panics(AtomicBool);

    impl InterfaceReader for Panics {
        fn read(&self) -> Result<Vec<InterfaceSample>, String> {
            assert!(!self.0.swap(false, Ordering::Relaxed), "a bug");
            Ok(vec![filtered_interface(1)])
        }
    }

    let root = tempfile::tempdir().unwrap();
    let reader = Arc::new(Panics(AtomicBool::new(true)));
    let settings = FleetSettings { interfaces: Some(reader), ..settings(root.path()) };
    let scraper = Scraper::new(settings, RenderOptions::default(), NEVER, WAIT);
    let snapshot = scraper.snapshot(ScrapeScope::All, soon()).await;
    let error = snapshot.fleet.interfaces.error.clone().unwrap();
    assert!(error.starts_with("cannot read interfaces: "), "{error}");
    let snapshot = scraper.snapshot(ScrapeScope::All, soon()).await;
    assert_eq!(snapshot.fleet.interfaces.interfaces.len(), 1);
}
