//! Ports with a flat receive rate, compared with their own baseline.
//!
//! A port is flat while it receives less than 1 % of its baseline. The baseline is the rate that was
//! observed in the last ten minutes in which the port was not flat or, until ten seconds of that were
//! observed, the mean since the app started. The rate of a flat port does not become its baseline, so
//! that silence never becomes normal; and a port that never received has no baseline.
//!
//! The rate is evaluated in pieces of time, each long enough for [`MIN_BASELINE_PACKETS`] packets at
//! the baseline, so that a few packets more or less do not matter. Time in which a port is stopped or
//! has no link does not count.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::sample::{PortSample, Sample};

/// Share of the baseline below which a port is flat.
pub(crate) const SHARE: f64 = 0.01;

/// Packets at the baseline for which a piece must be long enough.
pub(crate) const MIN_BASELINE_PACKETS: f64 = 1000.0;

/// Shortest piece, seconds.
const SHORTEST_S: f64 = 1.0;

/// Time that must have been observed before the baseline replaces the mean since the start, and time
/// that an app must have run before that mean is used, seconds.
const MEMORABLE_S: f64 = 10.0;

/// Length of the time that the baseline covers, seconds.
const MEMORY_S: f64 = 600.0;

/// A port that receives less than 1 % of its past rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RxFlat {
    /// Time since the rate dropped, as far as the port was sampled, seconds.
    pub seconds: f64,
    /// Packets received in that time.
    pub packets: u64,
    /// Rate before that time, packets per second.
    pub past_pps: f64,
    /// Whether `past_pps` was sampled; otherwise it is the mean since the app started.
    pub watched_past: bool,
    /// Whether the rate was this low in all of the sampled time.
    pub from_start: bool,
}

/// The baselines of all ports of one app.
#[derive(Debug, Default)]
pub(crate) struct RxBaseline(BTreeMap<u16, PortRxHistory>);

/// The receive history of one port.
#[derive(Debug)]
struct PortRxHistory {
    device: String,
    /// Seconds and packets of the pieces in which it received, oldest first.
    pieces: VecDeque<(f64, u64)>,
    /// Start of the incomplete piece: nanoseconds, packets.
    since: (u64, u64),
    flat: Option<RxFlat>,
    /// Whether it has received in an observed piece.
    received: bool,
}

impl RxBaseline {
    /// Discards everything: the clock changed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Leaves out the time since the previous sample of a port, whose counters cannot be right.
    pub(crate) fn skip(&mut self, port: &PortSample, now_ns: u64) {
        if let Some(past) = self.0.get_mut(&port.id) {
            past.pause((now_ns, port.stats.rx_packets));
        }
    }

    /// Returns which of the ports are flat, in the order of `sample.ports`.
    pub(crate) fn update(&mut self, sample: &Sample) -> Vec<Option<RxFlat>> {
        // A port that could not be read this time keeps its baseline.
        if sample.ports_are_complete() {
            self.0.retain(|id, _| sample.ports.iter().any(|port| port.id == *id));
        }
        sample.ports.iter().map(|port| self.port(port, sample)).collect()
    }

    fn port(&mut self, port: &PortSample, sample: &Sample) -> Option<RxFlat> {
        let now = (sample.monotonic_ns, port.stats.rx_packets);
        let past = self.0.entry(port.id).or_insert_with(|| PortRxHistory::new(&port.device, now));
        if past.device != port.device {
            *past = PortRxHistory::new(&port.device, now);
        }
        if port.started && port.link_up != Some(false) {
            past.update(now, mean_pps(port, sample));
        } else {
            past.pause(now);
        }
        past.flat
    }
}

/// Returns the mean rate since the app started; `None` if it is unknown, or the app has only just started.
fn mean_pps(port: &PortSample, sample: &Sample) -> Option<f64> {
    let start = Some(sample.app.start_realtime_ns).filter(|start| *start > 0)?;
    let seconds = sample.realtime_ns.checked_sub(start)? as f64 / 1e9;
    (seconds >= MEMORABLE_S).then(|| port.stats.rx_packets as f64 / seconds)
}

impl PortRxHistory {
    fn new(device: &str, since: (u64, u64)) -> Self {
        let (device, pieces) = (device.to_owned(), VecDeque::new());
        Self { device, pieces, since, flat: None, received: false }
    }

    /// Skips time in which the port could not receive: it is not silence.
    fn pause(&mut self, now: (u64, u64)) {
        self.since = now;
        self.flat = None;
    }

    /// Adds the present clock and packets.
    fn update(&mut self, now: (u64, u64), mean_pps: Option<f64>) {
        let (Some(ns), Some(packets)) =
            (now.0.checked_sub(self.since.0), now.1.checked_sub(self.since.1))
        else {
            // The counters were reset, or the clock changed: the piece cannot be evaluated.
            self.since = now;
            return;
        };
        let seconds = ns as f64 / 1e9;
        if seconds < SHORTEST_S {
            return;
        }
        let (past_pps, watched_past) = match self.watched_pps() {
            Some(watched) => (watched, true),
            None => (mean_pps.unwrap_or(0.0), false),
        };
        let expected = past_pps * seconds;
        if packets as f64 >= SHARE * expected.max(MIN_BASELINE_PACKETS) {
            self.receive(seconds, packets);
        } else if expected >= MIN_BASELINE_PACKETS {
            self.stay_flat(RxFlat {
                seconds,
                packets,
                past_pps,
                watched_past,
                from_start: !self.received,
            });
        } else {
            // The port never receives much, and the piece is still too short.
            return;
        }
        self.since = now;
    }

    fn receive(&mut self, seconds: f64, packets: u64) {
        // A pause that was too short to matter is part of the baseline: otherwise the mean would be too high.
        let pause = self.flat.take().filter(|flat| flat.seconds < MEMORABLE_S);
        let pause = pause.map(|flat| (flat.seconds, flat.packets));
        self.pieces.extend(pause.into_iter().chain([(seconds, packets)]));
        while self.watched_s() > MEMORY_S && self.pieces.len() > 1 {
            self.pieces.pop_front();
        }
        self.received = true;
    }

    fn stay_flat(&mut self, piece: RxFlat) {
        self.flat = Some(match self.flat {
            Some(before) => RxFlat {
                seconds: before.seconds + piece.seconds,
                packets: before.packets.saturating_add(piece.packets),
                ..before
            },
            None => piece,
        });
    }

    fn watched_s(&self) -> f64 {
        self.pieces.iter().map(|(seconds, _)| seconds).sum()
    }

    fn watched_pps(&self) -> Option<f64> {
        let seconds = self.watched_s();
        let packets: f64 = self.pieces.iter().map(|(_, packets)| *packets as f64).sum();
        (seconds >= MEMORABLE_S).then(|| packets / seconds)
    }
}

#[cfg(test)]
#[path = "rx_flat_tests.rs"]
mod tests;
