//! Rates of queues.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ports::missed_rates;
use super::{Interval, bits, ratio};
use crate::sample::{PortSample, QueueDirection, QueueSample, Sample, SentByPort};
use crate::sending::{RefusedPackets, UnsentPackets};

/// Per-second rates of one queue. A rate is `None` without an earlier sample or after a counter reset.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueRates {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Direction of the queue.
    pub direction: QueueDirection,
    /// Packets per second that were received, or that the driver accepted for sending. Also `None` if
    /// packets were refused and the driver does not count sent packets by queue.
    pub pps: Option<f64>,
    /// Bits per second of the packets in `pps`.
    pub bps: Option<f64>,
    /// Packets per second that were offered to this transmit queue and not accepted, averaged over some
    /// seconds; a packet that is offered again counts again. `None` if the driver does not count sent
    /// packets by queue.
    pub refused_ps: Option<f64>,
    /// Packets that were offered to this transmit queue and not accepted since the app was first sampled;
    /// `None` if the driver does not count sent packets by queue.
    pub refused_packets: Option<u64>,
    /// Bursts requested per second.
    pub polls_ps: Option<f64>,
    /// Share of bursts with packets, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// Average number of packets in a non-empty burst.
    pub mean_burst: Option<f64>,
    /// Share of this queue in the packets of its port and direction, 0 to 1.
    pub share: Option<f64>,
    /// Packets per second that the NIC dropped because this receive queue had no free descriptor; `None` if
    /// the driver does not count them by queue.
    pub missed_ps: Option<f64>,
}

/// Returns the rates of the queues, given sent and refused packets, which are in the order of
/// `sample.queues`.
pub(super) fn queue_rates(
    sample: &Sample,
    interval: Option<&Interval<'_>>,
    sent: &SentPackets<'_>,
    refused: &[Option<RefusedPackets>],
) -> Vec<QueueRates> {
    let queues = &sample.queues;
    let missed = missed_rates(sample, interval);
    let sent = |queue: &QueueSample| {
        let at = sample.ports.iter().position(|port| port.id == queue.port)?;
        sent.delta(at, sample.ports.get(at)?, queue.queue, interval?.last)
    };
    let deltas: Vec<_> = queues
        .iter()
        .enumerate()
        .map(|(at, queue)| {
            let delta = queue_delta(at, queue, interval)?;
            let of_tx = queue.direction == QueueDirection::Tx;
            Some(if of_tx { delta.sending(sent(queue)) } else { delta })
        })
        .collect();
    let mut totals: BTreeMap<(u16, QueueDirection), u64> = BTreeMap::new();
    for (queue, delta) in queues.iter().zip(&deltas) {
        let packets = delta.as_ref().and_then(|delta| delta.packets).unwrap_or(0);
        let total = totals.entry((queue.port, queue.direction)).or_default();
        *total = total.saturating_add(packets);
    }
    let rates = queues.iter().zip(deltas).zip(refused).map(|((queue, delta), refused)| {
        let total = totals.get(&(queue.port, queue.direction)).copied().unwrap_or(0);
        let missed = missed.get(&(queue.port, queue.queue)).copied();
        let missed_ps = missed.filter(|_| queue.direction == QueueDirection::Rx);
        QueueRates {
            missed_ps,
            refused_ps: refused.as_ref().map(|refused| refused.pps),
            refused_packets: refused.as_ref().map(|refused| refused.packets),
            ..delta.unwrap_or_default().rates(queue, total)
        }
    });
    rates.collect()
}

/// Packets that drivers had sent at a sample, and at the previous one.
pub(super) struct SentPackets<'a> {
    /// In the order of the ports of the sample.
    pub(super) unsent: &'a [Option<UnsentPackets>],
    pub(super) now: &'a SentByPort,
    pub(super) before: &'a SentByPort,
}

/// Packets of a transmit queue that its driver sent in an interval.
#[derive(Clone, Copy)]
enum SentDelta {
    /// The driver counts packets, and perhaps bytes; `None` for a counter that was reset or is unknown.
    Counted(Option<u64>, Option<u64>),
    /// All offered packets: the port refused none.
    AllOffered,
}

impl SentPackets<'_> {
    /// Returns the packets that a queue of the port with this index has sent, as far as they are known.
    fn delta(&self, at: usize, port: &PortSample, queue: u16, last: &Sample) -> Option<SentDelta> {
        let counted = || {
            last.same_port(port)?;
            let of = |sent: &SentByPort| sent.get(&port.id)?.get(&queue).copied();
            let (now, before) = (of(self.now)?, of(self.before)?);
            let (packets, then) = now.packets.zip(before.packets)?;
            let bytes = now.bytes.zip(before.bytes).and_then(|(now, then)| now.checked_sub(then));
            Some(SentDelta::Counted(packets.checked_sub(then), bytes))
        };
        let unsent = self.unsent.get(at).copied().flatten();
        let all = unsent.is_some_and(|unsent| unsent.refused_pps <= 0.0);
        counted().or_else(|| all.then_some(SentDelta::AllOffered))
    }
}

/// Counts of a queue in an interval; `None` for each counter that was reset or is unknown.
#[derive(Default)]
struct QueueDelta {
    seconds: f64,
    /// Packets received or sent.
    packets: Option<u64>,
    /// Bytes of these packets.
    bytes: Option<f64>,
    /// Packets received or offered.
    in_bursts: Option<u64>,
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
    // Usually it is in the same place.
    let same = |before: &&QueueSample| key(before) == key(queue);
    let before = before.get(at).filter(same).or_else(|| before.iter().find(same))?;
    Some(QueueDelta {
        seconds: interval.seconds,
        packets: queue.packets.checked_sub(before.packets),
        bytes: queue.bytes.checked_sub(before.bytes).map(|bytes| bytes as f64),
        in_bursts: queue.packets.checked_sub(before.packets),
        polls: queue.polls.checked_sub(before.polls),
        empty: queue.empty.checked_sub(before.empty),
    })
}

impl QueueDelta {
    /// Returns the counts of a transmit queue after replacing offered by sent packets.
    fn sending(self, sent: Option<SentDelta>) -> Self {
        match sent {
            Some(SentDelta::AllOffered) => self,
            Some(SentDelta::Counted(packets, bytes)) => {
                let mean = self.bytes.zip(self.packets).filter(|(_, packets)| *packets > 0);
                let mean = mean.map_or(0.0, |(bytes, packets)| bytes / packets as f64);
                let estimated = packets.map(|packets| packets as f64 * mean);
                let bytes = bytes.map(|bytes| bytes as f64).or(estimated);
                Self { packets, bytes, ..self }
            }
            None => Self { packets: None, bytes: None, ..self },
        }
    }

    fn rates(&self, queue: &QueueSample, port_packets: u64) -> QueueRates {
        let per_second = |count: Option<u64>| Some(count? as f64 / self.seconds);
        // The app counts while it is read, so the difference may be off by a burst.
        let busy = self.polls.zip(self.empty).and_then(|(polls, empty)| polls.checked_sub(empty));
        QueueRates {
            port: queue.port,
            queue: queue.queue,
            direction: queue.direction,
            pps: per_second(self.packets),
            bps: self.bytes.map(|bytes| bits(bytes / self.seconds)),
            refused_ps: None,
            refused_packets: None,
            polls_ps: per_second(self.polls),
            busy_ratio: busy.zip(self.polls).and_then(|(busy, polls)| ratio(busy, polls)),
            mean_burst: self.in_bursts.zip(busy).and_then(|(packets, busy)| ratio(packets, busy)),
            share: self.packets.and_then(|packets| ratio(packets, port_packets)),
            missed_ps: None,
        }
    }
}
