//! Lint for pools whose free mbufs are all in the caches of lcores, where no other lcore can allocate them.

use std::fmt::Write;

use super::buffers::{BURST, MbufDemand};
use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::model::{Model, PortRates};
use crate::sample::{PoolSample, PortSample};

/// Least share of a pool, one part in this many, that is in caches.
const LEAST_CACHED: u64 = 8;

/// Returns the pools whose common part has less than a burst, while caches hold many, because the pool is
/// smaller than its users need.
pub(super) fn cached_mbufs(model: &Model) -> impl Iterator<Item = Finding> {
    model.sample.pools.iter().filter_map(|pool| cached(model, pool))
}

fn cached(model: &Model, pool: &PoolSample) -> Option<Finding> {
    let occupancy = pool.occupancy.filter(|occupancy| occupancy.common < BURST)?;
    let demand = MbufDemand::of(&model.sample, pool);
    let is_hoarded = occupancy.cached >= BURST.max(pool.size / LEAST_CACHED);
    if !is_hoarded || pool.lcore_caches.is_empty() || !demand.is_small(pool) {
        return None;
    }
    let mut evidence = format!(
        "caches of {} hold {} of {} mbufs, {} are in use, and {} are left for the other lcores; the pool \
         needs {}: {}",
        lcores(pool.lcore_caches.keys().copied()),
        occupancy.cached,
        pool.size,
        occupancy.in_use,
        occupancy.common,
        demand.sum(),
        demand.arithmetic(),
    );
    let starved: Vec<_> = starved_ports(model, pool).map(|port| port.device.as_str()).collect();
    if !starved.is_empty() {
        let _ = write!(evidence, "; nothing is received on {}", starved.join(", "));
    }
    let severity = if starved.is_empty() { Severity::Warning } else { Severity::Critical };
    let advice = "enlarge the pool to more than this sum plus what the app itself holds, or create it with a \
                  smaller cache: an lcore that only frees keeps up to one and a half times the cache size";
    Some(finding(
        model,
        Lint::MbufsCached,
        severity,
        FindingSubject::Pool(pool.name.clone()),
        evidence,
        "the common part of a pool has a burst of mbufs",
        advice,
    ))
}

/// Started ports that the pool may feed, that received packets before, and receive none now or could not
/// allocate a buffer.
fn starved_ports<'a>(
    model: &'a Model,
    pool: &'a PoolSample,
) -> impl Iterator<Item = &'a PortSample> {
    let receives_none = |rates: &PortRates| {
        let none = rates.rx_pps.is_some_and(|rate| rate <= 0.0);
        none || rates.rx_nombuf_ps.is_some_and(|rate| rate > 0.0)
    };
    let ports = model.sample.ports.iter().zip(&model.ports);
    let may_be_fed = move |port: &PortSample| {
        model.sample.feeding_pools(port).is_none_or(|pools| pools.contains(&pool))
    };
    let starved = ports.filter(move |(port, rates)| {
        port.started && port.stats.rx_packets > 0 && receives_none(rates) && may_be_fed(port)
    });
    starved.map(|(port, _)| port)
}

/// Returns lcores as text, such as `lcores 0, 2 to 7`.
fn lcores(ascending: impl Iterator<Item = u32>) -> String {
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for lcore in ascending {
        match rows.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(lcore) => *last = lcore,
            _ => rows.push((lcore, lcore)),
        }
    }
    let row = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let noun =
        if matches!(&rows[..], [(first, last)] if first == last) { "lcore" } else { "lcores" };
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("{noun} {}", rows.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port, queue};
    use crate::sample::{PoolOccupancy, Sample};

    /// Caches of lcores 2 to 7 hold almost all of 2,047 mbufs; the port has received `received` more.
    fn judged(received: u64, change: impl Fn(&mut Sample)) -> Vec<Finding> {
        let at = |second: u64| {
            let mut sample = empty_sample();
            sample.monotonic_ns += second * 1_000_000_000;
            sample.ports = vec![port(0, 50_000 + second * received)];
            sample.ports[0].rx_queues = 1;
            sample.queues = vec![queue(0, [1, 1, 0])];
            sample.queues[0].descriptors = Some(256);
            let caches: BTreeMap<u32, u64> = (2..=7).map(|lcore| (lcore, 298)).collect();
            sample.pools = vec![PoolSample {
                name: "rx_pool".into(),
                size: 2047,
                cache_size: 256,
                occupancy: Some(PoolOccupancy { common: 0, cached: 1788, in_use: 259 }),
                lcore_caches: caches,
                ..PoolSample::default()
            }];
            change(&mut sample);
            sample
        };
        let mut tracker = ModelTracker::default();
        tracker.update(at(0));
        let found = evaluate(&tracker.update(at(1)), &LintRules::default());
        found.into_iter().filter(|finding| finding.lint == Lint::MbufsCached).collect()
    }

    #[test]
    fn mbufs_in_caches_of_other_lcores_are_named_with_what_the_pool_needs() {
        let found = judged(0, |_| ());
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!(found.severity, Severity::Critical);
        assert_eq!(
            found.evidence,
            "caches of lcores 2 to 7 hold 1788 of 2047 mbufs, 259 are in use, and 0 are left for the other \
             lcores; the pool needs 2752: 256 RX + 0 TX descriptors + 2304 in caches + 192 in bursts of 6 \
             lcores = 2752; nothing is received on net_null0"
        );
        assert_eq!(judged(100, |_| ())[0].severity, Severity::Warning);
    }

    #[test]
    fn a_pool_that_has_enough_is_no_finding() {
        let with = |common, size| {
            judged(0, move |sample| {
                let pool = &mut sample.pools[0];
                pool.size = size;
                pool.occupancy = Some(PoolOccupancy { common, cached: 1788, in_use: 259 });
            })
        };
        assert_eq!(with(0, 2047).len(), 1);
        assert_eq!(with(32, 2047), []);
        assert_eq!(with(0, 8191), []);
        assert_eq!(judged(0, |sample| sample.pools[0].lcore_caches.clear()), []);
    }

    #[test]
    fn lcores_are_listed_in_rows() {
        let text = |ids: &[u32]| lcores(ids.iter().copied());
        assert_eq!(text(&[3]), "lcore 3");
        assert_eq!(text(&[2, 3, 4, 5]), "lcores 2 to 5");
        assert_eq!(text(&[0, 2, 3, 7, 8, 9]), "lcores 0, 2, 3, 7 to 9");
    }
}
