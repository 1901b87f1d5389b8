//! Tests of the causes of missed packets, each with two samples in which it is the cause.

use super::*;
use crate::finding::{LintRules, evaluate};
use crate::model::ModelTracker;
use crate::sample::tests::{pool, port, queue};
use crate::sample::{
    FedQueue, HighWater, LcoreSample, PcieLinkSample, QueueDirection, Sample, SiteKind,
    StolenSample, TracingMethod, TracingSample, UsageSample,
};
use crate::stall::tests::second;

/// Returns two samples, a second apart, in which port 0 received and missed these numbers of packets.
fn missing([mut before, mut now]: [Sample; 2], [received, missed]: [u64; 2]) -> [Sample; 2] {
    before.ports = vec![port(0, 0)];
    now.ports = vec![port(0, received)];
    now.ports[0].stats.rx_missed = missed;
    for sample in [&mut before, &mut now] {
        sample.ports[0].rx_queues = 1;
        sample.ports[0].link_up = Some(true);
    }
    [before, now]
}

/// As `missing`, with one queue; `busy` of 1000 polls returned packets.
fn polled(samples: [Sample; 2], [received, missed]: [u64; 2], busy: u64) -> [Sample; 2] {
    let [mut before, mut now] = missing(samples, [received, missed]);
    before.queues = vec![queue(0, [0, 0, 0])];
    now.queues = vec![queue(0, [1000, 1000 - busy, received])];
    [before, now]
}

/// Returns the finding about the missed packets.
fn found(samples: impl IntoIterator<Item = Sample>) -> Finding {
    let mut tracker = ModelTracker::default();
    let model = samples.into_iter().map(|sample| tracker.update(sample)).last().unwrap();
    let findings = evaluate(&model, &LintRules::default());
    findings.into_iter().find(|finding| finding.lint == Lint::RxMissed).unwrap()
}

fn causes(finding: &Finding) -> Vec<(MissedCause, Option<f64>)> {
    finding.causes.iter().map(|cause| (cause.cause, cause.share)).collect()
}

fn percent(finding: &Finding) -> Vec<(MissedCause, Option<u64>)> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
    let whole = |share: f64| (share * 100.0).round() as u64;
    causes(finding).into_iter().map(|(cause, share)| (cause, share.map(whole))).collect()
}

#[test]
fn own_code_that_keeps_the_cpu_is_a_stalled_lcore() {
    // 20 ms at 100,000 packets/s are 2000 packets; 512 stay in the queue.
    let found = found(missing(second(&[20_000], [0, 0]), [98_512, 1488]));
    assert_eq!(percent(&found), [(MissedCause::StalledLcore, Some(100))]);
    assert_eq!(
        found.evidence,
        "1488.0 packets/s missed by the NIC, 98512.0/s received; 512 descriptors (assumed) last 5.1 ms \
         at 100.0 kpps; the worst gap was 20.0 ms; cause: stalled_lcore (about 100 %)"
    );
    assert_eq!(
        found.causes[0].evidence,
        "lcore 1 (thread 42, CPU 0): the app's own code kept the CPU for 20.0 ms without a poll; \
         longest gap 20.0 ms"
    );
    assert!(found.advice.starts_with("the loop takes too long"), "{found:?}");
}

#[test]
fn what_gaps_do_not_explain_is_left_over() {
    let half = found(missing(second(&[20_000], [0, 0]), [97_024, 2976]));
    assert_eq!(percent(&half), [(MissedCause::StalledLcore, Some(50))]);
    let harmless = found(missing(second(&[4000], [0, 0]), [99_000, 1000]));
    assert_eq!(percent(&harmless), [(MissedCause::Unknown, None)]);
    assert!(!harmless.is_explained());
    assert!(harmless.evidence.contains("the worst gap was 4.0 ms; cause: unknown"), "{harmless:?}");
}

#[test]
fn a_gap_goes_on_over_samples_and_counts_once() {
    let [before, mut now] = missing(second(&[], [0, 0]), [0, 99_488]);
    now.lcores[0].polls = before.lcores[0].polls;
    now.lcores[0].idle_us = 1_000_000;
    let mut later = now.clone();
    later.monotonic_ns += 1_000_000_000;
    later.ports[0].stats.rx_missed += 10_000;
    later.ports[0].stats.rx_packets += 90_000;
    later.lcores[0].polls += 5;
    later.lcores[0].idle_us = 1;
    later.lcores[0].stalls = 1;
    later.lcores[0].gaps[21] = 1;
    later.lcores[0].gap_max_us = 1_100_000;
    let thread = &mut later.threads[0];
    (thread.read_ns, thread.run_ns) = (later.monotonic_ns + 1, Some(2_000_000_000));
    let first = found([before.clone(), now.clone()]);
    assert_eq!(percent(&first), [(MissedCause::StalledLcore, Some(99))]);
    assert!(first.causes[0].evidence.ends_with("longest gap 1.0 s, and not over yet"), "{first:?}");
    let second = found([before, now, later]);
    assert_eq!(percent(&second), [(MissedCause::StalledLcore, Some(100))]);
    let evidence = &second.causes[0].evidence;
    assert!(evidence.contains("for 100.0 ms without a poll; longest gap 1.1 s"), "{evidence}");
}

#[test]
fn a_preempted_lcore_lost_its_cpu_and_not_to_itself() {
    let stolen = found(missing(second(&[20_000], [20, 0]), [98_512, 1488]));
    assert_eq!(percent(&stolen), [(MissedCause::StolenCore, Some(100))]);
    let evidence = &stolen.causes[0].evidence;
    assert!(
        evidence.contains("ran something else on its CPU for 20.0 ms (preempted 20"),
        "{evidence}"
    );
    let both = found(missing(second(&[20_000], [5, 0]), [98_512, 1488]));
    let expected = [(MissedCause::StalledLcore, Some(75)), (MissedCause::StolenCore, Some(25))];
    assert_eq!(percent(&both), expected);
    let slept = found(missing(second(&[20_000], [0, 20]), [98_512, 1488]));
    assert_eq!(percent(&slept), [(MissedCause::SleepingLcore, Some(100))]);
    let mut steal = missing(second(&[20_000], [0, 0]), [98_512, 1488]);
    steal[1].threads[0].cpu_stolen_ms = Some(90);
    let steal = found(steal);
    assert_eq!(steal.causes[0].cause, MissedCause::StolenCore);
    assert!(steal.causes[0].evidence.contains("the hypervisor took its CPU"), "{steal:?}");
}

#[test]
fn a_wait_that_is_not_over_is_no_own_code() {
    let [before, mut now] = missing(second(&[], [0, 0]), [0, 99_488]);
    now.lcores[0].polls = before.lcores[0].polls;
    now.lcores[0].idle_us = 1_000_000;
    // The kernel counts a wait only when it ends.
    (now.threads[0].run_ns, now.threads[0].run_delay_ns) = (Some(0), Some(0));
    assert_eq!(percent(&found([before, now])), [(MissedCause::StolenCore, Some(99))]);
}

#[test]
fn a_sleep_that_goes_on_is_no_stolen_core() {
    let [mut before, mut now] = missing(second(&[], [0, 0]), [0, 99_488]);
    now.lcores[0].polls = before.lcores[0].polls;
    now.lcores[0].idle_us = 1_500_000;
    // It fell asleep before the interval, so that no context switch in the interval shows it.
    (before.threads[0].asleep, now.threads[0].asleep) = (true, true);
    now.threads[0].run_ns = before.threads[0].run_ns;
    let found = found([before, now]);
    assert_eq!(percent(&found), [(MissedCause::SleepingLcore, Some(100))]);
    assert!(found.causes[0].evidence.contains("slept or waited for 1.0 s (1 times)"), "{found:?}");
}

fn traced(samples: &mut [Sample; 2], rows: &[(StolenCause, &str, u64)]) {
    let mut tracing =
        TracingSample { method: TracingMethod::Bpf, lcores: vec![1], ..TracingSample::default() };
    samples[0].tracing = Some(tracing.clone());
    let row = |(cause, thief, ms): &(StolenCause, &str, u64)| StolenSample {
        lcore: 1,
        cause: *cause,
        thief: (*thief).to_owned(),
        count: 4,
        stolen_ns: Some(ms * 1_000_000),
        longest_ns: Some(ms * 500_000),
        longest_realtime_ns: None,
    };
    tracing.stolen = rows.iter().map(row).collect();
    samples[1].tracing = Some(tracing);
}

#[test]
fn a_tracer_names_the_thief() {
    let mut samples = missing(second(&[20_000], [4, 0]), [98_512, 1488]);
    traced(&mut samples, &[(StolenCause::Irq, "eth0", 16), (StolenCause::Scheduler, "hog", 4)]);
    let found = found(samples);
    assert_eq!(percent(&found), [(MissedCause::StolenCore, Some(100))]);
    let evidence = &found.causes[0].evidence;
    let named =
        "taken for 20.0 ms: eth0 (irq) 4 times for 16.0 ms, the longest 8.0 ms, hog (scheduler)";
    assert!(evidence.contains(named), "{evidence}");
}

#[test]
fn the_longest_of_a_thief_is_named_if_it_is_new() {
    let mut samples = missing(second(&[20_000], [4, 0]), [98_512, 1488]);
    traced(&mut samples, &[(StolenCause::Irq, "eth0", 36)]);
    let row = samples[1].tracing.as_ref().unwrap().stolen[0].clone();
    let before = StolenSample { count: 2, stolen_ns: Some(10_000_000), ..row };
    samples[0].tracing.as_mut().unwrap().stolen = vec![before];
    let found = found(samples);
    let evidence = &found.causes[0].evidence;
    assert!(evidence.contains("eth0 (irq) 2 times for 26.0 ms; longest gap"), "{evidence}");
}

#[test]
fn a_stock_app_that_is_preempted_lost_its_core() {
    let mut samples = missing(second(&[], [600, 0]), [40_000, 60_000]);
    for sample in &mut samples {
        sample.library = None;
        sample.lcores.clear();
    }
    samples[1].threads[0].involuntary_switches = 3;
    let stolen = found(samples.clone());
    // Three waits of 200 ms at 100,000 packets/s, each 512 packets too long for the queue.
    assert_eq!(percent(&stolen), [(MissedCause::StolenCore, Some(97))]);
    samples[1].threads[0].run_delay_ns = Some(0);
    samples[1].threads[0].run_ns = Some(1_000_000_000);
    let unknown = found(samples);
    assert_eq!(percent(&unknown), [(MissedCause::Unknown, None)]);
    assert!(unknown.causes[0].evidence.contains("linked with libpmdscope"), "{unknown:?}");
}

#[test]
fn short_gaps_that_the_ring_does_not_outlast_make_it_too_small() {
    let mut samples = polled(second(&[900; 100], [0, 0]), [940_000, 60_000], 700);
    samples[0].queues[0].descriptors = Some(256);
    samples[1].queues[0].descriptors = Some(256);
    let found = found(samples);
    assert_eq!(causes(&found)[0].0, MissedCause::RingTooSmall);
    assert!(
        found.evidence.contains("256 descriptors last 256 us at 1.0 Mpps on queue 0"),
        "{found:?}"
    );
    let evidence = &found.causes[0].evidence;
    assert!(
        evidence.ends_with("longest gap 900 us: 900 descriptors would have held it"),
        "{evidence}"
    );
}

#[test]
fn an_empty_pool_explains_all_and_names_the_line_that_leaks() {
    let [mut before, mut now] = missing(second(&[20_000], [0, 0]), [0, 100_000]);
    before.pools = vec![pool("other", 100, 1), pool("mb", 8191, 8190)];
    before.pools[1].feeds = vec![FedQueue { port: 0, queue: 0 }];
    now.pools = before.pools.clone();
    now.ledger = vec![crate::sample::ledger::tests::ledger("mb", 400)];
    now.sites = vec![crate::sample::ledger::tests::site("mb", 18, SiteKind::Leak, 400)];
    let leak = found([before.clone(), now.clone()]);
    assert_eq!(percent(&leak), [(MissedCause::PoolEmpty, Some(100))], "the stall does not matter");
    let evidence = &leak.causes[0].evidence;
    assert!(
        evidence.starts_with("pool mb has 8190 of 8191 mbufs in use; most lost at "),
        "{evidence}"
    );
    assert!(evidence.ends_with("app.c:18 forward() (400 mbufs)"), "{evidence}");
    assert!(leak.advice.starts_with("stop the leak"), "{leak:?}");
    let unknown = |sample: &mut Sample| sample.pools[1].feeds.clear();
    let [mut hedged_before, mut hedged] = [before.clone(), now.clone()];
    unknown(&mut hedged_before);
    unknown(&mut hedged);
    let hedged = found([hedged_before, hedged]);
    let evidence = hedged.causes.iter().map(|cause| cause.evidence.as_str());
    assert_eq!(evidence.filter(|text| text.starts_with("probably pool mb has")).count(), 1);
    (before.pools[1], now.sites) = (pool("mb", 8191, 20), Vec::new());
    (now.ports[0].stats.rx_packets, now.ports[0].stats.rx_missed) = (98_512, 1488);
    let recent = found([before, now]);
    assert_eq!(recent.causes[0].cause, MissedCause::StalledLcore, "it was not empty for all of it");
    assert_eq!(recent.causes.len(), 2);
}

#[test]
fn failed_allocations_without_a_pool_in_sight_are_an_empty_pool() {
    let mut samples = missing(second(&[], [0, 0]), [10, 1000]);
    samples[1].ports[0].stats.rx_nombuf = 1000;
    let found = found(samples);
    assert_eq!(percent(&found), [(MissedCause::PoolEmpty, None)]);
    assert!(found.causes[0].evidence.contains("which pool is empty is unknown"), "{found:?}");
}

#[test]
fn a_loop_that_retries_waits_for_the_port_that_refuses() {
    let mut samples = Vec::new();
    for quarter in 0..=10_u64 {
        let [_, mut sample] = missing(second(&[], [0, 0]), [quarter * 100, quarter * 20_000]);
        sample.monotonic_ns = (quarter + 1) * 250_000_000;
        sample.ports[0].stats.tx_packets = 5;
        sample.threads[0].read_ns = sample.monotonic_ns + 1;
        sample.threads[0].run_ns = Some(quarter * 250_000_000);
        sample.lcores[0].polls = 7;
        sample.lcores[0].idle_us = quarter * 250_000;
        let mut tx = queue(0, [quarter, 0, quarter * 1_000_000]);
        tx.direction = QueueDirection::Tx;
        sample.queues = vec![tx];
        samples.push(sample);
    }
    let freed = found(samples.clone());
    assert_eq!(causes(&freed)[0].0, MissedCause::StalledLcore, "it frees: it has time");
    for sample in &mut samples {
        sample.ports[0].stats.rx_packets = 100;
    }
    let retried = found(samples.clone());
    assert_eq!(percent(&retried), [(MissedCause::TxBackpressure, Some(100))]);
    let evidence = &retried.causes[0].evidence;
    assert!(evidence.contains("port 0 (net_null0) has sent nothing for 2.5 s"), "{evidence}");
    // As before, with a loop that polls in between.
    for (sample, quarter) in samples.iter_mut().zip(0..) {
        (sample.lcores[0].polls, sample.lcores[0].idle_us) = (quarter * 1000, 1);
    }
    assert_eq!(percent(&found(samples)), [(MissedCause::TxBackpressure, None)]);
}

#[test]
fn a_queue_that_gets_most_packets_and_is_full_is_hot() {
    let [mut before, mut now] = missing(second(&[], [0, 0]), [9100, 900]);
    before.queues = (0..4).map(|number| queue(number, [0, 0, 0])).collect();
    now.queues = (0..4).map(|number| queue(number, [1000, 990, 10])).collect();
    now.queues[2] = queue(2, [1000, 5, 9070]);
    let busy = found([before.clone(), now.clone()]);
    assert_eq!(percent(&busy), [(MissedCause::HotQueue, None)]);
    assert_eq!(
        busy.causes[0].evidence,
        "while queue 2 gets 9070 packets/s, 100 % of the packets of 4 queues; the others get 10 \
         packets/s on average; 100 % of its polls brought packets"
    );
    now.queues[2] = queue(2, [1000, 900, 9070]);
    assert_ne!(causes(&found([before.clone(), now.clone()]))[0].0, MissedCause::HotQueue);
    (now.queues[2].depth, now.queues[2].descriptors) = (Some(510), Some(512));
    assert_eq!(causes(&found([before.clone(), now.clone()]))[0].0, MissedCause::HotQueue);
    let counted = |sample: &mut Sample, missed: u64| {
        sample.ports[0].xstats = [("rx_q2_missed".to_owned(), missed)].into();
    };
    counted(&mut before, 0);
    counted(&mut now, 810);
    assert_eq!(percent(&found([before, now]))[0], (MissedCause::HotQueue, Some(90)));
}

#[test]
fn an_lcore_that_never_polls_in_vain_has_no_time_left() {
    let found = found(polled(second(&[], [0, 0]), [99_000, 1000], 990));
    assert_eq!(percent(&found), [(MissedCause::BusyLcore, None)]);
    assert!(found.causes[0].evidence.contains("99 % of the polls brought packets"), "{found:?}");
}

#[test]
fn gaps_of_a_saturated_loop_cost_what_it_would_have_received() {
    // It receives 40,000 packets in 600 ms, so that it would have received 26,667 more.
    let gaps = polled(second(&[200_000, 200_000], [400, 0]), [40_000, 60_000], 1000);
    let expected = [(MissedCause::BusyLcore, None), (MissedCause::StolenCore, Some(43))];
    let found = found(gaps);
    assert_eq!(percent(&found), expected, "{found:?}");
}

#[test]
fn a_nic_that_misses_while_queues_and_lcores_have_room_is_the_limit() {
    let mut samples = polled(second(&[], [0, 0]), [99_000, 1000], 200);
    let unknown_depth = found(samples.clone());
    assert_eq!(percent(&unknown_depth), [(MissedCause::NicLimit, None)]);
    let evidence = &unknown_depth.causes[0].evidence;
    assert!(
        evidence.contains("only 20 % of the polls brought packets; the driver does not report"),
        "{evidence}"
    );
    samples[1].queues[0].descriptors = Some(1024);
    samples[1].queues[0].depth = Some(3);
    samples[1].queues[0].depth_high_water = Some(HighWater { window: 40, ever: 900 });
    samples[1].pcie_links = vec![PcieLinkSample {
        port: "net_null0".into(),
        speed_mts: 2500,
        width: 4,
        max_speed_mts: 8000,
        max_width: 8,
    }];
    let slow = found(samples.clone());
    let evidence = &slow.causes[0].evidence;
    let told = "at most 40 of 1024 descriptors were filled; its PCIe link runs at 2.5 GT/s x4, the \
                device can 8 GT/s x8";
    assert!(evidence.contains(told), "{evidence}");
    samples[1].queues[0].depth_high_water = Some(HighWater { window: 1000, ever: 1000 });
    let full = found(samples.clone());
    assert_eq!(percent(&full), [(MissedCause::Unknown, None)], "a queue was full for a moment");
    // For a stock app, the link is the only hint.
    for sample in &mut samples {
        (sample.library, sample.lcores, sample.queues) = (None, Vec::new(), Vec::new());
    }
    assert_eq!(percent(&found(samples.clone())), [(MissedCause::NicLimit, None)]);
    for (sample, busy) in samples.iter_mut().zip([0, 950]) {
        sample.usage = vec![UsageSample { lcore: 1, busy, total: busy.max(1) + 10 }];
    }
    assert_eq!(percent(&found(samples)), [(MissedCause::BusyLcore, None)]);
}

#[test]
fn a_slow_clock_is_named_with_what_it_was() {
    let mut samples = polled(second(&[], [0, 0]), [99_000, 1000], 700);
    for (sample, khz) in samples.iter_mut().zip([3_000_000, 1_200_000]) {
        (sample.threads[0].cpu_khz, sample.threads[0].cpu_max_khz) = (Some(khz), Some(3_100_000));
    }
    let found = found(samples);
    assert_eq!(percent(&found), [(MissedCause::SlowClock, None)]);
    let text = "while CPU 0 runs at 1200 MHz, 3000 MHz before; it can sustain 3100 MHz";
    assert_eq!(found.causes[0].evidence, text);
}

#[test]
fn a_slow_clock_comes_before_the_lcore_that_it_makes_busy() {
    let mut samples = polled(second(&[], [0, 0]), [99_000, 1000], 990);
    for sample in &mut samples {
        (sample.threads[0].cpu_khz, sample.threads[0].cpu_max_khz) = (Some(1000), Some(3000));
    }
    let expected = [(MissedCause::SlowClock, None), (MissedCause::BusyLcore, None)];
    assert_eq!(percent(&found(samples)), expected);
}

#[test]
fn the_lcore_that_polls_a_queue_is_told_by_its_polls() {
    let [mut before, mut now] = missing(second(&[20_000], [0, 0]), [98_512, 1488]);
    let other = LcoreSample { lcore: 2, packets: 9_000_000, ..before.lcores[0].clone() };
    for (sample, polls) in [(&mut before, 0), (&mut now, 5_000_000)] {
        sample.lcores.push(LcoreSample { polls: polls * 2, ..other.clone() });
        sample.lcores[0].polls = polls;
        sample.queues = vec![queue(0, [polls + 100, 0, 0])];
    }
    now.queues[0].packets = 98_512;
    let own = found([before.clone(), now.clone()]);
    assert_eq!(percent(&own)[0], (MissedCause::StalledLcore, Some(100)));
    now.queues[0].polls = 10_000_000;
    let others = found([before, now]);
    assert_ne!(causes(&others)[0].0, MissedCause::StalledLcore, "{others:?}");
}

#[test]
fn names_of_causes_are_those_of_json() {
    for cause in MissedCause::ALL {
        assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
    }
    let json = serde_json::to_value(found(missing(second(&[20_000], [0, 0]), [9, 9]))).unwrap();
    assert_eq!(json["causes"][0]["cause"], "unknown");
    assert_eq!(json["causes"][0]["share"], serde_json::Value::Null);
}

#[test]
fn a_port_that_nobody_polls_is_told_from_a_slow_app() {
    let at = |second: u64| {
        let mut sample = crate::sample::tests::empty_sample();
        sample.monotonic_ns += second * 1_000_000_000;
        sample.ports = vec![crate::sample::tests::port(0, 2902)];
        sample.ports[0].stats.rx_missed = second * 8000;
        sample
    };
    let found = found([at(0), at(1)]);
    assert_eq!(percent(&found), [(MissedCause::NotPolled, Some(100))]);
    assert!(
        found.causes[0].evidence.starts_with("nobody polls port 0 (net_null0): it"),
        "{found:?}"
    );
    assert!(
        found.advice.contains("gives this port and all of its queues to an lcore"),
        "{found:?}"
    );
}
