//! The distribution of the packets of a port over its queues, and hot queues.

use std::collections::BTreeMap;

use super::thresholds::Thresholds;
use crate::model::{Model, QueueRates, RxQueueRates};
use crate::sample::QueueDirection;

/// The packets of all queues of one direction of a port in the same time, collected from the packets
/// of each queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueBalance {
    queues: usize,
    packets: f64,
}

impl FromIterator<f64> for QueueBalance {
    fn from_iter<I: IntoIterator<Item = f64>>(packets: I) -> Self {
        let add = |sum: Self, packets: f64| Self {
            queues: sum.queues + 1,
            packets: sum.packets + packets,
        };
        packets.into_iter().fold(Self::default(), add)
    }
}

impl QueueBalance {
    /// Returns the packets of all queues.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Counts are never negative.
    pub fn packets(&self) -> u64 {
        self.packets as u64
    }

    /// Returns the share of a queue with this number of packets, 0 to 1; `None` if there were no packets.
    pub fn share(&self, packets: f64) -> Option<f64> {
        (self.packets > 0.0).then(|| packets / self.packets)
    }

    /// Returns the average of the other queues; `None` if there are none.
    pub fn others(&self, packets: f64) -> Option<f64> {
        let others = self.queues.checked_sub(1).filter(|others| *others > 0)?;
        Some((self.packets - packets).max(0.0) / others as f64)
    }

    /// Whether a queue with this number of packets is hot: it has more than
    /// [`Thresholds::queue_ratio`] times the mean of the others, and all queues together have enough
    /// packets for a judgement, [`Thresholds::queue_packets`].
    pub fn is_hot(&self, packets: f64, thresholds: &Thresholds) -> bool {
        let others = self.others(packets);
        self.packets >= thresholds.queue_packets
            && others.is_some_and(|mean| packets > thresholds.queue_ratio * mean)
    }
}

/// Returns whether each queue of a model is hot, in order; false for queues without a rate yet.
pub fn hot(model: &Model, thresholds: &Thresholds) -> Vec<bool> {
    let packets = |queue: &QueueRates| Some(queue.pps? * model.interval_s?);
    let mut ports = BTreeMap::<_, Vec<f64>>::new();
    for queue in &model.queues {
        let all = ports.entry((queue.port, queue.direction)).or_default();
        all.extend(packets(queue));
    }
    let is_hot = |queue: &QueueRates| {
        let all: QueueBalance = ports[&(queue.port, queue.direction)].iter().copied().collect();
        packets(queue).is_some_and(|packets| all.is_hot(packets, thresholds))
    };
    model.queues.iter().map(is_hot).collect()
}

/// A receive queue that gets many more packets than the other queues of its port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotQueue {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Packets per second.
    pub pps: f64,
    /// Packets per second of the other queues, on average.
    pub others_pps: f64,
    /// Share of the packets of the port, 0 to 1.
    pub share: f64,
    /// Share of its polls that returned packets, 0 to 1; `None` if it was not polled.
    pub busy_ratio: Option<f64>,
    /// Receive queues of the port.
    pub queues: usize,
    /// Packets per second that it misses; `None` if the driver does not count them by queue.
    pub missed_ps: Option<f64>,
}

/// Returns the hottest receive queue of each port that has a hot one, from the last two samples: as
/// libpmdscope counts queues, or else as the driver does.
pub fn hottest(model: &Model, thresholds: &Thresholds) -> Vec<HotQueue> {
    let mut ports: BTreeMap<u16, Vec<Option<QueueLoad>>> = BTreeMap::new();
    for rates in model.queues.iter().filter(|queue| queue.direction == QueueDirection::Rx) {
        let QueueRates { port, queue, pps, busy_ratio, missed_ps, .. } = *rates;
        let load = pps.map(|pps| QueueLoad { queue, pps, busy_ratio, missed_ps });
        ports.entry(port).or_default().push(load);
    }
    for port in &model.ports {
        let load = |of: &RxQueueRates| {
            let RxQueueRates { queue, pps, missed_ps } = *of;
            Some(QueueLoad { queue, pps, busy_ratio: None, missed_ps })
        };
        if !port.rx_queues.is_empty() {
            ports.insert(port.id, port.rx_queues.iter().map(load).collect());
        }
    }
    let hottest = |(port, queues)| hottest_of(model, port, queues, thresholds);
    ports.into_iter().filter_map(hottest).collect()
}

/// The load of one queue.
struct QueueLoad {
    queue: u16,
    pps: f64,
    busy_ratio: Option<f64>,
    missed_ps: Option<f64>,
}

fn hottest_of(
    model: &Model,
    port: u16,
    queues: Vec<Option<QueueLoad>>,
    thresholds: &Thresholds,
) -> Option<HotQueue> {
    let queues = queues.into_iter().collect::<Option<Vec<_>>>()?;
    let QueueLoad { queue, pps, busy_ratio, missed_ps } =
        queues.iter().max_by(|a, b| a.pps.total_cmp(&b.pps))?;
    let seconds = model.interval_s?;
    let balance: QueueBalance = queues.iter().map(|queue| queue.pps * seconds).collect();
    let packets = pps * seconds;
    let is_hot = balance.is_hot(packets, thresholds);
    let hot = HotQueue {
        port,
        queue: *queue,
        pps: *pps,
        others_pps: balance.others(packets)? / seconds,
        share: balance.share(packets)?,
        busy_ratio: *busy_ratio,
        queues: queues.len(),
        missed_ps: *missed_ps,
    };
    is_hot.then_some(hot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot_of(packets: &[f64]) -> Vec<bool> {
        let balance: QueueBalance = packets.iter().copied().collect();
        let thresholds = Thresholds::default();
        packets.iter().map(|packets| balance.is_hot(*packets, &thresholds)).collect()
    }

    #[test]
    fn a_queue_is_hot_with_more_than_three_times_the_mean_of_the_others() {
        assert_eq!(hot_of(&[1500.0, 500.0]), [false, false]);
        assert_eq!(hot_of(&[1501.0, 500.0]), [true, false]);
        assert_eq!(hot_of(&[500.0, 500.0, 1501.0, 500.0]), [false, false, true, false]);
        // Two hot queues of many.
        let mut many = [0.0; 16];
        (many[3], many[9]) = (9000.0, 9000.0);
        assert_eq!(hot_of(&many).iter().filter(|hot| **hot).count(), 2);
    }

    #[test]
    fn one_queue_or_few_packets_are_never_hot() {
        assert_eq!(hot_of(&[1e9]), [false]);
        assert_eq!(hot_of(&[999.0, 0.0]), [false, false]);
        assert_eq!(hot_of(&[1000.0, 0.0]), [true, false]);
        assert_eq!(hot_of(&[0.0, 0.0]), [false, false]);
    }

    #[test]
    fn shares_and_means_are_unknown_where_there_are_none() {
        let balance: QueueBalance = [90.0, 10.0, 20.0].into_iter().collect();
        assert_eq!((balance.share(90.0), balance.others(90.0)), (Some(0.75), Some(15.0)));
        let alone: QueueBalance = [90.0].into_iter().collect();
        assert_eq!((alone.share(90.0), alone.others(90.0)), (Some(1.0), None));
        assert_eq!(QueueBalance::default().share(0.0), None);
    }
}
