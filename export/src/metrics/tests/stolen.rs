//! Tests of metrics of stolen time.

use super::*;

#[test]
fn stolen_time_is_added_up_by_cause_and_known_or_absent() {
    let exported = ExportedMetrics::of_sample(fixture::linked(), &SeriesLimits::default());
    let number = |name: &str, labels: &str| match exported.0[name].get(labels) {
        Some(SampleValue::Number(number)) => Some(*number),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(exported.labels("dpdk_lcore_stolen_events_total"), ["fwd/1/ipi", "fwd/1/irq"]);
    assert_eq!(exported.count("dpdk_lcore_stolen_events_total", "fwd/1/irq"), Some(12));
    assert_eq!(exported.count("dpdk_lcore_stolen_events_total", "fwd/1/ipi"), Some(7));
    for name in ["dpdk_lcore_stolen_seconds_total", "dpdk_lcore_stolen_longest_seconds"] {
        assert_eq!(exported.labels(name), ["fwd/1/irq"], "{name}");
    }
    assert_eq!(number("dpdk_lcore_stolen_seconds_total", "fwd/1/irq"), Some(66e-6));
    assert_eq!(number("dpdk_lcore_stolen_longest_seconds", "fwd/1/irq"), Some(8e-6));
    assert_eq!(exported.count("dpdk_lcore_tracing_lost_events_total", "fwd"), Some(3));
    assert_eq!(number("dpdk_lcore_tracing_overhead_seconds_total", "fwd"), Some(0.0015));
    let info = "fwd/bpf/softirq: no tracepoint";
    assert_eq!(exported.labels("dpdk_lcore_tracing_info"), [info]);
}

#[test]
fn without_a_tracer_nothing_is_said_of_stolen_time() {
    let sample = Sample { tracing: None, ..fixture::linked() };
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    let told = |name: &&String| name.contains("stolen") || name.contains("tracing");
    assert_eq!(exported.0.keys().filter(told).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn counters_of_stolen_time_never_go_back_while_a_tracer_lives() {
    let of = |thieves: Vec<StolenSample>| {
        let tracing = Some(pmdscope_telemetry::fixture::tracing(&[1], thieves));
        let sample = Sample { tracing, ..fixture::linked() };
        let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
        exported.count("dpdk_lcore_stolen_events_total", "fwd/1/irq")
    };
    let irq = |thief: &str, count| {
        pmdscope_telemetry::fixture::stolen(
            1,
            StolenCause::Irq,
            thief,
            count,
            Some(count.saturating_mul(9)),
        )
    };
    assert_eq!(of(vec![irq("24 eth0", 10), irq("25 nvme0q1", 2)]), Some(12));
    assert_eq!(of(vec![irq("other", 12)]), Some(12), "thieves were merged");
    assert_eq!(of(vec![irq("a", u64::MAX), irq("b", 5)]), Some(u64::MAX), "and not overflowed");
}
