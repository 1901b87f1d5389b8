//! Replies of testpmd of each DPDK release.

use std::path::Path;

use pmdscope_telemetry::sample::Sample;

use crate::collect;
use crate::support::Recording;

/// Returns year and month of each release, and the sample of its testpmd.
fn samples() -> Vec<((u32, u32), Sample)> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(data).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some((year, month)) = name.strip_prefix("dpdk-").and_then(|it| it.split_once('.')) {
            let release = (year.parse().unwrap(), month.parse().unwrap());
            let recording = Recording::read(&format!("{name}/testpmd-null.jsonl"));
            samples.push((release, collect(&recording)));
        }
    }
    samples
}

#[test]
fn later_releases_count_mbufs_of_pools() {
    for (release, sample) in samples() {
        let version = &sample.app.dpdk_version;
        let pool = sample.pools[0].occupancy.as_ref();
        assert_eq!(pool.is_some(), release >= (23, 3), "{version}: {pool:?}");
        assert!(pool.is_none_or(|it| it.common + it.cached + it.in_use == 2048), "{version}");
        assert!(sample.rings.is_empty(), "{version}: a ring of a pool is none of the app's");
    }
}
