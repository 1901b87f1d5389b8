//! Tests of metrics of queues.

use pmdscope_telemetry::sample::Xstats;

use super::*;

#[test]
fn queues_of_a_stock_app_come_from_driver_counters() {
    let exported = ExportedMetrics::of_sample(fixture::stock("fwd"), &SeriesLimits::default());
    let queue = "fwd/0000:03:00.0/0";
    assert_eq!(exported.count("dpdk_queue_receive_packets_total", queue), Some(1000));
    assert_eq!(exported.count("dpdk_queue_receive_errors_total", queue), Some(1002));
    assert_eq!(exported.count("dpdk_queue_transmit_bytes_total", queue), Some(1004));
    assert_eq!(exported.count("dpdk_queue_stats_truncated", "fwd/0000:03:00.0"), Some(0));
    assert_eq!(exported.labels("dpdk_port_xstat"), ["fwd/0000:03:00.0/rx_missed_errors"]);
}

#[test]
fn descriptors_that_a_stock_app_told_are_exported() {
    let exported = |rx_descriptors: &[Option<u64>]| {
        let mut sample = fixture::stock("fwd");
        sample.ports[0].rx_descriptors = rx_descriptors.to_vec();
        let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
        [0, 1].map(|queue| {
            let queue = format!("fwd/0000:03:00.0/{queue}");
            exported.count("dpdk_queue_receive_descriptors", &queue)
        })
    };
    assert_eq!(exported(&[]), [None, None]);
    assert_eq!(exported(&[None, Some(512)]), [None, Some(512)]);
}

#[test]
fn a_driver_that_counts_no_bytes_of_queues_has_none() {
    let mut sample = fixture::stock("fwd");
    sample.ports[0].xstats.extend([("rx_q0_bytes".to_owned(), 0)]);
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    assert_eq!(exported.labels("dpdk_queue_receive_bytes_total"), Vec::<&str>::new());
}

#[test]
fn counters_of_a_linked_app_never_change_their_source() {
    let queue = "fwd/0000:03:00.0/0";
    let mut sample = fixture::linked();
    let exported = ExportedMetrics::of_sample(sample.clone(), &SeriesLimits::default());
    assert_eq!(exported.count("dpdk_queue_receive_packets_total", queue), Some(31));
    assert_eq!(exported.count("dpdk_queue_receive_errors_total", queue), Some(1002));
    (sample.queues, sample.library) = (Vec::new(), None);
    sample.partial = vec!["/pmdscope: timed out".to_owned()];
    let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
    assert_eq!(exported.count("dpdk_queue_receive_packets_total", queue), None);
    assert_eq!(exported.count("dpdk_queue_stats_truncated", "fwd/0000:03:00.0"), Some(1));
}

#[test]
fn what_the_nic_refuses_is_not_sent() {
    let queue = "fwd/0000:03:00.0/0";
    let at = |seconds: u64| {
        let mut sample = fixture::linked();
        sample.monotonic_ns += seconds * 1_000_000_000;
        sample.queues[1].packets = 21_000_000 * seconds;
        sample.ports[0].xstats.extend([("tx_q0_packets".to_owned(), 100_000 * seconds)]);
        sample
    };
    let exported = ExportedMetrics::of_samples((1..=7).map(at), &SeriesLimits::default());
    assert_eq!(exported.count("dpdk_queue_transmit_packets_total", queue), Some(700_000));
    assert_eq!(exported.count("dpdk_queue_transmit_bytes_total", queue), Some(1004));
    let offered = exported.count("dpdk_queue_transmit_offered_packets_total", queue);
    assert_eq!(offered, Some(147_000_000));
    let refused = exported.count("dpdk_queue_transmit_refused_packets_total", queue);
    assert_eq!(refused, Some(6 * 20_900_000));
    let mut unknown = at(7);
    unknown.ports[0].tx_queues = 2;
    unknown.ports[0].xstats.extend([("tx_q0_packets".to_owned(), 0)]);
    let exported = ExportedMetrics::of_sample(unknown, &SeriesLimits::default());
    for name in ["packets", "bytes", "refused_packets"] {
        let name = format!("dpdk_queue_transmit_{name}_total");
        assert_eq!(exported.labels(&name), Vec::<&str>::new(), "{name}");
    }
    let offered = exported.count("dpdk_queue_transmit_offered_packets_total", queue);
    assert_eq!(offered, Some(147_000_000));
}

#[test]
fn missing_queues_are_reported() {
    let truncated = |change: fn(&mut PortSample)| {
        let mut sample = fixture::stock("fwd");
        change(&mut sample.ports[0]);
        let exported = ExportedMetrics::of_sample(sample, &SeriesLimits::default());
        exported.count("dpdk_queue_stats_truncated", "fwd/0000:03:00.0")
    };
    assert_eq!(truncated(|_| ()), Some(0));
    assert_eq!(truncated(|port| port.rx_queues = 2), Some(1));
    assert_eq!(truncated(|port| port.tx_queues = 64), Some(1));
    assert_eq!(truncated(|port| port.xstats_truncated = true), Some(1));
    assert_eq!(truncated(|port| port.xstats = Xstats::default()), Some(1));
}
