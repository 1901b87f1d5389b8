//! Makes the report from the last pass: each mbuf of a pool counts once.

use std::collections::BTreeMap;

use crate::error::XrayError;
use crate::holders::HolderId;
use crate::report::{Holder, HolderCount, LostMbuf, MOST_LISTED, PoolScan, ScanReport};
use crate::target::Pool;

use super::candidates::Candidates;
use super::free::FreeObjects;
use super::milliseconds;
use super::pass::{Free, Pass, Scanner};
use super::pools::{MbufFields, MbufPool, fatal};
use super::references::Reach;

/// `RTE_MBUF_PORT_INVALID`
const NO_PORT: u16 = u16::MAX;

/// Counts the results of the last pass and the remaining candidates.
pub(super) fn report(
    scanner: &Scanner<'_>,
    pass: &Pass,
    candidates: &Candidates,
) -> Result<ScanReport, XrayError> {
    let mut report = ScanReport {
        scanned_bytes: pass.searched.bytes,
        problems: scanner.pools.problems.clone(),
        ..ScanReport::default()
    };
    report.problems.extend(pass.holders.problems().iter().cloned());
    for (place, pool) in scanner.pools.judged.iter().enumerate() {
        if let Some(why) = pass.torn(place) {
            report.problems.push(why.clone());
            report.pools.push(not_judged(&pool.pool, why.clone()));
        } else {
            report.pools.push(judged(scanner, pass, candidates, pool)?);
        }
    }
    for pool in &scanner.pools.unknown_handler {
        report.pools.push(of_unknown_handler(scanner, pool)?);
    }
    for (pool, error) in &scanner.pools.failed {
        report.problems.push(error.to_string());
        report.pools.push(not_judged(pool, error.to_string()));
    }
    report.pools.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(report)
}

fn judged(
    scanner: &Scanner<'_>,
    pass: &Pass,
    candidates: &Candidates,
    pool: &MbufPool,
) -> Result<PoolScan, XrayError> {
    let mut scan = PoolScan {
        name: pool.pool.name.clone(),
        size: pool.objects.len() as u64,
        ..PoolScan::default()
    };
    let mut holders = Holders::default();
    let not_judged_why = pass.not_judged_why(pool.pool.address);
    for object in pool.objects.clone() {
        match (pass.free_after.get(object), pass.reached.get(object)) {
            (Free::Common, _) => count(&mut scan.common),
            (Free::Cache(lcore), _) => count(scan.caches.entry(lcore).or_default()),
            (_, Reach::Unreached) if !candidates.contains(object) => count(&mut scan.moving),
            (_, Reach::Unreached) if not_judged_why.is_empty() => {
                count(&mut scan.lost);
                if pass.lost_blocks.objects.contains(&object) {
                    count(&mut scan.lost_in_blocks);
                }
                scan.lost_mbufs.extend(lost_mbuf(scanner, candidates, object, &scan)?);
            }
            (_, Reach::Unreached) => count(&mut scan.not_judged),
            (_, reach) => {
                count(&mut scan.held);
                count(holders.counts.entry(HolderKey::from(reach)).or_default());
            }
        }
    }
    if scan.not_judged > 0 {
        scan.not_judged_why = not_judged_why;
    }
    scan.holders = holders.named(pass);
    Ok(scan)
}

fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

fn lost_mbuf(
    scanner: &Scanner<'_>,
    candidates: &Candidates,
    object: u32,
    scan: &PoolScan,
) -> Result<Option<LostMbuf>, XrayError> {
    if scan.lost_mbufs.len() >= MOST_LISTED {
        return Ok(None);
    }
    let address = scanner.pools.index.address(object);
    let fields = fatal(MbufFields::read(scanner.target, address))?;
    Ok(fields.ok().map(|fields| LostMbuf {
        address,
        port: Some(fields.port).filter(|port| *port != NO_PORT),
        refcnt: fields.refcnt,
        segments: fields.segments,
        packet_bytes: fields.packet_bytes,
        age_at_least_ms: milliseconds(candidates.since().elapsed()),
    }))
}

fn not_judged(pool: &Pool, why: String) -> PoolScan {
    let size = u64::from(pool.populated);
    PoolScan {
        name: pool.name.clone(),
        size,
        not_judged: size,
        not_judged_why: vec![why],
        ..PoolScan::default()
    }
}

/// A pool of which only the caches can be read.
fn of_unknown_handler(scanner: &Scanner<'_>, pool: &Pool) -> Result<PoolScan, XrayError> {
    let why = format!(
        "mempool {} keeps its free objects neither in an rte_ring nor in an rte_stack (handler {})",
        pool.name, pool.handler
    );
    let mut scan = not_judged(pool, why);
    if let Ok(free) = fatal(FreeObjects::read(scanner.target, pool))? {
        let count = |(lcore, cache): (u32, Vec<u64>)| (lcore, cache.len() as u64);
        scan.caches = free.caches.into_iter().map(count).collect();
        let cached: u64 = scan.caches.values().sum();
        scan.not_judged = scan.size.saturating_sub(cached);
    }
    Ok(scan)
}

/// The holder of an mbuf, before its name is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HolderKey {
    Map(HolderId),
    Secondary(u32),
    Mbuf,
}

impl From<Reach> for HolderKey {
    fn from(reach: Reach) -> Self {
        match reach {
            Reach::From(id) => Self::Map(id),
            Reach::FromSecondary(number) => Self::Secondary(number),
            Reach::FromMbuf | Reach::Unreached => Self::Mbuf,
        }
    }
}

#[derive(Debug, Default)]
struct Holders {
    counts: BTreeMap<HolderKey, u64>,
}

impl Holders {
    /// Sorted, the largest count first.
    fn named(self, pass: &Pass) -> Vec<HolderCount> {
        let name = |key| match key {
            HolderKey::Map(id) => pass.holders.get(id),
            HolderKey::Secondary(number) => {
                let secondary = pass.secondaries.get(number as usize);
                let path = secondary.map(|secondary| secondary.name.clone()).unwrap_or_default();
                Holder::Mapping { path }
            }
            HolderKey::Mbuf => Holder::Mbuf,
        };
        let mut counts: Vec<HolderCount> = (self.counts.into_iter())
            .map(|(key, mbufs)| HolderCount { holder: name(key), mbufs })
            .collect();
        counts.sort_by(|a, b| b.mbufs.cmp(&a.mbufs).then_with(|| a.holder.cmp(&b.holder)));
        counts
    }
}
