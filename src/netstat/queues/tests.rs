use insta::assert_snapshot;
use pmdscope_telemetry::world::World;

use super::*;
use crate::netstat::fixture::{args, counters, exact, world};

fn report(words: &str, moment: &Moment) -> String {
    let args = args(words);
    text(&args, moment, &Paper::wide(&args))
}

fn shares(words: &str, moment: &Moment) -> Vec<(String, String)> {
    let all = all(&args(words), moment);
    all.iter().map(|load| (load.name(), known(load.share, percent))).collect()
}

#[test]
fn hot_queues_are_explained() {
    let ports = Some(vec![("fwd".to_owned(), 0)]);
    assert_snapshot!(report("--queues", &Moment { counters: Some(counters()), ports, ..exact() }));
}

#[test]
fn stock_apps_have_the_counters_of_their_drivers() {
    let moment = Moment { counters: Some(counters()), ..Moment::default() };
    let expected = ["fwd:0:0 10%", "fwd:0:1 90%", "stock:0:0 10%", "stock:0:1 90%"];
    let shares = shares("--queues", &moment);
    let shares = shares.iter().map(|(name, share)| format!("{name} {share}")).collect::<Vec<_>>();
    assert_eq!(shares, expected);
}

#[test]
fn without_an_earlier_look_shares_are_since_the_begin() {
    let counters = Counters { before: World::default(), now: world(2) };
    let moment = Moment { counters: Some(counters), ..Moment::default() };
    assert_snapshot!(report("--queues", &moment));
}

#[test]
fn counters_know_no_filter() {
    let moment = Moment { counters: Some(counters()), filtered: true, ..exact() };
    let all = all(&args("--queues port 80"), &moment);
    assert!(all.iter().all(|load| load.source == Source::Packets) && all.len() == 2);
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
    assert_snapshot!(report("--queues", &Moment::default()), @"-: no queue counters and no packets");
}

#[test]
fn drivers_name_queues_in_two_ways() {
    assert_eq!(queue_of("rx_q3_packets", DIR_RX), Some(3));
    assert_eq!(queue_of("rx_q12packets", DIR_RX), Some(12));
    assert_eq!(queue_of("tx_q0_packets", DIR_TX), Some(0));
    for other in ["rx_q3_bytes", "rx_packets", "tx_q0_packets", "rx_qx_packets", "rx_q_packets"] {
        assert_eq!(queue_of(other, DIR_RX), None, "{other}");
    }
}
