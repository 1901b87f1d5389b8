//! Packets that drivers have sent by transmit queue, in contrast to packets that apps have offered.

use std::collections::BTreeMap;

use super::queue_counters::QueueCounters;
use super::{PortSample, QueueDirection, Sample, counts_bytes};

/// Counters of sent packets, by port and transmit queue.
pub(crate) type SentByPort = BTreeMap<u16, BTreeMap<u16, QueueCounters>>;

impl Sample {
    /// Returns [`PortSample::sent_by_queue`] of each port.
    pub(crate) fn sent_by_port(&self) -> SentByPort {
        self.ports.iter().map(|port| (port.id, port.sent_by_queue())).collect()
    }
}

impl PortSample {
    /// Returns the packets and bytes that the driver has sent, by transmit queue. Without counters of
    /// queues, the only queue of a port has sent everything; for several queues they are unknown.
    pub fn sent_by_queue(&self) -> BTreeMap<u16, QueueCounters> {
        let mut queues = self.queue_counters(QueueDirection::Tx);
        let packets = || queues.values().filter_map(|queue| queue.packets);
        // DPDK returns zeros for drivers that do not fill counters of queues.
        let counts = packets().any(|packets| packets > 0)
            || (packets().count() > 0 && self.stats.tx_packets == 0);
        if counts {
            return queues;
        }
        for queue in queues.values_mut() {
            (queue.packets, queue.bytes) = (None, None);
        }
        if self.tx_queues == 1 {
            let (packets, bytes) = (self.stats.tx_packets, self.stats.tx_bytes);
            let only = queues.entry(0).or_default();
            only.packets = Some(packets);
            only.bytes = Some(bytes).filter(|bytes| counts_bytes(packets, *bytes));
        }
        queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(tx_queues: u16, xstats: &[(&str, u64)]) -> PortSample {
        let xstats = xstats.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mut port = PortSample { tx_queues, xstats, ..PortSample::default() };
        (port.stats.tx_packets, port.stats.tx_bytes) = (9, 540);
        port
    }

    fn packets(port: &PortSample) -> Vec<(u16, Option<u64>)> {
        port.sent_by_queue().into_iter().map(|(queue, of)| (queue, of.packets)).collect()
    }

    #[test]
    fn the_driver_knows_what_each_queue_sent() {
        let both = [("tx_q0_packets", 9), ("tx_q1_packets", 0)];
        assert_eq!(packets(&port(2, &both)), [(0, Some(9)), (1, Some(0))]);
        assert_eq!(packets(&port(1, &[("tx_q0_packets", 8)])), [(0, Some(8))]);
    }

    #[test]
    fn the_only_queue_sent_what_the_port_sent() {
        let sent = port(1, &[]).sent_by_queue();
        assert_eq!((sent[&0].packets, sent[&0].bytes), (Some(9), Some(540)));
        assert_eq!(packets(&port(1, &[("tx_q0_packets", 0)])), [(0, Some(9))]);
    }

    #[test]
    fn zeros_of_a_driver_that_counts_no_queues_are_unknown() {
        let zeros = [("tx_q0_packets", 0), ("tx_q1_packets", 0)];
        assert_eq!(packets(&port(2, &zeros)), [(0, None), (1, None)]);
        assert_eq!(packets(&port(2, &[])), []);
        let mut idle = port(2, &zeros);
        idle.stats.tx_packets = 0;
        assert_eq!(packets(&idle), [(0, Some(0)), (1, Some(0))]);
    }
}
