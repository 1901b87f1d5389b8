//! Lints over queues: work that is badly shared.

use std::collections::BTreeMap;

use super::{Finding, Severity, Thresholds, finding};
use crate::model::{Model, QueueRates};
use crate::sample::Direction;

/// Share of polls that bring packets above which a queue has no time to spare.
const BUSY: f64 = 0.9;

/// Ports that give most packets to one of several receive queues.
pub(super) fn imbalances<'a>(
    model: &'a Model,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    let mut ports: BTreeMap<u16, Vec<&QueueRates>> = BTreeMap::new();
    for queue in model.queues.iter().filter(|queue| queue.direction == Direction::Rx) {
        ports.entry(queue.port).or_default().push(queue);
    }
    ports.into_iter().filter_map(|(port, queues)| imbalance(model, port, &queues, thresholds))
}

fn imbalance(
    model: &Model,
    port: u16,
    queues: &[&QueueRates],
    thresholds: &Thresholds,
) -> Option<Finding> {
    let device = &model.sample.ports.iter().find(|known| known.id == port)?.device;
    let rates =
        queues.iter().map(|queue| Some((queue.pps?, *queue))).collect::<Option<Vec<_>>>()?;
    let (most, hottest) = rates.iter().copied().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let total: f64 = rates.iter().map(|(pps, _)| pps).sum();
    let others = rates.len().checked_sub(1).filter(|others| *others > 0)?;
    let mean = (total - most) / others as f64;
    let seen = total * model.interval_s?;
    if seen < thresholds.queue_packets || most <= thresholds.queue_ratio * mean {
        return None;
    }
    let evidence = format!(
        "queue {} gets {most:.1} packets/s, {:.0} % of the packets of {} queues; the others get \
         {mean:.1}/s on average",
        hottest.queue,
        most / total * 100.0,
        rates.len()
    );
    let threshold = format!(
        "one queue with more than {} times the mean of the others, of {} packets or more",
        thresholds.queue_ratio, thresholds.queue_packets
    );
    let advice = "look at which flows share the queue, in a capture of it (-i PREFIX:PORT:QUEUE); \
                  widen the RSS hash (ports, tunnels) or key, or spread by rte_flow";
    let busy = hottest.busy_ratio.is_some_and(|busy| busy >= BUSY);
    let severity = if busy { Severity::Warning } else { Severity::Info };
    Some(finding(model, "queue_imbalance", severity, device, evidence, &threshold, advice))
}
