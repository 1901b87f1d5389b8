//! Lint for mempools whose free lists contradict themselves: an object is free more than once, or was changed
//! after it was freed.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::model::Model;
use crate::sample::CorruptPoolSample;

/// Objects that are named.
const MOST_NAMED: usize = 3;

/// Returns the pools of which two users will get the same object.
pub(super) fn corrupt_pools(model: &Model) -> impl Iterator<Item = Finding> {
    let pools = model.sample.xray.iter().flat_map(|xray| &xray.corrupt);
    pools.map(|pool| corrupt(model, pool))
}

fn corrupt(model: &Model, pool: &CorruptPoolSample) -> Finding {
    let mut evidence = match pool.total {
        1 => "1 object is free twice, or was changed while it is free".to_owned(),
        total => format!("{total} objects are free twice, or were changed while they are free"),
    };
    for (place, object) in pool.objects.iter().take(MOST_NAMED).enumerate() {
        let separator = if place == 0 { ':' } else { ';' };
        let _ = write!(
            evidence,
            "{separator} {:#x} in the {}",
            object.address,
            object.seen.join(" and ")
        );
    }
    let named = pool.objects.len().min(MOST_NAMED) as u64;
    if pool.total > named {
        let _ = write!(evidence, "; and {} more", pool.total - named);
    }
    let advice = "two users get the same object, and overwrite each other's packets: an mbuf was freed twice, \
                  sent after it was freed, or written after it was freed. Restart the app to limit the damage; \
                  built with pmdscope_trace.h it names the line (double_free, use_after_free), and DPDK built \
                  with RTE_LIBRTE_MEMPOOL_DEBUG ends the app there";
    finding(
        model,
        Lint::PoolCorrupt,
        Severity::Critical,
        FindingSubject::Pool(pool.pool.clone()),
        evidence,
        "each object is in use, or free in one place and unchanged",
        advice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};
    use crate::sample::{CorruptObjectSample, Sample, XraySample};

    #[test]
    fn objects_are_named_with_all_places() {
        let object = |address, seen: &[&str]| CorruptObjectSample {
            address,
            seen: seen.iter().map(|&words| words.to_owned()).collect(),
        };
        let objects = vec![
            object(0x1000, &["common part, twice"]),
            object(0x2000, &["common part", "cache of lcore 2"]),
            object(0x3000, &["common part", "free with a reference count of 2"]),
            object(0x4000, &["common part, twice"]),
        ];
        let corrupt = vec![CorruptPoolSample { pool: "mb".into(), total: 5, objects }];
        let xray = Some(XraySample { problem: None, corrupt });
        let sample = Sample { ports: vec![port(0, 0)], xray, ..empty_sample() };
        let findings = evaluate(&ModelTracker::default().update(sample), &LintRules::default());
        let [found] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((found.lint, found.severity), (Lint::PoolCorrupt, Severity::Critical));
        assert_eq!(
            found.evidence,
            "5 objects are free twice, or were changed while they are free: 0x1000 in the common part, \
             twice; 0x2000 in the common part and cache of lcore 2; 0x3000 in the common part and free with \
             a reference count of 2; and 2 more"
        );
    }
}
