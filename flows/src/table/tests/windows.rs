//! Rates over 2, 10 and 40 seconds.

#![allow(clippy::float_cmp)] // The numbers are exact.

use super::*;

/// Two conversations, each with a frame of 100 bytes a second: the first in the first half minute, the
/// other one in the second.
#[test]
fn conversations_have_rates_over_windows() {
    let (mut table, latest) = table(FlowTableSettings { windows: true, ..Default::default() });
    let [first, second] = [5000, 6000].map(|port| udp((9, port), (1, 53), 58));
    put(&mut table, &first, 0);
    tick(&mut table, 1);
    assert_eq!((latest.get().windows_s, latest.get().flows[0].window_bps), (None, [0.0; 3]));
    for at in 1..=60 {
        put(&mut table, if at <= 30 { &first } else { &second }, at * SECOND - SECOND / 2);
        tick(&mut table, at);
    }
    let snapshot = latest.get();
    assert_eq!(snapshot.windows_s, Some([2.0, 10.0, 40.0]));
    let bps = |port| {
        let flow = snapshot.flows.iter().find(|flow| flow.remote.port == port).unwrap();
        flow.window_bps
    };
    assert_eq!(bps(5000), [0.0, 0.0, 8.0 * 100.0 * 10.0 / 40.0]);
    assert_eq!(bps(6000), [800.0, 800.0, 8.0 * 100.0 * 30.0 / 40.0]);
}

#[test]
fn without_windows_there_are_no_rates_over_them() {
    let (mut table, latest) = table(FlowTableSettings::default());
    for at in 1..=5 {
        put(&mut table, &udp((9, 5000), (1, 53), 58), at * SECOND);
        tick(&mut table, at);
    }
    assert_eq!((latest.get().windows_s, latest.get().flows[0].window_bps), (None, [0.0; 3]));
}

/// A conversation that reuses the entry of an evicted one has none of its bytes.
#[test]
fn a_conversation_begins_without_the_bytes_of_another() {
    let settings = FlowTableSettings { windows: true, capacity: 1, ..Default::default() };
    let (mut table, latest) = table(settings);
    for at in 1..=20 {
        put(&mut table, &udp((9, 5000 + at as u16), (1, 53), 58), at * SECOND);
        tick(&mut table, at);
    }
    let snapshot = latest.get();
    let [flow] = &snapshot.flows[..] else { panic!("{snapshot:?}") };
    assert_eq!(flow.remote.port, 5020);
    assert_eq!(snapshot.windows_s.map(|[two, ..]| two), Some(2.0));
    assert!(flow.window_bps.iter().all(|bps| *bps <= 8.0 * 100.0 / 2.0), "{flow:?}");
}
