use insta::assert_snapshot;
use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};

use super::*;
use crate::netstat::fixture::{args, counters};

#[test]
fn counters_have_the_columns_of_netstat() {
    let data = ReportData { counters: Some(counters()), ..ReportData::default() };
    assert_snapshot!(text(&data, &ReportLayout::wide(&args("-i"))));
}

#[test]
fn what_was_not_told_is_marked() {
    let sample = PortSample { mtu: 1500, ..PortSample::default() };
    let interface = InterfaceRow::of("app", &sample);
    assert_eq!((interface.flags().as_str(), interface.tx_drp), ("M?R?", None));
    let down = PortSample { link_up: Some(false), promiscuous: Some(false), ..sample };
    assert_eq!(InterfaceRow::of("app", &down).flags(), "-");
}

#[test]
fn an_app_that_does_not_answer_is_told() {
    let mut now = FleetState::default();
    let (app, reason) = ("fwd".to_owned(), "timed out".to_owned());
    now.apply(FleetEvent::Lost { app, class: ErrorClass::Timeout, reason, finding: None });
    let counters = AppCounters { now, ..AppCounters::default() };
    let data = ReportData { counters: Some(counters), ..ReportData::default() };
    assert_eq!(text(&data, &ReportLayout::wide(&args("-i"))), "fwd: timed out\n");
}
