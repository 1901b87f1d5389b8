//! Lint for receive queues: packets that are distributed unevenly.

use std::fmt::Write;

use super::balance::{self, HotQueue};
use super::{Finding, FindingSubject, Lint, Severity, Thresholds, finding};
use crate::model::Model;

/// A queue is busy if at least this share of its polls returns packets.
const BUSY: f64 = 0.9;

/// Returns the ports that deliver most packets to one of several receive queues.
pub(super) fn imbalances<'a>(
    model: &'a Model,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    let hot = balance::hottest(model, thresholds).into_iter();
    hot.filter_map(|hot| imbalance(model, &hot, thresholds))
}

fn imbalance(model: &Model, hot: &HotQueue, thresholds: &Thresholds) -> Option<Finding> {
    let mut ports = model.sample.ports.iter().zip(&model.ports);
    let (port, rates) = ports.find(|(port, _)| port.id == hot.port)?;
    let mut evidence = format!(
        "queue {} gets {:.1} packets/s, {:.0} % of the packets of {} queues; the others get \
         {:.1}/s on average",
        hot.queue,
        hot.pps,
        hot.share * 100.0,
        hot.queues,
        hot.others_pps
    );
    let (who, missed) = match hot.missed_ps {
        Some(missed) => ("it", Some(missed)),
        None => ("the port", rates.rx_missed_ps),
    };
    let missed = missed.filter(|rate| *rate > thresholds.rx_missed_ps);
    if let Some(missed) = missed {
        let _ = write!(evidence, "; {who} misses {missed:.1} packets/s");
    }
    let threshold = format!(
        "one queue with more than {} times the mean of the others, of {} packets or more",
        thresholds.queue_ratio, thresholds.queue_packets
    );
    let advice = "list the flows of this queue (pmdscope netstat --queues --on \
                  PREFIX:PORT:QUEUE); hash more fields (ports, tunnels) by RSS, change its key, or \
                  distribute by rte_flow; a single flow always uses one queue";
    let busy = hot.busy_ratio.is_some_and(|busy| busy >= BUSY);
    let severity = if busy || missed.is_some() { Severity::Warning } else { Severity::Info };
    Some(finding(
        model,
        Lint::QueueImbalance,
        severity,
        FindingSubject::Port(port.device.clone()),
        evidence,
        &threshold,
        advice,
    ))
}
