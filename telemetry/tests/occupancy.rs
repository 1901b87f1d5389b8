//! Tests of samples with counts from the memory of the app.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::{CountSource, PoolOccupancy, PoolSample, Sample, XraySample};
use pmdscope_telemetry::{Deadline, OccupancyReader, SampleCollector};
use support::{FakeApp, Recording};

/// Reports that all objects are in use.
#[derive(Debug)]
struct BusyPools;

impl OccupancyReader for BusyPools {
    fn complete(&self, app: &DiscoveredApp, sample: &mut Sample, deadline: Deadline) {
        assert_eq!((app.pid, deadline.passed()), (Some(sample.app.pid), false));
        for pool in &mut sample.pools {
            pool.occupancy = Some(PoolOccupancy { in_use: pool.size, ..PoolOccupancy::default() });
            pool.source = Some(CountSource::Xray);
        }
        sample.xray = Some(XraySample::default());
    }
}

#[test]
fn pools_of_a_stock_app_are_counted_in_each_round() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/testpmd-null.jsonl"));
    let collector = SampleCollector::new(app.app());
    let mut collector = collector.with_occupancy(Some(Arc::new(BusyPools)));
    for _ in 0..2 {
        let sample = collector.collect(Duration::from_secs(5)).unwrap();
        assert_eq!(sample.pools[0].occupancy.unwrap().in_use, 2048);
        let json = serde_json::to_string(&sample).unwrap();
        assert!(json.contains(r#""source":"xray""#), "{json}");
        assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
    }
}

#[test]
fn an_app_with_the_library_counts_its_pools_itself() {
    let app = FakeApp::replay(&Recording::read("dpdk-22.11/pmdscope-reflector.jsonl"));
    let collector = SampleCollector::new(app.app());
    let mut collector = collector.with_occupancy(Some(Arc::new(BusyPools)));
    let sample = collector.collect(Duration::from_secs(5)).unwrap();
    assert_eq!((sample.level() > 0, &sample.xray), (true, &None));
    assert_eq!(sample.pools[0].source, Some(CountSource::Library));
}

#[test]
fn pools_of_recordings_of_former_versions_have_no_source() {
    let old = r#"{"name":"mb","size":9,"element_bytes":1,"cache_size":0,"socket":0,
        "occupancy":{"common":4,"cached":0,"in_use":5},"high_water":null,"lcore_caches":{}}"#;
    let pool: PoolSample = serde_json::from_str(old).unwrap();
    assert_eq!((pool.source, pool.occupancy.unwrap().in_use), (None, 5));
    assert!(!serde_json::to_string(&pool).unwrap().contains("source"));
}
