//! Tests of the metrics about whether apps are up and healthy.

use pmdscope_telemetry::ErrorClass;
use pmdscope_telemetry::finding::Lint;

use super::*;

#[test]
fn an_app_that_does_not_answer_has_no_live_numbers() {
    let exported = ExportedMetrics::of(&fixture::fleet(), &fixture::limits());
    let told_of = |app: &str| -> BTreeSet<&str> {
        let begins = |labels: &String| labels.split('/').next() == Some(app);
        let told = exported.0.iter().filter(|(_, samples)| samples.keys().any(begins));
        told.map(|(name, _)| name.as_str()).collect()
    };
    let of_all =
        ["dpdk_app_healthy", "dpdk_app_unhealthy_reason", "dpdk_collect_errors_total", "dpdk_up"];
    let of_ended = [
        "dpdk_app_container_info",
        "dpdk_app_expected_ports",
        "dpdk_app_info",
        "dpdk_app_last_seen_timestamp_seconds",
        "dpdk_app_start_since_boot_seconds",
        "dpdk_app_start_timestamp_seconds",
    ];
    assert_eq!(told_of("ended"), of_all.into_iter().chain(of_ended).collect());
    assert_eq!(told_of("mute"), of_all.into_iter().chain(["dpdk_app_telemetry_enabled"]).collect());
    assert_eq!(told_of("missing"), of_all.into_iter().chain(["dpdk_app_expected_ports"]).collect());
    assert_eq!(exported.count("dpdk_up", "ended"), Some(0));
    assert_eq!(exported.count("dpdk_app_healthy", "ended"), Some(0));
    assert_eq!(exported.count("dpdk_app_unhealthy_reason", "ended/unreachable"), Some(1));
    assert_eq!(exported.count("dpdk_app_expected_ports", "missing"), Some(2));
    assert_eq!(exported.count("dpdk_apps_discovered", ""), Some(4));
}

#[test]
fn an_expected_app_that_ended_was_found_though_it_is_missing() {
    let mut fleet = fixture::fleet();
    fleet.apply(FleetEvent::Lost {
        app: "fwd".to_owned(),
        class: ErrorClass::Missing,
        reason: "is expected, and does not run".to_owned(),
        finding: Some(finding::evaluate_missing("fwd")),
    });
    let exported = ExportedMetrics::of(&fleet, &fixture::limits());
    assert_eq!(exported.count("dpdk_app_unhealthy_reason", "fwd/app_missing"), Some(1));
    assert_eq!(exported.count("dpdk_apps_discovered", ""), Some(4));
}

#[test]
fn an_app_that_was_just_found_is_neither_up_nor_down() {
    let mut fleet = FleetState::default();
    fleet.apply(FleetEvent::Found { app: "new".to_owned() });
    let exported = ExportedMetrics::of(&fleet, &SeriesLimits::default());
    assert_eq!(exported.labels("dpdk_up"), Vec::<&str>::new());
    assert_eq!(exported.labels("dpdk_app_healthy"), Vec::<&str>::new());
    assert_eq!(exported.count("dpdk_collect_errors_total", "new/timeout"), Some(0));
}

#[test]
fn what_is_tolerated_is_a_reason_but_healthy() {
    let mut fleet = fixture::fleet_of(fixture::linked());
    for finding in &mut fleet.apps[0].findings {
        finding.lint = Lint::Stall;
    }
    let tolerate = [Lint::Stall];
    let (limits, expected) = (SeriesLimits::default(), AppInventory::default());
    let context = MetricsContext { tolerate: &tolerate, ..fixture::context(&limits, &expected) };
    let exported = ExportedMetrics::viewed(&fleet, &context);
    assert_eq!(exported.count("dpdk_app_healthy", "fwd"), Some(1));
    assert_eq!(exported.count("dpdk_app_unhealthy_reason", "fwd/stall"), Some(1));
}
