//! Rates of ports.

use std::collections::BTreeMap;

use serde::Serialize;

use super::driver_counters::{CheckedCounters, PortCounters};
use super::{Interval, bits};
use crate::counter_updates::CounterUpdate;
use crate::flaps::PortFlaps;
use crate::rx_flat::RxFlat;
use crate::sample::queue_counters::{QueueCounter, QueueCounters};
use crate::sample::{PortSample, PortStats, QueueDirection, Sample, counts_bytes};
use crate::sending::UnsentPackets;

/// Per-second rates of one port: averages since the previous sample or, for a driver that updates its
/// counters only periodically, over the time between two updates. A rate is `None` without an earlier
/// sample or after a counter reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortRates {
    /// DPDK port id.
    pub id: u16,
    /// Packets received per second.
    pub rx_pps: Option<f64>,
    /// Packets sent per second.
    pub tx_pps: Option<f64>,
    /// Bits received per second, without FCS, preamble and inter-frame gap; `None` if the driver counts no
    /// bytes.
    pub rx_bps: Option<f64>,
    /// Bits sent per second, without FCS, preamble and inter-frame gap; `None` if the driver counts no
    /// bytes.
    pub tx_bps: Option<f64>,
    /// Packets per second that the NIC missed.
    pub rx_missed_ps: Option<f64>,
    /// Receive errors per second.
    pub rx_errors_ps: Option<f64>,
    /// Transmit errors per second.
    pub tx_errors_ps: Option<f64>,
    /// Failed allocations of receive buffers per second.
    pub rx_nombuf_ps: Option<f64>,
    /// Whether a counter went backwards, because the app or its peer reset it.
    pub reset: bool,
    /// Port that this one is a member of, by id: a bonding, failsafe or netvsc port, which counts the packets
    /// of this one as well.
    pub member_of: Option<u16>,
    /// Receive queues as the driver counts them; empty if libpmdscope counts them, or nothing does.
    pub rx_queues: Vec<RxQueueRates>,
    /// What the driver counts besides, and counters that cannot be right.
    pub counters: PortCounters,
    /// Interval at which the driver updates its counters, seconds; `None` if they are always current, or if
    /// no interval was detected.
    pub counter_period_s: Option<f64>,
    /// Time and packets since the receive rate dropped to almost nothing; `None` otherwise, and if the port
    /// never received.
    #[serde(rename = "quiet")]
    pub rx_flat: Option<RxFlat>,
    /// Packets that were offered to the driver of the port and not sent; `None` without libpmdscope, unless the
    /// driver counts errors of a port that sends nothing.
    pub unsent: Option<UnsentPackets>,
    /// Starts, stops and link changes of the port in the last minute; `None` if there were none.
    pub flaps: Option<PortFlaps>,
}

/// Packets of one receive queue, as the driver counts them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RxQueueRates {
    /// Queue number.
    pub queue: u16,
    /// Packets received per second.
    pub pps: f64,
    /// Packets per second that were missed; `None` if the driver does not count them by queue.
    pub missed_ps: Option<f64>,
}

/// Returns the receive queues of a port with several of them, if only the driver counts them.
pub(super) fn rx_queues(
    sample: &Sample,
    port: &PortSample,
    interval: Option<&Interval<'_>>,
) -> Vec<RxQueueRates> {
    let is_counted = sample.queues.iter().any(|queue| queue.port == port.id);
    let before = interval.filter(|_| port.rx_queues > 1 && !is_counted);
    let Some((interval, before)) = before.and_then(|i| Some((i, i.last.same_port(port)?))) else {
        return Vec::new();
    };
    let before = before.queue_counters(QueueDirection::Rx);
    let rates = |(queue, now): (u16, QueueCounters)| {
        let then = before.get(&queue)?;
        let missed = now.missed.zip(then.missed);
        Some(RxQueueRates {
            queue,
            pps: interval.rate(now.packets?, then.packets?)?,
            missed_ps: missed.and_then(|(now, then)| interval.rate(now, then)),
        })
    };
    port.queue_counters(QueueDirection::Rx).into_iter().filter_map(rates).collect()
}

/// Returns the rates of a port, without those of basic counters that cannot be right.
pub(super) fn port_rates(
    port: &PortSample,
    interval: Option<&Interval<'_>>,
    checked: CheckedCounters,
) -> PortRates {
    let CheckedCounters { counters, implausible } = checked;
    let unknown = PortRates { id: port.id, counters, ..PortRates::default() };
    let before = interval.and_then(|i| Some((i, i.last.same_port(port)?)));
    let Some((interval, before)) = before else { return unknown };
    let (now, then) = (port.stats.values(), before.stats.values());
    let grown: [_; PortStats::NAMES.len()] = std::array::from_fn(|at| {
        let rate = interval.rate(now[at], then[at]);
        (rate.filter(|_| !implausible.contains(&at)), rate.is_none())
    });
    let [rx_packets, tx_packets, rx_bytes, tx_bytes, missed, rx_errors, tx_errors, nombuf] =
        grown.map(|(rate, _)| rate);
    let stats = &port.stats;
    PortRates {
        rx_pps: rx_packets,
        tx_pps: tx_packets,
        rx_bps: rx_bytes.filter(|_| counts_bytes(stats.rx_packets, stats.rx_bytes)).map(bits),
        tx_bps: tx_bytes.filter(|_| counts_bytes(stats.tx_packets, stats.tx_bytes)).map(bits),
        rx_missed_ps: missed,
        rx_errors_ps: rx_errors,
        tx_errors_ps: tx_errors,
        rx_nombuf_ps: nombuf,
        reset: grown.iter().any(|(_, is_back)| *is_back),
        ..unknown
    }
}

impl PortRates {
    /// Returns the rates with averages over the time between two updates of the counters.
    pub(super) fn of_update(self, update: CounterUpdate) -> Self {
        let rates = Self { counter_period_s: Some(update.period_s), ..self };
        let Some(growth) = update.growth else { return rates };
        let mean = |known: Option<f64>, count| known.map(|_| count as f64 / update.period_s);
        Self {
            rx_pps: mean(rates.rx_pps, growth.rx_packets),
            tx_pps: mean(rates.tx_pps, growth.tx_packets),
            rx_bps: mean(rates.rx_bps, growth.rx_bytes).map(bits),
            tx_bps: mean(rates.tx_bps, growth.tx_bytes).map(bits),
            rx_missed_ps: mean(rates.rx_missed_ps, growth.rx_missed),
            rx_errors_ps: mean(rates.rx_errors_ps, growth.rx_errors),
            tx_errors_ps: mean(rates.tx_errors_ps, growth.tx_errors),
            rx_nombuf_ps: mean(rates.rx_nombuf_ps, growth.rx_nombuf),
            counters: rates.counters.of_update(update.period_s),
            ..rates
        }
    }
}

impl PortStats {
    /// Returns the growth of all counters; `None` when one went back: the app or its peer reset it.
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            rx_packets: self.rx_packets.checked_sub(before.rx_packets)?,
            tx_packets: self.tx_packets.checked_sub(before.tx_packets)?,
            rx_bytes: self.rx_bytes.checked_sub(before.rx_bytes)?,
            tx_bytes: self.tx_bytes.checked_sub(before.tx_bytes)?,
            rx_missed: self.rx_missed.checked_sub(before.rx_missed)?,
            rx_errors: self.rx_errors.checked_sub(before.rx_errors)?,
            tx_errors: self.tx_errors.checked_sub(before.tx_errors)?,
            rx_nombuf: self.rx_nombuf.checked_sub(before.rx_nombuf)?,
        })
    }
}

impl PortSample {
    /// Returns the counts of the port since the sample `before`, or since the app started if that has
    /// no such port. A counter that went back was reset, and counts from the reset.
    pub fn stats_since(&self, before: Option<&Sample>) -> PortStats {
        let before =
            before.and_then(|sample| sample.ports.iter().find(|p| p.device == self.device));
        let before = before.map(|port| port.stats).unwrap_or_default();
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let now = self.stats;
        PortStats {
            rx_packets: since(now.rx_packets, before.rx_packets),
            tx_packets: since(now.tx_packets, before.tx_packets),
            rx_bytes: since(now.rx_bytes, before.rx_bytes),
            tx_bytes: since(now.tx_bytes, before.tx_bytes),
            rx_missed: since(now.rx_missed, before.rx_missed),
            rx_errors: since(now.rx_errors, before.rx_errors),
            tx_errors: since(now.tx_errors, before.tx_errors),
            rx_nombuf: since(now.rx_nombuf, before.rx_nombuf),
        }
    }
}

/// Returns the packets that receive queues missed per second, by port and queue, if drivers count
/// them by queue.
pub(super) fn missed_rates(
    sample: &Sample,
    interval: Option<&Interval<'_>>,
) -> BTreeMap<(u16, u16), f64> {
    let mut rates = BTreeMap::new();
    let Some(interval) = interval else { return rates };
    for port in &sample.ports {
        let mut counters = port.xstats.of_queues(QueueDirection::Rx);
        if counters.all(|(_, counter, _)| counter != QueueCounter::Missed) {
            continue;
        }
        let Some(before) = interval.last.same_port(port) else { continue };
        let before = before.queue_counters(QueueDirection::Rx);
        for (queue, now) in port.queue_counters(QueueDirection::Rx) {
            let before = before.get(&queue).and_then(|before| before.missed);
            let rate = now.missed.zip(before).and_then(|(now, then)| interval.rate(now, then));
            rates.extend(rate.map(|rate| ((port.id, queue), rate)));
        }
    }
    rates
}
