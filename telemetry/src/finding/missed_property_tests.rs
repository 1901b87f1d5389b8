//! Shares of missed packets are valid shares, whatever the counters are.

use proptest::prelude::*;

use super::*;
use crate::finding::{LintRules, evaluate};
use crate::model::ModelTracker;
use crate::sample::tests::{empty_sample, pool, port, queue};
use crate::sample::{
    LcoreSample, LibrarySample, Sample, StolenSample, ThreadSample, TracingSample, UsageSample,
};

/// Arbitrary counters of two samples, most of them close to each other.
fn any_samples() -> impl Strategy<Value = [Sample; 2]> {
    let number = || prop_oneof![Just(0), 0..100_000_u64, any::<u64>()];
    let numbers = || prop::collection::vec(number(), 40);
    (numbers(), numbers(), any::<bool>(), any::<bool>()).prop_map(|(a, b, linked, traced)| {
        let mut samples = [any_sample(&a, linked, traced), any_sample(&b, linked, traced)];
        (samples[0].monotonic_ns, samples[1].monotonic_ns) = (1_000_000, 1_001_000_000);
        for sample in &mut samples {
            sample.threads[0].read_ns = sample.monotonic_ns + sample.threads[0].read_ns % 1000;
        }
        samples
    })
}

fn any_sample(n: &[u64], linked: bool, is_traced: bool) -> Sample {
    let mut sample = empty_sample();
    let mut of = port(0, n[0]);
    (of.stats.rx_missed, of.stats.rx_nombuf, of.stats.tx_packets) = (n[1], n[2] % 3, n[3]);
    of.xstats = [("rx_q0_missed".to_owned(), n[4])].into();
    sample.ports = vec![of];
    sample.pools = vec![pool("mb", n[5] % 1000, n[6] % 1200)];
    sample.threads = vec![ThreadSample {
        lcore: 1,
        read_ns: n[7],
        run_ns: (!n[8].is_multiple_of(5)).then_some(n[8]),
        run_delay_ns: (!n[9].is_multiple_of(5)).then_some(n[9]),
        cpu_stolen_ms: Some(n[10] % 5000),
        voluntary_switches: n[11] % 3,
        involuntary_switches: n[12],
        asleep: n[12].is_multiple_of(2),
        cpu_khz: Some(n[13] % 100),
        cpu_max_khz: Some(n[14] % 100),
        ..ThreadSample::default()
    }];
    sample.usage = vec![UsageSample { lcore: 1, busy: n[15], total: n[16] }];
    if linked {
        sample.library = Some(LibrarySample { stall_us: n[17] % 2000, ..Default::default() });
        let lcore = |lcore: u32| LcoreSample {
            lcore,
            polls: n[18],
            packets: n[19],
            idle_us: n[20],
            gap_max_us: n[21],
            stalls: n[22] % 9,
            stall_last_us: vec![n[23]],
            stall_last_realtime_ns: vec![n[24]],
            gaps: n[25..33].iter().chain(&n[25..33]).map(|gaps| gaps % 50).collect(),
            ..LcoreSample::default()
        };
        sample.lcores = vec![lcore(1), lcore(2)];
        sample.queues =
            (0..2).map(|number| queue(number, [n[33], n[34], n[35] % 1_000_000_000])).collect();
        sample.queues[0].descriptors = Some(n[36] % 5000);
        sample.queues[0].depth = Some(n[37]);
    }
    sample.tracing = is_traced.then(|| TracingSample {
        lcores: vec![1],
        stolen: vec![StolenSample {
            lcore: 1,
            cause: StolenCause::Irq,
            thief: "eth0".into(),
            count: n[38],
            stolen_ns: Some(n[39]),
            longest_ns: Some(n[39]),
            longest_realtime_ns: None,
        }],
        ..TracingSample::default()
    });
    sample
}

proptest! {
    #[test]
    fn shares_of_any_counters_are_at_most_the_whole(samples in any_samples()) {
        let mut tracker = ModelTracker::default();
        let model = samples.map(|sample| tracker.update(sample)).into_iter().last().unwrap();
        for finding in evaluate(&model, &LintRules::default()) {
            let shares: Vec<f64> = finding.causes.iter().filter_map(|cause| cause.share).collect();
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{finding:?}");
            prop_assert!(shares.iter().sum::<f64>() <= 1.0 + 1e-9, "{finding:?}");
            let missed = finding.lint == Lint::RxMissed;
            prop_assert_eq!(missed, !finding.causes.is_empty());
            let unknown = finding.causes.iter().any(|c| c.cause == MissedCause::Unknown);
            prop_assert!(!unknown || finding.causes.len() == 1);
        }
    }
}
