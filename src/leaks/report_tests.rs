//! Reports as printed.

use insta::assert_snapshot;
use pmdscope_render::plain_text;
use pmdscope_telemetry::sample::{
    AppIdentity, BEFORE_ARMING, LibrarySample, PoolOccupancy, SAMPLE_SCHEMA, SiteKind, SiteSample,
};
use pmdscope_telemetry::{FleetEvent, ModelTracker};

use std::sync::Arc;

use super::*;
use pmdscope_telemetry::sample::PoolScanSample;

fn app(name: &str, level: u8) -> Sample {
    Sample {
        schema: SAMPLE_SCHEMA,
        realtime_ns: 1_767_323_045_000_000_000,
        monotonic_ns: 1_000_000_000,
        duration_ns: 1_000_000,
        requests: 9,
        app: AppIdentity {
            name: name.to_owned(),
            pid: 7,
            start_ticks: 70,
            dpdk_version: "DPDK 22.11.11".to_owned(),
            ..AppIdentity::default()
        },
        library: (level > 0)
            .then(|| LibrarySample { version: "0.1.0".to_owned(), ..LibrarySample::default() }),
        ..Sample::default()
    }
}

fn pool(name: &str, in_use: Option<u64>) -> PoolSample {
    let occupancy =
        in_use.map(|in_use| PoolOccupancy { common: 16_383 - in_use, cached: 0, in_use });
    PoolSample { name: name.to_owned(), size: 16_383, occupancy, ..PoolSample::default() }
}

fn ledger(leaked: u64, unplaced: u64) -> LedgerSample {
    LedgerSample {
        name: "mb_pool".to_owned(),
        size: 16_383,
        common: 12_000 - leaked - unplaced,
        cached: 383,
        rx_posted: 3_000,
        tx_pending: 900,
        held: 100,
        leaked,
        unplaced,
        armed: unplaced == 0,
        slope_milli: 412_000,
        exhausted_in_ms: Some(25_100),
        ..LedgerSample::default()
    }
}

fn site(id: u32, place: &str, function: &str, kind: SiteKind, count: u64) -> SiteSample {
    SiteSample {
        pool: "mb_pool".to_owned(),
        site: place.to_owned(),
        function: function.to_owned(),
        operation: "rx".to_owned(),
        kind,
        id,
        count,
        events: count,
        oldest_ms: 1_520,
        newest_ms: 30,
        first_realtime_ns: 1_767_323_043_000_000_000,
    }
}

/// A level 2 app that leaks.
pub(crate) fn leaking() -> Sample {
    let mut sample = app("reflector", 1);
    sample.pools = vec![pool("mb_pool", Some(4_000))];
    sample.ledger = vec![ledger(1_040, 0)];
    sample.sites = vec![
        site(18, "app_fwd.c:18", "forward", SiteKind::Leak, 1_025),
        site(3, "tx port 0 queue 1", "", SiteKind::TxLost, 15),
        SiteSample { operation: String::new(), ..site(0, BEFORE_ARMING, "", SiteKind::Leak, 7) },
        site(48, "app_fwd.c:48", "retry", SiteKind::DoubleFree, 2),
    ];
    sample
}

/// All these apps, each sampled at the given in-use counts a second apart.
fn fleet(apps: &[Sample], in_use: &[u64]) -> FleetState {
    let mut fleet = FleetState::default();
    for app in apps {
        let mut tracker = ModelTracker::default();
        for (second, in_use) in (1..).zip(in_use) {
            let mut sample = app.clone();
            sample.monotonic_ns = second * 1_000_000_000;
            for occupancy in sample.pools.iter_mut().filter_map(|pool| pool.occupancy.as_mut()) {
                occupancy.in_use = *in_use;
            }
            for site in sample.sites.iter_mut().filter(|site| site.id == 18) {
                site.events += second * 412;
            }
            let model = Arc::new(tracker.update(sample));
            let name = app.app.name.clone();
            fleet.apply(FleetEvent::Sampled { app: name, model, findings: Vec::new() });
        }
    }
    fleet
}

#[test]
fn one_row_per_site_and_notes_below() {
    let mut sample = leaking();
    sample.ledger[0].lost_at_least = 31;
    let fleet = fleet(&[sample], &[4_000, 4_412]);
    assert_snapshot!(plain_text(&text(&fleet, &AppScans::new())));
}

#[test]
fn several_apps_of_all_levels() {
    let mut stock = app("testpmd", 0);
    stock.pools = vec![pool("mb_pool_0", Some(0))];
    let mut old = app("old", 0);
    old.pools = vec![pool("mb_pool_0", None)];
    let mut ungrown = app("ungrown", 1);
    ungrown.pools = vec![pool("mb_pool_0", None)];
    let mut clean = app("clean", 1);
    clean.ledger = vec![ledger(0, 250)];
    let fleet = fleet(&[leaking(), stock, old, ungrown, clean], &[1000, 1100, 1200, 1300, 1400]);
    assert_snapshot!(plain_text(&text(&fleet, &AppScans::new())));
}

#[test]
fn an_app_without_leaks_says_so() {
    let mut clean = app("clean", 1);
    clean.ledger = vec![ledger(0, 0)];
    assert_eq!(
        plain_text(&text(&fleet(&[clean], &[1]), &AppScans::new())),
        "clean: no leaks in 1 pool of 16,383 mbufs\n"
    );
}

#[test]
fn a_pool_that_is_empty_for_no_known_reason_is_not_called_clean() {
    let mut empty = app("empty", 1);
    empty.ledger = vec![ledger(0, 0)];
    (empty.ledger[0].common, empty.ledger[0].cached, empty.ledger[0].held) = (0, 31, 12_452);
    let text = plain_text(&text(&fleet(&[empty], &[1]), &AppScans::new()));
    assert!(text.starts_with("empty: only 31 of 16,383 mbufs of mb_pool are free"), "{text}");
    assert!(!text.contains("no leaks"), "{text}");
}

#[test]
fn a_pool_whose_mbufs_are_in_software_rings_says_so() {
    let mut empty = app("empty", 1);
    empty.ledger = vec![ledger(0, 0)];
    let row = &mut empty.ledger[0];
    (row.common, row.cached, row.held, row.rings) = (0, 31, 452, 12_000);
    let text = plain_text(&text(&fleet(&[empty], &[1]), &AppScans::new()));
    assert!(
        text.starts_with(
            "empty: 12,000 of 16,383 mbufs of mb_pool are in software rings: their consumers"
        ),
        "{text}"
    );
    assert!(!text.contains("not proven"), "{text}");
}

#[test]
fn a_ledger_is_explained_and_others_are_named() {
    let fleet = fleet(&[leaking()], &[4_000]);
    assert_snapshot!(explain(&fleet, &AppScans::new(), Some("mb_pool")));
    assert_eq!(explain(&fleet, &AppScans::new(), Some("other")), "");
    assert_eq!(pools(&fleet, &AppScans::new()), ["mb_pool"]);
}

#[test]
fn modes_are_told_by_app() {
    let mut disarmed = app("disarmed", 1);
    disarmed.ledger = vec![ledger(0, 250)];
    let fleet = fleet(&[leaking(), disarmed, app("stock", 0)], &[1]);
    assert_eq!(
        modes(&fleet),
        "disarmed: mode auto, stamps disarmed\nreflector: mode auto, stamps armed\n\
         stock: -\n"
    );
    assert!(why_no_ledger(&fleet, &AppScans::new()).contains("stock: runs without libpmdscope"));
}

#[test]
fn json_has_schema_ledger_sites_and_rates() {
    let fleet = fleet(&[leaking(), app("stock", 0)], &[4_000, 4_412]);
    let json = serde_json::to_value(Document::of(&fleet, &AppScans::new())).unwrap();
    assert_eq!((&json["schema"], &json["leaks"]), (&1.into(), &true.into()));
    let [leaking, stock] = [&json["apps"][0], &json["apps"][1]];
    assert_eq!((&leaking["app"], &leaking["level"]), (&"reflector".into(), &1.into()));
    assert_eq!(leaking["ledger"][0]["leaked"], 1_040);
    assert_eq!(leaking["sites"][0]["site"], "app_fwd.c:18");
    assert_eq!(leaking["sites"][0]["rate_ps"], 412.0);
    assert_eq!(leaking["sites"][1]["kind"], "tx_lost");
    assert_eq!(leaking["pools"][0]["exhausted_in_s"], 25.1);
    assert_eq!((&stock["leaks"], &stock["level"]), (&false.into(), &0.into()));
    assert_eq!(stock["ledger"], serde_json::json!([]));
}

/// A mempool of 65,535 mbufs that loses 22 of them: most of one conversation.
fn scanned_pool() -> PoolScanSample {
    let group = |mbufs, source: Option<&str>, conversations| LostGroupSample {
        mbufs,
        port: Some(0),
        protocol: Some("udp".into()),
        source: source.map(Into::into),
        destination: Some("198.18.1.1:53".into()),
        conversations,
        least_bytes: 60,
        most_bytes: if source.is_some() { 60 } else { 1514 },
        segments: Some(1),
        refcnt: Some(1),
        oldest_at_least_ms: 1_200,
    };
    PoolScanSample {
        name: "mb_pool".into(),
        size: 65_535,
        held: 595,
        lost: 22,
        lost_ps: Some(1.5),
        oldest_at_least_ms: 1_200,
        groups: vec![group(18, Some("198.18.0.1:1024"), 1), group(4, None, 4)],
        ..PoolScanSample::default()
    }
}

#[allow(clippy::unnecessary_wraps)] // as scans give it
fn scan(pools: Vec<PoolScanSample>) -> Result<AppScan, String> {
    let scan = ScanSample {
        scans: 2,
        scanned_bytes: 304 << 20,
        duration_ms: 1_412,
        pools,
        ..ScanSample::default()
    };
    Ok(AppScan { sample: scan, live: None })
}

#[test]
fn lost_mbufs_of_stock_apps_are_told_by_pool_and_group() {
    let names = ["broken", "clean", "denied", "leaky", "mixed", "unscanned"];
    let apps = names.map(|name| app(name, 0));
    let fleet = fleet(&apps, &[1]);
    let mut one = scanned_pool();
    one.groups.truncate(1);
    (one.name, one.lost, one.lost_ps) = ("rx".into(), 18, None);
    let clean = PoolScanSample { name: "mb".into(), size: 8_191, ..PoolScanSample::default() };
    let mut judged = clean.clone();
    (judged.not_judged, judged.not_judged_why) = (512, vec!["port 1 is AF_XDP".into()]);
    let mut broken = scan(vec![clean.clone()]);
    if let Ok(broken) = &mut broken {
        broken.sample.problems.push("the pool tx was destroyed during the scan".into());
    }
    let scans = [
        ("broken", broken),
        ("clean", scan(vec![clean.clone()])),
        ("denied", Err("may not read the memory of process 7: run as root".to_owned())),
        ("leaky", scan(vec![scanned_pool(), clean, one])),
        ("mixed", scan(vec![judged])),
    ];
    let scans = scans.map(|(name, scan)| (name.to_owned(), scan)).into();
    let lines = text(&fleet, &scans);
    assert_snapshot!(plain_text(&lines));
    let bad = lines.iter().flat_map(|line| &line.spans).filter(|span| span.tone == Tone::Bad);
    assert_eq!(bad.map(|span| span.text.trim()).collect::<Vec<_>>(), ["!22", "!18"]);
    assert!(lines[0].spans.iter().any(|span| span.tone == Tone::Label), "{:?}", lines[0]);
    let json = serde_json::to_value(Document::of(&fleet, &scans)).unwrap();
    assert_eq!((&json["apps"][3]["leaks"], &json["leaks"]), (&true.into(), &true.into()));
    assert_eq!(json["apps"][3]["scan_summary"]["pools"][0]["groups"][1]["conversations"], 4);
    assert!(json["apps"][2]["scan_error"].as_str().unwrap().starts_with("may not read"));
    assert_eq!(json["apps"][5].get("scan_summary"), None);
}
