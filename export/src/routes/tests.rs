//! Tests of all pages, with requests like those of clients.

use http_body_util::BodyExt;
use pmdscope_telemetry::discover::DiscoverOptions;
use pmdscope_telemetry::{AppInventory, ExpectedApp, FleetSettings};
use serde_json::{Value, json};

use super::*;
use crate::fake::{DEADLINE, NEVER, PoolApp, WAIT, collector};
use crate::options::{ConnectionLimits, ExportOptions};
use crate::scrape::Scraper;
use crate::snapshot::RenderOptions;
use crate::web::WebFiles;

/// Returns the pages for the apps below a directory; the apps `expected` are expected to run.
async fn routes(root: &std::path::Path, tolerate: &[&str], expected: &[&str]) -> Routes {
    let discover =
        DiscoverOptions { roots: vec![root.to_owned()], proc: None, ..DiscoverOptions::default() };
    let app = |name: &&str| ExpectedApp { name: (*name).to_owned(), ..ExpectedApp::default() };
    let mut settings = FleetSettings { discover, ..FleetSettings::default() };
    settings.rules.expected = AppInventory { apps: expected.iter().map(app).collect() };
    let tolerate = tolerate.iter().map(|lint| lint.parse().unwrap()).collect();
    let options = ExportOptions { tolerate, timeout: NEVER, ..ExportOptions::default() };
    let render_options = RenderOptions::new(&options, &settings.rules.expected);
    let scraper = Scraper::new(settings, render_options, options.timeout, WAIT);
    let web = WebFiles::open(None).unwrap();
    let collector = collector(scraper, web, options.timeout, ConnectionLimits::default());
    let web = CurrentWebPolicy::open(Arc::clone(&collector), false).await.unwrap();
    Routes { collector, web, timeout: options.timeout }
}

struct TestResponse {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl TestResponse {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn ask(routes: &Routes, method: &str, uri: &str, headers: &[(&str, &str)]) -> TestResponse {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let listener =
        ListenerInfo { address: "127.0.0.1:9177".into(), tls: false, client: Client::User(None) };
    let page = routes.answer(&request.body(()).unwrap(), &listener).await;
    let (parts, body) = page.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    let body = String::from_utf8(bytes).unwrap_or_else(|_| "(compressed)".to_owned());
    TestResponse { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn get(routes: &Routes, uri: &str) -> TestResponse {
    ask(routes, "GET", uri, &[]).await
}

#[tokio::test]
async fn metrics_of_all_apps_or_of_one() {
    let root = tempfile::tempdir().unwrap();
    let (_a, _b) = (PoolApp::start(root.path(), "a"), PoolApp::start(root.path(), "b&c"));
    let routes = routes(root.path(), &[], &[]).await;
    let all = get(&routes, "/metrics").await;
    assert_eq!((all.status, all.header("cache-control")), (200, "no-store"));
    assert_eq!(all.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(all.header("vary"), "Accept, Accept-Encoding");
    assert!(all.body.contains("dpdk_up{app=\"a\"} 1\n"));
    assert!(all.body.contains("dpdk_exporter_build_info"));
    let one = get(&routes, "/metrics?app=b%26c").await;
    assert!(one.body.contains("dpdk_up{app=\"b&c\"} 1\n"), "{}", one.body);
    assert!(!one.body.contains("app=\"a\"") && !one.body.contains("dpdk_exporter_"));
    for uri in ["/metrics?app=x", "/ready?app=x"] {
        let unknown = get(&routes, uri).await;
        assert_eq!(unknown.status, 404);
        assert_eq!(unknown.body, "no app is named \"x\"; known: a, b&c\n");
    }
}

#[tokio::test]
async fn metrics_of_the_exporter_alone_query_no_app() {
    let root = tempfile::tempdir().unwrap();
    let _a = PoolApp::start(root.path(), "a");
    let routes = routes(root.path(), &[], &["gone", "lost"]).await;
    let page = get(&routes, "/metrics/exporter").await;
    assert_eq!(page.status, 200);
    for line in ["dpdk_apps_discovered 1\n", "dpdk_apps_expected 2\n"] {
        assert!(page.body.contains(line), "{}", page.body);
    }
    let counted = page.body.lines().filter(|line| !line.starts_with('#')).count();
    assert!(page.body.contains(&format!("dpdk_exporter_series {counted}\n")), "{}", page.body);
    assert!(page.body.contains("dpdk_exporter_collections_total 0\n"), "{}", page.body);
    assert!(!page.body.contains("{app="), "{}", page.body);
    let all = get(&routes, "/metrics").await;
    let own = |body: &str| body.lines().filter(|line| line.starts_with("# TYPE")).count();
    let families = |prefix: &str| all.body.matches(&format!("# TYPE {prefix}")).count();
    assert_eq!(own(&page.body), families("dpdk_exporter_") + families("dpdk_apps_"));
}

#[tokio::test]
async fn the_format_is_negotiated() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..20).map(|n| format!("app-{n}")).collect();
    let _apps: Vec<_> = names.iter().map(|name| PoolApp::start(root.path(), name)).collect();
    let routes = routes(root.path(), &[], &[]).await;
    let accept = ("accept", "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1");
    let open = ask(&routes, "GET", "/metrics", &[accept]).await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(open.body.ends_with("# EOF\n"));
    assert_eq!(open.header("content-encoding"), "");
    let zipped = ask(&routes, "GET", "/metrics", &[accept, ("accept-encoding", "gzip")]).await;
    assert_eq!(zipped.header("content-encoding"), "gzip");
    assert_eq!(zipped.body, "(compressed)");
}

#[tokio::test]
async fn readiness_has_reasons() {
    let root = tempfile::tempdir().unwrap();
    let _a = PoolApp::start(root.path(), "a");
    let strict = routes(root.path(), &[], &["gone"]).await;
    let answer = get(&strict, "/ready?app=a").await;
    assert_eq!(answer.status, 503);
    let body = answer.json();
    assert_eq!((&body["ready"], &body["app"]), (&json!(false), &json!("a")));
    let reason = &body["reasons"][0];
    assert_eq!((&reason["reason"], &reason["severity"]), (&json!("no_ports"), &json!("critical")));
    assert_eq!((&reason["subject"], &reason["tolerated"]), (&json!(""), &json!(false)));
    assert!(reason["evidence"].is_string() && reason["advice"].is_string());
    let missing = get(&strict, "/ready?app=gone").await;
    assert_eq!(
        (missing.status, &missing.json()["reasons"][0]["reason"]),
        (503, &json!("app_missing"))
    );
    let all = get(&strict, "/ready").await;
    assert_eq!((all.status, all.json()["apps"].as_array().unwrap().len()), (503, 2));
}

#[tokio::test]
async fn tolerated_findings_are_listed_but_healthy() {
    let root = tempfile::tempdir().unwrap();
    let _a = PoolApp::start(root.path(), "a");
    let lenient = routes(root.path(), &["no_ports"], &[]).await;
    for uri in ["/ready?app=a", "/ready"] {
        let answer = get(&lenient, uri).await;
        assert_eq!((answer.status, &answer.json()["ready"]), (200, &json!(true)), "{uri}");
    }
    let app = get(&lenient, "/ready?app=a").await.json();
    assert_eq!(app["reasons"][0]["tolerated"], json!(true));
}

#[tokio::test]
async fn a_machine_without_apps_is_not_ready_and_has_only_the_exporter_as_target() {
    let root = tempfile::tempdir().unwrap();
    let routes = routes(root.path(), &[], &[]).await;
    let ready = get(&routes, "/ready").await;
    assert_eq!((ready.status, &ready.json()["apps"]), (503, &json!([])));
    assert!(ready.json()["advice"].as_str().unwrap().contains("no DPDK app"));
    let targets = get(&routes, "/sd").await;
    let exporter = json!([{"targets": ["127.0.0.1:9177"], "labels": {
        "__metrics_path__": "/metrics/exporter", "__scheme__": "http", "instance": "127.0.0.1:9177",
    }}]);
    assert_eq!((targets.status, targets.json()), (200, exporter));
    for uri in ["/metrics", "/metrics/exporter"] {
        let metrics = get(&routes, uri).await;
        assert_eq!(metrics.status, 200);
        assert!(metrics.body.contains("\ndpdk_apps_discovered 0\n"), "{uri}");
    }
    assert!(get(&routes, "/").await.body.contains("no DPDK app"));
}

#[tokio::test]
async fn targets_have_the_address_of_the_request() {
    let root = tempfile::tempdir().unwrap();
    let _a = PoolApp::start(root.path(), "a");
    let routes = routes(root.path(), &[], &["b"]).await;
    let targets = ask(&routes, "GET", "/sd", &[("host", "node7:9177")]).await.json();
    let exporter = json!({"targets": ["node7:9177"], "labels": {
        "__metrics_path__": "/metrics/exporter", "__scheme__": "http", "instance": "node7:9177",
    }});
    let target = |app: &str| {
        json!({"targets": ["node7:9177"], "labels": {
            "__metrics_path__": "/metrics", "__param_app": app, "__scheme__": "http",
            "instance": format!("node7:9177/{app}"),
        }})
    };
    assert_eq!(targets, json!([exporter, target("a"), target("b")]));
    let targets = get(&routes, "/sd").await.json();
    assert_eq!(targets[0]["targets"], json!(["127.0.0.1:9177"]));
}

#[tokio::test]
async fn the_exporter_is_healthy_whatever_the_apps_are() {
    let root = tempfile::tempdir().unwrap();
    let answer = get(&routes(root.path(), &[], &["gone"]).await, "/healthz").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
}

#[tokio::test]
async fn the_landing_page_shows_errors_and_escapes_names() {
    let root = tempfile::tempdir().unwrap();
    let _a = PoolApp::start(root.path(), "<b>\"x");
    let page = get(&routes(root.path(), &[], &[]).await, "/").await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    assert!(page.body.contains("&lt;b&gt;&quot;x") && !page.body.contains("<b>\"x"));
    assert!(page.body.contains("no_ports") && page.body.contains("/metrics?app=%3Cb%3E%22x"));
    assert!(page.body.contains(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let routes = routes(root.path(), &[], &[]).await;
    for path in ["/metrics", "/metrics/exporter", "/ready", "/healthz", "/sd", "/"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer = ask(&routes, method, path, &[]).await;
            assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{path}");
        }
        assert_ne!(ask(&routes, "HEAD", path, &[]).await.status, 405);
    }
    for path in ["/metric", "/metrics/", "//", "/healthz/x", "/..%2f"] {
        assert_eq!(get(&routes, path).await.status, 404, "{path}");
    }
    let long = "x".repeat(MAX_NAME + 1);
    for path in ["/metrics", "/ready"] {
        let answer = get(&routes, &format!("{path}?app={long}")).await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (404, "no app has a name of 1025 bytes\n")
        );
    }
    assert_eq!(get(&routes, "/ready?app=").await.status, 404);
}

#[tokio::test]
async fn the_scrape_timeout_header_is_obeyed() {
    let root = tempfile::tempdir().unwrap();
    let slow = PoolApp::start(root.path(), "a");
    let routes = routes(root.path(), &[], &[]).await;
    get(&routes, "/metrics").await;
    slow.hold(true);
    let header = [(SCRAPE_TIMEOUT_HEADER, "0.5")];
    let answer = ask(&routes, "GET", "/metrics", &header);
    let answer = tokio::time::timeout(DEADLINE, answer).await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("dpdk_up{app=\"a\"} 0\n"));
    // A probe does not wait longer, although it announces no timeout.
    let probe = tokio::time::timeout(DEADLINE, get(&routes, "/ready?app=a")).await.unwrap();
    assert_eq!(probe.status, 503);
}

#[test]
fn deadlines_leave_a_margin_and_limit_the_header() {
    let (default_timeout, longest) = (Duration::from_secs(2), Duration::from_secs(5));
    for (header, expected) in [
        (None, 2000),
        (Some("3"), 2800),
        (Some("10.5"), 5000),
        (Some("0.3"), 150),
        (Some("0"), 2000),
        (Some("-1"), 2000),
        (Some("nan"), 2000),
        (Some("1e300"), 2000),
        (Some("soon"), 2000),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(SCRAPE_TIMEOUT_HEADER, header.parse().unwrap());
        }
        let began = Instant::now();
        let left =
            deadline(began, &headers, default_timeout, longest).duration_since(began).as_millis();
        assert_eq!(left, expected, "{header:?}");
    }
}
