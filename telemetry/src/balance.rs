//! How the packets of a port spread over its receive queues, and which of them is hot.

use std::collections::BTreeMap;

use crate::finding::Thresholds;
use crate::model::{Model, QueueRates};
use crate::sample::Direction;

/// A receive queue that gets clearly more packets than the other ones of its port.
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
    /// Share of its polls that brought packets, 0 to 1; `None` when it was not polled.
    pub busy_ratio: Option<f64>,
    /// Receive queues of the port.
    pub queues: usize,
    /// Packets per second that it misses; `None` where the driver does not count them by queue.
    pub missed_ps: Option<f64>,
}

/// The hottest receive queue of each port that has a hot one, by the last two samples. Only apps with
/// libpmdscope tell about queues.
pub fn hottest(model: &Model, thresholds: &Thresholds) -> Vec<HotQueue> {
    let mut ports: BTreeMap<u16, Vec<&QueueRates>> = BTreeMap::new();
    for queue in model.queues.iter().filter(|queue| queue.direction == Direction::Rx) {
        ports.entry(queue.port).or_default().push(queue);
    }
    ports.into_values().filter_map(|queues| hottest_of(model, &queues, thresholds)).collect()
}

fn hottest_of(model: &Model, queues: &[&QueueRates], thresholds: &Thresholds) -> Option<HotQueue> {
    let rates =
        queues.iter().map(|queue| Some((queue.pps?, *queue))).collect::<Option<Vec<_>>>()?;
    let (pps, queue) = rates.iter().copied().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let total: f64 = rates.iter().map(|(pps, _)| pps).sum();
    let others = rates.len().checked_sub(1).filter(|others| *others > 0)?;
    let others_pps = (total - pps) / others as f64;
    let seen = total * model.interval_s?;
    let is_hot = seen >= thresholds.queue_packets && pps > thresholds.queue_ratio * others_pps;
    is_hot.then_some(HotQueue {
        port: queue.port,
        queue: queue.queue,
        pps,
        others_pps,
        share: pps / total,
        busy_ratio: queue.busy_ratio,
        queues: rates.len(),
        missed_ps: queue.missed_ps,
    })
}
