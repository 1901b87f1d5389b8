//! Counters of RX queues, by their names in `ethtool -S`.

use std::collections::BTreeMap;

use pmdscope_telemetry::interface::InterfaceQueueSample;

/// Meaning of a queue counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EthtoolQueueCounter {
    /// Packets, with and without XDP.
    Packets,
    /// Packets processed by an XDP program.
    XdpPackets,
    Dropped,
    Redirected,
}

/// Returns the RX queues that the counters describe.
pub(crate) fn rx_queues(counters: &[(String, u64)]) -> Vec<InterfaceQueueSample> {
    let mut queues: BTreeMap<u32, InterfaceQueueSample> = BTreeMap::new();
    let known = counters.iter().filter_map(|(name, value)| Some((counter(name)?, *value)));
    for ((queue, counter), value) in known {
        let sample = queues.entry(queue).or_default();
        sample.queue = queue;
        match counter {
            EthtoolQueueCounter::Packets => sample.packets = Some(value),
            EthtoolQueueCounter::XdpPackets => sample.packets = sample.packets.or(Some(value)),
            EthtoolQueueCounter::Dropped => {
                sample.dropped = Some(sample.dropped.unwrap_or(0).saturating_add(value));
            }
            EthtoolQueueCounter::Redirected => sample.redirected = Some(value),
        }
    }
    queues.into_values().collect()
}

/// Returns the queue and meaning of a counter: `rx_queue_0_drops` (veth, `virtio_net`, ixgbe),
/// `rx-0.packets` (i40e), `rx0_packets` (mlx5, newer `virtio_net`), `queue_0_rx_cnt` (ena).
fn counter(name: &str) -> Option<(u32, EthtoolQueueCounter)> {
    let (rest, ena) = match name.strip_prefix("rx") {
        Some(rest) => (rest, false),
        None => (name.strip_prefix("queue")?, true),
    };
    let rest = rest.strip_prefix("_queue").filter(|_| !ena).unwrap_or(rest);
    let rest = rest.strip_prefix(['_', '-']).unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (queue, what) = rest.split_at(end);
    let what = what.strip_prefix(['_', '.', '-'])?;
    let what =
        if ena { what.strip_prefix("rx_")? } else { what.strip_prefix("rx_").unwrap_or(what) };
    let counter = match what {
        "packets" | "pkts" => EthtoolQueueCounter::Packets,
        "cnt" if ena => EthtoolQueueCounter::Packets,
        "xdp_packets" => EthtoolQueueCounter::XdpPackets,
        "drops" | "dropped" | "drop" | "buff_alloc_err" | "alloc_failed" => {
            EthtoolQueueCounter::Dropped
        }
        "xdp_redirect" | "xdp_redirects" => EthtoolQueueCounter::Redirected,
        _ => return None,
    };
    Some((queue.parse().ok()?, counter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queues(counters: &[(&str, u64)]) -> Vec<InterfaceQueueSample> {
        let counters: Vec<_> =
            counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        rx_queues(&counters)
    }

    fn queue(
        queue: u32,
        packets: u64,
        dropped: Option<u64>,
        redirected: Option<u64>,
    ) -> InterfaceQueueSample {
        InterfaceQueueSample { queue, packets: Some(packets), dropped, redirected }
    }

    #[test]
    fn counters_of_common_drivers_are_understood() {
        let veth = [
            ("peer_ifindex", 2),
            ("rx_queue_0_xdp_packets", 7),
            ("rx_queue_0_xdp_bytes", 700),
            ("rx_queue_0_drops", 1),
            ("rx_queue_0_xdp_redirect", 3),
            ("rx_queue_0_xdp_drops", 2),
            ("tx_queue_0_xdp_xmit", 9),
        ];
        assert_eq!(queues(&veth), [queue(0, 7, Some(1), Some(3))]);
        assert_eq!(
            queues(&[("rx-1.packets", 5), ("rx-1.bytes", 6), ("tx-1.packets", 4)]),
            [queue(1, 5, None, None)]
        );
        assert_eq!(
            queues(&[("rx12_packets", 5), ("rx12_xdp_redirect", 2)]),
            [queue(12, 5, None, Some(2))]
        );
        assert_eq!(
            queues(&[("queue_3_rx_cnt", 5), ("queue_3_tx_cnt", 8)]),
            [queue(3, 5, None, None)]
        );
        let virtio = [
            ("rx_queue_1_packets", 9),
            ("rx_queue_1_xdp_packets", 4),
            ("rx_queue_1_xdp_redirects", 3),
        ];
        assert_eq!(queues(&virtio), [queue(1, 9, None, Some(3))]);
    }

    #[test]
    fn counters_of_the_whole_interface_are_not_of_a_queue() {
        assert_eq!(
            queues(&[
                ("rx_packets", 5),
                ("rx_dropped", 1),
                ("rx_1024_to_1518", 1),
                ("rx_queue_", 3)
            ]),
            []
        );
    }

    proptest! {
        #[test]
        fn any_name_is_understood_or_ignored(names in proptest::collection::vec("(rx|queue)?[_a-z0-9.-]{0,12}|\\PC{0,12}", 0..8)) {
            let counters: Vec<_> = names.into_iter().map(|name| (name, u64::MAX)).collect();
            let queues = rx_queues(&counters);
            prop_assert!(queues.len() <= counters.len());
            prop_assert!(queues.is_sorted_by_key(|queue| queue.queue));
        }
    }
}
