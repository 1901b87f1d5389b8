//! Tests of pushes to a receiver on a real socket, which decodes them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::DiscoverOptions;

use super::*;
use crate::fake::{self, PoolApp, WAIT};
use crate::metrics::PushCounts;
use crate::options::ExportOptions;
use crate::scrape::Scraper;
use crate::snapshot::RenderOptions;
use crate::text::TextFormat;
use crate::web::WebFiles;

/// A push, as received.
struct ReceivedPush {
    head: String,
    request: ExportMetricsServiceRequest,
}

/// Starts a receiver that sends the `answers` in turn, then `200 OK`; returns its URL, and its pushes.
fn receiver(answers: Vec<Vec<u8>>) -> (String, mpsc::Receiver<ReceivedPush>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, pushed) = mpsc::channel();
    thread::spawn(move || {
        let mut answers = answers.into_iter().peekable();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(push) = read(&mut stream) else { continue };
            let answer = answers.next_if(|_| true).unwrap_or_else(|| answer("200 OK", b""));
            stream.write_all(&answer).unwrap();
            if send.send(push).is_err() {
                return;
            }
        }
    });
    (url, pushed)
}

fn read(stream: &mut TcpStream) -> Option<ReceivedPush> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let request = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
    Some(ReceivedPush { head, request })
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Timeout of the queries for one push.
const TIMEOUT: Duration = Duration::from_secs(5);

fn collector(root: &Path) -> Arc<CollectorClient> {
    let discover =
        DiscoverOptions { roots: vec![root.to_owned()], proc: None, ..DiscoverOptions::default() };
    let settings = FleetSettings { discover, ..FleetSettings::default() };
    let options = ExportOptions { otlp: Some("http://x".to_owned()), ..ExportOptions::default() };
    let render_options = RenderOptions::new(&options, &settings.rules.expected);
    let scraper = Scraper::new(settings, render_options, TIMEOUT, WAIT);
    fake::collector(scraper, WebFiles::open(None).unwrap(), TIMEOUT, options.connections)
}

/// Runs the exporter's pushes until `count` of them have arrived.
async fn pushed(
    url: &str,
    pause: Duration,
    root: &Path,
    arrived: mpsc::Receiver<ReceivedPush>,
    count: usize,
) -> (Vec<ReceivedPush>, PushCounts) {
    let collector = collector(root);
    let counters = Arc::clone(&collector.pushes);
    let push = push(url.parse().unwrap(), pause, collector, TIMEOUT);
    let wait = tokio::task::spawn_blocking(move || {
        let limit = Duration::from_secs(60);
        let pushes = (0..count).map(|_| arrived.recv_timeout(limit).unwrap()).collect();
        // The thread counts an answer only after it was sent.
        thread::sleep(Duration::from_millis(100));
        pushes
    });
    let pushes = tokio::select! {
        ended = push => panic!("{ended:?}"),
        pushes = wait => pushes.unwrap(),
    };
    (pushes, counters.read())
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key);
    match value.and_then(|attribute| attribute.value.clone()?.value) {
        Some(any_value::Value::StringValue(text)) => text,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test]
async fn a_receiver_decodes_the_metrics() {
    let root = tempfile::tempdir().unwrap();
    let (_a, _b) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b"));
    let (url, arrived) = receiver(Vec::new());
    let pause = Duration::from_millis(50);
    let (pushes, counts) = pushed(&url, pause, root.path(), arrived, 2).await;
    assert!(counts.accepted >= 2, "{counts:?}");
    let head = pushes[0].head.to_lowercase();
    assert!(head.starts_with("post /v1/metrics http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
    let mut up = BTreeMap::new();
    for resource in &pushes[1].request.resource_metrics {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        assert_eq!(text(attributes, "service.name"), "pmdscope");
        let instance = text(attributes, "service.instance.id");
        for metric in &resource.scope_metrics[0].metrics {
            if let (Some(Data::Gauge(gauge)), "dpdk_up") = (&metric.data, metric.name.as_str()) {
                up.insert(instance.clone(), text(&gauge.data_points[0].attributes, "app"));
            }
        }
    }
    let instances: Vec<_> = up.keys().map(|instance| instance.split('/').nth(1).unwrap()).collect();
    assert_eq!(instances, ["a", "b"]);
    assert_eq!(up.values().collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test]
async fn a_busy_receiver_is_retried_after_its_retry_after() {
    let root = tempfile::tempdir().unwrap();
    let busy = b"HTTP/1.1 429 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\
                 Connection: close\r\n\r\n";
    let (url, arrived) = receiver(vec![busy.to_vec(), answer("503 No", b"")]);
    let began = Instant::now();
    let pause = Duration::from_secs(3600);
    let (pushes, counts) = pushed(&url, pause, root.path(), arrived, 3).await;
    // The second attempt follows at once, the third after a pause; the next push is due in an hour.
    assert!(began.elapsed() >= FIRST_RETRY_INTERVAL);
    assert_eq!(pushes[0].request, pushes[2].request);
    assert_eq!(counts, PushCounts { accepted: 1, failed: 2, ..PushCounts::default() });
}

#[tokio::test]
async fn refused_metrics_are_not_sent_again() {
    let root = tempfile::tempdir().unwrap();
    let partial = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 3,
            error_message: "too old".to_owned(),
        }),
    };
    let (url, arrived) =
        receiver(vec![answer("400 No", b"?"), answer("200 OK", &partial.encode_to_vec())]);
    let pause = Duration::from_millis(300);
    let (pushes, counts) = pushed(&url, pause, root.path(), arrived, 2).await;
    assert_ne!(pushes[0].request, pushes[1].request);
    assert_eq!(counts, PushCounts { rejected: 1, partial: 1, ..PushCounts::default() });
}

#[tokio::test]
async fn without_a_receiver_scrapes_go_on_and_drops_are_counted() {
    let root = tempfile::tempdir().unwrap();
    let _a = PoolApp::start(root.path(), "a");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let collector = collector(root.path());
    let counters = Arc::clone(&collector.pushes);
    let url = format!("http://{closed}");
    let pause = Duration::from_millis(20);
    let push = push(url.parse().unwrap(), pause, Arc::clone(&collector), TIMEOUT);
    let later = Instant::now() + Duration::from_secs(60);
    let drops = async {
        loop {
            let counts = counters.read();
            if counts.failed >= 1 && counts.dropped >= 10 {
                break;
            }
            assert!(Instant::now() < later, "{counts:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let page = Page::Metrics { app: None, format: TextFormat::Text, gzip: false };
        let answer = collector.ask(Question::Page { page, within: TIMEOUT }).await.unwrap();
        String::from_utf8(answer.1.unwrap().read().unwrap()).unwrap()
    };
    let metrics = tokio::select! {
        ended = push => panic!("{ended:?}"),
        metrics = drops => metrics,
    };
    let counts = counters.read();
    assert!(counts.failed >= 1 && counts.dropped >= 10 && counts.accepted == 0, "{counts:?}");
    assert!(metrics.contains("dpdk_up{app=\"a\"} 1\n"), "{metrics}");
    assert!(metrics.contains("dpdk_exporter_otlp_pushes_total{result=\"dropped\"}"), "{metrics}");
}

#[test]
fn pauses_between_pushes_grow_exponentially() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut pusher = OtlpPusher::new(format!("http://{closed}").parse().unwrap(), Arc::default());
    // The mailbox is closed, so pauses end at once.
    let closed = RequestMailbox::default();
    closed.lock().closed = true;
    for _ in 0..2 {
        pusher.deliver(b"", &closed);
    }
    assert_eq!(pusher.pause, FIRST_RETRY_INTERVAL * 4);
}

#[test]
fn logs_do_not_contain_the_password_of_a_receiver() {
    for (url, shown) in [
        ("http://ann:p%40ss@x:4318/v1/metrics", "http://x:4318/v1/metrics"),
        ("https://ann@[::1]:1/a@b", "https://[::1]:1/a@b"),
        ("http://x?a=b@c", "http://x?a=b@c"),
    ] {
        assert_eq!(OtlpReceiver(url.to_owned()).to_string(), shown);
    }
}

#[test]
fn receivers_are_urls() {
    for (text, url) in [
        ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
        ("https://x/", "https://x/v1/metrics"),
        ("http://[::1]:9090/api/v1/otlp/v1/metrics", "http://[::1]:9090/api/v1/otlp/v1/metrics"),
        ("http://x/?a=b", "http://x/?a=b"),
    ] {
        assert_eq!(text.parse(), Ok(OtlpReceiver(url.to_owned())));
    }
    for text in ["", "localhost:4318", "grpc://x", "http://", "/v1/metrics", "http:///x"] {
        let error = text.parse::<OtlpReceiver>().unwrap_err().to_string();
        assert!(error.contains("http://localhost:4318"), "{text}: {error}");
    }
}
