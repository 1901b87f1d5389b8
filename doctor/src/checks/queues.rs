//! Compares descriptors with the longest stall, and mbufs with descriptors.

use std::collections::BTreeMap;

use pmdscope_render::number::{count, micros, si};
use pmdscope_telemetry::finding::{most_cached, pool_users};
use pmdscope_telemetry::sample::{PoolSample, PortSample, QueueDirection, Sample};

use crate::app::AppFacts;
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, skip, warn};
use crate::tree::{Fact, Unknown};

/// Bytes of the smallest packet on the wire: with preamble, FCS and interframe gap.
const WIRE_BYTES: u64 = 84;

/// A queue that lasts for less than this at line rate is small, microseconds.
const SMALL_BUDGET_US: f64 = 10.0;

/// Packets of one burst.
const BURST: u64 = 32;

/// Longest time that is shown, microseconds: an idle queue lasts forever.
const LONG_US: f64 = 60e6;

pub(super) const CHECKS: [Check; 2] = [
    Check {
        id: "descriptors",
        group: CheckGroup::Apps,
        title: "Receive rings survive the longest stall",
        matters: "A receive queue survives descriptors / packet rate; every poll gap that is \
                  longer costs packets (rx_missed).",
        run: descriptors,
    },
    Check {
        id: "pool_size",
        group: CheckGroup::Apps,
        title: "Mbuf pools fill all rings and caches",
        matters: "A pool that is smaller than all descriptors, caches and bursts together runs \
                  empty under load (rx_nombuf).",
        run: pools,
    },
];

/// Returns the descriptors of the receive queues of a port; `None` unless all are known.
fn rx_descriptors(sample: &Sample, port: &PortSample) -> Option<Vec<u64>> {
    let queues = 0..port.rx_queues;
    let known: Vec<u64> =
        queues.map(|queue| sample.rx_descriptors(port, queue)).collect::<Option<_>>()?;
    (!known.is_empty()).then_some(known)
}

fn descriptors(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for app in evidence.running()? {
        let Some(sample) = &app.sample else { continue };
        let why = match sample.library {
            Some(_) => "the driver does not report its descriptors",
            None => {
                "its descriptors are not known: without libpmdscope they are read only from DPDK \
                 23.07 on, of apps with no other ports than Intel NICs"
            }
        };
        for port in &sample.ports {
            verdicts.push(match rx_descriptors(sample, port) {
                Some(known) => budget(app, sample, port, &known),
                None => skip(format!("{} {}: {why}", app.label(), port.device)),
            });
        }
    }
    if verdicts.is_empty() { Err(Unknown("no app has ports".into())) } else { Ok(verdicts) }
}

/// Judges the receive rings of a port. Queues are assumed to get equal shares: a hot one lasts for less time.
fn budget(app: &AppFacts, sample: &Sample, port: &PortSample, known: &[u64]) -> Verdict {
    let smallest = known.iter().min().copied().unwrap_or(0);
    let queues = known.len() as f64;
    let survives = |pps: f64| {
        if pps > 0.0 { (smallest as f64 * queues / pps * 1e6).min(LONG_US) } else { LONG_US }
    };
    let name = format!("{} {}", app.label(), port.device);
    let gaps = sample.lcores.iter().map(|lcore| (lcore.gap_window_max_us, lcore.gap_max_us));
    let (recent, ever) = gaps.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let fix = Fix::advice(format!(
        "configure more receive descriptors (rte_eth_rx_queue_setup(), testpmd --rxd; now \
         {smallest}) and grow the pool with them, or find what stops the lcore: pmdscope interrupts"
    ));
    if let Some(pps) = app.rx_pps.get(&port.id).copied().filter(|pps| *pps > 0.0) {
        let us = survives(pps);
        let text = format!(
            "{name}: {smallest} descriptors survive {} at {} packets/s on {} queues",
            brief(us),
            si(pps),
            known.len()
        );
        return match (recent as f64, ever as f64) {
            (recent_us, _) if recent_us > us => {
                fail(format!("{text}; a poll gap of the last window took {}", micros(recent)), fix)
            }
            (_, ever_us) if ever_us > us => {
                warn(format!("{text}; the longest poll gap took {}", micros(ever)), fix)
            }
            _ => pass(format!("{text}; the longest poll gap took {}", micros(ever))),
        };
    }
    let Some(mbps) = port.link_mbps.filter(|mbps| *mbps > 0) else {
        return skip(format!("{name}: neither its packet rate nor its link speed is known"));
    };
    let pps = (mbps.saturating_mul(1_000_000) / 8 / WIRE_BYTES) as f64;
    let us = survives(pps);
    let text = format!(
        "{name}: {smallest} descriptors survive {} at line rate ({} packets/s of 64 bytes)",
        brief(us),
        si(pps)
    );
    if us < SMALL_BUDGET_US { warn(text, fix) } else { pass(text) }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Bounded, and never negative.
fn brief(us: f64) -> String {
    if us < 10.0 { format!("{us:.1}us") } else { micros(us as u64) }
}

/// Judges the mbuf pools of each app.
fn pools(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for app in evidence.running()? {
        let Some(sample) = &app.sample else { continue };
        let needs: BTreeMap<u16, Option<Vec<u64>>> =
            sample.ports.iter().map(|port| (port.id, rx_descriptors(sample, port))).collect();
        let known =
            needs.values().flatten().flatten().fold(0_u64, |sum, one| sum.saturating_add(*one));
        if needs.is_empty() {
            verdicts.push(skip(format!("{}: it reports no ports", app.label())));
            continue;
        }
        let all_known = needs.values().all(Option::is_some);
        verdicts.push(pool(app, sample, all_known.then_some(known)));
    }
    if verdicts.is_empty() { Err(Unknown("no app reports its ports".into())) } else { Ok(verdicts) }
}

/// Judges the mbuf pools of an app by its receive descriptors, or by the mbufs in use where these are
/// unknown.
fn pool(app: &AppFacts, sample: &Sample, rx: Option<u64>) -> Verdict {
    let pools = || mbuf_pools(sample);
    let size = pools().fold(0_u64, |sum, pool| sum.saturating_add(pool.size));
    if pools().next().is_none() {
        return skip(format!("{}: mbuf pool unknown", app.label()));
    }
    let Some(held) = HeldMbufs::of(sample, rx) else {
        return skip(format!(
            "{}: neither its descriptors nor its mbufs in use are known",
            app.label()
        ));
    };
    // As `check` counts: an lcore that only frees has a cache as well.
    let lcores = pools().map(|pool| pool_users(sample, pool)).max().unwrap_or(1);
    let lcores = lcores.max(app.poll_threads.len() as u64);
    let caches = pools().fold(0_u64, |sum, pool| sum.saturating_add(most_cached(pool)));
    let caches = caches.saturating_mul(lcores);
    let bursts = lcores.saturating_mul(BURST);
    let needed = held.usual.saturating_add(caches).saturating_add(bursts);
    let text = format!(
        "{}: {} mbufs; {}, {} in caches and {} in bursts of {lcores} lcores make {}",
        app.label(),
        count(size),
        held.text,
        count(caches),
        count(bursts),
        count(needed)
    );
    let power = (needed.saturating_add(1)).checked_next_power_of_two().unwrap_or(needed);
    let fix = Fix::advice(format!(
        "create the pool with at least {} mbufs (rte_pktmbuf_pool_create(), testpmd \
         --total-num-mbufs)",
        count(power.saturating_sub(1))
    ));
    match size {
        _ if size < held.least.saturating_add(bursts) => fail(text, fix),
        _ if size < needed => warn(text, fix),
        _ => pass(text),
    }
}

/// The mbufs of an app outside of caches and bursts.
struct HeldMbufs {
    /// The receive descriptors alone; 0 if they are unknown.
    least: u64,
    /// All mbufs that are known to be held.
    usual: u64,
    text: String,
}

impl HeldMbufs {
    /// Returns `rx` plus the transmit descriptors, or the mbufs in use now; `None` where neither is known.
    fn of(sample: &Sample, rx: Option<u64>) -> Option<Self> {
        if let Some(rx) = rx {
            let tx = transmit_descriptors(sample);
            let told = tx.map_or_else(|| "an unknown number of".to_owned(), count);
            let text = format!("{} receive and {told} transmit descriptors", count(rx));
            return Some(Self { least: rx, usual: rx.saturating_add(tx.unwrap_or(0)), text });
        }
        let counts = mbuf_pools(sample).map(|pool| Some(pool.occupancy?.in_use));
        let usual = counts.collect::<Option<Vec<_>>>()?.into_iter().fold(0, u64::saturating_add);
        let text = format!("{} in use now (its descriptors are not known)", count(usual));
        Some(Self { least: 0, usual, text })
    }
}

/// Returns the mbuf pools, recognised by the size of their objects: an mbuf is 128 bytes and a buffer.
fn mbuf_pools(sample: &Sample) -> impl Iterator<Item = &PoolSample> {
    sample.pools.iter().filter(|pool| pool.element_bytes > 256)
}

/// Returns the sum of those that are reported; `None` for a stock app, which reports none.
fn transmit_descriptors(sample: &Sample) -> Option<u64> {
    sample.library.as_ref()?;
    let tx = sample.queues.iter().filter(|queue| queue.direction == QueueDirection::Tx);
    Some(tx.filter_map(|queue| queue.descriptors).fold(0, u64::saturating_add))
}
