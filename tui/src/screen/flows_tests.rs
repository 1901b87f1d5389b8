//! Tests of the Flows page as users see it.

use insta::assert_snapshot;
use pmdscope_flows::{Flow, FlowSnapshot};
use pmdscope_render::Theme;

use super::tests::text;
use super::*;
use crate::action::{Action, SelectionMotion};
use crate::clock::NS_PER_SECOND;
use crate::fixture;
use crate::fixture::flows::{counted, sampled, traffic};
use crate::flows::{CaptureAccess, CapturedTraffic, ShownFlows, ShownTime};
use crate::timeline::time_bar::{TimeBar, TimeBarKind};
use crate::update::update;
use std::sync::Arc;

const ARMED: CaptureAccess = CaptureAccess::Armed { via: None };

fn showing(traffic: Arc<CapturedTraffic>) -> ViewState {
    let mut view = ViewState { tab: PageTab::Flows, ..fixture::view() };
    view.follow(Some(traffic));
    view
}

fn refused() -> CaptureAccess {
    let reason = "fwd runs without libpmdscope, and pmdscope-pdump cannot attach: it was started with \
                  --in-memory; start it without";
    CaptureAccess::Refused { reason: reason.to_owned() }
}

#[test]
fn an_app_that_is_sampled() {
    let fleet = fixture::fleet_of(fixture::leaking(), Vec::new());
    let mut view = showing(traffic([("reflector", ARMED, sampled())]));
    for (width, height) in [(60, 20), (80, 24), (120, 24), (200, 24)] {
        assert_snapshot!(format!("flows_sampled_{width}"), text(width, height, &view, &fleet));
    }
    view.theme = Theme::ASCII;
    let ascii = text(120, 24, &view, &fleet);
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn apps_by_all_ways() {
    let fleet = fixture::fleet();
    let offered = ("testpmd", CaptureAccess::Offered, FlowSnapshot::default());
    let page = showing(traffic([
        ("fwd", refused(), FlowSnapshot::default()),
        ("ovs", CaptureAccess::Armed { via: Some("pdump") }, sampled()),
        ("reflector", CaptureAccess::Ended, counted()),
        ("router", CaptureAccess::Opening, FlowSnapshot::default()),
        offered,
    ]));
    for (width, height) in [(80, 36), (160, 40)] {
        assert_snapshot!(format!("flows_of_apps_{width}"), text(width, height, &page, &fleet));
    }
}

#[test]
fn a_page_without_conversations_says_why() {
    let fleet = fixture::fleet();
    let offered = ("testpmd", CaptureAccess::Offered, FlowSnapshot::default());
    let nobody = showing(traffic([]));
    let no_helper = showing(traffic([offered]));
    let none = showing(traffic([("fwd", refused(), FlowSnapshot::default())]));
    let idle = FlowSnapshot { flows: Vec::new(), queues: Vec::new(), ..FlowSnapshot::default() };
    let silent =
        showing(traffic([("reflector", ARMED, FlowSnapshot { begin_ns: 1, sample: 1, ..idle })]));
    let recording = ViewState { flows: ShownFlows::default(), ..nobody.clone() };
    let mut past = nobody.clone();
    past.flows.moment = ShownTime::Past;
    let views = [nobody, no_helper, none, silent, recording, past];
    let pages = views.map(|view| text(80, 16, &view, &fleet));
    assert_snapshot!(pages.join("----\n"));
}

#[test]
fn details_of_what_is_sampled() {
    let fleet = fixture::fleet_of(fixture::leaking(), Vec::new());
    let mut view = showing(traffic([("reflector", ARMED, sampled())]));
    update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
    update(&mut view, Action::Open, &fleet);
    assert_snapshot!("flows_detail_sampled", text(80, 50, &view, &fleet));
    update(&mut view, Action::Back, &fleet);
    update(&mut view, Action::Move(SelectionMotion::Down), &fleet);
    update(&mut view, Action::Open, &fleet);
    assert_snapshot!("flows_detail_conversation", text(80, 30, &view, &fleet));
    view.follow(Some(traffic([("reflector", CaptureAccess::Ended, FlowSnapshot::default())])));
    assert!(text(80, 30, &view, &fleet).contains("no longer exists"));
}

fn held(ago_ns: u64, view: &ViewState) -> TimeBar {
    let at = view.flows.traffic.as_ref().unwrap().realtime_ns;
    TimeBar {
        at: 90 * NS_PER_SECOND,
        realtime_ns: at - ago_ns,
        span: crate::timeline::TimeSpan { oldest: 0, newest: 100 * NS_PER_SECOND },
        marks: Vec::new(),
        place: TimeBarKind::Past { ago_ns },
        remark: None,
    }
}

#[test]
fn held_conversations_stay_and_are_not_the_past() {
    let fleet = fixture::fleet_of(fixture::leaking(), Vec::new());
    let mut view = showing(traffic([("reflector", ARMED, sampled())]));
    view.time_bar = Some(held(NS_PER_SECOND, &view));
    view.follow(Some(traffic([])));
    let screen = text(80, 24, &view, &fleet);
    assert!(screen.contains("paused at 03:04:05, capture armed, 1 in 64"), "{screen}");
    assert!(screen.contains("198.51.100.7:50123"), "{screen}");
    view.time_bar = Some(held(60 * NS_PER_SECOND, &view));
    view.follow(Some(traffic([])));
    let screen = text(80, 24, &view, &fleet);
    assert!(screen.contains("of the past are not kept"), "{screen}");
    assert!(!view.request(&fleet, &crate::flows::FlowRequest::default()).shown);
    view.time_bar = Some(held(NS_PER_SECOND, &view));
    view.follow(Some(traffic([])));
    assert!(text(80, 24, &view, &fleet).contains("198.51.100.7:50123"));
    view.time_bar = None;
    view.follow(Some(traffic([])));
    assert!(!text(80, 24, &view, &fleet).contains("198.51.100.7:50123"));
}

#[test]
fn the_largest_conversations_are_shown_and_a_filter_finds_the_others() {
    let fleet = fixture::fleet_of(fixture::leaking(), Vec::new());
    let mut counted = counted();
    let first = counted.flows[1].clone();
    counted.flows = (1..=4_000_u16)
        .map(|port| {
            let mut flow = Flow { app: 0, ..first.clone() };
            flow.remote.port = port;
            flow.recent_rx.packets = port.into();
            flow
        })
        .collect();
    let mut view = showing(traffic([("reflector", ARMED, counted)]));
    let table = &tables::shown(&view, &fleet)[1];
    assert_eq!(table.rows.len(), 256);
    assert!(table.notes[0].contains("of 4,000"), "{:?}", table.notes);
    assert!(text(120, 24, &view, &fleet).contains(":4000"));
    view.filter = crate::state::ViewFilter::of("remote::17");
    assert_eq!(tables::shown(&view, &fleet)[1].rows.len(), 111);
    for (filter, rows) in [
        ("dport :17", 1),
        ("dport < 100 and not (dport = 17 or dport ge 90)", 88),
        ("app reflector dport 17 or remote::4000", 2),
        ("app testpmd", 0),
    ] {
        view.filter = crate::state::ViewFilter::of(filter);
        assert_eq!(tables::shown(&view, &fleet)[1].rows.len(), rows, "{filter}");
    }
    view.filter = crate::state::ViewFilter::of("state lost");
    let screen = text(120, 24, &view, &fleet);
    assert!(screen.contains("no state 'lost': established, syn-sent"), "{screen}");
    (view.tab, view.filter) = (PageTab::Ports, crate::state::ViewFilter::of("dport 17"));
    let screen = text(120, 24, &view, &fleet);
    assert!(screen.contains("only conversations have 'dport'"), "{screen}");
}

#[test]
fn the_capturing_thread_is_told_what_is_shown() {
    let fleet = fixture::fleet();
    let before = crate::flows::FlowRequest::default();
    let view = showing(traffic([]));
    let request = view.request(&fleet, &before);
    assert!(request.shown && !request.over);
    let apps = request.apps.iter().map(|running| (running.app.as_str(), running.pps));
    assert_eq!(apps.collect::<Vec<_>>(), [("reflector", Some(28_350_000.0)), ("testpmd", None)]);
    let elsewhere = ViewState { tab: PageTab::Ports, ..view.clone() };
    assert!(!elsewhere.request(&fleet, &before).shown);
    let recording = ViewState { flows: ShownFlows::default(), time_bar: None, ..view };
    assert!(recording.request(&fleet, &before).attach.is_empty());
}

#[test]
fn after_a_long_absence_helpers_are_confirmed_again() {
    let mut view = showing(traffic([("testpmd", CaptureAccess::Offered, FlowSnapshot::default())]));
    update(&mut view, Action::Attach, &fixture::fleet());
    assert_eq!(view.attach.len(), 1);
    let armed = || traffic([("testpmd", CaptureAccess::Armed { via: Some("pdump") }, sampled())]);
    view.tab = PageTab::Ports;
    view.follow(Some(armed()));
    assert_eq!(view.attach.len(), 1, "it goes on for a while");
    view.follow(Some(traffic([])));
    assert!(view.attach.is_empty());
}
