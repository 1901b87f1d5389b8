//! Tests of ports that stop receiving.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of tests are few, and never negative"
)]

use proptest::prelude::*;

use super::*;
use crate::sample::tests::{empty_sample, port};

/// An app with a single port that has received packets since a start long ago.
struct Watch {
    pasts: RxBaseline,
    at_s: f64,
    packets: u64,
    start_s: f64,
    step_s: f64,
}

impl Watch {
    /// Returns an app after `start_s` seconds without observation.
    fn after(start_s: f64, packets: u64) -> Self {
        let mut watch =
            Self { pasts: RxBaseline::default(), at_s: 0.0, packets, start_s, step_s: 1.0 };
        watch.look();
        watch
    }

    fn look(&mut self) -> Option<RxFlat> {
        let mut sample = empty_sample();
        sample.app.start_realtime_ns = 1_000_000_000;
        sample.monotonic_ns = 5_000_000_000 + (self.at_s * 1e9).round() as u64;
        sample.realtime_ns = 1_000_000_000 + ((self.start_s + self.at_s) * 1e9).round() as u64;
        sample.ports = vec![port(0, self.packets)];
        self.pasts.update(&sample).remove(0)
    }

    /// Lets this number of seconds pass at this rate; returns the state after that.
    fn at(&mut self, pps: f64, seconds: f64) -> Option<RxFlat> {
        let (began, packets) = (self.at_s, self.packets);
        let mut flat = None;
        for step in 1..=(seconds / self.step_s).round() as u64 {
            self.at_s = began + step as f64 * self.step_s;
            self.packets = packets + (pps * step as f64 * self.step_s) as u64;
            flat = self.look();
        }
        flat
    }
}

#[test]
fn silence_after_traffic_is_seen_and_never_forgotten() {
    let mut watch = Watch::after(0.0, 0);
    assert_eq!(watch.at(50_000.0, 60.0), None);
    let flat = watch.at(0.0, 10.0).unwrap();
    assert_eq!((flat.seconds.round(), flat.packets, flat.watched_past), (10.0, 0, true));
    assert!((flat.past_pps - 50_000.0).abs() < 1.0 && !flat.from_start, "{flat:?}");
    let after = watch.at(0.0, 45.0 * 60.0).unwrap();
    assert_eq!((after.seconds.round(), after.past_pps), (2710.0, flat.past_pps));
    assert_eq!(watch.at(1000.0, 1.0), None, "it is over at once");
}

#[test]
fn a_trickle_is_not_traffic() {
    let mut watch = Watch::after(0.0, 0);
    watch.at(50_000.0, 60.0);
    let flat = watch.at(3.0, 600.0).unwrap();
    assert_eq!((flat.seconds.round(), flat.packets), (600.0, 1800));
    assert_eq!(watch.at(600.0, 2.0), None);
}

#[test]
fn the_sampling_interval_does_not_matter() {
    for step_s in [0.1, 0.7, 15.0, 60.0] {
        let mut watch = Watch::after(0.0, 0);
        watch.step_s = step_s;
        assert_eq!(watch.at(5000.0, 600.0), None);
        let flat = watch.at(0.0, 120.0).unwrap();
        assert!((flat.seconds - 120.0).abs() < step_s + 1.0, "{step_s}: {flat:?}");
    }
}

#[test]
fn a_port_with_few_packets_gets_more_time() {
    let mut watch = Watch::after(0.0, 0);
    assert_eq!(watch.at(2.0, 600.0), None);
    assert_eq!(watch.at(0.0, 400.0), None, "a thousand packets have not been missed yet");
    let flat = watch.at(0.0, 200.0).unwrap();
    assert!(flat.seconds * flat.past_pps >= MIN_BASELINE_PACKETS, "{flat:?}");
}

#[test]
fn a_port_that_never_received_is_not_quiet() {
    assert_eq!(Watch::after(0.0, 0).at(0.0, 7200.0), None);
    assert_eq!(Watch::after(86_400.0, 0).at(0.0, 7200.0), None);
}

#[test]
fn without_a_past_the_mean_since_the_start_is_used() {
    let mut watch = Watch::after(1000.0, 50_000_000);
    let flat = watch.at(0.0, 2.0).unwrap();
    assert_eq!((flat.seconds.round(), flat.from_start, flat.watched_past), (2.0, true, false));
    assert!((flat.past_pps - 49_950.0).abs() < 1.0, "{flat:?}");
    // It received 0.2 % before as well: it is not flat until it is observed receiving.
    assert!(Watch::after(1000.0, 50_000_000).at(100.0, 60.0).is_some());
    // A night at 2 % of the mean, then at 0.2 % of it: the night becomes the baseline.
    let mut watch = Watch::after(1000.0, 50_000_000);
    assert_eq!(watch.at(1000.0, 20.0), None);
    assert_eq!(watch.at(100.0, 60.0), None);
    assert_eq!(watch.at(0.0, 5.0).map(|flat| flat.from_start), Some(false));
}

#[test]
fn an_app_that_has_only_started_has_no_mean() {
    assert_eq!(Watch::after(1.0, 50_000).at(0.0, 7.0), None);
}

#[test]
fn the_baseline_follows_a_slow_decline() {
    let mut watch = Watch::after(0.0, 0);
    let mut pps = 1e6;
    while pps > 10.0 {
        assert_eq!(watch.at(pps, 300.0), None, "{pps}");
        pps /= 2.0;
    }
}

#[test]
fn short_pauses_belong_to_the_past() {
    let mut watch = Watch::after(0.0, 0);
    for _ in 0..100 {
        watch.at(10_000.0, 2.0);
        watch.at(0.0, 2.0);
    }
    let flat = watch.at(0.0, 20.0).unwrap();
    assert!((4000.0..6100.0).contains(&flat.past_pps), "{flat:?}");
}

#[test]
fn counters_that_are_reset_are_no_silence() {
    let mut watch = Watch::after(0.0, 0);
    watch.at(50_000.0, 60.0);
    watch.packets = 0;
    assert_eq!(watch.at(50_000.0, 5.0), None);
    watch.at(0.0, 20.0);
    watch.packets = 0;
    assert!(watch.at(0.0, 5.0).is_some_and(|flat| flat.seconds > 20.0), "silent all the same");
}

#[test]
fn another_device_under_the_same_id_has_a_past_of_its_own() {
    let mut watch = Watch::after(0.0, 0);
    watch.at(50_000.0, 60.0);
    assert!(watch.at(0.0, 20.0).is_some());
    let mut sample = empty_sample();
    sample.monotonic_ns = 500_000_000_000;
    sample.ports = vec![port(0, watch.packets)];
    sample.ports[0].device = "net_null9".into();
    assert_eq!(watch.pasts.update(&sample), [None]);
}

#[test]
fn a_port_that_could_not_be_read_keeps_its_past() {
    let mut watch = Watch::after(0.0, 0);
    watch.at(50_000.0, 60.0);
    let mut unread = empty_sample();
    unread.partial = vec!["/ethdev/stats,0: timed out".into()];
    assert_eq!(watch.pasts.update(&unread), []);
    assert!(watch.at(0.0, 20.0).is_some_and(|flat| flat.watched_past));
    unread.partial.clear();
    watch.pasts.update(&unread);
    assert_eq!(watch.look(), None);
}

proptest! {
    #[test]
    fn a_silent_port_would_have_received_a_thousand_packets(
        steps in prop::collection::vec((0_u64..20_000_000_000, prop_oneof![Just(0), 0..9_u64, any::<u64>()]), 0..60),
        start_realtime_ns: u64,
    ) {
        let mut pasts = RxBaseline::default();
        let mut sample = empty_sample();
        sample.app.start_realtime_ns = start_realtime_ns;
        for (ns, packets) in steps {
            sample.monotonic_ns = sample.monotonic_ns.saturating_add(ns);
            sample.realtime_ns = sample.realtime_ns.saturating_add(ns);
            let rx_packets = sample.ports.first().map_or(0, |port| port.stats.rx_packets);
            sample.ports = vec![port(0, rx_packets.wrapping_add(packets))];
            if let Some(flat) = pasts.update(&sample).remove(0) {
                let expected = flat.seconds * flat.past_pps;
                prop_assert!(expected >= MIN_BASELINE_PACKETS && flat.seconds >= SHORTEST_S);
                prop_assert!((flat.packets as f64) < SHARE * expected * 1.01 + 1.0);
            }
        }
        let past = pasts.0.get(&0);
        prop_assert!(past.is_none_or(|past| past.pieces.len() <= 2 * MEMORY_S as usize));
    }
}
