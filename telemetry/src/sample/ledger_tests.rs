//! Tests of the leak tables.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::columns::{FromPage, TablePage};
use crate::error::TelemetryError;

/// Returns a ledger that adds up, with this number of mbufs lost.
pub(crate) fn ledger(name: &str, leaked: u64) -> LedgerSample {
    LedgerSample {
        name: name.into(),
        size: 1000,
        common: 500 - leaked,
        cached: 100,
        rx_posted: 256,
        tx_pending: 32,
        rings: 12,
        held: 100,
        leaked,
        armed: true,
        ..LedgerSample::default()
    }
}

/// Returns a site of `pool` with mbufs that were lost 2 s to 50 ms ago.
pub(crate) fn site(pool: &str, id: u32, kind: SiteKind, count: u64) -> SiteSample {
    SiteSample {
        pool: pool.into(),
        site: format!("app.c:{id}"),
        function: "forward".into(),
        operation: "rx".into(),
        kind,
        id,
        count,
        events: count,
        oldest_ms: 2_000,
        newest_ms: 50,
        first_realtime_ns: 1_700_000_000_000_000_000,
    }
}

fn columns(value: Value) -> Map<String, Value> {
    let Value::Object(columns) = value else { panic!("not an object") };
    columns
}

fn read<T: FromPage>(value: Value) -> Result<Vec<T>, TelemetryError> {
    TablePage::parse(serde_json::from_value(value).unwrap()).and_then(T::from_page)
}

fn leaks() -> Value {
    json!({
        "schema": 1, "generation": 3, "offset": 0, "total": 2,
        "name": ["mb_pool", "clones"], "size": [16383, 1023],
        "common": [12000, 1000], "cached": [383, 0], "rx_posted": [1024, 0],
        "tx_pending": [512, 0], "rings": [64, 0], "held": [1376, 23], "leaked": [1024, 0],
        "unplaced": [0, 0], "lost_at_least": [0, 0], "prearm": [7, 0], "armed": [1, 0],
        "mode": ["auto", "never"], "readable": [1, 0], "slope_milli": [412_000, -3], "exhausted_in_ms": [30_055, 0],
        "first_leak_realtime_ns": [1_767_323_045_000_000_000_u64, 0], "walks": [40, 41],
        "walk_us": [35, 2], "double_frees": [0, 1], "use_after_frees": [0, 0]
    })
}

fn sites() -> Value {
    json!({
        "schema": 1, "generation": 3, "offset": 0, "total": 2,
        "pool": ["mb_pool", "mb_pool"], "site": ["app_fwd.c:18", "tx port 0 queue 1"],
        "function": ["forward", ""], "operation": ["rx", "tx"], "kind": ["leak", "tx_lost"],
        "id": [18, 3], "count": [1025, 2], "events": [1025, 4], "oldest_ms": [1500, 90],
        "newest_ms": [3, 80], "first_realtime_ns": [1_767_323_045_000_000_000_u64, 5]
    })
}

fn stages() -> Value {
    json!({
        "schema": 1, "generation": 3, "offset": 0, "total": 2, "stage": ["parse", "reassembly"],
        "held": [12, 400], "hold": [0, 1], "bound_ms": [1000, 0], "longest_ms": [3, 29_000]
    })
}

#[test]
fn a_ledger_adds_up_and_keeps_its_trend() {
    let ledgers: Vec<LedgerSample> = read(leaks()).unwrap();
    let [pool, clones] = &ledgers[..] else { panic!("{ledgers:?}") };
    assert_eq!((pool.sum(), pool.imbalance()), (16_383, None));
    assert_eq!((pool.slope_ps(), pool.exhausted_in_ms), (412.0, Some(30_055)));
    assert_eq!((pool.armed, pool.mode, pool.prearm), (true, LedgerMode::Auto, 7));
    assert_eq!((clones.armed, clones.mode), (false, LedgerMode::Never));
    assert_eq!((clones.slope_ps(), clones.exhausted_in_ms), (-0.003, None));
    assert_eq!((clones.double_frees, clones.opaque, pool.opaque), (1, true, false));
    let mut older = columns(leaks());
    older.remove("readable");
    assert!(read::<LedgerSample>(older.into()).unwrap().iter().all(|ledger| !ledger.opaque));
}

#[test]
fn a_ledger_that_does_not_add_up_says_by_how_much() {
    let mut wrong = ledger("mb", 5);
    wrong.held += 3;
    assert_eq!(wrong.imbalance().unwrap(), "the ledger of mb adds up to 1003 of 1000 mbufs");
    wrong.held = u64::MAX;
    assert_eq!(wrong.sum(), u64::MAX);
}

#[test]
fn sites_and_stages_keep_their_names() {
    let sites: Vec<SiteSample> = read(sites()).unwrap();
    assert_eq!(sites[0].place(), "app_fwd.c:18 forward()");
    assert_eq!(sites[1].place(), "tx port 0 queue 1");
    let deep = SiteSample { site: "src/net/fwd.c:7".into(), ..sites[0].clone() };
    assert_eq!((deep.brief_site(), deep.brief_place().as_str()), ("fwd.c:7", "fwd.c:7 forward()"));
    assert_eq!(deep.place(), "src/net/fwd.c:7 forward()");
    let stage = SiteSample { site: "stage rx/tx".into(), ..sites[1].clone() };
    assert_eq!(stage.brief_place(), "stage rx/tx");
    assert_eq!((sites[0].kind, sites[1].kind), (SiteKind::Leak, SiteKind::TxLost));
    let stages: Vec<StageSample> = read(stages()).unwrap();
    assert_eq!((stages[0].hold, stages[1].hold), (false, true));
    assert_eq!((stages[1].held, stages[1].longest_ms), (400, 29_000));
}

#[test]
fn a_trend_is_no_leak_and_a_recovered_site_neither() {
    let mut sample = crate::sample::tests::empty_sample();
    let recovered = SiteSample { count: 0, events: 9, ..site("mb", 1, SiteKind::Leak, 0) };
    sample.sites = vec![recovered];
    sample.ledger = vec![LedgerSample { slope_milli: 1_000_000, ..ledger("mb", 0) }];
    assert!(!sample.has_leaks());
    sample.ledger[0].lost_at_least = 1;
    assert!(sample.has_leaks());
    sample.ledger.clear();
    sample.sites = vec![SiteSample { events: 1, ..site("mb", 1, SiteKind::DoubleFree, 0) }];
    assert!(sample.has_leaks());
}

#[test]
fn a_pool_starves_if_nearly_all_mbufs_are_in_use_for_no_known_reason() {
    let mut pool = ledger("mb", 0);
    assert!(!pool.starves());
    (pool.common, pool.cached) = (19, 0);
    assert!(pool.starves());
    pool.cached = 1;
    assert!(!pool.starves());
    (pool.cached, pool.leaked) = (0, 1);
    assert!(!pool.starves());
    assert!(!LedgerSample::default().starves());
}

#[test]
fn a_pool_whose_mbufs_wait_in_rings_is_not_starved_for_no_known_reason() {
    let mut pool = LedgerSample { common: 19, cached: 0, rings: 501, held: 480, ..ledger("mb", 0) };
    assert!(pool.empty() && pool.queued_up() && !pool.starves());
    pool.rings = 500;
    assert!(!pool.queued_up() && pool.starves());
    (pool.common, pool.rings) = (100, 880);
    assert!(!pool.queued_up() && !pool.starves());
}

#[test]
fn an_unknown_mode_or_kind_is_an_error_and_no_guess() {
    let mut wrong = columns(leaks());
    wrong.insert("mode".into(), json!(["auto", "maybe"]));
    assert!(matches!(read::<LedgerSample>(wrong.into()), Err(TelemetryError::Malformed(_))));
    let mut wrong = columns(sites());
    wrong.insert("kind".into(), json!(["leak", "other"]));
    assert!(matches!(read::<SiteSample>(wrong.into()), Err(TelemetryError::Malformed(_))));
}

#[test]
fn names_of_kinds_are_those_of_the_contract() {
    let kinds = [
        SiteKind::Leak,
        SiteKind::TxLost,
        SiteKind::Pinned,
        SiteKind::DoubleFree,
        SiteKind::UseAfterFree,
    ];
    for kind in kinds {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
    }
    for mode in [LedgerMode::Auto, LedgerMode::Always, LedgerMode::Never] {
        assert_eq!(serde_json::to_value(mode).unwrap(), mode.to_string());
    }
}

fn any_cell() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_]{0,6}".prop_map(Value::from),
        Just(Value::from("leak")),
    ]
}

proptest! {
    #[test]
    fn any_change_to_a_leak_table_reads_or_fails(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec(any_cell(), 0..4)), 1..4)
    ) {
        for (index, table) in [leaks(), sites(), stages()].into_iter().enumerate() {
            let mut table = columns(table);
            let names: Vec<_> = table.keys().cloned().collect();
            for (name, cells) in &changes {
                table.insert(name.get(&names).clone(), Value::from(cells.clone()));
            }
            let _ = match index {
                0 => read::<LedgerSample>(table.into()).map(|rows| rows.iter().for_each(|row| {
                    let _ = (row.imbalance(), row.slope_ps());
                })),
                1 => read::<SiteSample>(table.into()).map(drop),
                _ => read::<StageSample>(table.into()).map(drop),
            };
        }
    }

    #[test]
    fn parts_never_overflow(parts: [u64; 8]) {
        let [common, cached, rx_posted, tx_pending, rings, held, leaked, unplaced] = parts;
        let ledger = LedgerSample {
            common, cached, rx_posted, tx_pending, rings, held, leaked, unplaced,
            ..LedgerSample::default()
        };
        let sum = parts.iter().map(|part| u128::from(*part)).sum::<u128>();
        prop_assert_eq!(u128::from(ledger.sum()), sum.min(u128::from(u64::MAX)));
    }
}
