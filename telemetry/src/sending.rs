//! Packets that are offered for sending, but not sent.
//!
//! libpmdscope counts the packets that the app offers to a driver, and the driver counts those that
//! it sent. The two counters are read some milliseconds apart, so a difference counts only if it
//! exceeds [`SKEW_S`] of traffic. The app may have freed refused packets or may offer them again;
//! only the app knows.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::sample::{PortSample, QueueDirection, QueueSample, Sample, SentByPort};

/// Window in which refused packets are counted, seconds.
const WINDOW_S: f64 = 5.0;

/// Minimum interval between kept counters, seconds: some 50 of each queue, however often an app is sampled.
const SPACING_S: f64 = 0.1;

/// Longest time between the readings of the two counters, seconds.
const SKEW_S: f64 = 0.1;

/// Time without sent packets after which a port is stuck, seconds: some drivers update their counters
/// once a second.
const STUCK_S: f64 = 1.5;

/// Least number of packets offered in that time.
const STUCK_OFFERED: u64 = 100;

/// Least number of packets that an app must have received while it sent none.
const SILENT_PACKETS: u64 = 100;

/// Share of the received packets from which an app that has sent so many forwards.
const FORWARDER: f64 = 0.1;

/// Numbers of descriptors of a transmit ring, all of them powers of 2.
const RING_SIZES: std::ops::RangeInclusive<u64> = 32..=32_768;

/// Packets of one port that were offered to its driver and not sent. For a stock app, packets that the
/// driver counts as errors of a port that sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnsentPackets {
    /// Packets offered per second.
    pub offered_pps: f64,
    /// Packets per second that were offered and not accepted by the driver.
    pub refused_pps: f64,
    /// Time over which both rates are averaged, seconds.
    pub seconds: f64,
    /// Time without a sent packet although at least 100 were offered, seconds; `None` if it is less than
    /// 1.5 s.
    pub stuck_s: Option<f64>,
}

/// Packets of one transmit queue that were offered to its driver and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RefusedPackets {
    /// Packets per second, over some seconds.
    pub(crate) pps: f64,
    /// Packets since the app was first sampled.
    pub(crate) packets: u64,
}

/// Packets that an app did not send, up to one sample.
#[derive(Debug)]
pub(crate) struct Sending {
    /// In the order of the ports of the sample.
    pub(crate) ports: Vec<Option<UnsentPackets>>,
    /// In the order of the queues of the sample; `None` except for transmit queues with a counter of
    /// sent packets.
    pub(crate) queues: Vec<Option<RefusedPackets>>,
    /// Set if the app sends nothing at all.
    pub(crate) silent: Option<SilentApp>,
}

/// An app that receives packets but sends none, although it did before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SilentApp {
    /// Time without a sent packet, seconds.
    pub seconds: f64,
    /// Packets received in that time.
    pub received: u64,
    /// Packets sent before that time.
    pub sent_before: u64,
    /// Whether the app has sent a tenth of what it received before, so that it forwards.
    pub is_forwarder: bool,
    /// Whether a port has sent as many packets as a transmit ring has descriptors, and none since: its peer
    /// takes none.
    pub filled_ring: bool,
    /// Whether the app offered fewer than 100 packets to its drivers in that time; `None` for a stock app,
    /// for which this is unknown.
    pub offered_none: Option<bool>,
}

/// Packets offered and sent so far, by port, by queue, and by the app as a whole.
#[derive(Debug, Default)]
pub(crate) struct SendingHistory {
    ports: BTreeMap<u16, (String, Counted)>,
    /// Transmit queues by port and number, in the order of the previous sample.
    queues: Vec<((u16, u16), CountedQueue)>,
    app: Counted,
}

/// Counters at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    ns: u64,
    offered: Option<u64>,
    sent: u64,
    received: u64,
}

/// The counters of one port or app over time.
#[derive(Debug, Default)]
struct Counted {
    /// Oldest first; the first one may be older than the window.
    points: VecDeque<Point>,
    /// The first point with the present number of sent packets.
    still: Point,
}

/// The counters of one transmit queue over time, and the packets that were refused so far.
#[derive(Debug, Default)]
struct CountedQueue {
    counted: Counted,
    refused: f64,
}

impl SendingHistory {
    /// Discards everything: the counters are those of another process.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Begins anew with a port whose counters cannot be right, and with the app as a whole.
    pub(crate) fn forget(&mut self, port: u16) {
        self.ports.remove(&port);
        self.queues.retain(|((of, _), _)| *of != port);
        self.app = Counted::default();
    }

    /// Returns the packets that ports, queues and the app as a whole did not send.
    pub(crate) fn update(&mut self, sample: &Sample, sent: &SentByPort) -> Sending {
        // A table that could not be read would look like a counter that went back.
        if !sample.ports_are_complete() || sample.failed("/pmdscope/queue") {
            let ports = vec![None; sample.ports.len()];
            let queues = vec![None; sample.queues.len()];
            return Sending { ports, queues, silent: None };
        }
        self.ports.retain(|id, _| sample.ports.iter().any(|port| port.id == *id));
        let ports = sample.ports.iter().map(|port| self.port(port, sample)).collect();
        Sending { ports, queues: self.queues(sample, sent), silent: self.app(sample) }
    }

    fn queues(&mut self, sample: &Sample, sent: &SentByPort) -> Vec<Option<RefusedPackets>> {
        let mut before = std::mem::take(&mut self.queues);
        let mut push = |queue: &QueueSample| {
            if queue.direction != QueueDirection::Tx {
                return None;
            }
            let sent = sent.get(&queue.port)?.get(&queue.queue)?.packets?;
            let key = (queue.port, queue.queue);
            // Usually it is in the same place.
            let same = |known: &((u16, u16), CountedQueue)| known.0 == key;
            let at = Some(self.queues.len()).filter(|at| before.get(*at).is_some_and(same));
            let at = at.or_else(|| before.iter().position(same));
            let known = at.and_then(|at| before.get_mut(at));
            let mut counted = known.map(|(_, known)| std::mem::take(known)).unwrap_or_default();
            let (ns, offered) = (sample.monotonic_ns, Some(queue.packets));
            let refused = counted.push(Point { ns, offered, sent, received: 0 });
            self.queues.push((key, counted));
            Some(refused)
        };
        sample.queues.iter().map(&mut push).collect()
    }

    fn port(&mut self, port: &PortSample, sample: &Sample) -> Option<UnsentPackets> {
        let offered = offered(sample, port.id);
        // What the driver of a stock app refuses is unknown, unless it counts errors.
        let attempted = port.stats.tx_packets.saturating_add(port.stats.tx_errors);
        let now = Point {
            ns: sample.monotonic_ns,
            offered: Some(offered.unwrap_or(attempted)),
            sent: port.stats.tx_packets,
            received: port.stats.rx_packets,
        };
        let (device, counted) = self.ports.entry(port.id).or_default();
        if *device != port.device {
            (*device, *counted) = (port.device.clone(), Counted::default());
        }
        counted.push(now);
        // A port without a link has a separate lint.
        let may_send = port.started && port.link_up != Some(false);
        let is_known = |unsent: &UnsentPackets| offered.is_some() || unsent.stuck_s.is_some();
        counted.unsent().filter(|unsent| may_send && is_known(unsent))
    }

    fn app(&mut self, sample: &Sample) -> Option<SilentApp> {
        let sum =
            |of: fn(&PortSample) -> u64| sample.ports.iter().map(of).fold(0, u64::saturating_add);
        let offered = sample.ports.iter().map(|port| offered(sample, port.id));
        self.app.push(Point {
            ns: sample.monotonic_ns,
            offered: offered.sum(),
            sent: sum(|port| port.stats.tx_packets),
            received: sum(|port| port.stats.rx_packets),
        });
        let filled_ring = sample.ports.iter().any(filled_ring);
        self.app.silent().map(|silent| SilentApp { filled_ring, ..silent }).filter(is_suspicious)
    }
}

/// Whether a port has sent as many packets as a transmit ring has descriptors, or one fewer.
fn filled_ring(port: &PortSample) -> bool {
    let sent = port.stats.tx_packets;
    let is_size = |size: u64| size.is_power_of_two() && RING_SIZES.contains(&size);
    is_size(sent) || is_size(sent.saturating_add(1))
}

/// Whether the silence of an app matters: one that rarely sends by design offers nothing to its drivers.
fn is_suspicious(silent: &SilentApp) -> bool {
    silent.is_forwarder || silent.filled_ring || silent.offered_none != Some(true)
}

/// Returns the packets that were offered to a port; `None` if they are not counted.
fn offered(sample: &Sample, port: u16) -> Option<u64> {
    let tx = |queue: &&QueueSample| queue.port == port && queue.direction == QueueDirection::Tx;
    let packets: Vec<_> = sample.queues.iter().filter(tx).map(|queue| queue.packets).collect();
    (!packets.is_empty()).then(|| packets.into_iter().fold(0, u64::saturating_add))
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

impl CountedQueue {
    fn push(&mut self, now: Point) -> RefusedPackets {
        let before = self.counted.points.back().map_or(now.ns, |last| last.ns);
        self.counted.push(now);
        let pps = self.counted.unsent().map_or(0.0, |unsent| unsent.refused_pps);
        self.refused += pps * seconds(before, now.ns);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sum of rates, none of them negative"
        )]
        let packets = self.refused as u64;
        RefusedPackets { pps, packets }
    }
}

impl Point {
    fn unsent(&self) -> Option<i128> {
        Some(i128::from(self.offered?) - i128::from(self.sent))
    }
}

impl Counted {
    fn push(&mut self, now: Point) {
        let follows = |last: &Point| {
            now.ns > last.ns
                && now.sent >= last.sent
                && now.received >= last.received
                && now.offered.is_some() == last.offered.is_some()
                && now.offered >= last.offered
        };
        if !self.points.back().is_some_and(follows) {
            self.points.clear();
            self.still = now;
        }
        if now.sent != self.still.sent {
            self.still = now;
        }
        let crowded = |before: &Point| seconds(before.ns, now.ns) < SPACING_S;
        if self.points.iter().nth_back(1).is_some_and(crowded) {
            self.points.pop_back();
        }
        self.points.push_back(now);
        while self.points.get(1).is_some_and(|next| seconds(next.ns, now.ns) >= WINDOW_S) {
            self.points.pop_front();
        }
    }

    fn unsent(&self) -> Option<UnsentPackets> {
        let (first, last) = self.most_unsent()?;
        let elapsed = seconds(first.ns, last.ns);
        if elapsed <= 0.0 {
            return None;
        }
        let refused = last.unsent()?.saturating_sub(first.unsent()?).max(0);
        let offered_pps = last.offered?.saturating_sub(first.offered?) as f64 / elapsed;
        let counts = refused as f64 > offered_pps * SKEW_S;
        let now = self.points.back()?;
        let silent_s = seconds(self.still.ns, now.ns);
        let meanwhile = now.offered?.saturating_sub(self.still.offered?);
        Some(UnsentPackets {
            offered_pps,
            refused_pps: if counts { refused as f64 / elapsed } else { 0.0 },
            seconds: elapsed,
            stuck_s: Some(silent_s).filter(|s| *s >= STUCK_S && meanwhile >= STUCK_OFFERED),
        })
    }

    /// Returns the points with the most unsent packets, among the first and among the last third of
    /// the points. Sent packets are read after offered ones, so a long delay between the two shows too
    /// few unsent packets.
    fn most_unsent(&self) -> Option<(&Point, &Point)> {
        let third = self.points.len().div_ceil(3);
        let first = self.points.iter().take(third).max_by_key(|point| point.unsent());
        let last_third = self.points.iter().skip(self.points.len() - third);
        let last = last_third.max_by_key(|point| point.unsent());
        first.zip(last)
    }

    fn silent(&self) -> Option<SilentApp> {
        let now = self.points.back()?;
        let silent_s = seconds(self.still.ns, now.ns);
        let received = now.received.saturating_sub(self.still.received);
        let sent = self.still.sent;
        (silent_s >= STUCK_S && received >= SILENT_PACKETS && sent > 0).then(|| SilentApp {
            seconds: silent_s,
            received,
            sent_before: sent,
            is_forwarder: sent as f64 >= FORWARDER * self.still.received as f64,
            filled_ring: false,
            offered_none: now
                .offered
                .zip(self.still.offered)
                .map(|(now, then)| now.saturating_sub(then) < STUCK_OFFERED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::{empty_sample, port, queue};

    /// Adds a sample each quarter of a second: packets received, offered (in a linked app) and sent.
    fn watched(
        quarters: u64,
        at: impl Fn(u64) -> (u64, Option<u64>, u64),
    ) -> (Option<UnsentPackets>, Option<SilentApp>) {
        let mut sending = SendingHistory::default();
        let mut last = (None, None);
        for quarter in 0..=quarters {
            let (received, offered, sent) = at(quarter);
            let mut sample = empty_sample();
            sample.monotonic_ns += quarter * 250_000_000;
            sample.ports = vec![port(0, received)];
            sample.ports[0].stats.tx_packets = sent;
            sample.queues = offered
                .map(|offered| {
                    let mut tx = queue(0, [1, 0, offered]);
                    tx.direction = QueueDirection::Tx;
                    tx
                })
                .into_iter()
                .collect();
            let Sending { ports, silent, .. } = sending.update(&sample, &sample.sent_by_port());
            last = (ports[0], silent);
        }
        last
    }

    #[test]
    fn offered_and_sent_packets_are_no_finding_whatever_the_skew() {
        let (unsent, silent) = watched(20, |q| {
            let offered = q * 7000;
            (offered, Some(offered), offered + q * 211 % 600)
        });
        let unsent = unsent.unwrap();
        assert_eq!((unsent.refused_pps, unsent.stuck_s, silent), (0.0, None, None));
    }

    #[test]
    fn refused_packets_are_counted_over_five_seconds() {
        let (unsent, _) = watched(40, |q| (q * 7000, Some(q * 7000), q * 6300));
        let unsent = unsent.unwrap();
        assert_eq!((unsent.offered_pps, unsent.refused_pps), (28_000.0, 2800.0));
        assert_eq!((unsent.seconds, unsent.stuck_s), (3.5, None));
    }

    #[test]
    fn frequent_samples_are_thinned_out() {
        let mut counted = Counted::default();
        for ms in 1..=20_000 {
            let (ns, sent) = (ms * 1_000_000, ms * 900);
            counted.push(Point { ns, offered: Some(ms * 1000), sent, received: 0 });
            assert!(counted.points.len() <= 53, "{}", counted.points.len());
            assert_eq!(counted.points.back().map(|point| point.sent), Some(sent));
        }
        let unsent = counted.unsent().unwrap();
        assert!((unsent.refused_pps - 100_000.0).abs() < 1.0, "{unsent:?}");
    }

    #[test]
    fn sent_packets_that_are_read_late_prove_nothing() {
        for delayed in 0..=12 {
            let (unsent, _) = watched(12, |q| {
                let late = if q == delayed { 6900 } else { 0 };
                (q * 7000, Some(q * 7000), q * 7000 + late)
            });
            assert!(unsent.unwrap().refused_pps <= 0.0, "quarter {delayed}");
        }
    }

    #[test]
    fn refused_packets_are_counted_although_sent_ones_are_read_late() {
        for delayed in 0..=20 {
            let (unsent, _) = watched(20, |q| {
                let late = if q == delayed { 600 } else { 0 };
                (q * 7000, Some(q * 7000), q * 6300 + late)
            });
            let pps = unsent.unwrap().refused_pps;
            assert!((2600.0..=3000.0).contains(&pps), "quarter {delayed}: {pps}");
        }
    }

    #[test]
    fn a_driver_that_updates_its_counters_once_a_second_refuses_nothing() {
        let (unsent, _) = watched(20, |q| (q * 7000, Some(q * 7000), q / 4 * 28_000));
        assert!(unsent.unwrap().refused_pps <= 0.0);
    }

    #[test]
    fn a_port_that_accepts_nothing_is_stuck_after_a_while() {
        let stuck = |quarters| watched(quarters, |q| (q * 7000, Some(q * 7000), q.min(4) * 7000));
        assert_eq!(stuck(9).0.unwrap().stuck_s, None);
        let (unsent, silent) = stuck(10);
        assert_eq!(unsent.unwrap().stuck_s, Some(1.5));
        assert_eq!(silent.unwrap().offered_none, Some(false));
        let (idle, _) = watched(10, |q| (q * 7000, Some(q.min(4) * 7000 + q), q.min(4) * 7000));
        assert_eq!(idle.unwrap().stuck_s, None, "six packets");
    }

    #[test]
    fn a_stock_app_that_forwarded_and_sends_nothing_any_more() {
        let (unsent, silent) = watched(10, |q| (q * 7000, None, q.min(4) * 7000));
        let expected = SilentApp {
            seconds: 1.5,
            received: 42_000,
            sent_before: 28_000,
            is_forwarder: true,
            filled_ring: false,
            offered_none: None,
        };
        assert_eq!((unsent, silent), (None, Some(expected)));
        assert_eq!(watched(10, |q| (q * 7000, None, 0)).1, None, "it never sent");
        let seldom = watched(10, |q| (q * 70_000, None, q.min(4) * 700)).1.unwrap();
        assert!(!seldom.is_forwarder && !seldom.filled_ring, "{seldom:?}");
        assert!(watched(10, |q| (q * 70_000, None, 256)).1.unwrap().filled_ring);
        let by_design = watched(10, |q| (7000 + q * 70_000, Some(699), 699));
        assert_eq!(by_design.1, None, "it offers nothing");
    }

    #[test]
    fn counters_that_go_back_begin_anew() {
        let (unsent, _) = watched(10, |q| (q * 7000, Some(q * 7000), u64::from(q >= 9)));
        assert!(unsent.unwrap().stuck_s.is_none());
        let (unsent, _) = watched(3, |q| ((3 - q) * 7000, Some((3 - q) * 7000), 0));
        assert_eq!(unsent, None);
    }
}
