//! Reports as printed.

use insta::assert_snapshot;

use super::*;
use crate::fixture;
use crate::flows::ShownFlows;
use pmdscope_render::Theme;
use pmdscope_telemetry::{ErrorClass, FleetEvent};

#[test]
fn all_pages_as_text_without_escape_codes() {
    let text = text(&fixture::fleet(), &fixture::view());
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
    view.theme = Theme { mono: true, ascii: true };
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
