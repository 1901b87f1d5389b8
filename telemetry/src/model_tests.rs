//! Tests of the model.

use proptest::prelude::*;

use super::*;
use crate::sample::tests::{empty_sample, pool, port, queue};
use crate::sample::{PortStats, QueueDirection};

const SECOND: u64 = 1_000_000_000;

/// Returns a sample `seconds` after boot with one port that has received `packets`.
fn at(seconds: u64, packets: u64) -> Sample {
    let mut sample = empty_sample();
    sample.monotonic_ns = seconds * SECOND;
    sample.ports = vec![port(0, packets)];
    sample
}

#[test]
fn rates_are_per_second_of_the_monotonic_clock() {
    let mut tracker = ModelTracker::default();
    let first = tracker.update(at(10, 1000));
    assert_eq!((first.interval_s, first.restarted), (None, false));
    assert_eq!(first.ports[0].rx_pps, None);
    let second = tracker.update(at(12, 3000));
    assert_eq!(second.interval_s, Some(2.0));
    assert_eq!(second.ports[0].rx_pps, Some(1000.0));
    assert_eq!(second.ports[0].rx_bps, Some(1000.0 * 64.0 * 8.0));
    assert!(!second.ports[0].reset);
}

#[test]
fn a_counter_that_went_back_has_no_rate_and_the_others_keep_theirs() {
    let mut tracker = ModelTracker::default();
    let mut before = at(1, 1000);
    before.ports[0].stats.rx_missed = 7;
    tracker.update(before);
    let model = tracker.update(at(2, 1500));
    assert_eq!(model.ports[0].rx_missed_ps, None);
    assert_eq!(model.ports[0].rx_pps, Some(500.0));
    assert!(model.ports[0].reset);
}

#[test]
fn a_driver_that_counts_no_bytes_has_no_bit_rate() {
    let mut tracker = ModelTracker::default();
    let mut model = tracker.update(at(1, 0));
    for seconds in 2..4 {
        let mut sample = at(seconds, seconds * 1000);
        sample.ports[0].stats.rx_bytes = 0;
        model = tracker.update(sample);
    }
    assert_eq!((model.ports[0].rx_pps, model.ports[0].rx_bps), (Some(1000.0), None));
    assert_eq!(model.ports[0].tx_bps, Some(0.0));
}

#[test]
fn a_restart_starts_everything_afresh() {
    let mut tracker = ModelTracker::default();
    let mut before = at(1, 1000);
    before.pools = vec![pool("p", 100, 5)];
    tracker.update(before);
    let mut after = at(2, 5000);
    after.app.start_ticks += 1;
    after.pools = vec![pool("p", 100, 6)];
    let model = tracker.update(after);
    assert!(model.restarted);
    assert_eq!((model.interval_s, model.ports[0].rx_pps), (None, None));
    assert!(!model.ports[0].reset);
    assert_eq!(model.pools[0].history, [6]);
    let mut next = at(3, 6000);
    next.app.start_ticks += 1;
    assert_eq!(tracker.update(next).ports[0].rx_pps, Some(1000.0));
}

#[test]
fn a_restart_does_not_forget_what_a_port_received() {
    let mut tracker = ModelTracker::default();
    for second in 1..=600 {
        tracker.update(at(second, second * 1_000_000));
    }
    let mut restarted = |seconds| {
        let mut sample = at(seconds, 0);
        sample.app.start_ticks += 1;
        tracker.update(sample).ports[0].rx_flat
    };
    assert_eq!(restarted(601), None);
    let flat = (602..=3600).map(restarted).last().flatten().unwrap();
    assert_eq!((flat.seconds, flat.packets, flat.watched_past), (2999.0, 0, true));
    let mut other = at(5, 0);
    other.app.start_ticks += 2;
    assert_eq!(tracker.update(other.clone()).ports[0].rx_flat, None);
    other.monotonic_ns += 60 * SECOND;
    assert_eq!(tracker.update(other).ports[0].rx_flat, None, "another boot has a past of its own");
}

#[test]
fn the_same_or_an_older_sample_gives_no_rates() {
    let mut tracker = ModelTracker::default();
    tracker.update(at(5, 1000));
    for again in [at(5, 1000), at(5, 2000), at(4, 3000)] {
        let model = tracker.update(again);
        assert_eq!((model.interval_s, model.ports[0].rx_pps), (None, None));
    }
    assert_eq!(tracker.update(at(5, 3100)).ports[0].rx_pps, Some(100.0));
}

#[test]
fn ports_may_come_go_and_change_their_device() {
    let mut tracker = ModelTracker::default();
    tracker.update(at(1, 1000));
    let mut none = at(2, 0);
    none.ports.clear();
    assert!(tracker.update(none).ports.is_empty());
    assert_eq!(tracker.update(at(3, 2000)).ports[0].rx_pps, None);
    let mut replaced = at(4, 3000);
    replaced.ports[0].device = "net_other".into();
    replaced.ports.push(port(1, 5));
    let model = tracker.update(replaced);
    assert_eq!(
        model.ports.iter().map(|p| (p.id, p.rx_pps)).collect::<Vec<_>>(),
        [(0, None), (1, None)]
    );
}

#[test]
fn queues_share_the_packets_of_their_port_and_direction() {
    let at = |seconds, first: [u64; 3], second: [u64; 3]| {
        let mut sample = at(seconds, 0);
        sample.queues = vec![queue(0, first), queue(1, second)];
        sample
    };
    let mut tracker = ModelTracker::default();
    tracker.update(at(1, [100, 90, 10], [100, 100, 0]));
    let model = tracker.update(at(2, [200, 110, 250], [1100, 1090, 80]));
    let [first, second] = &model.queues[..] else { panic!("two queues") };
    assert_eq!((first.pps, second.pps), (Some(240.0), Some(80.0)));
    assert_eq!((first.share, second.share), (Some(0.75), Some(0.25)));
    assert_eq!((first.busy_ratio, second.busy_ratio), (Some(0.8), Some(0.01)));
    assert_eq!((first.mean_burst, second.mean_burst), (Some(3.0), Some(8.0)));
    let idle = tracker.update(at(3, [200, 110, 250], [1100, 1090, 80]));
    assert_eq!((idle.queues[0].share, idle.queues[0].busy_ratio), (None, None));
    assert_eq!(idle.queues[0].pps, Some(0.0));
}

#[test]
fn a_leaking_pool_has_a_time_left_and_an_unknown_one_has_nothing() {
    let mut tracker = ModelTracker::default();
    let mut last = None;
    for second in 1..=10 {
        let mut sample = at(second, 0);
        sample.pools = vec![pool("leaking", 2000, 100 * second), pool("unknown", 2000, 0)];
        sample.pools[1].occupancy = None;
        last = Some(tracker.update(sample));
    }
    let pools = last.unwrap().pools;
    assert_eq!(pools[0].slope_ps, Some(100.0));
    assert_eq!(pools[0].exhausted_in_s, Some(10.0));
    assert_eq!(pools[0].used_ratio, Some(0.5));
    assert_eq!(pools[0].history.len(), 10);
    assert_eq!(pools[1], PoolTrend { name: "unknown".into(), ..PoolTrend::default() });
}

#[test]
fn a_pool_keeps_its_history_when_it_was_not_read_but_not_when_it_is_gone() {
    let with_pool = |seconds| {
        let mut sample = at(seconds, 0);
        sample.pools = vec![pool("p", 100, seconds)];
        sample
    };
    let mut unread = at(2, 0);
    unread.partial = vec!["/mempool/list: timed out".into()];
    let mut tracker = ModelTracker::default();
    tracker.update(with_pool(1));
    tracker.update(unread);
    assert_eq!(tracker.update(with_pool(3)).pools[0].history, [1, 3]);
    tracker.update(at(4, 0));
    assert_eq!(tracker.update(with_pool(5)).pools[0].history, [5]);
}

#[test]
fn switches_of_threads_have_rates_until_the_thread_is_another() {
    let with_thread = |seconds, tid, involuntary_switches| {
        let mut sample = at(seconds, 0);
        let thread = ThreadSample { lcore: 3, tid, involuntary_switches, ..Default::default() };
        sample.threads = vec![thread];
        sample
    };
    let mut tracker = ModelTracker::default();
    let first = tracker.update(with_thread(1, 70, 10)).threads.remove(0);
    assert_eq!((first.lcore, first.involuntary_ps), (3, None));
    let second = tracker.update(with_thread(3, 70, 30)).threads.remove(0);
    assert_eq!((second.voluntary_ps, second.involuntary_ps), (Some(0.0), Some(10.0)));
    let other = tracker.update(with_thread(4, 71, 40)).threads.remove(0);
    assert_eq!(other.involuntary_ps, None);
}

#[test]
fn shares_of_threads_are_of_the_time_between_their_readings() {
    let thread = |read_ns, run_ns, run_delay_ns| {
        let thread =
            ThreadSample { lcore: 3, tid: 7, read_ns, run_ns, run_delay_ns, ..Default::default() };
        Sample { threads: vec![thread], ..at(read_ns / 1_000_000_000, 0) }
    };
    let mut tracker = ModelTracker::default();
    let second = 1_000_000_000;
    let first = tracker.update(thread(second, Some(100), Some(0))).threads.remove(0);
    assert_eq!((first.run_ratio, first.run_delay_ratio), (None, None));
    let next = thread(3 * second, Some(100 + second), Some(second / 2));
    let next = tracker.update(next).threads.remove(0);
    assert_eq!((next.run_ratio, next.run_delay_ratio), (Some(0.5), Some(0.25)));
    let unknown = tracker.update(thread(5 * second, None, None)).threads.remove(0);
    assert_eq!((unknown.run_ratio, unknown.run_delay_ratio), (None, None));
}

proptest! {
    #[test]
    fn rates_are_never_negative_and_never_above_what_was_counted(
        // No more than a port can count.
        series in prop::collection::vec((1_u64..10_000_000_000, 1_u64..1_000_000_000, any::<bool>()), 2..12)
    ) {
        let mut tracker = ModelTracker::default();
        let (mut now, mut last): (u64, Option<u64>) = (1, None);
        for (step_ns, counter, grows) in series {
            now += step_ns;
            let counter = if grows { last.unwrap_or(0).saturating_add(counter) } else { counter };
            let mut sample = at(0, counter);
            sample.monotonic_ns = now;
            let rates = tracker.update(sample).ports.remove(0);
            let most = last.and_then(|last| counter.checked_sub(last)).map(|d| d as f64 / (step_ns as f64 / 1e9));
            prop_assert_eq!(rates.rx_pps, most);
            prop_assert!(rates.rx_pps.is_none_or(|rate| rate >= 0.0 && rate.is_finite()));
            prop_assert_eq!(rates.reset, last.is_some_and(|last| counter < last));
            last = Some(counter);
        }
    }

    #[test]
    fn any_series_of_pools_gives_finite_numbers(
        series in prop::collection::vec((0_u64..5_000_000_000, any::<u64>(), any::<u64>()), 1..40)
    ) {
        let mut tracker = ModelTracker::default();
        let mut now = 1;
        for (step_ns, size, in_use) in series {
            now += step_ns;
            let mut sample = at(0, 0);
            sample.monotonic_ns = now;
            sample.pools = vec![pool("p", size, in_use)];
            let trend = tracker.update(sample).pools.remove(0);
            prop_assert!(trend.slope_ps.is_none_or(f64::is_finite));
            prop_assert!(trend.exhausted_in_s.is_none_or(|s| s >= 0.0 && s.is_finite()));
            prop_assert!(trend.used_ratio.is_none_or(|r| r >= 0.0 && r.is_finite()));
        }
    }
}

#[test]
fn counters_that_were_reset_have_no_growth() {
    let before = PortStats { rx_packets: 5, ..PortStats::default() };
    let now = PortStats { rx_packets: 7, ..PortStats::default() };
    assert_eq!(now.since(&before).map(|grown| grown.rx_packets), Some(2));
    assert_eq!(before.since(&now), None);
}

#[test]
fn totals_count_from_a_sample_or_from_the_last_reset() {
    let (before, mut now) = (at(1, 5), at(2, 7));
    assert_eq!(now.ports[0].stats_since(Some(&before)).rx_packets, 2);
    assert_eq!(before.ports[0].stats_since(Some(&now)).rx_packets, 5);
    assert_eq!(now.ports[0].stats_since(None).rx_packets, 7);
    now.ports[0].device = "another".to_owned();
    assert_eq!(now.ports[0].stats_since(Some(&before)).rx_packets, 7);
}

/// Returns the sample of this second of an app with one port: for each transmit queue, packets
/// offered and, by the driver, sent.
fn sending(second: u64, queues: &[(u64, Option<u64>)], sent: u64) -> Sample {
    let mut sample = at(second, 0);
    sample.ports[0].tx_queues = queues.len().try_into().unwrap();
    sample.ports[0].stats.tx_packets = sent;
    for (number, (offered, sent)) in (0..).zip(queues) {
        let mut queue = queue(number, [second, 0, *offered]);
        queue.direction = QueueDirection::Tx;
        sample.queues.push(queue);
        let counter = |sent: &u64| (format!("tx_q{number}_packets"), *sent);
        sample.ports[0].xstats.extend(sent.iter().map(counter));
    }
    sample
}

#[test]
fn a_queue_has_sent_what_its_driver_took() {
    let mut tracker = ModelTracker::default();
    let queues =
        |s: u64| [(21_000_000 * s, Some(100_000 * s)), (1_000_000 * s, Some(1_000_000 * s))];
    let mut model = tracker.update(sending(1, &queues(1), 1_100_000));
    for second in 2..=9 {
        model = tracker.update(sending(second, &queues(second), 1_100_000 * second));
    }
    let [refused, taken] = &model.queues[..] else { panic!("two queues") };
    assert_eq!((refused.pps, refused.bps), (Some(100_000.0), Some(51_200_000.0)));
    assert_eq!(refused.refused_ps, Some(20_900_000.0));
    assert_eq!(refused.refused_packets, Some(8 * 20_900_000), "since the first sample");
    assert_eq!(refused.mean_burst, Some(21_000_000.0), "bursts are as they were offered");
    assert_eq!((taken.pps, taken.refused_ps), (Some(1_000_000.0), Some(0.0)));
    assert_eq!(taken.share, Some(10.0 / 11.0));
}

#[test]
fn without_counters_of_queues_only_what_is_certain_is_told() {
    let last = |queues: &dyn Fn(u64) -> Vec<(u64, Option<u64>)>, sent: u64| {
        let mut tracker = ModelTracker::default();
        let mut model = tracker.update(sending(1, &queues(1), sent));
        for second in 2..=9 {
            model = tracker.update(sending(second, &queues(second), sent * second));
        }
        model.queues.iter().map(|q| (q.pps, q.refused_ps)).collect::<Vec<_>>()
    };
    let one = |s| vec![(2_000_000 * s, None)];
    assert_eq!(last(&one, 500_000), [(Some(500_000.0), Some(1_500_000.0))]);
    // Zeros, which DPDK returns for drivers that do not count.
    let two = |s| vec![(2_000_000 * s, Some(0)), (1_000_000 * s, Some(0))];
    assert_eq!(last(&two, 500_000), [(None, None); 2]);
    let all_sent = [(Some(2_000_000.0), None), (Some(1_000_000.0), None)];
    assert_eq!(last(&two, 3_000_000), all_sent);
}
