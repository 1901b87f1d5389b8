//! Tests of limits on series.

use super::*;

#[test]
fn nothing_is_suppressed_by_default() {
    let exported = ExportedMetrics::of_sample(fixture::linked(), &SeriesLimits::default());
    for kind in ["captures", "duplicate", "queues", "sites", "stages", "xstats"] {
        assert_eq!(exported.suppressed(kind), Some(0), "{kind}");
    }
}

#[test]
fn extended_counters_are_bounded_by_name() {
    let mut sample = fixture::linked();
    let names = (0..50).map(|i| (format!("rx_drop_{i:02}"), i));
    sample.ports[0].xstats = names.collect();
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    assert_eq!(exported.labels("dpdk_port_xstat").len(), 40);
    assert_eq!(exported.count("dpdk_port_xstat", "fwd/0000:03:00.0/rx_drop_00"), Some(0));
    assert_eq!(exported.count("dpdk_port_xstat", "fwd/0000:03:00.0/rx_drop_40"), None);
    assert_eq!(exported.suppressed("xstats"), Some(10));
}

#[test]
fn queues_are_bounded_by_number() {
    let mut sample = fixture::linked();
    let both = [QueueDirection::Rx, QueueDirection::Tx];
    let queues = both.into_iter().flat_map(|d| (0..12).map(move |i| fixture::queue(0, i, d)));
    sample.queues = queues.collect();
    let limits = SeriesLimits { queues_per_port: 10, ..SeriesLimits::default() };
    let exported = ExportedMetrics::of_sample(sample, &limits);
    let told = exported.labels("dpdk_queue_receive_packets_total");
    assert_eq!(told.len(), 10);
    assert!(told.contains(&"fwd/0000:03:00.0/9"));
    assert_eq!(exported.suppressed("queues"), Some(4));
    assert_eq!(exported.count("dpdk_queue_stats_truncated", "fwd/0000:03:00.0"), Some(0));
}

#[test]
fn sites_are_bounded_by_loss_and_the_rest_is_summed_up() {
    let mut sample = fixture::linked();
    sample.sites = (1..=5).map(|i| fixture::site(&format!("s{i}"), i)).collect();
    // Another kind of loss at the same line, a site with the name of the sum, and two without losses.
    sample.sites.extend([
        SiteSample { kind: SiteKind::TxLost, ..fixture::site("s5", 10) },
        SiteSample { function: String::new(), ..fixture::site("other", 7) },
        fixture::site("zero", 0),
        SiteSample { kind: SiteKind::DoubleFree, ..fixture::site("s9", 99) },
    ]);
    let exported = ExportedMetrics::of_sample(
        sample,
        &SeriesLimits { sites_per_pool: 2, ..SeriesLimits::default() },
    );
    let name = "dpdk_mbuf_leak_site_mbufs";
    assert_eq!(exported.labels(name).len(), 3);
    assert_eq!(exported.count(name, "fwd/mb_pool_0/s5 forward()"), Some(15));
    assert_eq!(exported.count(name, "fwd/mb_pool_0/s4 forward()"), Some(4));
    assert_eq!(exported.count(name, "fwd/mb_pool_0/other"), Some(1 + 2 + 3 + 7));
    assert_eq!(exported.suppressed("sites"), Some(3));
}

#[test]
fn stages_are_bounded_by_what_they_hold() {
    let mut sample = fixture::linked();
    let stage = |(name, held): (&str, u64)| StageSample {
        stage: name.to_owned(),
        held,
        ..StageSample::default()
    };
    sample.stages = [("a", 1), ("b", 9), ("c", 9), ("d", 2)].map(stage).to_vec();
    let exported = ExportedMetrics::of_sample(
        sample,
        &SeriesLimits { sites_per_pool: 2, ..SeriesLimits::default() },
    );
    assert_eq!(exported.labels("dpdk_stage_held_mbufs"), ["fwd/b", "fwd/c"]);
    assert_eq!(exported.suppressed("stages"), Some(2));
}

#[test]
fn captures_are_bounded_and_the_oldest_stay() {
    let mut sample = fixture::linked();
    sample.tee = (1..=4).flat_map(|id| [fixture::tee(id, 1), fixture::tee(id, 2)]).collect();
    let exported = ExportedMetrics::of_sample(
        sample,
        &SeriesLimits { captures: 3, ..SeriesLimits::default() },
    );
    let told = exported.labels("dpdk_capture_packets_total");
    assert_eq!(told, ["fwd/1/1", "fwd/1/2", "fwd/2/1", "fwd/2/2", "fwd/3/1", "fwd/3/2"]);
    assert_eq!(exported.suppressed("captures"), Some(1));
    assert_eq!(exported.count("dpdk_capture_sessions", "fwd"), Some(4));
}

#[test]
fn histograms_of_queues_are_optional() {
    let exported = ExportedMetrics::of_sample(fixture::linked(), &SeriesLimits::default());
    assert_eq!(exported.labels("dpdk_queue_burst_packets"), Vec::<&str>::new());
    let mut sample = fixture::linked();
    sample.queues[0].depth = None;
    let exported = ExportedMetrics::of_sample(sample, &fixture::limits());
    assert_eq!(exported.labels("dpdk_queue_burst_packets"), ["fwd/0000:03:00.0/0"]);
    // Depths that the driver cannot report are zeros in the table.
    assert_eq!(exported.labels("dpdk_queue_receive_depth"), Vec::<&str>::new());
}
