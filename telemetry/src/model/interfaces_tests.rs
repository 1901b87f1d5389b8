use super::*;
use crate::fixture::{filtered_interface, split_interface};
use crate::interface::SourceSample;

const SECOND: u64 = 1_000_000_000;

fn after(first: &InterfaceSample, second: &InterfaceSample) -> InterfaceRates {
    let mut tracker = InterfaceTracker::default();
    let [nothing] = &tracker.update(std::slice::from_ref(first), SECOND)[..] else { panic!() };
    assert_eq!((nothing.interval_s, nothing.rx_pps, nothing.kernel_pps), (None, None, None));
    tracker.update(std::slice::from_ref(second), 3 * SECOND).remove(0)
}

#[test]
fn parts_of_the_arrived_packets_add_up() {
    let rates = after(&split_interface(1), &split_interface(2));
    let queues: Vec<_> = rates.queues.iter().map(|q| (q.pps, q.redirected_ps)).collect();
    assert_eq!(queues, [(Some(500.0), Some(0.0)), (Some(1500.0), Some(1500.0))]);
    assert_eq!(rates.rx_pps, Some(2000.0));
    assert_eq!((rates.bypassed_pps, rates.filtered_pps), (Some(1500.0), Some(0.0)));
    assert_eq!(rates.kernel_pps, Some(500.0));
}

#[test]
fn a_filter_has_rates_by_reason_and_the_worst_of_them() {
    let rates = after(&filtered_interface(1), &filtered_interface(2));
    assert_eq!((rates.rx_pps, rates.kernel_pps), (Some(5000.0), Some(500.0)));
    let filter = rates.filter.unwrap();
    assert_eq!((filter.pps, filter.dropped_ps), (Some(5000.0), Some(4500.0)));
    assert_eq!(
        filter.worst().map(|v| (v.reason.as_str(), v.pps)),
        Some(("rate_limit", Some(4000.0)))
    );
    assert_eq!(filter.verdicts[0].bps, Some(500.0 * 64.0 * 8.0));
}

#[test]
fn counters_that_went_back_have_no_rate() {
    let (first, second) = (filtered_interface(2), filtered_interface(1));
    let rates = after(&first, &second);
    assert_eq!((rates.rx_pps, rates.filtered_pps, rates.kernel_pps), (None, None, None));
    assert_eq!(rates.filter.unwrap().sources, []);
    let mut replaced = filtered_interface(2);
    replaced.filter.as_mut().unwrap().program = 99;
    let rates = after(&filtered_interface(1), &replaced);
    assert_eq!((rates.rx_pps, rates.filtered_pps), (Some(5000.0), None));
    assert_eq!(rates.filter.unwrap().worst(), None);
    let renamed = InterfaceSample { index: 99, ..filtered_interface(2) };
    assert_eq!(after(&filtered_interface(1), &renamed).interval_s, None);
}

#[test]
fn what_nobody_counts_is_unknown_and_not_0() {
    let mut interface = split_interface(1);
    for queue in &mut interface.queues {
        (queue.packets, queue.redirected) = (None, None);
    }
    interface.rx_packets = None;
    let rates = after(&interface, &interface);
    assert_eq!((rates.rx_pps, rates.bypassed_pps, rates.kernel_pps), (None, None, None));
    let counted = InterfaceSample { rx_packets: Some(7), ..interface };
    assert_eq!(after(&counted, &counted).rx_pps, Some(0.0));
}

#[test]
fn packets_that_one_counter_leaves_out_are_not_missing() {
    // A driver that counts queues only on its XDP path, and one that does not count dropped packets.
    for (rx_packets, in_queue) in [(10_000, 0), (1000, 10_000), (1000, 0)] {
        let interface = |times| InterfaceSample {
            rx_packets: Some(rx_packets * times),
            queues: vec![InterfaceQueueSample {
                packets: Some(in_queue * times),
                ..InterfaceQueueSample::default()
            }],
            ..filtered_interface(times)
        };
        let rates = after(&interface(1), &interface(2));
        assert_eq!((rates.rx_pps, rates.kernel_pps), (Some(5000.0), Some(500.0)));
    }
}

#[test]
fn top_sources_are_those_of_the_interval() {
    let source = |last: u8, packets| SourceSample { address: [10, 0, 0, last].into(), packets };
    let with = |top_sources: Vec<SourceSample>, times| {
        let mut interface = filtered_interface(times);
        interface.filter.as_mut().unwrap().top_sources = top_sources;
        interface
    };
    let mut earlier = vec![source(1, 9000), source(2, 100), source(3, 50)];
    let now = with(vec![source(1, 9002), source(4, 1050), source(2, 300), source(3, 40)], 2);
    let exact = after(&with(earlier.clone(), 1), &now).filter.unwrap().sources;
    assert_eq!((exact[0].pps, exact[0].at_least), (525.0, false), "the table had room");
    earlier.extend((10..17).map(|last| source(last, 60)));
    let sources = after(&with(earlier, 1), &now).filter.unwrap().sources;
    let sources: Vec<_> = sources.iter().map(|s| (s.address, s.pps, s.at_least)).collect();
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    assert_eq!(
        sources,
        [(address(4), 500.0, true), (address(2), 100.0, false), (address(1), 1.0, false)]
    );
}

#[test]
fn a_read_at_the_same_moment_keeps_the_rates() {
    let mut tracker = InterfaceTracker::default();
    tracker.update(&[filtered_interface(1)], SECOND);
    let rates = tracker.update(&[filtered_interface(2)], 3 * SECOND);
    assert_eq!(tracker.update(&[filtered_interface(2)], 3 * SECOND + 1_000_000), rates);
    assert_eq!(tracker.update(&[filtered_interface(3)], 5 * SECOND), rates);
    // A recording of another boot.
    assert_eq!(tracker.update(&[filtered_interface(4)], SECOND)[0].rx_pps, None);
}
