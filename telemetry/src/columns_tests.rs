//! Tests of the column tables.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn page(value: Value) -> Result<TablePage, TelemetryError> {
    TablePage::parse(serde_json::from_value(value).unwrap())
}

fn pools() -> Value {
    json!({
        "schema": 1, "generation": 3, "offset": 0, "total": 2,
        "name": ["mb_pool", "clones"], "socket": [0, -1], "size": [16383, 1023],
        "element_bytes": [2432, 192], "cache_size": [256, 0],
        "common": [14000, 1000], "cached": [383, 0], "in_use": [2000, 23],
        "in_use_window_max": [2100, 23], "in_use_max": [3000, 23],
        "caches_row": [0, 0], "caches_lcore": [1, 3], "caches_objects": [183, 200]
    })
}

#[test]
fn pools_keep_their_parts_and_caches() {
    let pools = PoolSample::from_page(page(pools()).unwrap()).unwrap();
    assert_eq!(pools.len(), 2);
    let parts = pools[0].occupancy.unwrap();
    assert_eq!(parts.common + parts.cached + parts.in_use, pools[0].size);
    assert_eq!(pools[0].high_water, Some(HighWater { window: 2100, ever: 3000 }));
    assert_eq!(pools[0].lcore_caches, [(1, 183), (3, 200)].into());
    assert_eq!(pools[1].socket, -1);
    assert!(pools[1].lcore_caches.is_empty());
}

#[test]
fn histograms_are_split_by_row_and_unsupported_is_not_zero() {
    let queues = json!({
        "schema": 1, "generation": 1, "offset": 4, "total": 9, "next": 6,
        "port": [0, 1], "device": ["a", "b"], "queue": [0, 5], "dir": ["rx", "tx"],
        "polls": [9, 9], "empty": [1, 2], "packets": [18_446_744_073_709_551_615_u64, 2],
        "bytes": [5, 6], "depth_supported": [1, 0], "depth": [7, 0], "depth_window_max": [8, 0],
        "depth_max": [9, 0], "descriptors": [512, 0],
        "bursts_buckets": 2, "bursts": [1, 2, 3, 4], "depths_buckets": 1, "depths": [5, 6]
    });
    let page = page(queues).unwrap();
    assert_eq!((page.next, page.total), (Some(6), 9));
    let queues = QueueSample::from_page(page).unwrap();
    assert_eq!(queues[0].packets, u64::MAX);
    assert_eq!(
        (queues[0].bursts.as_slice(), queues[1].bursts.as_slice()),
        (&[1, 2][..], &[3, 4][..])
    );
    assert_eq!(queues[1].depths, [6]);
    assert_eq!((queues[0].depth, queues[0].descriptors), (Some(7), Some(512)));
    assert_eq!(
        (queues[1].depth, queues[1].depth_high_water, queues[1].descriptors),
        (None, None, None)
    );
    assert_eq!(queues[1].direction, QueueDirection::Tx);
}

#[test]
fn counters_that_a_page_of_queues_lacks_are_zero() {
    let queues = json!({
        "schema": 1, "generation": 1, "offset": 0, "total": 1, "port": [3], "queue": [2],
        "dir": ["rx"], "polls": [9], "packets": [7], "bytes": [5]
    });
    let queues = QueueSample::from_page(page(queues).unwrap()).unwrap();
    assert_eq!((queues[0].polls, queues[0].empty, queues[0].packets), (9, 0, 7));
    assert_eq!((queues[0].depth, queues[0].descriptors), (None, None));
}

#[test]
fn an_empty_table_has_no_rows() {
    let empty = json!({"schema": 1, "generation": 0, "offset": 0, "total": 0});
    assert!(TeeSample::from_page(page(empty.clone()).unwrap()).unwrap().is_empty());
    assert!(PoolSample::from_page(page(empty).unwrap()).unwrap().is_empty());
}

/// Applies `change` to a valid table; returns the error of parsing it.
fn refused(change: impl FnOnce(&mut Map<String, Value>)) -> TelemetryError {
    let Value::Object(mut columns) = pools() else { panic!("not an object") };
    change(&mut columns);
    page(Value::Object(columns)).and_then(PoolSample::from_page).unwrap_err()
}

#[test]
fn each_defect_of_a_table_is_an_error() {
    let set = |name: &'static str, value: Value| {
        refused(move |columns| {
            columns.insert(name.into(), value);
        })
    };
    assert!(matches!(set("schema", json!(2)), TelemetryError::Schema(2)));
    let error = set("size", json!([1]));
    assert!(error.to_string().contains("column size has 1 values for 2 rows"), "{error}");
    for (name, value) in [
        ("size", json!(["1", "2"])),
        ("size", json!([-1, 2])),
        ("size", json!([1.5, 2])),
        ("size_buckets", json!(0)),
        ("size_buckets", json!(u64::MAX)),
        ("size_buckets", json!("x")),
        ("total", json!(1)),
        ("total", json!(u64::MAX)),
        ("offset", json!(3)),
        ("next", json!(0)),
        ("next", json!(2)),
        ("next", json!(3)),
        ("caches_row", json!([0])),
        ("caches_row", json!([0, 2])),
        ("caches_lcore", json!([0, -2])),
        ("generation", Value::Null),
    ] {
        let error = set(name, value.clone());
        assert!(matches!(error, TelemetryError::Malformed(_)), "{name} {value}: {error}");
    }
    let error = refused(|columns| drop(columns.remove("in_use")));
    assert!(error.to_string().contains("in_use"), "{error}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_u64..4).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::from))
}

proptest! {
    #[test]
    fn any_change_to_a_table_reads_or_fails(
        changes in prop::collection::vec((0_usize..18, any_json()), 1..4)
    ) {
        let Value::Object(mut columns) = pools() else { panic!("not an object") };
        let mut names: Vec<_> = columns.keys().cloned().collect();
        names.extend(["next".into(), "size_buckets".into(), "x".into(), "x_buckets".into()]);
        for (index, value) in changes {
            columns.insert(names[index % names.len()].clone(), value);
        }
        let table = Value::Object(columns);
        let _ = page(table.clone()).and_then(PoolSample::from_page);
        let _ = page(table).and_then(LcoreSample::from_page);
    }
}
