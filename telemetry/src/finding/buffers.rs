//! Lint for failed allocations of receive buffers: names the pool that is empty, and compares its size with the
//! demand for mbufs.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, finding, loss};
use crate::account::{CounterClass, PortAccount};
use crate::model::Model;
use crate::sample::{FedQueue, LedgerSample, PoolSample, PortSample, QueueDirection, Sample};
use crate::suspected_pool::SuspectedPool;

/// Packets that an lcore processes in one burst.
pub(super) const BURST: u64 = 32;

/// Returns the ports for which mbuf allocations failed.
pub(super) fn no_mbufs(model: &Model) -> impl Iterator<Item = Finding> {
    model.sample.ports.iter().zip(&model.ports).filter_map(|(port, rates)| {
        let account = PortAccount::of(rates);
        let rate = Some(account.sum(CounterClass::NoMbuf)).filter(|rate| *rate > 0.0);
        let suspect = SuspectedPool::of(model, port);
        let failed = match rate {
            Some(rate) => format!("{rate:.1} times/s"),
            None if port.stats.rx_nombuf > 0 && suspect.is_empty() => {
                format!("{} times since start", port.stats.rx_nombuf)
            }
            None => return None,
        };
        Some(no_mbuf(model, port, &failed, &suspect))
    })
}

fn no_mbuf(model: &Model, port: &PortSample, failed: &str, suspect: &SuspectedPool<'_>) -> Finding {
    let found = text(model, port, suspect);
    let evidence = format!("mbuf allocation failed for port {}, {failed}: {found}", port.id);
    finding(
        model,
        Lint::RxNombuf,
        Severity::Critical,
        FindingSubject::Port(port.device.clone()),
        evidence,
        "no failed allocation of a receive buffer",
        advice(model, suspect),
    )
}

fn text(model: &Model, port: &PortSample, suspect: &SuspectedPool<'_>) -> String {
    match suspect {
        SuspectedPool::Feeds(pool) => MbufDemand::of(&model.sample, pool).verdict(model, pool),
        SuspectedPool::Refilled(pool) => {
            let demand = MbufDemand::of(&model.sample, pool);
            if demand.is_small(pool) {
                return demand.verdict(model, pool);
            }
            let free = pool.occupancy.map_or(0, |it| it.common.saturating_add(it.cached));
            format!(
                "pool {}, which feeds the port, has {free} of {} mbufs free now, and had none at \
                     these moments",
                pool.name, pool.size
            )
        }
        SuspectedPool::Probable(pool) => {
            let verdict = MbufDemand::of(&model.sample, pool).verdict(model, pool);
            format!("probably the only empty pool: {verdict}; {UNKNOWN_FEED}")
        }
        SuspectedPool::Several(pools) => {
            let names: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
            format!("{UNKNOWN_FEED}; empty are {}", names.join(", "))
        }
        SuspectedPool::Unknown
            if model.sample.pools.iter().any(|pool| pool.occupancy.is_some()) =>
        {
            format!("{UNKNOWN_FEED}, and none that was counted is empty now")
        }
        SuspectedPool::Unknown => format!(
            "the empty pool of {} is unknown before DPDK 23.03 without libpmdscope or X-ray",
            port.device
        ),
    }
}

fn advice(model: &Model, suspect: &SuspectedPool<'_>) -> &'static str {
    match suspect {
        SuspectedPool::Feeds(pool) | SuspectedPool::Probable(pool) => {
            MbufDemand::of(&model.sample, pool).advice(model, pool)
        }
        SuspectedPool::Refilled(pool) if MbufDemand::of(&model.sample, pool).is_small(pool) => {
            MbufDemand::of(&model.sample, pool).advice(model, pool)
        }
        SuspectedPool::Refilled(_) => {
            "the pool is emptied for moments: watch it longer (pmdscope check --for 30), and enlarge it by \
                 what the app holds at most, or shorten the queues and bursts that hold its mbufs"
        }
        SuspectedPool::Several(_) | SuspectedPool::Unknown => {
            "compare the size of the port's pool with its descriptors, caches and bursts, and look for \
                 mbufs that are not freed; as root (CAP_SYS_PTRACE) or with libpmdscope the pool is known"
        }
    }
}

const UNKNOWN_FEED: &str = "which pool feeds the port is unknown without X-ray or libpmdscope";

/// Returns the number of lcores that may keep mbufs of a pool in caches and bursts, 1 or more: those that the
/// app reports, all its lcores by their threads, or those whose caches are not empty.
pub fn pool_users(sample: &Sample, pool: &PoolSample) -> u64 {
    let known = sample.lcores.len().max(sample.threads.len());
    known.max(pool.lcore_caches.len()).max(1) as u64
}

/// Returns how many objects the cache of an lcore holds at most: it is flushed when it holds more than one and
/// a half times its size.
pub fn most_cached(pool: &PoolSample) -> u64 {
    pool.cache_size.saturating_mul(3) / 2
}

/// Mbufs that ports and lcores need, without those that the app itself holds.
pub(super) struct MbufDemand {
    rx: u64,
    tx: u64,
    caches: u64,
    bursts: u64,
    lcores: u64,
    /// Receive queues with an unknown number of descriptors.
    unknown: usize,
}

impl MbufDemand {
    /// Returns the demand of the queues that the pool feeds. If these are unknown, of all ports; mbufs of any
    /// pool may be in transmit queues.
    pub(super) fn of(sample: &Sample, pool: &PoolSample) -> Self {
        let lcores = pool_users(sample, pool);
        let mut demand = Self {
            rx: 0,
            tx: 0,
            caches: lcores.saturating_mul(most_cached(pool)),
            bursts: lcores.saturating_mul(BURST),
            lcores,
            unknown: 0,
        };
        for port in sample.ports.iter().filter(|port| port.started) {
            let named = queue_size(&sample.app.eal_args, &port.device);
            demand.add(sample, pool, (port, QueueDirection::Rx), named);
            demand.add(sample, pool, (port, QueueDirection::Tx), named);
        }
        demand
    }

    fn add(
        &mut self,
        sample: &Sample,
        pool: &PoolSample,
        (port, direction): (&PortSample, QueueDirection),
        named: Option<u64>,
    ) {
        let queues = if direction == QueueDirection::Rx { port.rx_queues } else { port.tx_queues };
        let told = |number: u16| {
            let told = match direction {
                QueueDirection::Rx => sample.rx_descriptors(port, number),
                QueueDirection::Tx => sample.tx_descriptors(port, number),
            };
            told.or(named)
        };
        let is_of_pool = |queue: &u16| {
            let fed = FedQueue { port: port.id, queue: *queue };
            direction == QueueDirection::Tx || may_feed(sample, pool, fed)
        };
        for descriptors in (0..queues).filter(is_of_pool).map(told) {
            match (direction, descriptors) {
                (QueueDirection::Rx, Some(descriptors)) => {
                    self.rx = self.rx.saturating_add(descriptors);
                }
                (QueueDirection::Tx, Some(descriptors)) => {
                    self.tx = self.tx.saturating_add(descriptors);
                }
                (QueueDirection::Rx, None) => self.unknown += 1,
                // A transmit ring holds nothing while there is no traffic.
                (QueueDirection::Tx, None) => {}
            }
        }
    }

    pub(super) fn sum(&self) -> u64 {
        [self.rx, self.tx, self.caches, self.bursts].into_iter().fold(0, u64::saturating_add)
    }

    /// Whether the receive rings alone need the whole pool.
    pub(super) fn cannot_fit(&self, pool: &PoolSample) -> bool {
        self.rx >= pool.size
    }

    pub(super) fn is_small(&self, pool: &PoolSample) -> bool {
        self.sum() > pool.size
    }

    fn verdict(&self, model: &Model, pool: &PoolSample) -> String {
        let mut text = format!("pool {} ", pool.name);
        let word = match () {
            () if self.cannot_fit(pool) => "is smaller than the receive descriptors",
            () if loss::queued_up(model, &pool.name).is_some() => {
                "is empty, as its mbufs are queued"
            }
            () if self.is_small(pool) => "is too small",
            () if loses(model, pool) => "is large enough and leaks",
            () if self.unknown > 0 => "may be too small, or its mbufs are not freed",
            () => "is large enough, so its mbufs are not freed",
        };
        let _ = write!(text, "{word}: {} mbufs", pool.size);
        if let Some(occupancy) = pool.occupancy {
            let _ = write!(text, " ({} in use)", occupancy.in_use);
        }
        let _ = write!(text, " for {}", self.arithmetic());
        if let Some(queued) = loss::queued_up(model, &pool.name) {
            let _ = write!(text, "; {queued}");
        }
        text
    }

    /// Returns the sum and its terms as text.
    pub(super) fn arithmetic(&self) -> String {
        let mut text = format!(
            "{} RX + {} TX descriptors + {} in caches + {} in bursts of {} lcores = {}",
            self.rx,
            self.tx,
            self.caches,
            self.bursts,
            self.lcores,
            self.sum()
        );
        if self.unknown > 0 {
            let _ = write!(text, ", and {} RX queues of unknown size", self.unknown);
        }
        text
    }

    fn advice(&self, model: &Model, pool: &PoolSample) -> &'static str {
        if loses(model, pool) {
            return "stop the leak first: see its finding, and pmdscope leaks";
        }
        if loss::queued_up(model, &pool.name).is_some() {
            return "a larger pool would be empty as well: check the consumer of the ring, which is too slow or \
                    has stopped (ring_full)";
        }
        if self.is_small(pool) {
            return "enlarge the pool to more than this sum plus what the app itself holds, or configure fewer \
                    descriptors, queues or cached objects";
        }
        "look for mbufs that are not freed: pmdscope leaks --explain; then enlarge the pool by the number \
         that the app holds by design"
    }
}

/// Whether a pool feeds a queue, or none is known to.
fn may_feed(sample: &Sample, pool: &PoolSample, fed: FedQueue) -> bool {
    pool.feeds.contains(&fed) || !sample.pools.iter().any(|other| other.feeds.contains(&fed))
}

fn loses(model: &Model, pool: &PoolSample) -> bool {
    let ledger = model.sample.ledger.iter().find(|ledger| ledger.name == pool.name);
    ledger.is_some_and(LedgerSample::loses)
}

/// Returns the ring size of a virtual device in the arguments, as in `--vdev NAME,...,queue_size=N`.
fn queue_size(eal_args: &[String], device: &str) -> Option<u64> {
    let of_device = eal_args.iter().find_map(|arg| {
        let value = arg.strip_prefix("--vdev=").unwrap_or(arg);
        value.strip_prefix(device)?.strip_prefix(',')
    })?;
    of_device.split(',').find_map(|pair| pair.strip_prefix("queue_size="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::Sample;
    use crate::sample::ledger::tests::ledger;
    use crate::sample::tests::{empty_sample, pool, port, queue};

    /// Returns the findings about an app with this ring and pool, after a second with failed allocations.
    fn starved(descriptors: Option<u64>, size: u64, change: impl Fn(&mut Sample)) -> Vec<Finding> {
        let at = |failed: u64| {
            let mut sample = empty_sample();
            sample.monotonic_ns += failed * 1_000_000_000;
            sample.ports = vec![port(0, 0)];
            (sample.ports[0].rx_queues, sample.ports[0].tx_queues) = (1, 1);
            sample.ports[0].stats.rx_nombuf = failed * 412;
            sample.pools = vec![pool("mb", size, size), pool("other", 100, 0)];
            sample.pools[0].cache_size = 256;
            sample.queues = vec![queue(0, [1, 1, 0])];
            sample.queues[0].descriptors = descriptors;
            sample.pools[0].feeds = vec![FedQueue { port: 0, queue: 0 }];
            change(&mut sample);
            sample
        };
        let mut tracker = ModelTracker::default();
        tracker.update(at(0));
        evaluate(&tracker.update(at(1)), &LintRules::default())
    }

    #[test]
    fn a_pool_smaller_than_its_descriptors_comes_first_with_the_sum() {
        let findings = starved(Some(1024), 512, |_| ());
        let lints: Vec<_> = findings.iter().map(|finding| finding.lint).collect();
        assert_eq!(lints, [Lint::RxNombuf, Lint::PoolExhausting]);
        assert_eq!(
            findings[0].evidence,
            "mbuf allocation failed for port 0, 412.0 times/s: pool mb is smaller than the receive \
             descriptors: 512 mbufs (512 in use) for 1024 RX + 0 TX descriptors + 384 in caches + 32 in \
             bursts of 1 lcores = 1440"
        );
        assert!(findings[0].advice.starts_with("enlarge the pool"), "{findings:?}");
        assert!(findings[1].evidence.contains("too small for 1024 RX"), "{findings:?}");
    }

    #[test]
    fn a_large_pool_that_is_empty_has_lost_its_mbufs() {
        let kept = starved(Some(1024), 8191, |_| ());
        assert!(
            kept[0].evidence.contains("is large enough, so its mbufs are not freed"),
            "{kept:?}"
        );
        let lost = starved(Some(1024), 8191, |sample| sample.ledger = vec![ledger("mb", 400)]);
        let lints: Vec<_> = lost.iter().map(|finding| finding.lint).collect();
        assert_eq!(lints, [Lint::Leak, Lint::RxNombuf, Lint::PoolExhausting]);
        assert!(lost[1].evidence.contains("is large enough and leaks"), "{lost:?}");
        assert!(lost[1].advice.starts_with("stop the leak first"), "{lost:?}");
    }

    #[test]
    fn unknown_descriptors_are_not_guessed() {
        let unknown = starved(None, 1024, |_| ());
        assert!(unknown[0].evidence.contains("may be too small"), "{unknown:?}");
        assert!(unknown[0].evidence.ends_with("and 1 RX queues of unknown size"), "{unknown:?}");
        let named = starved(None, 512, |sample| {
            sample.ports[0].device = "net_virtio_user0".into();
            let vdev = "net_virtio_user0,path=/x,queue_size=1024";
            sample.app.eal_args = ["app", "--vdev", vdev].map(str::to_owned).to_vec();
        });
        assert!(named[0].evidence.contains("1024 RX + 1024 TX"), "{named:?}");
        let stock = starved(None, 512, |sample| {
            for pool in &mut sample.pools {
                (pool.occupancy, pool.feeds) = (None, Vec::new());
            }
        });
        assert!(stock[0].evidence.contains("is unknown before DPDK 23.03"), "{stock:?}");
    }

    #[test]
    fn the_pool_that_feeds_the_queue_is_named_and_not_the_largest_or_fullest() {
        let of = |change: fn(&mut Sample)| {
            let found = starved(Some(64), 8, |sample| {
                sample.pools =
                    vec![pool("big", 60_000, 30_000), pool("small", 8, 8), pool("held", 500, 500)];
                change(sample);
            });
            found.into_iter().find(|finding| finding.lint == Lint::RxNombuf).unwrap()
        };
        let small = of(|sample| sample.pools[1].feeds = vec![FedQueue { port: 0, queue: 0 }]);
        assert!(
            small.evidence.contains(
                "pool small is smaller than the receive descriptors: 8 mbufs (8 in use) for 64 RX"
            ),
            "{small:?}"
        );
        assert!(!small.evidence.contains("big") && !small.evidence.contains("held"), "{small:?}");
        let free = of(|sample| sample.pools[0].feeds = vec![FedQueue { port: 0, queue: 0 }]);
        assert!(
            free.evidence.contains("pool big, which feeds the port, has 30000 of 60000"),
            "{free:?}"
        );
        let unknown = of(|_| ());
        assert!(
            unknown.evidence.contains("is unknown")
                && unknown.evidence.ends_with("empty are small, held"),
            "{unknown:?}"
        );
        let only = of(|sample| sample.pools.truncate(2));
        assert!(only.evidence.contains("probably the only empty pool: pool small"), "{only:?}");
        let none =
            of(|sample| sample.pools = vec![pool("big", 60_000, 30_000), pool("more", 10, 0)]);
        assert!(none.evidence.contains("none that was counted is empty now"), "{none:?}");
    }

    #[test]
    fn failures_of_the_past_count_while_the_pool_is_empty() {
        let past = |in_use| {
            let found = starved(Some(64), 1000, |sample| {
                sample.ports[0].stats.rx_nombuf = 77;
                sample.pools = vec![pool("mb", 1000, in_use)];
            });
            found.into_iter().find(|finding| finding.lint == Lint::RxNombuf)
        };
        assert!(past(1000).unwrap().evidence.contains("77 times since start"));
        assert_eq!(past(500), None);
    }
}
