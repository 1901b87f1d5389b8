use insta::assert_snapshot;
use pmdscope_telemetry::FleetState;

use super::*;
use crate::netstat::fixture::{args, counters, exact, fleet};

fn report(words: &str, data: &ReportData) -> String {
    let args = args(words);
    text(&args, data, &ReportLayout::wide(&args))
}

fn shares(words: &str, data: &ReportData) -> Vec<(String, String)> {
    let all = all(&args(words), data);
    all.iter().map(|load| (load.name(), known(load.share, percent))).collect()
}

#[test]
fn hot_queues_are_explained() {
    let ports = Some(vec![("fwd".to_owned(), 0)]);
    assert_snapshot!(report(
        "--queues",
        &ReportData { counters: Some(counters()), ports, ..exact() }
    ));
}

#[test]
fn stock_apps_have_the_counters_of_their_drivers() {
    let data = ReportData { counters: Some(counters()), ..ReportData::default() };
    let expected = ["fwd:0:0 10%", "fwd:0:1 90%", "stock:0:0 10%", "stock:0:1 90%"];
    let shares = shares("--queues", &data);
    let shares = shares.iter().map(|(name, share)| format!("{name} {share}")).collect::<Vec<_>>();
    assert_eq!(shares, expected);
}

#[test]
fn without_an_earlier_look_shares_are_since_the_begin() {
    let counters = AppCounters { before: FleetState::default(), now: fleet(2) };
    let data = ReportData { counters: Some(counters), ..ReportData::default() };
    assert_snapshot!(report("--queues", &data));
}

#[test]
fn counters_know_no_filter() {
    let data = ReportData { counters: Some(counters()), filtered: true, ..exact() };
    let all = all(&args("--queues port 80"), &data);
    assert!(all.iter().all(|load| load.source == CountSource::Packets) && all.len() == 2);
}

#[test]
fn transmit_queues_are_shown_when_asked_for() {
    let all = all(&args("--queues -Q out"), &exact());
    assert_eq!(
        all.iter().map(|load| (load.direction, load.packets)).collect::<Vec<_>>(),
        [("tx", 12_296)]
    );
    assert!(!all[0].hot);
}

#[test]
fn nothing_is_known() {
    assert_snapshot!(report("--queues", &ReportData::default()), @"-: no queue counters and no packets");
}

#[test]
fn drivers_name_their_counters_in_several_ways() {
    let renamed = |mut fleet: FleetState| {
        let models = fleet.apps.iter_mut().filter_map(|app| app.model.as_mut());
        for port in models.flat_map(|model| &mut std::sync::Arc::make_mut(model).sample.ports) {
            let rename =
                |(name, value): (&str, u64)| (name.replace("_packets", "_good_packets"), value);
            port.xstats = port.xstats.iter().map(rename).collect();
        }
        fleet
    };
    let AppCounters { before, now } = counters();
    let counters = AppCounters { before: renamed(before), now: renamed(now) };
    let shares =
        shares("--queues", &ReportData { counters: Some(counters), ..ReportData::default() });
    assert!(shares.contains(&("stock:0:1".to_owned(), "90%".to_owned())), "{shares:?}");
}
