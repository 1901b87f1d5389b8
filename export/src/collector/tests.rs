//! Tests of what the collector makes of messages that the network process never sends.

use std::os::fd::AsFd;

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::DiscoverOptions;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::channel;
use crate::fake::{DEADLINE, PoolApp, WAIT};
use crate::message::MAX_NAME;
use crate::snapshot::RenderOptions;

const CONNECTIONS: usize = 4;

/// A collector, and the end of a network process that was taken over.
fn start(root: &std::path::Path) -> (Channel, JoinHandle<Result<(), CollectorError>>) {
    let (network, end) = channel::pair().unwrap();
    let discover =
        DiscoverOptions { roots: vec![root.to_owned()], proc: None, ..DiscoverOptions::default() };
    let settings = FleetSettings { discover, ..FleetSettings::default() };
    let scraper = Scraper::new(settings, RenderOptions::default(), DEADLINE, WAIT);
    let web = WebFiles::open(None).unwrap();
    let thresholds = Arc::new(|| Err("no file".to_owned()));
    let end = Channel::new(end).unwrap();
    let collector = Collector::new(end, scraper, web, thresholds, DEADLINE, CONNECTIONS);
    (Channel::new(network).unwrap(), tokio::spawn(collector.run()))
}

fn counts() -> Value {
    let zero = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
    let connections: serde_json::Map<_, _> = zero(&[
        "open",
        "client_limit",
        "total_limit",
        "displaced",
        "header_timeout",
        "response_timeout",
    ]);
    let pushes: serde_json::Map<_, _> =
        zero(&["accepted", "partial", "rejected", "failed", "dropped"]);
    json!({"connections": connections, "pushes": pushes})
}

fn ask(id: u64, question: &Value) -> Value {
    json!({"Ask": {"id": id, "question": question, "counts": counts()}})
}

fn metrics(app: &Value, seconds: u64) -> Value {
    let page = json!({"Metrics": {"app": app, "format": "Text", "gzip": false}});
    json!({"Page": {"page": page, "within": {"secs": seconds, "nanos": 0}}})
}

async fn error(run: JoinHandle<Result<(), CollectorError>>) -> String {
    let ended = tokio::time::timeout(DEADLINE, run).await.expect("it goes on");
    ended.unwrap().unwrap_err().to_string()
}

#[tokio::test]
async fn questions_are_answered_and_the_end_is_noted() {
    let root = tempfile::tempdir().unwrap();
    let _app = PoolApp::start(root.path(), "a");
    let (network, run) = start(root.path());
    // A deadline after centuries is one at the timeout.
    network.send(&ask(7, &metrics(&json!("a"), u64::MAX)), None).await.unwrap();
    let (answer, file) = network.receive::<Answer>().await.unwrap().unwrap();
    assert_eq!((answer.id, answer.content), (7, Content::Metrics { gzip: false }));
    let text = Document::of(file.unwrap()).unwrap().read().unwrap();
    assert!(String::from_utf8(text).unwrap().contains("dpdk_up{app=\"a\"} 1\n"));
    for (id, name) in ["../../etc", "", "\u{1}\n", &"x".repeat(MAX_NAME)].iter().enumerate() {
        network.send(&ask(id as u64, &metrics(&json!(name), 1)), None).await.unwrap();
        let (answer, _) = network.receive::<Answer>().await.unwrap().unwrap();
        let known = matches!(answer.content, Content::Metrics { .. });
        assert!(known == name.is_empty() && (known || answer.content == Content::Unknown));
    }
    network.send(&json!("Stopping"), None).await.unwrap();
    assert!(tokio::time::timeout(DEADLINE, run).await.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn a_network_process_that_was_killed_ends_the_collector() {
    let root = tempfile::tempdir().unwrap();
    let (network, run) = start(root.path());
    drop(network);
    assert!(error(run).await.contains("has ended"));
}

#[tokio::test]
async fn what_the_network_process_never_sends_ends_the_collector() {
    let root = tempfile::tempdir().unwrap();
    for message in [
        json!({"Open": "/var/run/dpdk"}),
        json!(null),
        json!({"Ask": {"id": -1, "question": "Ping", "counts": counts()}}),
        json!({"Ask": {"id": 1, "question": "Ping", "counts": {}}}),
        json!({"Ask": {"id": 1, "question": "Ping", "counts": counts(), "path": "/"}}),
        ask(1, &json!({"Web": {"known": 0, "path": "/etc/shadow"}})),
        ask(1, &metrics(&json!("x".repeat(MAX_NAME + 1)), 1)),
        ask(1, &metrics(&json!(["a"]), 1)),
    ] {
        let (network, run) = start(root.path());
        network.send(&message, None).await.unwrap();
        assert!(error(run).await.contains("misbehaves"), "{message}");
    }
    let (network, run) = start(root.path());
    let file = Document::new(b"x").unwrap();
    network.send(&ask(1, &json!("Ping")), Some(file.descriptor().as_fd())).await.unwrap();
    assert!(error(run).await.contains("passes a file"));
}

#[tokio::test]
async fn more_questions_than_connections_end_the_collector() {
    let root = tempfile::tempdir().unwrap();
    let app = PoolApp::start(root.path(), "a");
    app.hold(true);
    let (network, run) = start(root.path());
    let most = (CONNECTIONS + OTHER_QUESTIONS) as u64;
    // Those that nobody waits for any more do not count.
    for id in 0..10 * most {
        network.send(&ask(id, &metrics(&json!(null), 60)), None).await.unwrap();
        network.send(&json!({"Forget": {"id": id}}), None).await.unwrap();
    }
    for id in 0..most {
        network.send(&ask(id, &metrics(&json!(null), 60)), None).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!run.is_finished());
    network.send(&ask(most, &metrics(&json!(null), 60)), None).await.unwrap();
    assert!(error(run).await.contains("misbehaves"));
}
