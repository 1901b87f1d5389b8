//! Rates of queues, derived from two samples.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{Interval, bits, ratio};
use crate::sample::{PortSample, QueueDirection, QueueSample, Sample};

/// Per-second rates of one queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueRates {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Direction.
    pub direction: QueueDirection,
    /// Packets.
    pub pps: Option<f64>,
    /// Bits.
    pub bps: Option<f64>,
    /// Polls.
    pub polls_ps: Option<f64>,
    /// Share of polls that brought packets, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// Mean packets per non-empty burst.
    pub mean_burst: Option<f64>,
    /// This queue's share of the packets of its port and direction, 0 to 1.
    pub share: Option<f64>,
    /// Packets that the NIC dropped because this receive queue had no free descriptor; `None` where
    /// the driver does not count them by queue.
    pub missed_ps: Option<f64>,
}

pub(crate) fn queue_rates(sample: &Sample, interval: Option<&Interval<'_>>) -> Vec<QueueRates> {
    let queues = &sample.queues;
    let missed = missed_rates(sample, interval);
    let deltas: Vec<_> =
        queues.iter().enumerate().map(|(at, queue)| queue_delta(at, queue, interval)).collect();
    let mut totals: BTreeMap<(u16, QueueDirection), u64> = BTreeMap::new();
    for (queue, delta) in queues.iter().zip(&deltas) {
        let packets = delta.as_ref().and_then(|delta| delta.packets).unwrap_or(0);
        let total = totals.entry((queue.port, queue.direction)).or_default();
        *total = total.saturating_add(packets);
    }
    let rates = queues.iter().zip(deltas).map(|(queue, delta)| {
        let total = totals.get(&(queue.port, queue.direction)).copied().unwrap_or(0);
        let missed = missed.get(&(queue.port, queue.queue)).copied();
        let missed_ps = missed.filter(|_| queue.direction == QueueDirection::Rx);
        QueueRates { missed_ps, ..delta.unwrap_or_default().rates(queue, total) }
    });
    rates.collect()
}

/// Packets that receive queues have missed per second, by port and queue, where drivers count them so.
fn missed_rates(sample: &Sample, interval: Option<&Interval<'_>>) -> BTreeMap<(u16, u16), f64> {
    let mut rates = BTreeMap::new();
    let Some(interval) = interval else { return rates };
    for port in &sample.ports {
        let same = |before: &&PortSample| before.id == port.id && before.device == port.device;
        let Some(before) = interval.last.ports.iter().find(same) else { continue };
        let before = before.queue_counters(QueueDirection::Rx);
        for (queue, now) in port.queue_counters(QueueDirection::Rx) {
            let before = before.get(&queue).and_then(|before| before.missed);
            let rate = now.missed.zip(before).and_then(|(now, then)| interval.rate(now, then));
            rates.extend(rate.map(|rate| ((port.id, queue), rate)));
        }
    }
    rates
}

/// What a queue did in an interval; `None` per counter that was reset.
#[derive(Default)]
struct QueueDelta {
    seconds: f64,
    packets: Option<u64>,
    bytes: Option<u64>,
    polls: Option<u64>,
    empty: Option<u64>,
}

fn queue_delta(
    at: usize,
    queue: &QueueSample,
    interval: Option<&Interval<'_>>,
) -> Option<QueueDelta> {
    let key = |queue: &QueueSample| (queue.port, queue.queue, queue.direction);
    let interval = interval?;
    let before = &interval.last.queues;
    // Mostly it is where it was.
    let same = |before: &&QueueSample| key(before) == key(queue);
    let before = before.get(at).filter(same).or_else(|| before.iter().find(same))?;
    Some(QueueDelta {
        seconds: interval.seconds,
        packets: queue.packets.checked_sub(before.packets),
        bytes: queue.bytes.checked_sub(before.bytes),
        polls: queue.polls.checked_sub(before.polls),
        empty: queue.empty.checked_sub(before.empty),
    })
}

impl QueueDelta {
    fn rates(&self, queue: &QueueSample, port_packets: u64) -> QueueRates {
        let per_second = |count: Option<u64>| Some(count? as f64 / self.seconds);
        // The app counts while it is read, so the difference can be off by a burst.
        let busy = self.polls.zip(self.empty).and_then(|(polls, empty)| polls.checked_sub(empty));
        QueueRates {
            port: queue.port,
            queue: queue.queue,
            direction: queue.direction,
            pps: per_second(self.packets),
            bps: per_second(self.bytes).map(bits),
            polls_ps: per_second(self.polls),
            busy_ratio: busy.zip(self.polls).and_then(|(busy, polls)| ratio(busy, polls)),
            mean_burst: self.packets.zip(busy).and_then(|(packets, busy)| ratio(packets, busy)),
            share: self.packets.and_then(|packets| ratio(packets, port_packets)),
            missed_ps: None,
        }
    }
}
