//! Lint for mbufs that nothing refers to any more, as found by a scan of the app's memory.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::model::Model;
use crate::sample::PoolScanSample;

/// Returns one finding per pool that lost mbufs; none for an app with a ledger, which is better evidence.
pub(super) fn lost_mbufs(model: &Model) -> Vec<Finding> {
    if !model.sample.ledger.is_empty() {
        return Vec::new();
    }
    let pools = model.sample.scanned_pools();
    pools.filter(|pool| pool.lost > 0).map(|pool| lost(model, pool)).collect()
}

fn lost(model: &Model, pool: &PoolScanSample) -> Finding {
    let mbufs = if pool.lost == 1 { "mbuf is" } else { "mbufs are" };
    let mut evidence =
        format!("{} {mbufs} lost of {}: in use, and nothing refers to them", pool.lost, pool.size);
    if pool.lost_in_blocks > 0 {
        let _ = write!(
            evidence,
            " but, to {} of them, blocks of malloc() that are lost as well",
            pool.lost_in_blocks
        );
    }
    if let Some(rate) = pool.lost_ps.filter(|rate| *rate > 0.0) {
        let _ = write!(evidence, ", {rate:.1}/s");
    }
    let age = pool.oldest_at_least_ms as f64 / 1000.0;
    let _ = write!(evidence, ", for at least {age:.1} s");
    if let Some(group) = pool.groups.first() {
        let _ = write!(evidence, "; {} of them: {}", group.mbufs, group.words());
    }
    let advice = "look for a code path of these packets that does not send, queue or free the mbuf; \
                  pmdscope leaks --write FILE.pcapng writes them, --explain says who holds the others; \
                  linked with libpmdscope the app names the queue, built with pmdscope_trace.h the line";
    finding(
        model,
        Lint::Leak,
        Severity::Critical,
        FindingSubject::Pool(pool.name.clone()),
        evidence,
        "every mbuf in use is referred to",
        advice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::ledger::tests::ledger;
    use crate::sample::tests::{empty_sample, port};
    use crate::sample::{LostGroupSample, Sample, ScanSample};

    fn scanned(lost: u64) -> Sample {
        let group = LostGroupSample {
            mbufs: lost,
            port: Some(0),
            protocol: Some("udp".into()),
            destination: Some("198.18.1.1:53".into()),
            least_bytes: 60,
            most_bytes: 60,
            ..LostGroupSample::default()
        };
        let pool = PoolScanSample {
            name: "mb".into(),
            size: 1000,
            lost,
            lost_ps: Some(2.0),
            oldest_at_least_ms: 1500,
            groups: vec![group],
            ..PoolScanSample::default()
        };
        let scan = ScanSample { pools: vec![pool], ..ScanSample::default() };
        Sample { ports: vec![port(0, 0)], scan: Some(scan), ..empty_sample() }
    }

    fn judged(sample: Sample) -> Vec<Finding> {
        evaluate(&ModelTracker::default().update(sample), &LintRules::default())
    }

    #[test]
    fn a_pool_with_lost_mbufs_is_found_with_its_largest_group() {
        let findings = judged(scanned(22));
        let [leak] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((leak.lint, leak.severity), (Lint::Leak, Severity::Critical));
        assert_eq!(leak.subject, FindingSubject::Pool("mb".into()));
        assert_eq!(
            leak.evidence,
            "22 mbufs are lost of 1000: in use, and nothing refers to them, 2.0/s, for at least 1.5 s; \
             22 of them: port 0, udp, * > 198.18.1.1:53, 60 bytes"
        );
    }

    #[test]
    fn mbufs_in_lost_blocks_of_malloc_are_told() {
        let mut sample = scanned(22);
        if let Some(scan) = &mut sample.scan {
            scan.pools[0].lost_in_blocks = 20;
        }
        let evidence = &judged(sample)[0].evidence;
        let text = "and nothing refers to them but, to 20 of them, blocks of malloc() that are lost as well, 2.0/s";
        assert!(evidence.contains(text), "{evidence}");
    }

    #[test]
    fn a_clean_scan_is_no_finding_and_a_ledger_knows_better() {
        assert_eq!(judged(scanned(0)), []);
        let mut linked = scanned(22);
        linked.ledger = vec![ledger("mb", 0)];
        assert_eq!(judged(linked), []);
    }

    #[test]
    fn samples_without_a_scan_are_read() {
        let mut sample = serde_json::to_value(scanned(1)).unwrap();
        sample.as_object_mut().unwrap().remove("scan");
        assert_eq!(serde_json::from_value::<Sample>(sample).unwrap().scan, None);
    }
}
