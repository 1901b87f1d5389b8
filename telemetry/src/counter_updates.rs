//! Ports with a driver that updates its counters only periodically, such as once a second.
//!
//! Between two samples such a port seems to be idle, then several times as fast as it is. It is
//! distinguished from bursts of packets by its interval, and by all of its counters: they do not
//! change for at least two samples, then packets of both directions grow at the same time, and that
//! repeatedly at the same interval. For a linked app the counters of libpmdscope decide, which grow
//! while those of such a driver do not. An app without the library that receives and sends in
//! strictly periodic bursts looks the same; its rates are then averages over its bursts.

use std::collections::{BTreeMap, VecDeque};

use crate::sample::{PortSample, PortStats, Sample};

/// Number of consecutive intervals that must be equal. Three equal ones happen by chance now and then.
const SPACINGS: usize = 5;

/// Number of consecutive samples without a change before a sample with a change.
const REST: u32 = 2;

/// The last update of the counters of a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CounterUpdate {
    /// Time between two updates, seconds.
    pub(crate) period_s: f64,
    /// Growth by this update; `None` if the next one is overdue, as when nothing is counted any more.
    pub(crate) growth: Option<PortStats>,
}

/// The updates of all ports of one app.
#[derive(Debug, Default)]
pub(crate) struct CounterUpdates(BTreeMap<u16, PortUpdates>);

#[derive(Debug)]
struct PortUpdates {
    device: String,
    /// The last sample: nanoseconds, counters, packets counted by libpmdscope.
    last: (u64, PortStats, Option<u64>),
    /// Time of the last change of the counters, nanoseconds.
    changed_ns: Option<u64>,
    /// Samples without a change since then.
    rest: u32,
    /// Seconds between changes, while these are about equal, oldest first.
    spacings: VecDeque<f64>,
    /// Longest interval between two of these samples, seconds.
    interval_s: f64,
    /// Growth by the last change.
    growth: PortStats,
}

impl CounterUpdates {
    /// Discards everything: the counters are those of another process, or the clock changed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Begins anew with a port whose counters cannot be right.
    pub(crate) fn forget(&mut self, port: u16) {
        self.0.remove(&port);
    }

    /// Returns the last update of each port, in the order of `sample.ports`; `None` for a driver with
    /// counters that are always current, or if that is not known.
    pub(crate) fn update(&mut self, sample: &Sample) -> Vec<Option<CounterUpdate>> {
        if sample.ports_are_complete() {
            self.0.retain(|id, _| sample.ports.iter().any(|port| port.id == *id));
        }
        sample.ports.iter().map(|port| self.port(port, sample)).collect()
    }

    fn port(&mut self, port: &PortSample, sample: &Sample) -> Option<CounterUpdate> {
        let queues = sample.queues.iter().filter(|queue| queue.port == port.id);
        let packets = queues.map(|queue| queue.packets).reduce(u64::saturating_add);
        let now = (sample.monotonic_ns, port.stats, packets);
        let past = self.0.entry(port.id).or_insert_with(|| PortUpdates::new(&port.device, now));
        if past.device != port.device {
            *past = PortUpdates::new(&port.device, now);
        }
        past.push(now);
        past.update()
    }
}

impl PortUpdates {
    fn new(device: &str, last: (u64, PortStats, Option<u64>)) -> Self {
        Self {
            device: device.to_owned(),
            last,
            changed_ns: None,
            rest: 0,
            spacings: VecDeque::new(),
            interval_s: 0.0,
            growth: PortStats::default(),
        }
    }

    fn push(&mut self, now: (u64, PortStats, Option<u64>)) {
        let ((before_ns, before, counted), (now_ns, stats, counts)) = (self.last, now);
        self.last = now;
        let Some(growth) = stats.since(&before) else {
            *self = Self::new(&std::mem::take(&mut self.device), now);
            return;
        };
        self.interval_s = self.interval_s.max(seconds(before_ns, now_ns));
        if growth != PortStats::default() {
            return self.change(now_ns, growth);
        }
        self.rest += 1;
        // Nothing was received or sent: this is not caused by the driver.
        if counted.zip(counts).is_some_and(|(before, now)| before == now) {
            self.forget();
        }
    }

    fn change(&mut self, now_ns: u64, growth: PortStats) {
        let both = growth.rx_packets > 0 && growth.tx_packets > 0;
        let since = self.changed_ns.replace(now_ns);
        let rested = std::mem::take(&mut self.rest) >= REST;
        let Some(changed_ns) = since.filter(|_| rested && both) else {
            return self.forget();
        };
        self.growth = growth;
        let spacing = seconds(changed_ns, now_ns);
        // A change is seen up to one sample late.
        let alike = |other: &f64| (other - spacing).abs() <= 1.5 * self.interval_s;
        if !self.spacings.iter().all(alike) {
            self.forget();
        }
        self.spacings.push_back(spacing);
        if self.spacings.len() > SPACINGS {
            self.spacings.pop_front();
        }
    }

    fn forget(&mut self) {
        self.spacings.clear();
        self.interval_s = 0.0;
    }

    fn update(&self) -> Option<CounterUpdate> {
        let changed_ns = self.changed_ns.filter(|_| self.spacings.len() >= SPACINGS)?;
        let period_s = self.spacings.iter().sum::<f64>() / self.spacings.len() as f64;
        let overdue = seconds(changed_ns, self.last.0) > 1.5 * period_s + self.interval_s;
        Some(CounterUpdate { period_s, growth: (!overdue).then_some(self.growth) })
    }
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::queue;
    use crate::model::{Model, ModelTracker};
    use crate::sample::tests::empty_sample;

    const STEP_NS: u64 = 1_000_000;

    /// The counters of a port after a number of milliseconds, and those of libpmdscope, if it is linked.
    type Counted = (PortStats, Option<u64>);

    /// Returns the model of the last of the samples that are taken every `interval` milliseconds.
    fn models(interval: u64, end: u64, counted: impl Fn(u64) -> Counted) -> Vec<Model> {
        let mut tracker = ModelTracker::default();
        let times = (0..end / interval).map(|i| i * interval);
        let sample = |ms: u64| {
            let (stats, packets) = counted(ms);
            let mut sample = empty_sample();
            sample.monotonic_ns = (1 + ms) * STEP_NS;
            sample.ports = vec![PortSample { stats, ..PortSample::default() }];
            sample.queues =
                packets.map(|packets| queue(0, [packets, 0, packets])).into_iter().collect();
            sample
        };
        times.map(|ms| tracker.update(sample(ms))).collect()
    }

    fn packets(rx: u64, tx: u64) -> PortStats {
        PortStats {
            rx_packets: rx,
            tx_packets: tx,
            rx_bytes: 100 * rx,
            tx_bytes: 100 * tx,
            ..PortStats::default()
        }
    }

    proptest! {
        #[test]
        fn rates_of_a_lazy_driver_are_smooth(
            period in 600_u64..3000,
            share in 3_u64..12,
            phase in 0_u64..600,
            per_ms in 1_u64..10_000,
            linked: bool,
        ) {
            let interval = period / share - 1;
            let counted = |ms: u64| {
                let updated = (ms + phase) / period * period;
                (packets(updated * per_ms, updated * per_ms), linked.then_some(ms * per_ms))
            };
            let models = models(interval, 12 * period, counted);
            let before = &models[1].ports[0];
            prop_assert_eq!(before.counter_period_s, None);
            let last = &models.last().unwrap().ports[0];
            let near = |value: Option<f64>, expected: f64| {
                value.is_some_and(|value| (value / expected - 1.0).abs() < 0.1)
            };
            prop_assert!(near(last.counter_period_s, period as f64 / 1000.0), "{last:?}");
            prop_assert!(near(last.rx_pps, per_ms as f64 * 1000.0), "{last:?}");
            prop_assert!(near(last.tx_bps, per_ms as f64 * 800_000.0), "{last:?}");
        }

        #[test]
        fn bursts_of_a_linked_app_are_its_own(
            period in 600_u64..3000,
            share in 3_u64..12,
            burst in 1_u64..1_000_000,
        ) {
            let counted = |ms: u64| {
                let sent = ms / period * burst;
                (packets(sent, sent), Some(sent))
            };
            for model in models(period / share - 1, 12 * period, counted) {
                prop_assert_eq!(model.ports[0].counter_period_s, None);
            }
        }

        #[test]
        fn counters_that_do_not_move_together_are_fresh(
            period in 600_u64..3000,
            share in 3_u64..12,
            apart in 1_u64..9,
        ) {
            // Bursts are received and sent at different times.
            let interval = period / share - 1;
            let later = interval + apart * (period - 2 * interval) / 9;
            let counted = |ms: u64| (packets(ms / period, (ms + later) / period), None);
            for model in models(interval, 12 * period, counted) {
                prop_assert_eq!(model.ports[0].counter_period_s, None);
            }
        }

        #[test]
        fn irregular_bursts_are_no_updates(gaps in prop::collection::vec(1_u64..8, 6..40)) {
            // Bursts follow after 4 and after at least 20 samples in turn, so that no two intervals
            // are equal.
            let mut times = Vec::new();
            for (i, gap) in gaps.iter().enumerate() {
                let rest = if i % 2 == 0 { 4 } else { 20 + gap };
                times.push(times.last().unwrap_or(&0) + rest * 200);
            }
            let sent = |ms: u64| times.iter().filter(|time| **time <= ms).count() as u64;
            let end = times.last().unwrap() + 2000;
            for model in models(200, end, |ms| (packets(sent(ms), sent(ms)), None)) {
                prop_assert_eq!(model.ports[0].counter_period_s, None);
            }
        }
    }

    #[test]
    fn a_port_that_stops_has_a_rate_of_0() {
        let counted = |ms: u64| {
            let updated = ms.min(10_000) / 1000 * 1000;
            (packets(updated, updated), None)
        };
        let models = models(200, 14_000, counted);
        let rate = |ms: usize| models[ms / 200].ports[0].rx_pps;
        assert_eq!(
            (rate(9000), rate(9200), rate(9800)),
            (Some(1000.0), Some(1000.0), Some(1000.0))
        );
        assert_eq!(rate(13_000), Some(0.0));
    }
}
