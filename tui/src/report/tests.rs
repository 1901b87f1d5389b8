//! Reports as printed.

use insta::assert_snapshot;

use super::*;
use crate::fixture;
use crate::flows::ShownFlows;
use pmdscope_render::{Subject, Theme};
use pmdscope_telemetry::fixture::filtered_interface;
use pmdscope_telemetry::{ErrorClass, FleetEvent, InterfaceEvaluator, Thresholds};

#[test]
fn all_pages_as_text_without_escape_codes() {
    let view = ViewState { trends: None, ..fixture::view() };
    let text = text(&fixture::fleet(), &view);
    assert!(!text.contains('\x1b'));
    assert_snapshot!(text);
}

#[test]
fn conversations_are_printed_only_where_packets_were_captured() {
    let mut view = fixture::view();
    view.flows = ShownFlows::default();
    let text = text(&fixture::fleet(), &view);
    assert!(text.contains("Lcores") && !text.contains("Conversations"), "{text}");
}

#[test]
fn ascii_stays_ascii() {
    let mut view = fixture::view();
    view.theme = Theme::ASCII;
    assert!(text(&fixture::fleet(), &view).is_ascii());
}

#[test]
fn no_apps_says_what_to_do() {
    let mut fleet = FleetState::default();
    fleet.apply(FleetEvent::NoApps { advice: "no DPDK app found".to_owned() });
    assert_eq!(text(&fleet, &fixture::view()), "no DPDK app found\n");
}

#[test]
fn json_has_schema_state_model_and_findings() {
    let mut fleet = fixture::fleet();
    fleet.apply(FleetEvent::Lost {
        class: ErrorClass::Timeout,
        app: "testpmd".to_owned(),
        reason: "gone".to_owned(),
        finding: None,
    });
    let json = serde_json::to_value(TopDocument::of(&fleet, None)).unwrap();
    assert_eq!(json["schema"], 1);
    let [reflector, testpmd] = [&json["apps"][0], &json["apps"][1]];
    assert_eq!(reflector["app"], "reflector");
    assert_eq!(reflector["state"], "live");
    assert_eq!(reflector["model"]["ports"][0]["rx_pps"], 14_200_000.0);
    assert_eq!(reflector["findings"][1]["severity"], "critical");
    assert_eq!((&testpmd["state"], &testpmd["reason"]), (&"lost".into(), &"gone".into()));
    assert!(testpmd["model"]["ports"][0]["rx_pps"].is_null());
    assert!(json.get("flows").is_none());
}

#[test]
fn json_has_conversations_and_their_source() {
    let (fleet, traffic) = (fixture::fleet(), fixture::flows::both());
    let json = serde_json::to_value(TopDocument::of(&fleet, Some(&*traffic))).unwrap();
    let [reflector, testpmd] = [&json["flows"][0], &json["flows"][1]];
    assert_eq!((&reflector["app"], &reflector["capture"]), (&"reflector".into(), &"armed".into()));
    assert!(reflector["via"].is_null());
    assert_eq!(reflector["counted"]["flows"][1]["remote"]["port"], 50_123);
    assert_eq!(reflector["counted"]["interval_s"], 1.0);
    assert_eq!(testpmd["capture"], "offered");
}

/// The tables about interfaces of a report.
fn about_interfaces(fleet: &FleetState) -> String {
    let text = text(fleet, &fixture::view());
    let sections = text.split("\n\n").filter(|part| part.trim_start().starts_with("Interface"));
    sections.collect::<Vec<_>>().join("\n\n")
}

#[test]
fn interfaces_are_shown_beside_ports() {
    let fleet = fixture::fleet_with_interfaces();
    assert_snapshot!("interfaces", about_interfaces(&fleet));
    assert!(text(&fleet, &fixture::view()).starts_with("pmdscope: 2 apps, 2 interfaces\n"));
    assert_eq!(about_interfaces(&fixture::fleet()), "");
    let json = serde_json::to_value(TopDocument::of(&fleet, None)).unwrap();
    let [eth0, eth1] = [&json["interfaces"][0], &json["interfaces"][1]];
    assert_eq!((&eth0["name"], &eth0["rates"]["filtered_pps"]), (&"eth0".into(), &9000.0.into()));
    assert_eq!(eth0["findings"][0]["lint"], "flood");
    assert_eq!(eth0["rates"]["filter"]["sources"][0]["address"], "10.0.0.7");
    assert_eq!(eth1["rates"]["kernel_pps"], 1000.0);
    assert_eq!(eth1["bypass"]["app"], "reflector");
    let json = serde_json::to_value(TopDocument::of(&fixture::fleet(), None)).unwrap();
    assert!(json.get("interfaces").is_none() && json.get("interfaces_error").is_none());
}

#[test]
fn a_host_without_apps_shows_its_interfaces_and_why_they_cannot_be_read() {
    let mut fleet = FleetState::default();
    let mut evaluator = InterfaceEvaluator::new(Thresholds::default());
    fleet.apply(evaluator.event(Ok(vec![filtered_interface(1)]), 1));
    assert!(about_interfaces(&fleet).contains("eth0"));
    fleet.apply(evaluator.event(Err("cannot read eth0: run as root".to_owned()), 2));
    let told = about_interfaces(&fleet);
    assert!(told.contains("not known: cannot read eth0: run as root"), "{told}");
    assert!(!told.contains("Driver"), "{told}");
}

#[test]
fn details_of_an_interface_have_its_verdicts_and_top_sources() {
    let fleet = fixture::fleet_with_interfaces();
    let details = |interface: &str| {
        let subject = Subject::Interface { interface: interface.to_owned(), queue: None };
        let lines = crate::detail::lines(&subject, &fixture::view(), &fleet);
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n"
    };
    assert_snapshot!("interface_details", details("eth0") + "\n" + &details("eth1"));
    assert_eq!(details("eth2"), "no longer exists\n");
}
