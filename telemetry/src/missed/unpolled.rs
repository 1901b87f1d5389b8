//! Receive queues that nobody polls.

use std::collections::BTreeSet;

use crate::model::{Model, PortRates, RxQueueRates, StillThread};
use crate::sample::{PortSample, QueueDirection, ThreadSample};

/// Packets of the queues that are polled from which silence of the others tells anything.
const LEAST_PACKETS: f64 = 100.0;

/// Receive queues of a port that deliver nothing, and threads that do not run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnpolledQueues<'a> {
    /// The queues; empty for the whole port.
    pub(crate) queues: Vec<u16>,
    /// Those of them that the app has not started.
    pub(crate) stopped: Vec<u16>,
    /// Whether the app itself counts the polls of its queues, so that it is certain.
    pub(crate) is_counted: bool,
    /// Share of the missed packets of the port that these queues missed; `None` if unknown.
    pub(crate) missed_share: Option<f64>,
    /// Threads that do not run.
    pub(crate) threads: Vec<(&'a ThreadSample, StillThread)>,
}

/// Returns the threads that have not run since the previous sample, those that polled before first.
pub(crate) fn still_threads(model: &Model) -> Vec<(&ThreadSample, StillThread)> {
    let threads = model.sample.threads.iter().zip(&model.threads);
    let mut still: Vec<_> =
        threads.filter_map(|(thread, rates)| Some((thread, rates.still?))).collect();
    still.sort_by_key(|(thread, still)| (!still.polled, thread.lcore));
    still
}

/// Returns the queues of a port that nobody polls, as far as that is known: their polls do not rise, or
/// they deliver nothing while packets arrive.
pub(crate) fn unpolled<'a>(
    model: &'a Model,
    port: &PortSample,
    rates: &PortRates,
) -> Option<UnpolledQueues<'a>> {
    let mut threads = still_threads(model);
    let any_polled = threads.iter().any(|(_, still)| still.polled);
    threads.retain(|(_, still)| still.polled || !any_polled);
    let found = UnpolledQueues { threads, ..UnpolledQueues::default() };
    if let Some(queues) = without_polls(model, port) {
        let missed_share = missed_share(model, port, rates, &queues);
        let queues = if queues.len() < usize::from(port.rx_queues) { queues } else { Vec::new() };
        return Some(UnpolledQueues { queues, is_counted: true, missed_share, ..found });
    }
    // Of a linked app, the gaps between its polls tell more.
    if is_counted(model, port) || !model.sample.lcores.is_empty() {
        return None;
    }
    let stopped = port.rx_queues_stopped.clone();
    if rates.rx_pps.is_some_and(|pps| pps <= 0.0) {
        return Some(UnpolledQueues { stopped, missed_share: Some(1.0), ..found });
    }
    let queues = silent(model, port, rates, any_polled)?;
    let stopped = stopped.into_iter().filter(|queue| queues.contains(queue)).collect();
    let missed_share = missed_share(model, port, rates, &queues);
    Some(UnpolledQueues { queues, stopped, missed_share, ..found })
}

fn is_counted(model: &Model, port: &PortSample) -> bool {
    let mut queues = model.sample.queues.iter();
    queues.any(|queue| queue.port == port.id && queue.direction == QueueDirection::Rx)
}

/// Returns the queues whose polls libpmdscope counts, and that were not polled; `None` without any. A
/// queue that was never polled is not among those that it counts.
fn without_polls(model: &Model, port: &PortSample) -> Option<Vec<u16>> {
    let rows = model.queues.iter();
    let of_port = rows.filter(|row| row.port == port.id && row.direction == QueueDirection::Rx);
    let polls: Vec<(u16, f64)> =
        of_port.filter_map(|row| Some((row.queue, row.polls_ps?))).collect();
    let polled: BTreeSet<u16> =
        polls.iter().filter(|(_, polls)| *polls > 0.0).map(|(queue, _)| *queue).collect();
    let is_known = !polls.is_empty();
    let without: Vec<u16> = (0..port.rx_queues).filter(|queue| !polled.contains(queue)).collect();
    (is_known && !without.is_empty()).then_some(without)
}

/// Returns the queues that deliver nothing while others do, according to the driver. RSS may give a
/// queue nothing: it delivered before, misses packets, is one of several, or a thread that polled does
/// not run.
fn silent(
    model: &Model,
    port: &PortSample,
    rates: &PortRates,
    any_polled: bool,
) -> Option<Vec<u16>> {
    let (active, silent): (Vec<RxQueueRates>, Vec<RxQueueRates>) =
        rates.rx_queues.iter().partition(|queue| queue.pps > 0.0);
    let packets: f64 = active.iter().map(|queue| queue.pps).sum::<f64>() * model.interval_s?;
    if packets < LEAST_PACKETS {
        return None;
    }
    let counters = port.queue_counters(QueueDirection::Rx);
    let delivered = |queue: u16| {
        let packets = counters.get(&queue).and_then(|counters| counters.packets);
        packets.is_some_and(|packets| packets > 0)
    };
    let is_likely = |queue: u16, missed_ps: Option<f64>| {
        missed_ps.is_some_and(|missed| missed > 0.0)
            || any_polled
            || active.len() > 1
            || delivered(queue)
            || port.rx_queues_stopped.contains(&queue)
    };
    let likely = silent.iter().filter(|queue| is_likely(queue.queue, queue.missed_ps));
    let queues: Vec<u16> = likely.map(|queue| queue.queue).collect();
    (!queues.is_empty()).then_some(queues)
}

fn missed_share(
    model: &Model,
    port: &PortSample,
    rates: &PortRates,
    queues: &[u16],
) -> Option<f64> {
    if queues.len() == usize::from(port.rx_queues) {
        return Some(1.0);
    }
    let all = rates.rx_missed_ps.filter(|missed| *missed > 0.0)?;
    let counted = model
        .queues
        .iter()
        .filter(|row| row.port == port.id && row.direction == QueueDirection::Rx);
    let counted = counted.map(|row| (row.queue, row.missed_ps));
    let driver = rates.rx_queues.iter().map(|row| (row.queue, row.missed_ps));
    let of_queues = counted.chain(driver).filter(|(queue, _)| queues.contains(queue));
    let missed = of_queues.filter_map(|(_, missed)| missed).reduce(|sum, missed| sum + missed)?;
    Some((missed / all).min(1.0))
}
