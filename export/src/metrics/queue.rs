//! Queues: as libpmdscope counts them, else as the driver does.

use std::collections::BTreeMap;

use pmdscope_telemetry::model::counts_bytes;
use pmdscope_telemetry::sample::{Direction, PortSample, QueueSample};

use super::port::Port;
use super::row::{Cut, Cuts, Families, Row, histogram, labels};
use crate::caps::Caps;
use crate::catalogue as metric;

/// One direction of a queue.
#[derive(Clone, Copy, Default)]
struct Queue<'a> {
    packets: Option<u64>,
    bytes: Option<u64>,
    errors: Option<u64>,
    library: Option<&'a QueueSample>,
}

/// The queues of one direction of a port, by number.
type Queues<'a> = BTreeMap<u16, Queue<'a>>;

pub(super) fn families<'a>(
    families: &mut Families,
    cuts: &mut Cuts<'a>,
    ports: &[Port<'a>],
    caps: &Caps,
) {
    let (mut received, mut sent, mut truncated) = (Vec::new(), Vec::new(), Vec::new());
    for port in ports {
        let (rx, tx) = (queues(port, Direction::Rx), queues(port, Direction::Tx));
        let told = |queues: &Queues<'_>| queues.values().filter(|q| q.packets.is_some()).count();
        let missing = told(&rx) < usize::from(port.told.rx_queues)
            || told(&tx) < usize::from(port.told.tx_queues);
        truncated.push(Row {
            labels: labels(port.app.name, [port.told.device.clone()]),
            of: missing || port.told.xstats_truncated,
        });
        received.extend(rows(port, rx, cuts, caps));
        sent.extend(rows(port, tx, cuts, caps));
    }
    receive(families, &received);
    families.per(&metric::QUEUE_TRANSMIT_PACKETS, &sent, |queue| queue.packets);
    families.per(&metric::QUEUE_TRANSMIT_BYTES, &sent, |queue| queue.bytes);
    polls(families, &received);
    if caps.queue_histograms {
        histograms(families, &received);
    }
    families.per(&metric::QUEUE_STATS_TRUNCATED, &truncated, |truncated| Some(*truncated));
}

fn receive(families: &mut Families, queues: &[Row<Queue<'_>>]) {
    families.per(&metric::QUEUE_RECEIVE_PACKETS, queues, |queue| queue.packets);
    families.per(&metric::QUEUE_RECEIVE_BYTES, queues, |queue| queue.bytes);
    families.per(&metric::QUEUE_RECEIVE_ERRORS, queues, |queue| queue.errors);
}

fn polls(families: &mut Families, queues: &[Row<Queue<'_>>]) {
    families.per(&metric::QUEUE_POLLS, queues, |queue| Some(queue.library?.polls));
    families.per(&metric::QUEUE_EMPTY_POLLS, queues, |queue| Some(queue.library?.empty));
    families.per(&metric::QUEUE_RECEIVE_DEPTH, queues, |queue| queue.library?.depth);
    families.per(&metric::QUEUE_RECEIVE_DEPTH_WINDOW_MAX, queues, |queue| {
        Some(queue.library?.depth_high_water?.window)
    });
    families.per(&metric::QUEUE_RECEIVE_DESCRIPTORS, queues, |queue| queue.library?.descriptors);
}

fn histograms(families: &mut Families, queues: &[Row<Queue<'_>>]) {
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
    port: &Port<'a>,
    queues: Queues<'a>,
    cuts: &mut Cuts<'a>,
    caps: &Caps,
) -> Vec<Row<Queue<'a>>> {
    let keep = cuts.keep(port.app.name, Cut::Queues, queues.len(), caps.queues_per_port);
    let row = |(number, of): (u16, Queue<'a>)| Row {
        labels: labels(port.app.name, [port.told.device.clone(), number.to_string()]),
        of,
    };
    queues.into_iter().take(keep).map(row).collect()
}

/// The queues that anything is known of. A driver counts other packets than libpmdscope, which began
/// later: of an app that is linked with it, the driver's counts of packets are never a substitute.
fn queues<'a>(port: &Port<'a>, direction: Direction) -> Queues<'a> {
    let sample = &port.app.model.sample;
    let mut queues = by_driver(port.told, direction);
    if sample.library.is_some() || sample.failed("/pmdscope") {
        for queue in queues.values_mut() {
            (queue.packets, queue.bytes) = (None, None);
        }
    }
    let of_port = |q: &&QueueSample| q.port == port.told.id && q.direction == direction;
    for library in sample.queues.iter().filter(of_port) {
        let queue = queues.entry(library.queue).or_default();
        queue.packets = Some(library.packets);
        queue.bytes = Some(library.bytes);
        queue.library = Some(library);
    }
    queues
}

fn by_driver<'a>(port: &PortSample, direction: Direction) -> Queues<'a> {
    let prefix = prefix(direction);
    let of_queues = port.xstats.range(prefix.to_owned()..);
    let mut queues = Queues::new();
    for (name, value) in of_queues.take_while(|(name, _)| name.starts_with(prefix)) {
        let Some((number, field)) = counter(name, direction) else { continue };
        let queue: &mut Queue<'_> = queues.entry(number).or_default();
        let counter = match field {
            Field::Packets => &mut queue.packets,
            Field::Bytes => &mut queue.bytes,
            Field::Errors => &mut queue.errors,
        };
        // Some drivers have the generic counter besides one of their own.
        counter.get_or_insert(*value);
    }
    for queue in queues.values_mut() {
        let packets = queue.packets.unwrap_or(0);
        queue.bytes = queue.bytes.filter(|bytes| counts_bytes(packets, *bytes));
    }
    queues
}

/// What a driver counts per queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Packets,
    Bytes,
    Errors,
}

/// Whether an extended counter is exported as one of a queue.
pub(super) fn tells(xstat: &str) -> bool {
    [Direction::Rx, Direction::Tx].into_iter().any(|direction| counter(xstat, direction).is_some())
}

/// What the names of a queue's extended counters begin with.
fn prefix(direction: Direction) -> &'static str {
    match direction {
        Direction::Rx => "rx_q",
        Direction::Tx => "tx_q",
    }
}

/// Reads the name of an extended counter, as `rx_q0_packets`. Drivers differ little.
fn counter(xstat: &str, direction: Direction) -> Option<(u16, Field)> {
    let rest = xstat.strip_prefix(prefix(direction))?;
    let (number, field) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
    let field = match field.strip_prefix('_').unwrap_or(field) {
        "packets" | "good_packets" | "cnt" => Field::Packets,
        "bytes" | "good_bytes" | "octets" => Field::Bytes,
        "errors" => Field::Errors,
        _ => return None,
    };
    Some((number.parse().ok()?, field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_queues_are_known_by_their_names() {
        use Direction::{Rx, Tx};
        for (direction, name, expected) in [
            (Rx, "rx_q0_packets", Some((0, Field::Packets))),
            (Rx, "rx_q17bytes", Some((17, Field::Bytes))),
            (Tx, "tx_q3_good_packets", Some((3, Field::Packets))),
            (Rx, "rx_q1_errors", Some((1, Field::Errors))),
            (Tx, "tx_q1_cnt", Some((1, Field::Packets))),
            (Tx, "rx_q0_packets", None),
            (Rx, "rx_q1_multicast_packets", None),
            (Rx, "rx_q_packets", None),
            (Rx, "rx_q70000_packets", None),
            (Rx, "rx_good_packets", None),
            (Rx, "rx_q1", None),
        ] {
            assert_eq!(counter(name, direction), expected, "{name}");
        }
    }
}
