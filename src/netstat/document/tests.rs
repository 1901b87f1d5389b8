use insta::assert_json_snapshot;
use serde_json::Value;

use super::*;
use crate::netstat::fixture::{args, counters, exact, sampled};
use crate::netstat::resolver::LookupKey;

fn json(words: &str, data: &ReportData) -> Value {
    let snapshot = data.counted();
    serde_json::to_value(document(&args(words), data, &snapshot)).unwrap()
}

#[test]
fn conversations_have_all_that_is_known() {
    assert_json_snapshot!(json("-N 1", &sampled()));
}

#[test]
fn every_view_has_its_part() {
    let data = ReportData { counters: Some(counters()), ..exact() };
    for (words, view, parts) in [
        ("", "conversations", &["flows"][..]),
        ("-l", "listen", &["listeners", "undecided"]),
        ("-s", "statistics", &["protocols", "interfaces"]),
        ("--queues", "queues", &["queues"]),
        ("-i", "interfaces", &["interfaces"]),
    ] {
        let json = json(words, &data);
        assert_eq!(json["view"], view);
        for part in ["flows", "listeners", "undecided", "protocols", "queues", "interfaces"] {
            assert_eq!(!json[part].is_null(), parts.contains(&part), "{view}: {part}");
        }
    }
}

#[test]
fn listeners_and_hot_queues_have_names() {
    let resolver = NameResolver::with(|key| match key {
        LookupKey::Host(addr) => {
            Some(format!("host-{}.example", addr.to_string().replace([':', '.'], "-")))
        }
        LookupKey::Service { .. } => None,
    });
    let named =
        ReportData { names: Some(resolver.unwrap()), counters: Some(counters()), ..exact() };
    let listeners = json("-l --resolve", &named);
    for listener in listeners["listeners"].as_array().unwrap() {
        let address = listener["local"]["addr"].as_str().unwrap().replace([':', '.'], "-");
        assert_eq!(listener["names"]["host"], format!("host-{address}.example"));
        assert!(listener["names"]["service"].is_null());
    }
    let queues = json("--queues --resolve", &named);
    let flows =
        queues["queues"].as_array().unwrap().iter().flat_map(|q| q["flows"].as_array().unwrap());
    let flows = flows.map(|flow| flow["conversation"].as_str().unwrap()).collect::<Vec<_>>();
    assert!(!flows.is_empty() && flows.iter().all(|flow| flow.contains(".example:")), "{flows:?}");
    let numeric = json("-l", &exact());
    assert!(numeric["listeners"][0]["names"].is_null(), "{numeric:#}");
}

#[test]
fn all_rows_unless_fewer_are_asked_for() {
    assert_eq!(json("", &exact())["flows"].as_array().unwrap().len(), 7);
    assert_eq!(json("-N 3", &exact())["flows"].as_array().unwrap().len(), 3);
    let listeners = |words| json(words, &exact())["listeners"].as_array().unwrap().len();
    assert!(listeners("-l") > 1);
    assert_eq!(listeners("-l -N 1"), 1);
}

#[test]
fn counters_alone_have_no_packets() {
    let data = ReportData { counters: Some(counters()), ..ReportData::default() };
    let json = json("-i", &data);
    assert!(json["total"].is_null() && json["interfaces"][0]["tx_drp"].is_null());
    assert_eq!(json["interfaces"][1]["tx_drp"], 4);
    assert_eq!(json["interfaces"][1]["rx_bytes"], 65_280_000);
}
