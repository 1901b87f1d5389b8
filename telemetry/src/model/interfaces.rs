//! Rates of interfaces of the kernel.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use crate::interface::{
    FilterSample, InterfaceQueueSample, InterfaceSample, TOP_SOURCES, VerdictSample,
};
use crate::rate::rate;

/// Shortest interval for rates: in a shorter one, a burst would look like a flood.
const SHORTEST_NS: u64 = 20_000_000;

/// Per-second rates of one interface. A rate is `None` without an earlier sample, if there is no counter
/// for it, and after the interface or its filter was replaced or a counter was reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceRates {
    /// Time between the two samples, seconds.
    pub interval_s: Option<f64>,
    /// Packets per second that arrived: the highest count of the queues, the interface and the filter,
    /// since each may omit some packets.
    pub rx_pps: Option<f64>,
    /// Packets per second that the filter dropped.
    pub filtered_pps: Option<f64>,
    /// Packets per second that bypassed the kernel: those redirected in the bypassed queue.
    pub bypassed_pps: Option<f64>,
    /// Packets per second that the kernel processes: those that arrived and were neither filtered nor
    /// bypassed.
    pub kernel_pps: Option<f64>,
    /// Received packets per second that the kernel dropped before they reached a socket.
    pub rx_dropped_ps: Option<f64>,
    /// Packets sent per second.
    pub tx_pps: Option<f64>,
    /// Rates of RX queues, in the order of the queues of the sample.
    pub queues: Vec<InterfaceQueueRates>,
    /// Rates of the XDP filter; `None` without one.
    pub filter: Option<FilterRates>,
}

/// Per-second rates of one RX queue of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceQueueRates {
    /// Queue number.
    pub queue: u32,
    /// Packets received per second by the driver.
    pub pps: Option<f64>,
    /// Packets lost per second for lack of buffers or of room in a ring.
    pub dropped_ps: Option<f64>,
    /// Packets per second that an XDP program redirected.
    pub redirected_ps: Option<f64>,
}

/// Per-second rates of an XDP filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterRates {
    /// Packets per second that arrived at the filter.
    pub pps: Option<f64>,
    /// Packets per second that the filter dropped.
    pub dropped_ps: Option<f64>,
    /// Rates of verdicts, in the order of the verdicts of the sample.
    pub verdicts: Vec<VerdictRates>,
    /// Sources of the most dropped packets since the previous sample (not since the filter was attached),
    /// in descending order.
    pub sources: Vec<SourceRates>,
}

/// Per-second rates of one verdict of an XDP filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerdictRates {
    /// `passed`, or the reason why packets were dropped, as in the sample.
    pub reason: String,
    /// Whether the packets were dropped.
    pub dropped: bool,
    /// Packets per second.
    pub pps: Option<f64>,
    /// Bits per second, Ethernet header included.
    pub bps: Option<f64>,
}

/// Rate of dropped packets of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceRates {
    /// IPv4 or IPv6 address of the source.
    pub address: IpAddr,
    /// Dropped packets per second, or a lower bound.
    pub pps: f64,
    /// Whether `pps` is a lower bound: the source was not among the top sources before, so its earlier
    /// packets are not known exactly.
    pub at_least: bool,
}

impl FilterRates {
    /// Returns the reason for which most packets are dropped.
    pub fn worst(&self) -> Option<&VerdictRates> {
        let dropped = |v: &&VerdictRates| v.dropped && v.pps.is_some_and(|pps| pps > 0.0);
        let rate = |v: &VerdictRates| v.pps.unwrap_or(0.0);
        self.verdicts.iter().filter(dropped).max_by(|a, b| rate(a).total_cmp(&rate(b)))
    }
}

/// Converts the successive samples of the interfaces into rates.
#[derive(Debug, Default)]
pub struct InterfaceTracker {
    last: BTreeMap<String, TimedSample>,
}

/// A sample, its time and its rates.
#[derive(Debug)]
struct TimedSample {
    monotonic_ns: u64,
    sample: InterfaceSample,
    rates: InterfaceRates,
}

impl InterfaceTracker {
    /// Returns the rates of interfaces that were read at this time, in their order.
    pub fn update(
        &mut self,
        interfaces: &[InterfaceSample],
        monotonic_ns: u64,
    ) -> Vec<InterfaceRates> {
        let mut last = std::mem::take(&mut self.last);
        let rates = interfaces.iter().map(|now| {
            let before = last.remove(&now.name).filter(|before| before.sample.index == now.index);
            let kept = match before {
                // Another reader came shortly after: the rates of the previous interval are kept.
                Some(before)
                    if monotonic_ns >= before.monotonic_ns
                        && monotonic_ns - before.monotonic_ns < SHORTEST_NS
                        && before.sample.is_like(now) =>
                {
                    before
                }
                before => {
                    let interval = before.as_ref().and_then(|before| {
                        let ns = monotonic_ns.checked_sub(before.monotonic_ns)?;
                        (ns > 0).then(|| (&before.sample, ns as f64 / 1e9))
                    });
                    TimedSample { monotonic_ns, sample: now.clone(), rates: rates(now, interval) }
                }
            };
            let rates = kept.rates.clone();
            self.last.insert(now.name.clone(), kept);
            rates
        });
        rates.collect()
    }
}

impl InterfaceSample {
    /// Whether it has the same queues, filter and verdicts, so that the rates of one apply to the other.
    fn is_like(&self, other: &Self) -> bool {
        let queues = |of: &Self| of.queues.iter().map(|queue| queue.queue).collect::<Vec<_>>();
        let reason = |of: &VerdictSample| of.reason.clone();
        let filter = |of: &Self| {
            let verdicts = |f: &FilterSample| f.verdicts.iter().map(reason).collect::<Vec<_>>();
            of.filter.as_ref().map(|filter| (filter.program, verdicts(filter)))
        };
        queues(self) == queues(other) && filter(self) == filter(other)
    }
}

/// Returns the sum of all values, if all are known and there is at least one.
fn sum(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let first = values.next()??;
    values.try_fold(first, |sum, value| Some(sum + value?))
}

pub(super) fn rates(
    now: &InterfaceSample,
    interval: Option<(&InterfaceSample, f64)>,
) -> InterfaceRates {
    let of = |of: fn(&InterfaceSample) -> Option<u64>| {
        let (before, seconds) = interval?;
        rate(of(now)?, of(before)?, seconds)
    };
    let queues: Vec<_> = now.queues.iter().map(|queue| queue_rates(queue, interval)).collect();
    let filter = now.filter.as_ref().map(|filter| {
        let before = interval.and_then(|(before, s)| Some((before.filter.as_ref()?, s)));
        filter_rates(filter, before.filter(|(before, _)| before.program == filter.program))
    });
    let bypassed_pps = match &now.bypass {
        Some(bypass) => {
            queues.iter().find(|q| q.queue == bypass.queue).and_then(|q| q.redirected_ps)
        }
        None => interval.map(|_| 0.0),
    };
    // Each counter may omit some: drivers count packets of queues only on some paths, or do not count
    // packets in the interface that an XDP program drops; and a filter may see only a part.
    let arrived = [
        sum(queues.iter().map(|queue| queue.pps)),
        of(|sample| sample.rx_packets),
        filter.as_ref().and_then(|filter: &FilterRates| filter.pps),
    ];
    let mut rates = InterfaceRates {
        interval_s: interval.map(|(_, seconds)| seconds),
        rx_pps: arrived.into_iter().flatten().reduce(f64::max),
        filtered_pps: match &filter {
            Some(filter) => filter.dropped_ps,
            None => interval.map(|_| 0.0),
        },
        bypassed_pps,
        kernel_pps: None,
        rx_dropped_ps: of(|sample| sample.rx_dropped),
        tx_pps: of(|sample| sample.tx_packets),
        queues,
        filter,
    };
    rates.kernel_pps = rates.kernel_with(rates.bypassed_pps);
    rates
}

impl InterfaceRates {
    /// Returns the packets that the kernel processes, if this many bypass it. The counters are read
    /// one after the other, so that the difference may be slightly below 0.
    pub fn kernel_with(&self, bypassed_pps: Option<f64>) -> Option<f64> {
        Some((self.rx_pps? - self.filtered_pps? - bypassed_pps?).max(0.0))
    }
}

fn queue_rates(
    now: &InterfaceQueueSample,
    interval: Option<(&InterfaceSample, f64)>,
) -> InterfaceQueueRates {
    let before = interval.and_then(|(before, seconds)| {
        Some((before.queues.iter().find(|queue| queue.queue == now.queue)?, seconds))
    });
    let of = |of: fn(&InterfaceQueueSample) -> Option<u64>| {
        let (before, seconds) = before?;
        rate(of(now)?, of(before)?, seconds)
    };
    InterfaceQueueRates {
        queue: now.queue,
        pps: of(|queue| queue.packets),
        dropped_ps: of(|queue| queue.dropped),
        redirected_ps: of(|queue| queue.redirected),
    }
}

fn filter_rates(now: &FilterSample, interval: Option<(&FilterSample, f64)>) -> FilterRates {
    let verdict = |now: &VerdictSample| {
        let of = |of: fn(&VerdictSample) -> u64| {
            let (before, seconds) = interval?;
            let before = before.verdicts.iter().find(|before| before.reason == now.reason)?;
            rate(of(now), of(before), seconds)
        };
        VerdictRates {
            reason: now.reason.clone(),
            dropped: now.dropped,
            pps: of(|verdict| verdict.packets),
            bps: of(|verdict| verdict.bytes).map(|bytes| bytes * 8.0),
        }
    };
    let verdicts: Vec<_> = now.verdicts.iter().map(verdict).collect();
    FilterRates {
        pps: sum(verdicts.iter().map(|verdict| verdict.pps)),
        dropped_ps: sum(verdicts.iter().filter(|v| v.dropped).map(|verdict| verdict.pps)),
        sources: interval.map_or_else(Vec::new, |(before, seconds)| sources(now, before, seconds)),
        verdicts,
    }
}

/// Returns the rates of the top sources in the interval. One that was not among the top sources
/// before had sent no more than the last of them, and nothing if there was room for it.
fn sources(now: &FilterSample, before: &FilterSample, seconds: f64) -> Vec<SourceRates> {
    let earlier: BTreeMap<_, _> =
        before.top_sources.iter().map(|source| (source.address, source.packets)).collect();
    let least = earlier.values().min().copied().filter(|_| earlier.len() >= TOP_SOURCES);
    let least = least.unwrap_or(0);
    let mut sources: Vec<_> = now
        .top_sources
        .iter()
        .filter_map(|source| {
            let known = earlier.get(&source.address);
            // A source that left the table and returned counts from 0 again.
            let grown = source.packets.checked_sub(*known.unwrap_or(&least))?;
            let at_least = known.is_none() && least > 0;
            let pps = grown as f64 / seconds;
            (grown > 0).then_some(SourceRates { address: source.address, pps, at_least })
        })
        .collect();
    sources.sort_by(|a, b| b.pps.total_cmp(&a.pps));
    sources
}

#[cfg(test)]
#[path = "interfaces_tests.rs"]
mod tests;
