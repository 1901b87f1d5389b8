//! Metrics of queues: received packets as counted by libpmdscope, otherwise by the driver; sent packets
//! as counted by the driver.

use std::collections::BTreeMap;

use pmdscope_telemetry::model::QueueRates;
use pmdscope_telemetry::sample::queue_counters::{self, QueueCounter, QueueCounters};
use pmdscope_telemetry::sample::{PortSample, QueueDirection, QueueSample};

use super::port::AppPort;
use super::row::{FamilyList, LabelledRow, SuppressReason, SuppressedSeries, histogram, labels};
use crate::catalogue as metric;
use crate::series_limits::SeriesLimits;

/// One direction of a queue.
#[derive(Clone, Copy, Default)]
struct QueueValues<'a> {
    packets: Option<u64>,
    bytes: Option<u64>,
    errors: Option<u64>,
    refused: Option<u64>,
    descriptors: Option<u64>,
    library: Option<&'a QueueSample>,
}

/// The queues of one direction of a port, by number.
type PortQueues<'a> = BTreeMap<u16, QueueValues<'a>>;

pub(super) fn families<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    ports: &[AppPort<'a>],
    limits: &SeriesLimits,
) {
    let (mut received, mut sent, mut truncated) = (Vec::new(), Vec::new(), Vec::new());
    for port in ports {
        let (rx, tx) = (queues(port, QueueDirection::Rx), queues(port, QueueDirection::Tx));
        let counted =
            |queues: &PortQueues<'_>| queues.values().filter(|q| q.packets.is_some()).count();
        let missing = counted(&rx) < usize::from(port.sample.rx_queues)
            || counted(&tx) < usize::from(port.sample.tx_queues);
        truncated.push(LabelledRow {
            labels: labels(port.app.name, [port.sample.device.clone()]),
            of: missing || port.sample.xstats_truncated,
        });
        received.extend(rows(port, rx, suppressed, limits));
        sent.extend(rows(port, tx, suppressed, limits));
    }
    receive(families, &received);
    families.per(&metric::QUEUE_TRANSMIT_PACKETS, &sent, |queue| queue.packets);
    families.per(&metric::QUEUE_TRANSMIT_BYTES, &sent, |queue| queue.bytes);
    families.per(&metric::QUEUE_TRANSMIT_OFFERED, &sent, |queue| Some(queue.library?.packets));
    families.per(&metric::QUEUE_TRANSMIT_REFUSED, &sent, |queue| queue.refused);
    polls(families, &received);
    if limits.queue_histograms {
        histograms(families, &received);
    }
    families.per(&metric::QUEUE_STATS_TRUNCATED, &truncated, |truncated| Some(*truncated));
}

fn receive(families: &mut FamilyList, queues: &[LabelledRow<QueueValues<'_>>]) {
    families.per(&metric::QUEUE_RECEIVE_PACKETS, queues, |queue| queue.packets);
    families.per(&metric::QUEUE_RECEIVE_BYTES, queues, |queue| queue.bytes);
    families.per(&metric::QUEUE_RECEIVE_ERRORS, queues, |queue| queue.errors);
}

fn polls(families: &mut FamilyList, queues: &[LabelledRow<QueueValues<'_>>]) {
    families.per(&metric::QUEUE_POLLS, queues, |queue| Some(queue.library?.polls));
    families.per(&metric::QUEUE_EMPTY_POLLS, queues, |queue| Some(queue.library?.empty));
    families.per(&metric::QUEUE_RECEIVE_DEPTH, queues, |queue| queue.library?.depth);
    families.per(&metric::QUEUE_RECEIVE_DEPTH_WINDOW_MAX, queues, |queue| {
        Some(queue.library?.depth_high_water?.window)
    });
    families.per(&metric::QUEUE_RECEIVE_DESCRIPTORS, queues, |queue| queue.descriptors);
}

fn histograms(families: &mut FamilyList, queues: &[LabelledRow<QueueValues<'_>>]) {
    families.per(&metric::QUEUE_RECEIVE_DEPTH_HISTOGRAM, queues, |queue| {
        let library = queue.library.filter(|library| library.depth.is_some())?;
        histogram(&library.depths, |i| 2_f64.powi(i) - 1.0, None)
    });
    families.per(&metric::QUEUE_BURST_PACKETS, queues, |queue| {
        let library = queue.library?;
        histogram(&library.bursts, |i| 2_f64.powi(i), Some(library.packets as f64))
    });
}

fn rows<'a>(
    port: &AppPort<'a>,
    queues: PortQueues<'a>,
    suppressed: &mut SuppressedSeries<'a>,
    limits: &SeriesLimits,
) -> Vec<LabelledRow<QueueValues<'a>>> {
    let keep = suppressed.keep(
        port.app.name,
        SuppressReason::Queues,
        queues.len(),
        limits.queues_per_port,
    );
    let row = |(number, of): (u16, QueueValues<'a>)| LabelledRow {
        labels: labels(port.app.name, [port.sample.device.clone(), number.to_string()]),
        of,
    };
    queues.into_iter().take(keep).map(row).collect()
}

/// Returns the queues with known values. The driver and libpmdscope count different packets, because
/// the library started later: for a linked app, the driver's counts of received packets are never used
/// instead. Sent packets are known only to the driver: the library sees the packets passed to it.
fn queues<'a>(port: &AppPort<'a>, direction: QueueDirection) -> PortQueues<'a> {
    let sample = &port.app.model.sample;
    let mut queues = by_driver(port.sample, direction);
    let received = direction == QueueDirection::Rx;
    if received && (sample.library.is_some() || sample.failed("/pmdscope")) {
        for queue in queues.values_mut() {
            (queue.packets, queue.bytes) = (None, None);
        }
    }
    if received {
        let told = port.sample.rx_descriptors.iter().zip(0..);
        for (descriptors, number) in told.filter(|(descriptors, _)| descriptors.is_some()) {
            queues.entry(number).or_default().descriptors = *descriptors;
        }
    }
    let of_port =
        |(q, _): &(&QueueSample, &QueueRates)| q.port == port.sample.id && q.direction == direction;
    let all = sample.queues.iter().zip(&port.app.model.queues);
    for (library, rates) in all.filter(of_port) {
        let queue = queues.entry(library.queue).or_default();
        if received {
            (queue.packets, queue.bytes) = (Some(library.packets), Some(library.bytes));
        }
        queue.refused = rates.refused_packets;
        queue.library = Some(library);
        queue.descriptors = library.descriptors;
    }
    queues
}

fn by_driver<'a>(port: &PortSample, direction: QueueDirection) -> PortQueues<'a> {
    let queue = |of: QueueCounters| QueueValues {
        packets: of.packets,
        bytes: of.bytes,
        errors: of.errors,
        refused: None,
        descriptors: None,
        library: None,
    };
    let counters = match direction {
        QueueDirection::Rx => port.queue_counters(direction),
        QueueDirection::Tx => port.sent_by_queue(),
    };
    counters.into_iter().map(|(number, of)| (number, queue(of))).collect()
}

/// Returns whether an xstat is exported as a metric of a queue.
pub(super) fn is_queue_counter(xstat: &str) -> bool {
    queue_counters::parse(xstat).is_some_and(|(_, _, counter)| counter != QueueCounter::Missed)
}
