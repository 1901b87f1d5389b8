//! Tests of metrics of interfaces.

use super::*;

#[test]
fn interfaces_belong_to_the_host_and_not_to_an_app() {
    let (limits, expected) = (SeriesLimits::default(), fixture::expected());
    let context = fixture::context(&limits, &expected);
    let viewed = |only: Option<&str>, fleet: &FleetState| {
        let context = MetricsContext { only, ..context };
        let exported = ExportedMetrics::viewed(fleet, &context);
        let told = |name: &&String| name.contains("_interface") || name.contains("_xdp_");
        (exported.0.keys().filter(told).count(), exported)
    };
    let fleet = fixture::fleet();
    assert_eq!(viewed(Some("old"), &fleet).0, 0);
    assert_eq!(viewed(None, &FleetState::default()).0, 0, "without interfaces nothing is told");
    assert_eq!(viewed(Some(""), &fleet).0, 13);
    let (of_all, exported) = viewed(None, &fleet);
    assert_eq!(of_all, 13);
    let count = |name: &str, labels: &str| exported.count(name, labels);
    assert_eq!(count("dpdk_xdp_filter_packets_total", "eth0/rate_limit"), Some(16_000));
    let reasons = exported.labels("dpdk_xdp_filter_packets_total");
    assert_eq!(reasons, ["eth0/malformed", "eth0/passed", "eth0/rate_limit"]);
    assert_eq!(count("dpdk_interface_queue_redirected_packets_total", "eth1/1"), Some(6000));
    assert_eq!(count("dpdk_interface_unhealthy_reason", "eth0/flood"), Some(1));
    assert_eq!(count("dpdk_interface_unhealthy_reason", "eth1/flood"), Some(0));
    assert_eq!(exported.labels("dpdk_interface_bypass_info"), ["eth1/1/dns//udp/53"]);
    let of_apps = exported.labels("dpdk_app_unhealthy_reason");
    assert!(of_apps.iter().all(|labels| !labels.ends_with("/flood")), "{of_apps:?}");
    let text = format!("{exported:?}");
    assert!(!text.contains("10.0.0.7"), "a label for each source would be too many series");
}

#[test]
fn a_bypass_is_joined_to_the_port_by_its_device() {
    let mut split = pmdscope_telemetry::fixture::split_interface(1);
    split.bypass.as_mut().unwrap().app = Some("fwd".to_owned());
    let mut fleet = fixture::fleet_of(fixture::stock("fwd"));
    let mut evaluator = InterfaceEvaluator::new(LintRules::default().thresholds);
    fleet.apply(evaluator.event(Ok(vec![split]), 1));
    let exported = ExportedMetrics::of(&fleet, &SeriesLimits::default());
    assert_eq!(exported.labels("dpdk_interface_bypass_info"), ["eth1/1/fwd/0000:03:00.0/udp/53"]);
}

#[test]
fn interfaces_that_cannot_be_read_have_no_values() {
    let mut fleet = fixture::fleet();
    let mut evaluator = InterfaceEvaluator::new(LintRules::default().thresholds);
    fleet.apply(evaluator.event(Err("no permission".to_owned()), 1));
    let exported = ExportedMetrics::of(&fleet, &SeriesLimits::default());
    assert_eq!(exported.count("dpdk_interfaces_readable", ""), Some(0));
    assert!(exported.labels("dpdk_interface_receive_packets_total").is_empty());
}
