use std::sync::Arc;

use insta::assert_snapshot;
use pmdscope_flows::{FlowEnd, SenderCounts};

use super::*;
use crate::netstat::fixture::{args, end, exact, flow, sampled, snapshot};

fn report(words: &str, data: &ReportData) -> String {
    let args = args(words);
    text(&args, data, &ReportLayout::wide(&args))
}

/// The remote ends of the rows.
fn remotes(words: &str) -> Vec<String> {
    let (data, args) = (exact(), args(words));
    let snapshot = data.counted();
    let flows = chosen(&args, &data, &snapshot);
    flows.iter().map(|flow| conversation::endpoint(flow.remote)).collect()
}

#[test]
fn every_packet_was_seen() {
    assert_snapshot!(report("", &exact()));
}

#[test]
fn estimates_and_losses_are_told() {
    assert_snapshot!(report("", &sampled()));
}

#[test]
fn losses_of_pdump_have_a_cure_of_their_own() {
    let told = |data: &ReportData| data.caveats().join("\n");
    assert!(told(&sampled()).contains("a filter or --sample can help"));
    let told = told(&ReportData { helped: vec!["fwd".to_owned()], ..sampled() });
    assert!(told.contains("fewer queues, one direction (-Q)"), "{told}");
    assert!(!told.contains("--sample can help"), "{told}");
}

#[test]
fn what_is_left_out_is_counted() {
    assert_snapshot!(report("-N 2 -4", &exact()));
}

#[test]
fn a_filter_of_ss_selects_rows_and_says_how_many_are_left() {
    let asked = pmdscope_flows::filter::FlowFilter::parse("sport :443 state established").unwrap();
    let report = report("", &ReportData { asked: Some(asked), ..exact() });
    assert_eq!(report.lines().filter(|line| line.starts_with("tcp")).count(), 1, "{report}");
    assert!(report.contains("192.0.2.7:40001"), "{report}");
    assert!(report.contains("6 conversations that do not match: not shown"), "{report}");
    assert!(report.contains("total: 21,702 packets"), "{report}");
}

#[test]
fn nothing_was_seen() {
    assert_snapshot!(report("", &ReportData::default()), @"total: 0 packets, 0 B in 0 conversations, 0.0s");
}

#[test]
fn apps_that_have_ended_stay_in_the_report() {
    let ended = vec!["fwd".to_owned()];
    let data = ReportData { recent: true, ended, ..ReportData::default() };
    assert_snapshot!(report("", &data), @"
    total: 0 packets, 0 B in 0 conversations, 0.0s
    ended, waiting for restart: fwd
    ");
}

#[test]
fn rates_are_of_the_last_second_where_it_goes_on() {
    let data = ReportData { recent: true, ..exact() };
    let snapshot = data.counted();
    let speed = data.flow_speed(&snapshot, &snapshot.flows[2]).unwrap();
    assert_eq!((speed.pps, speed.bps), (5_000.0, 4_000_000.0));
    let speed = exact().flow_speed(&snapshot, &snapshot.flows[2]).unwrap();
    assert_eq!((speed.pps, speed.bps), (10_000.0, 8_000_000.0));
}

#[test]
fn rates_over_windows_have_columns_where_they_are_kept() {
    let mut snapshot = snapshot();
    snapshot.windows_s = Some([2.0, 10.0, 12.0]);
    snapshot.flows[2].window_bps = [8e6, 4e6, 2e6];
    let data = ReportData { snapshot: Some(Arc::new(snapshot)), recent: true, ..exact() };
    let (with, without) = (report("-N 1", &data), report("-N 1", &exact()));
    let lines = with.lines().take(2).collect::<Vec<_>>();
    assert!(lines[0].contains("bit/s  bit/s 2s  bit/s 10s  bit/s 40s State"), "{with}");
    assert!(lines[1].contains("8.00M      4.00M      2.00M ESTAB"), "{with}");
    assert!(!without.contains("bit/s 2s"), "{without}");
}

#[test]
fn narrow_terminals_lose_columns_and_no_rows() {
    let args = args("");
    let text = text(&args, &exact(), &ReportLayout::narrow(80));
    let rows = text.lines().take_while(|line| !line.starts_with("other")).collect::<Vec<_>>();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{text}");
    assert!(rows[0].starts_with("Proto") && rows[0].contains("pps"), "{text}");
}

#[test]
fn rows_have_the_order_that_was_asked_for() {
    assert_eq!(remotes("")[..2], ["192.0.2.7:40001", "172.16.0.2:6000"]);
    assert_eq!(remotes("--sort bytes --reverse")[..2], ["192.0.2.7", "192.0.2.8:40002"]);
    assert_eq!(remotes("--sort tx")[1], "198.51.100.9:8080");
    assert_eq!(remotes("--sort proto")[0], "192.0.2.7");
    assert_eq!(remotes("--sort remote")[6], "[2001:db8::7]:33333");
    for sort in ["packets", "rx", "rate", "age", "last", "local", "state"] {
        assert_eq!(remotes(&format!("--sort {sort}")).len(), 7);
    }
}

#[test]
fn kinds_of_conversations_are_picked() {
    assert_eq!(remotes("-6"), ["[2001:db8::7]:33333"]);
    assert_eq!(remotes("-4 -u"), ["172.16.0.2:6000"]);
    assert_eq!(remotes("-4 -6 -u").len(), 2);
    assert_eq!(remotes("-t --sctp").len(), 4);
}

#[test]
fn files_without_directions_say_so() {
    let mut flow = flow(17, end("10.0.0.1", 53), end("10.0.0.2", 99), 3, 2);
    (flow.unknown.from_remote, flow.unknown.from_local) = (flow.rx.from_remote, flow.tx.from_local);
    (flow.rx, flow.tx, flow.opener) =
        (SenderCounts::default(), SenderCounts::default(), Some(FlowEnd::Local));
    (flow.rx_place, flow.tx_place) = (None, None);
    let snapshot = FlowSnapshot { flows: vec![flow], ..snapshot() };
    let data = ReportData { snapshot: Some(Arc::new(snapshot)), ..ReportData::default() };
    assert_snapshot!(report("", &data));
}
