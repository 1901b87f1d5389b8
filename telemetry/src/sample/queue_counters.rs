//! Counters of queues, by the names that drivers give them among their extended counters.
//!
//! Names differ: DPDK's own `rx_q0_packets` is `rx_q0packets` before 20.11, virtio has
//! `rx_q0_good_packets`, and others have `rx_q0_cnt`.

use std::collections::BTreeMap;

use super::{PortSample, QueueDirection, counts_bytes};

/// Counters of a driver for one direction of a queue; `None` for each that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets.
    pub packets: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets with errors; for some drivers, also packets that it dropped.
    pub errors: Option<u64>,
    /// Packets that the NIC dropped because no descriptor was free.
    pub missed: Option<u64>,
}

/// The meaning of an extended counter of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueCounter {
    /// [`QueueCounters::packets`].
    Packets,
    /// [`QueueCounters::bytes`].
    Bytes,
    /// [`QueueCounters::errors`].
    Errors,
    /// [`QueueCounters::missed`].
    Missed,
}

/// Parses the name of an extended counter; `None` if it is unknown or not of a queue.
pub fn parse(xstat: &str) -> Option<(QueueDirection, u16, QueueCounter)> {
    let (direction, rest) = [QueueDirection::Rx, QueueDirection::Tx]
        .into_iter()
        .find_map(|direction| Some((direction, xstat.strip_prefix(prefix(direction))?)))?;
    let (number, counter) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
    let counter = match counter.strip_prefix('_').unwrap_or(counter) {
        "packets" | "good_packets" | "cnt" => QueueCounter::Packets,
        "bytes" | "good_bytes" | "octets" => QueueCounter::Bytes,
        "errors" => QueueCounter::Errors,
        "missed" | "imissed" | "dropped" | "out_of_buffer" if direction == QueueDirection::Rx => {
            QueueCounter::Missed
        }
        _ => return None,
    };
    Some((direction, number.parse().ok()?, counter))
}

/// Returns the prefix of the names of a queue's extended counters.
fn prefix(direction: QueueDirection) -> &'static str {
    match direction {
        QueueDirection::Rx => "rx_q",
        QueueDirection::Tx => "tx_q",
    }
}

impl PortSample {
    /// Returns the counters of the driver by queue number, only for queues with at least one counter.
    pub fn queue_counters(&self, direction: QueueDirection) -> BTreeMap<u16, QueueCounters> {
        let mut queues = Vec::<(u16, QueueCounters)>::new();
        for (number, counter, value) in self.xstats.of_queues(direction) {
            if queues.last().is_none_or(|(last, _)| *last != number) {
                queues.push((number, QueueCounters::default()));
            }
            let Some((_, queue)) = queues.last_mut() else { continue };
            let counter = match counter {
                QueueCounter::Packets => &mut queue.packets,
                QueueCounter::Bytes => &mut queue.bytes,
                QueueCounter::Errors => &mut queue.errors,
                QueueCounter::Missed => &mut queue.missed,
            };
            // Some drivers have the generic counter in addition to one of their own.
            counter.get_or_insert(value);
        }
        for (_, queue) in &mut queues {
            let packets = queue.packets.unwrap_or(0);
            queue.bytes = queue.bytes.filter(|bytes| counts_bytes(packets, *bytes));
        }
        queues.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_queues_are_known_by_their_names() {
        use QueueCounter::{Bytes, Errors, Missed, Packets};
        use QueueDirection::{Rx, Tx};
        for (name, expected) in [
            ("rx_q0_packets", Some((Rx, 0, Packets))),
            ("rx_q12packets", Some((Rx, 12, Packets))),
            ("rx_q17bytes", Some((Rx, 17, Bytes))),
            ("tx_q3_good_packets", Some((Tx, 3, Packets))),
            ("rx_q1_errors", Some((Rx, 1, Errors))),
            ("tx_q1_cnt", Some((Tx, 1, Packets))),
            ("rx_q2_imissed", Some((Rx, 2, Missed))),
            ("rx_q2_dropped", Some((Rx, 2, Missed))),
            ("tx_q2_dropped", None),
            ("rx_q1_multicast_packets", None),
            ("rx_qx_packets", None),
            ("rx_q_packets", None),
            ("rx_q70000_packets", None),
            ("rx_good_packets", None),
            ("rx_packets", None),
            ("rx_q1", None),
        ] {
            assert_eq!(parse(name), expected, "{name}");
        }
    }

    #[test]
    fn counters_are_put_together_by_queue() {
        let xstats = [
            ("rx_good_packets", 9),
            ("rx_q0_good_packets", 5),
            ("rx_q0_packets", 6),
            ("rx_q0_bytes", 0),
            ("rx_q0_imissed", 2),
            ("rx_q1_bytes", 7),
            ("tx_q0_packets", 3),
        ];
        let xstats = xstats.map(|(name, value)| (name.to_owned(), value)).into();
        let port = PortSample { xstats, ..PortSample::default() };
        let rx = port.queue_counters(QueueDirection::Rx);
        let first = QueueCounters { packets: Some(5), missed: Some(2), ..Default::default() };
        let second = QueueCounters { bytes: Some(7), ..Default::default() };
        assert_eq!(rx, [(0, first), (1, second)].into(), "bytes that are 0 were not counted");
        let tx = QueueCounters { packets: Some(3), ..Default::default() };
        assert_eq!(port.queue_counters(QueueDirection::Tx), [(0, tx)].into());
    }
}
