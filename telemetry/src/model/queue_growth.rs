//! Packets by queue between any two samples of an app.

use std::collections::BTreeMap;

use super::Interval;
use crate::sample::{PortSample, QueueDirection, Sample};

/// The growth of the packets of the queues of a port between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueGrowth {
    /// Packets by queue.
    pub packets: BTreeMap<u16, u64>,
    /// Packets per second by queue.
    pub pps: BTreeMap<u16, f64>,
}

impl QueueGrowth {
    /// Returns the growth for a port of `now` and a direction, since `before`. `None` if `before` is
    /// not earlier or of another process, if the port did not exist or was another device, or if the
    /// counter of any queue was reset: shares of different times cannot be compared.
    pub fn between(
        before: &Sample,
        now: &Sample,
        port: &PortSample,
        direction: QueueDirection,
    ) -> Option<Self> {
        let elapsed_ns = now.monotonic_ns.checked_sub(before.monotonic_ns).filter(|ns| *ns > 0)?;
        if !before.app.same_process(&now.app) {
            return None;
        }
        let old = queue_packets(before, before.same_port(port)?, direction);
        let interval = Interval { last: before, seconds: elapsed_ns as f64 / 1e9 };
        let mut growth = Self { packets: BTreeMap::new(), pps: BTreeMap::new() };
        for (queue, packets) in queue_packets(now, port, direction) {
            let before = old.get(&queue).copied().unwrap_or(0);
            growth.packets.insert(queue, packets.checked_sub(before)?);
            growth.pps.insert(queue, interval.rate(packets, before)?);
        }
        Some(growth)
    }
}

/// Returns the packets of each queue of a port since its counters were reset. Received packets are
/// those that libpmdscope counted, or else the driver; sent packets are those that the driver
/// counted. Empty if nothing counts them.
pub fn queue_packets(
    sample: &Sample,
    port: &PortSample,
    direction: QueueDirection,
) -> BTreeMap<u16, u64> {
    let counters = match direction {
        QueueDirection::Tx => port.sent_by_queue(),
        QueueDirection::Rx => {
            let here = sample
                .queues
                .iter()
                .filter(|queue| queue.port == port.id && queue.direction == direction)
                .map(|queue| (queue.queue, queue.packets))
                .collect::<BTreeMap<_, _>>();
            if !here.is_empty() {
                return here;
            }
            port.queue_counters(direction)
        }
    };
    counters.into_iter().filter_map(|(queue, of)| Some((queue, of.packets?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::AppIdentity;

    /// Returns a sample of a stock app with a driver that counts two queues.
    fn sample(seconds: u64, quiet: u64, busy: u64) -> Sample {
        let xstats = [("rx_q0_packets".to_owned(), quiet), ("rx_q1_packets".to_owned(), busy)];
        let port = PortSample {
            device: "net_null0".to_owned(),
            xstats: xstats.into(),
            ..PortSample::default()
        };
        Sample {
            monotonic_ns: seconds * 1_000_000_000,
            app: AppIdentity { pid: 7, ..AppIdentity::default() },
            ports: vec![port],
            ..Sample::default()
        }
    }

    fn growth(before: &Sample, now: &Sample) -> Option<QueueGrowth> {
        QueueGrowth::between(before, now, &now.ports[0], QueueDirection::Rx)
    }

    #[test]
    fn queues_grow_between_any_two_samples() {
        let growth = growth(&sample(1, 100, 1_000), &sample(5, 140, 9_000)).unwrap();
        assert_eq!(growth.packets, [(0, 40), (1, 8_000)].into());
        assert_eq!(growth.pps, [(0, 10.0), (1, 2_000.0)].into());
    }

    #[test]
    fn growth_is_unknown_across_resets_restarts_and_other_devices() {
        let (before, now) = (sample(1, 100, 1_000), sample(5, 140, 9_000));
        assert_eq!(growth(&sample(1, 141, 1_000), &now), None);
        assert_eq!(growth(&now, &now), None);
        let mut restarted = before.clone();
        restarted.app.pid = 8;
        assert_eq!(growth(&restarted, &now), None);
        let mut other = before;
        other.ports[0].device = "net_tap0".to_owned();
        assert_eq!(growth(&other, &now), None);
    }
}
