//! Reports as printed.

use insta::assert_snapshot;

use super::*;
use crate::fixture;
use pmdscope_telemetry::error::ErrorClass;
use pmdscope_telemetry::world::Event;

#[test]
fn all_pages_as_text_without_escape_codes() {
    let text = text(&fixture::world(), &fixture::view());
    assert!(!text.contains('\x1b'));
    assert_snapshot!(text);
}

#[test]
fn ascii_stays_ascii() {
    let mut view = fixture::view();
    view.theme = Theme { mono: true, ascii: true };
    assert!(text(&fixture::world(), &view).is_ascii());
}

#[test]
fn nothing_found_says_what_to_do() {
    let mut world = World::default();
    world.apply(Event::NoApps { advice: "no DPDK app found".to_owned() });
    assert_eq!(text(&world, &fixture::view()), "no DPDK app found\n");
}

#[test]
fn json_has_schema_state_model_and_findings() {
    let mut world = fixture::world();
    world.apply(Event::Lost {
        class: ErrorClass::Timeout,
        app: "testpmd".to_owned(),
        reason: "gone".to_owned(),
        finding: None,
    });
    let json = serde_json::to_value(Document::of(&world)).unwrap();
    assert_eq!(json["schema"], 1);
    let [reflector, testpmd] = [&json["apps"][0], &json["apps"][1]];
    assert_eq!(reflector["app"], "reflector");
    assert_eq!(reflector["state"], "live");
    assert_eq!(reflector["model"]["ports"][0]["rx_pps"], 14_200_000.0);
    assert_eq!(reflector["findings"][1]["severity"], "critical");
    assert_eq!((&testpmd["state"], &testpmd["reason"]), (&"lost".into(), &"gone".into()));
    assert!(testpmd["model"]["ports"][0]["rx_pps"].is_null());
}
