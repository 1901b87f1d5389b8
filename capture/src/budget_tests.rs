//! Tests of the policy with a model of a consumer with one core.
#![allow(clippy::cast_sign_loss)] // Counts are positive.

use pmdscope_packets::SinkProgress;
use proptest::prelude::*;

use super::*;
use crate::ring::RingCounters;

/// CPU time per packet, and per second without packets, in seconds.
#[derive(Clone, Copy, Debug)]
struct Consumer {
    packet: f64,
    second: f64,
}

const TABLE: Consumer = Consumer { packet: 250e-9, second: 0.02 };

impl Consumer {
    /// CPU seconds per second if `kept` packets per second are kept, without a limit.
    fn demand(self, kept: f64) -> f64 {
        self.second + kept * self.packet
    }

    /// The load of one second at `offered` packets per second, sampled one in `sample`.
    fn load(self, offered: f64, sample: u32) -> CaptureLoad {
        let kept = offered / f64::from(sample);
        let looked_at = kept.min((1.0 - self.second) / self.packet);
        CaptureLoad {
            elapsed: Duration::from_secs(1),
            cpu: Duration::from_secs_f64(self.demand(looked_at).min(1.0)),
            looked_at: looked_at as u64,
            dropped: (kept - looked_at) as u64,
            unwritten: 0,
            fill: if kept > looked_at { 1.0 } else { 0.01 },
            sample,
        }
    }

    /// The sampling of each second at a constant rate.
    fn run(self, policy: &mut SamplingPolicy, offered: f64, seconds: usize) -> Vec<u32> {
        (0..seconds).map(|_| policy.next(&self.load(offered, policy.sample()))).collect()
    }
}

/// A mix of two loads: `share` is the part of the second.
fn mean(a: CaptureLoad, b: CaptureLoad, share: f64) -> CaptureLoad {
    let mix = |a: u64, b: u64| (a as f64 * (1.0 - share) + b as f64 * share) as u64;
    CaptureLoad {
        cpu: a.cpu.mul_f64(1.0 - share) + b.cpu.mul_f64(share),
        looked_at: mix(a.looked_at, b.looked_at),
        dropped: mix(a.dropped, b.dropped),
        fill: a.fill.max(b.fill),
        ..b
    }
}

#[test]
fn few_packets_are_all_captured_and_many_are_sampled() {
    assert_eq!([first_sample(0.0, 0.25), first_sample(600_000.0, 0.25)], [1, 1]);
    assert_eq!(first_sample(700_000.0, 0.25), 2);
    assert_eq!([first_sample(14.2e6, 0.25), first_sample(14.2e6, 1.0)], [32, 8]);
    assert_eq!(first_sample(f64::MAX, 0.01), SAMPLE_MAX);
}

#[test]
fn a_capture_begins_with_what_its_share_of_a_core_allows() {
    assert_eq!(first_sample(0.0, 0.1), 1);
    assert_eq!(first_sample(200_000.0, 0.1), 1);
    assert_eq!(first_sample(15e6, 0.1), 64);
    assert_eq!(first_sample(15e6, 0.05), 128);
    assert_eq!(first_sample(f64::INFINITY, 0.1), SAMPLE_MAX);
}

#[test]
fn packets_within_the_budget_are_not_sampled() {
    let mut policy = SamplingPolicy::new(SHARE, 1);
    assert_eq!(TABLE.run(&mut policy, 500_000.0, 60), [1; 60]);
}

#[test]
fn a_steady_rate_converges_within_the_budget() {
    for offered in [1e6, 3e6, 1e7, 3e7, 1.5e8] {
        let mut policy = SamplingPolicy::new(SHARE, 1);
        let seconds = TABLE.run(&mut policy, offered, 300);
        let rest = seconds[5];
        assert!(seconds[5..].iter().all(|sample| *sample == rest), "{offered}: {seconds:?}");
        let demand = TABLE.demand(offered / f64::from(rest));
        assert!(demand <= SHARE && demand > SHARE * LOW / 2.0, "{offered}: 1 in {rest}: {demand}");
    }
}

#[test]
fn sampling_is_reduced_every_two_seconds() {
    let mut policy = SamplingPolicy::new(SHARE, 256);
    let seconds = TABLE.run(&mut policy, 500_000.0, 20);
    let expected = (1..=20).map(|second| (256 >> (second / 2)).max(1));
    assert_eq!(seconds, expected.collect::<Vec<u32>>());
}

#[test]
fn a_rate_at_the_limit_does_not_oscillate() {
    // Twice as many packets are slightly too many, which shows only when they are taken.
    let consumer = Consumer { packet: 250e-9, second: 0.0 };
    let mut policy = SamplingPolicy::new(SHARE, 4);
    let mut changes = 0;
    for second in 0..600 {
        let noise = if second % 2 == 0 { 0.98 } else { 1.35 };
        let before = policy.sample();
        changes += usize::from(policy.next(&consumer.load(1.5e6 * noise, before)) != before);
    }
    assert!(changes < 40, "{changes} changes in 600 s");
}

#[test]
fn drops_without_load_double() {
    let starved = |sample| CaptureLoad {
        elapsed: Duration::from_secs(1),
        cpu: Duration::from_millis(50),
        looked_at: 100_000,
        dropped: 1000,
        unwritten: 0,
        fill: 1.0,
        sample,
    };
    let mut policy = SamplingPolicy::new(SHARE, 1);
    assert_eq!(policy.next(&starved(1)), 2);
    assert_eq!(policy.next(&starved(2)), 2, "they may be from before");
    assert_eq!(policy.next(&starved(2)), 4);
    assert_eq!(policy.next(&CaptureLoad { dropped: 900_000, ..starved(4) }), 4);
    assert_eq!(policy.next(&CaptureLoad { dropped: 900_000, ..starved(4) }), 64);
}

#[test]
fn drops_with_empty_rings_change_nothing() {
    let mut policy = SamplingPolicy::new(SHARE, 4);
    let load = CaptureLoad { fill: 0.1, dropped: 1_000_000, ..TABLE.load(1e6, 4) };
    assert_eq!(policy.next(&load), 4);
}

#[test]
fn a_helper_that_is_starved_keeps_one_in_sixteen_at_least() {
    let starved =
        |sample, dropped| CaptureLoad { fill: 0.1, dropped, ..TABLE.load(1000.0, sample) };
    let helped = SamplingPolicy { helped: true, ..SamplingPolicy::new(f64::INFINITY, 1) };
    let mut policy = helped.clone();
    assert_eq!(policy.next(&starved(1, 9_000_000)), 16);
    let seconds = (0..20).map(|_| policy.next(&starved(16, 9_000_000))).collect::<Vec<_>>();
    assert_eq!(seconds, [16; 20]);
    assert_eq!((policy.next(&starved(16, 0)), policy.next(&starved(8, 0))), (8, 8));
    let mut policy = helped;
    assert_eq!(policy.next(&starved(1, 40)), 1, "few drops");
    assert_eq!(policy.next(&starved(1, 100)), 2);
}

#[test]
fn a_ring_that_fills_doubles_before_it_drops() {
    let mut policy = SamplingPolicy::new(SHARE, 8);
    let load = CaptureLoad { fill: 0.9, dropped: 0, ..TABLE.load(1e6, 8) };
    assert_eq!(policy.next(&load), 16);
}

#[test]
fn cpu_time_of_other_work_does_not_change_sampling() {
    let mut policy = SamplingPolicy::new(SHARE, 1);
    let idle = Consumer { packet: 0.0, second: 0.9 };
    assert_eq!(idle.run(&mut policy, 900.0, 10), [1; 10]);
    let mut policy = SamplingPolicy::new(SHARE, 8);
    assert_eq!(idle.run(&mut policy, 900.0, 6), [8, 4, 4, 2, 2, 1]);
}

#[test]
fn an_app_that_ignores_a_change_is_asked_once() {
    let mut policy = SamplingPolicy::new(SHARE, 1);
    let deaf = TABLE.load(1e8, 1);
    assert_eq!(policy.next(&deaf), 128);
    assert_eq!(policy.next(&deaf), 128);
}

#[test]
fn without_a_limit_all_packets_are_kept_until_some_are_lost() {
    let mut policy = SamplingPolicy::new(f64::INFINITY, 1);
    let busy = Consumer { packet: 250e-9, second: 0.0 };
    assert_eq!(busy.run(&mut policy, 3.9e6, 60), [1; 60]);
    assert_eq!(policy.next(&CaptureLoad { unwritten: 1, ..busy.load(3.9e6, 1) }), 2);
    let slow = CaptureLoad { looked_at: 1000, unwritten: 6000, ..busy.load(1.0, 2) };
    assert_eq!((policy.next(&slow), policy.next(&slow)), (2, 16), "the first may be from before");
}

#[test]
fn a_full_disk_does_not_change_sampling() {
    let control = RunControl::default();
    let mut budget = CpuBudget::unlimited(&control, false);
    let lost = |captured, lost, waiting: Option<&str>| CaptureReport {
        captured,
        sample: 1,
        progress: SinkProgress {
            lost,
            waiting: waiting.map(ToOwned::to_owned),
            ..SinkProgress::default()
        },
        ..CaptureReport::default()
    };
    budget.second(&lost(0, 0, None));
    budget.second(&lost(1000, 5000, Some("disk full")));
    assert_eq!(budget.sample(), 1);
    budget.second(&lost(11_000, 6000, None));
    assert_eq!((budget.sample(), control.sample.load(Ordering::Relaxed)), (2, 2));
}

#[test]
fn a_budget_updates_the_control() {
    let control = RunControl::default();
    // More CPU time than one thread can use: only drops count.
    let mut budget = CpuBudget::new(2.0, &control);
    let report = |captured, dropped| CaptureReport {
        captured,
        rings: RingCounters { dropped, ..RingCounters::default() },
        fill: 1.0,
        sample: 3,
        ..CaptureReport::default()
    };
    assert_eq!(budget.sample(), 1);
    budget.second(&report(1000, 7));
    assert_eq!((budget.sample(), control.sample.load(Ordering::Relaxed)), (4, 4));
    budget.second(&CaptureReport { sample: 4, ..report(2000, 2007) });
    assert_eq!((budget.sample(), control.sample.load(Ordering::Relaxed)), (16, 16));

    control.sample.store(100, Ordering::Relaxed);
    assert_eq!(CpuBudget::new(SHARE, &control).sample(), 128);
    assert_eq!(control.sample.load(Ordering::Relaxed), 128);
}

#[test]
fn a_budget_measures_the_time_of_its_own_thread() {
    let control = RunControl::default();
    let mut budget = CpuBudget::new(0.01, &control);
    let second = |captured| CaptureReport { captured, sample: 1, ..CaptureReport::default() };
    budget.second(&second(0));
    let end = LoadMark::of(&second(0)).cpu + Duration::from_millis(50);
    while LoadMark::of(&second(0)).cpu < end {
        std::hint::spin_loop();
    }
    budget.second(&second(1_000_000));
    assert!(budget.sample() > 1);
}

proptest! {
    #[test]
    fn ten_times_the_packets_are_met_within_three_seconds(
        before in 1e5f64..2e7,
        phase in 0.0f64..1.0,
        factor in 1.0f64..10.0,
    ) {
        let mut policy = SamplingPolicy::new(SHARE, 1);
        TABLE.run(&mut policy, before, 60);
        let mut load = |offered: f64, part: f64| {
            let sample = policy.sample();
            let quiet = TABLE.load(before, sample);
            policy.next(&mean(quiet, TABLE.load(offered, sample), part))
        };
        let after = before * factor;
        // If the first update has seen little of the change, drops in the second are ignored as too
        // early.
        load(after, phase);
        load(after, 1.0);
        let sample = load(after, 1.0);
        prop_assert!(TABLE.demand(after / f64::from(sample)) <= 1.1 * SHARE, "1 in {sample}");
    }

    #[test]
    fn without_a_limit_losses_end_and_all_packets_are_kept_again(
        capacity in 1e4f64..1e7,
        excess in 1.0f64..60_000.0,
    ) {
        let consumer = Consumer { packet: 1.0 / capacity, second: 0.0 };
        let mut policy = SamplingPolicy::new(f64::INFINITY, 1);
        let mut lossy = 0;
        for second in 0..300 {
            let load = consumer.load(capacity * excess, policy.sample());
            lossy += u32::from(second >= 60 && load.dropped > 0);
            policy.next(&load);
        }
        // From time to time the policy tries to keep more packets.
        prop_assert!(lossy <= 24, "{lossy} of 240 s with losses");
        prop_assert!(f64::from(policy.sample()) <= 4.0 * excess, "1 in {}", policy.sample());
        consumer.run(&mut policy, capacity / 2.0, 200);
        prop_assert_eq!(policy.sample(), 1);
    }

    #[test]
    fn any_load_leaves_a_power_of_two(
        share in any::<f64>(),
        begin in any::<u32>(),
        loads in proptest::collection::vec(
            (0u64..3000, 0u64..5000, any::<u64>(), any::<u64>(), any::<u64>(), any::<f64>(), any::<u32>()),
            0..50),
    ) {
        let mut policy = SamplingPolicy::new(share, begin);
        let mut lowered: Option<Duration> = None;
        let mut now = Duration::ZERO;
        for (ms, cpu_ms, looked_at, dropped, unwritten, fill, sample) in loads {
            let (elapsed, cpu) = (Duration::from_millis(ms), Duration::from_millis(cpu_ms));
            let before = policy.sample();
            let load = CaptureLoad { elapsed, cpu, looked_at, dropped, unwritten, fill, sample };
            let after = policy.next(&load);
            now += elapsed;
            prop_assert!(after.is_power_of_two() && after <= SAMPLE_MAX);
            if after < before {
                prop_assert_eq!(after, before / 2);
                prop_assert!(lowered.is_none_or(|last| now >= last + WAIT_MIN));
                lowered = Some(now);
            }
        }
    }
}
