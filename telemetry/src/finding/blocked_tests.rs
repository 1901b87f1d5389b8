//! Tests of threads that polled and do so no more, each with two samples that show one.

use super::*;
use crate::finding::{LintRules, evaluate};
use crate::missed::MissedCause;
use crate::model::ModelTracker;
use crate::sample::Sample;
use crate::sample::tests::{empty_sample, port};

const SECOND: u64 = 1_000_000_000;

/// Returns a sample with a thread of an lcore that polled for most of 100 s, and sleeps.
fn at(second: u64, channel: &str, [received, missed]: [u64; 2]) -> Sample {
    let mut sample = empty_sample();
    sample.monotonic_ns = second * SECOND;
    sample.app.start_realtime_ns = sample.realtime_ns - 100 * SECOND;
    sample.ports = vec![port(0, received)];
    sample.ports[0].stats.rx_missed = missed;
    sample.ports[0].link_up = Some(true);
    sample.ports[0].rx_queues = 1;
    sample.threads = vec![ThreadSample {
        lcore: 1,
        tid: 42,
        name: "rte-worker-1".to_owned(),
        read_ns: sample.monotonic_ns + 1,
        age_ns: (90 + second) * SECOND,
        run_ns: Some(80 * SECOND),
        run_delay_ns: Some(0),
        asleep: true,
        state: Some('S'),
        wait_channel: Some(channel.to_owned()),
        ..ThreadSample::default()
    }];
    sample
}

fn found(samples: [Sample; 2]) -> Vec<Finding> {
    let mut tracker = ModelTracker::default();
    let model = samples.map(|sample| tracker.update(sample)).into_iter().last().unwrap();
    evaluate(&model, &LintRules::default())
}

fn two(channel: &str, counts: [[u64; 2]; 2]) -> Vec<Finding> {
    found([at(1, channel, counts[0]), at(3, channel, counts[1])])
}

#[test]
fn a_thread_in_a_lock_is_named_with_its_state_and_the_port() {
    let findings = two("futex_wait_queue", [[1_000_000, 0], [1_000_000, 8000]]);
    let lints: Vec<_> = findings.iter().map(|finding| (finding.lint, finding.severity)).collect();
    let critical = Severity::Critical;
    assert_eq!(lints, [(Lint::NoPolling, critical), (Lint::RxMissed, critical)], "{findings:?}");
    assert_eq!(
        findings[0].evidence,
        "lcore 1 (rte-worker-1, thread 42) has not run for at least 2.0 s: it waits for a lock or another \
         thread (state S, futex_wait_queue); it polled before; port 0 (net_null0) delivers nothing and \
         misses 4000.0 packets/s"
    );
    assert!(findings[0].advice.contains("who holds the lock"), "{}", findings[0].advice);
    let cause = &findings[1].causes[0];
    assert_eq!((cause.cause, cause.share), (MissedCause::NotPolled, Some(1.0)));
    assert!(cause.evidence.contains("nobody polls port 0 (net_null0)"), "{}", cause.evidence);
    assert!(cause.evidence.contains("futex_wait_queue"), "{}", cause.evidence);
}

#[test]
fn a_flat_port_is_a_consequence_of_a_thread_that_waits() {
    let flat = two("hrtimer_nanosleep", [[9_000_000, 0], [9_000_000, 0]]);
    let [finding] = &flat[..] else { panic!("{flat:?}") };
    assert_eq!((finding.lint, finding.severity), (Lint::NoPolling, Severity::Warning));
    assert!(finding.evidence.contains("; port 0 (net_null0) delivers nothing"), "{finding:?}");
}

#[test]
fn a_loop_that_waits_for_packets_is_no_finding() {
    let idle = |channel| two(channel, [[0, 0], [0, 0]]);
    assert_eq!(idle("do_epoll_wait"), []);
    assert_eq!(idle("hrtimer_nanosleep"), []);
    assert_eq!(idle("pipe_read")[0].severity, Severity::Info, "its function has returned");
    assert_eq!(idle("futex_wait_queue")[0].severity, Severity::Warning);
}

#[test]
fn a_thread_that_never_polled_or_still_runs_is_no_finding() {
    let [mut before, mut now] = [1, 3].map(|second| at(second, "futex_wait_queue", [0, 0]));
    for sample in [&mut before, &mut now] {
        sample.threads[0].run_ns = Some(SECOND / 1000);
    }
    assert_eq!(found([before, now]), []);
    let mut runs = at(3, "futex_wait_queue", [0, 0]);
    runs.threads[0].voluntary_switches += 1;
    assert_eq!(found([at(1, "futex_wait_queue", [0, 0]), runs]), []);
}

/// A sample of a port with four receive queues, which the driver counts, of an app whose threads are not known.
fn queues(second: u64, packets: [u64; 4], missed: u64) -> Sample {
    let mut sample = at(second, "futex_wait_queue", [packets.iter().sum(), missed]);
    sample.threads.clear();
    sample.ports[0].rx_queues = 4;
    let names = (0..4).map(|queue| format!("rx_q{queue}_packets"));
    sample.ports[0].xstats = names.zip(packets).collect();
    sample
}

#[test]
fn the_queue_that_nobody_polls_is_named() {
    let findings = found([
        queues(1, [9000, 9000, 9000, 512], 0),
        queues(3, [19_000, 19_000, 19_000, 512], 9000),
    ]);
    let missed = findings.iter().find(|finding| finding.lint == Lint::RxMissed).unwrap();
    assert_eq!(missed.causes[0].cause, MissedCause::NotPolled, "{missed:?}");
    let told = &missed.causes[0].evidence;
    assert!(told.starts_with("nobody polls queue 3 of port 0 (net_null0): no packet"), "{told}");
    assert!(told.ends_with("not visible from here"), "{told}");
    let mut stopped =
        [queues(1, [9000, 9000, 9000, 512], 0), queues(3, [19_000, 19_000, 19_000, 512], 9000)];
    stopped[1].ports[0].rx_queues_stopped = vec![3];
    let missed = found(stopped).into_iter().find(|finding| finding.lint == Lint::RxMissed).unwrap();
    assert!(missed.causes[0].evidence.contains("; not started: queue 3"), "{missed:?}");
    assert!(missed.advice.contains("rte_eth_dev_rx_queue_start"), "{missed:?}");
}

#[test]
fn queues_that_rss_gives_nothing_are_not_told_as_unpolled() {
    let findings = found([queues(1, [9000, 0, 0, 0], 0), queues(3, [900_000, 0, 0, 0], 9000)]);
    let missed = findings.iter().find(|finding| finding.lint == Lint::RxMissed).unwrap();
    assert!(missed.causes.iter().all(|cause| cause.cause != MissedCause::NotPolled), "{missed:?}");
}
