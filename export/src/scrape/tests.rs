//! Requests about apps that are made of a socket and a thread.

use pmdscope_telemetry::AppStatus;
use pmdscope_telemetry::discover::DiscoverOptions;
use pmdscope_telemetry::finding::Lint;

use super::scheduler::DISCOVERY_INTERVAL;
use super::*;
use crate::fake::Fake;
use crate::text::TextFormat;

/// How long is waited for what is sure to come.
const DEADLINE: Duration = Duration::from_secs(30);

fn settings(root: &std::path::Path) -> FleetSettings {
    let discover = DiscoverOptions { roots: vec![root.to_owned()], ..DiscoverOptions::default() };
    FleetSettings { discover, ..FleetSettings::default() }
}

fn scraper(root: &std::path::Path) -> Arc<Scraper> {
    Arc::new(Scraper::new(settings(root), RenderOptions::default(), DEADLINE))
}

fn soon() -> Instant {
    Instant::now() + DEADLINE
}

fn app(name: &str) -> ScrapeScope {
    ScrapeScope::App(name.to_owned())
}

fn text(snapshot: &ScrapeSnapshot) -> String {
    let form = ExpositionForm { format: TextFormat::Text, gzip: false, only: None };
    String::from_utf8(snapshot.text(&form).bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn an_app_that_has_come_is_asked_in_the_same_scrape() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = Fake::start(root.path(), "a");
    let snapshot = scraper.snapshot(ScrapeScope::All, None, soon()).await;
    assert_eq!(snapshot.world.find("a").unwrap().status, AppStatus::Live);
    assert!(text(&snapshot).contains("dpdk_up{app=\"a\"} 1\n"));
    assert!(text(&snapshot).contains("\ndpdk_exporter_collections_total 1\n"));
    assert_eq!(fake.rounds(), 1);
}

#[tokio::test]
async fn those_who_ask_at_the_same_time_share_one_round() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = Fake::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::Names, None, soon()).await;
    fake.delay(Duration::from_millis(500));
    let requests: Vec<_> = (0..100)
        .map(|_| {
            let scraper = Arc::clone(&scraper);
            tokio::spawn(async move { scraper.snapshot(ScrapeScope::All, None, soon()).await })
        })
        .collect();
    let mut last = None;
    for request in requests {
        let snapshot = request.await.unwrap();
        assert_eq!(snapshot.world.find("a").unwrap().status, AppStatus::Live);
        last = Some(snapshot);
    }
    assert_eq!(fake.rounds(), 1);
    let text = text(&last.unwrap());
    assert!(text.contains("\ndpdk_exporter_collections_total 1\n"), "{text}");
    assert!(text.contains("\ndpdk_exporter_shared_scrapes_total 99\n"), "{text}");
}

#[tokio::test]
async fn nothing_is_kept_for_whoever_asks_later() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = Fake::start(root.path(), "a");
    for round in 1..=3 {
        scraper.snapshot(ScrapeScope::All, None, soon()).await;
        assert_eq!(fake.rounds(), round);
    }
}

#[tokio::test]
async fn a_stuck_app_costs_its_own_series_only() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let (_well, stuck) = (Fake::start(root.path(), "a"), Fake::start(root.path(), "b"));
    scraper.snapshot(ScrapeScope::All, None, soon()).await;
    stuck.delay(DEADLINE);
    let began = Instant::now();
    let deadline = began + Duration::from_secs(3);
    let all = {
        let scraper = Arc::clone(&scraper);
        tokio::spawn(async move { scraper.snapshot(ScrapeScope::All, None, deadline).await })
    };
    tokio::task::yield_now().await;
    // Whoever wants to know of another does not wait for it.
    let other = scraper.snapshot(app("a"), None, soon()).await;
    assert!(!all.is_finished());
    assert_eq!(other.world.find("a").unwrap().status, AppStatus::Live);
    // Whoever cannot wait is told that it is late.
    let hurried = scraper.snapshot(app("b"), None, Instant::now()).await;
    assert!(hurried.world.find("b").unwrap().stale());
    assert_eq!(hurried.world.find("b").unwrap().findings[0].lint, Lint::Unreachable);
    let all = all.await.unwrap();
    assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
    let text = text(&all);
    assert!(text.contains("dpdk_up{app=\"a\"} 1\n") && text.contains("dpdk_up{app=\"b\"} 0\n"));
    assert!(text.contains("dpdk_collect_errors_total{app=\"b\",reason=\"timeout\"} 1\n"), "{text}");
}

#[tokio::test]
async fn looks_are_a_second_apart() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    assert!(scraper.snapshot(ScrapeScope::Names, None, soon()).await.world.apps.is_empty());
    let fake = Fake::start(root.path(), "a");
    assert!(scraper.snapshot(app("a"), None, soon()).await.world.apps.is_empty());
    tokio::time::sleep(Duration::from_millis(1050)).await;
    assert_eq!(scraper.snapshot(ScrapeScope::Names, None, soon()).await.world.apps.len(), 1);
    assert_eq!(fake.rounds(), 0, "names alone ask nobody");
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_hurts_nobody() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = Fake::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::Names, None, soon()).await;
    fake.delay(Duration::from_millis(50));
    let gone = {
        let scraper = Arc::clone(&scraper);
        tokio::spawn(async move { scraper.snapshot(ScrapeScope::All, None, soon()).await })
    };
    tokio::task::yield_now().await;
    gone.abort();
    let snapshot = scraper.snapshot(ScrapeScope::All, None, soon()).await;
    assert_eq!(snapshot.world.find("a").unwrap().status, AppStatus::Live);
    assert_eq!(fake.rounds(), 1);
}

#[tokio::test]
async fn who_is_in_a_hurry_costs_the_patient_nothing() {
    let root = tempfile::tempdir().unwrap();
    let scraper = scraper(root.path());
    let fake = Fake::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::All, None, soon()).await;
    fake.delay(Duration::from_millis(300));
    for _ in 0..2 {
        let hurried = scraper.snapshot(ScrapeScope::All, None, Instant::now()).await;
        assert!(hurried.world.find("a").unwrap().stale());
        let text = text(&hurried);
        let late = "dpdk_collect_errors_total{app=\"a\",reason=\"timeout\"} 1\n";
        assert!(text.contains(late), "once per round: {text}");
    }
    let patient = scraper.snapshot(ScrapeScope::All, None, soon()).await;
    assert_eq!(patient.world.find("a").unwrap().status, AppStatus::Live);
    assert_eq!(fake.rounds(), 2, "it shared the round that was begun in a hurry");
}

#[tokio::test]
async fn an_app_that_is_renamed_while_it_is_asked_holds_nobody_up() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut settings = settings(root.path());
    settings.discover.roots.push(other.path().to_owned());
    let scraper = Arc::new(Scraper::new(settings, RenderOptions::default(), DEADLINE));
    let fake = Fake::start(root.path(), "a");
    scraper.snapshot(ScrapeScope::All, None, soon()).await;
    tokio::time::sleep(DISCOVERY_INTERVAL).await;
    fake.delay(Duration::from_millis(500));
    let began = Instant::now();
    scraper.snapshot(app("a"), None, began).await;
    // Two of a name are called by their directories.
    let _namesake = Fake::start(other.path(), "a");
    let snapshot = scraper.snapshot(ScrapeScope::All, None, soon()).await;
    assert!(began.elapsed() < DEADLINE / 2, "it waits until the deadline");
    assert!(snapshot.world.apps.iter().any(|app| app.status == AppStatus::Live));
}
