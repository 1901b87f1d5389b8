//! The time until a receive queue is full if it is not polled.

use std::fmt;
use std::time::Duration;

use crate::finding::{Thresholds, duration};
use crate::model::{Model, PortRates};
use crate::sample::{PortSample, QueueDirection};

/// The longest gap between two polls that loses no packet, because a receive queue is not full by then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallBudget {
    /// DPDK port id.
    pub port: u16,
    /// Queue; `None` if packets are not counted by queue, and are assumed to be evenly spread.
    pub queue: Option<u16>,
    /// Number of packets that the queue can hold.
    pub descriptors: f64,
    /// Whether the number of descriptors is unknown, and [`Thresholds::rx_descriptors`] is assumed.
    pub assumed: bool,
    /// Packets that arrive per second, both received and missed.
    pub pps: f64,
}

impl StallBudget {
    /// Returns the budget of the queue that is full first, of all ports; `None` while no packet arrives.
    pub fn of(model: &Model, thresholds: &Thresholds) -> Option<Self> {
        let ports = model.sample.ports.iter().zip(&model.ports);
        let all = ports.flat_map(|(port, rates)| Self::of_queues(model, port, rates, thresholds));
        Self::shortest(all)
    }

    /// Returns the budget of the queue of a port that is full first; `None` while no packet arrives there.
    pub fn of_port(model: &Model, port: u16, thresholds: &Thresholds) -> Option<Self> {
        let mut ports = model.sample.ports.iter().zip(&model.ports);
        let (port, rates) = ports.find(|(sample, _)| sample.id == port)?;
        Self::shortest(Self::of_queues(model, port, rates, thresholds))
    }

    fn shortest(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let busy = all.into_iter().filter(|budget| budget.pps > 0.0);
        busy.min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
    }

    /// Returns the budgets of all receive queues of a port, including those that receive nothing.
    pub(crate) fn of_queues(
        model: &Model,
        port: &PortSample,
        rates: &PortRates,
        thresholds: &Thresholds,
    ) -> Vec<Self> {
        let assumed = thresholds.rx_descriptors;
        let missed = rates.rx_missed_ps.unwrap_or(0.0);
        let queues =
            model.queues.iter().zip(&model.sample.queues).filter(|(rates, _)| {
                rates.port == port.id && rates.direction == QueueDirection::Rx
            });
        let received: f64 = queues.clone().filter_map(|(rates, _)| rates.pps).sum();
        let count = queues.clone().count();
        let known_missed = queues.clone().all(|(rates, _)| rates.missed_ps.is_some());
        let of_queue = |(rates, queue): (&crate::model::QueueRates, _)| {
            let queue: &crate::sample::QueueSample = queue;
            let pps = rates.pps.unwrap_or(0.0);
            // If the driver does not count by queue, missed packets are distributed in proportion to
            // received ones.
            let share = if received > 0.0 { pps / received } else { 1.0 / count as f64 };
            let of_it = rates.missed_ps.filter(|_| known_missed).unwrap_or(missed * share);
            Self {
                port: port.id,
                queue: Some(rates.queue),
                descriptors: queue.descriptors.map_or(assumed, |descriptors| descriptors as f64),
                assumed: queue.descriptors.is_none(),
                pps: pps + of_it,
            }
        };
        if count > 0 {
            return queues.map(of_queue).collect();
        }
        let spread = port.rx_queues.max(1);
        let pps = (rates.rx_pps.unwrap_or(0.0) + missed) / f64::from(spread);
        let even = |queue: u16| {
            let told = model.sample.rx_descriptors(port, queue);
            Self {
                port: port.id,
                queue: None,
                descriptors: told.map_or(assumed, |descriptors| descriptors as f64),
                assumed: told.is_none(),
                pps,
            }
        };
        (0..spread).map(even).collect()
    }

    /// Returns the length of the gap, seconds.
    pub fn seconds(&self) -> f64 {
        self.descriptors / self.pps
    }

    /// Whether a gap of this length, microseconds, loses packets.
    pub fn is_exceeded_by(&self, gap_us: u64) -> bool {
        Duration::from_micros(gap_us).as_secs_f64() > self.seconds()
    }
}

impl fmt::Display for StallBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on port {}", duration(self.seconds() * 1e6), self.port)?;
        if let Some(queue) = self.queue {
            write!(f, " queue {queue}")?;
        }
        let word = if self.assumed { " (assumed)" } else { "" };
        write!(f, " ({} descriptors{word} at {:.0} packets/s)", self.descriptors, self.pps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::port;
    use crate::model::ModelTracker;
    use crate::sample::tests::empty_sample;

    #[test]
    fn told_descriptors_of_a_stock_app_are_not_assumed() {
        let budget = |rx_descriptors: &[Option<u64>]| {
            let mut tracker = ModelTracker::default();
            let mut sample = empty_sample();
            sample.ports = vec![port(0, 0)];
            (sample.ports[0].rx_queues, sample.ports[0].rx_descriptors) =
                (2, rx_descriptors.to_vec());
            tracker.update(sample.clone());
            sample.monotonic_ns += 1_000_000_000;
            sample.ports[0].stats.rx_packets = 200_000;
            let model = tracker.update(sample);
            StallBudget::of(&model, &Thresholds::default()).unwrap().to_string()
        };
        assert_eq!(budget(&[]), "5.1 ms on port 0 (512 descriptors (assumed) at 100000 packets/s)");
        let told = "2.6 ms on port 0 (256 descriptors at 100000 packets/s)";
        assert_eq!(budget(&[Some(1024), Some(256)]), told);
        assert_eq!(budget(&[None, Some(256)]), told);
    }
}
