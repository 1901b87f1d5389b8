//! Tests of the page of a bundle.

use insta::assert_snapshot;
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::fixture::pool;
use serde_json::json;

use super::super::index::tests::index;
use super::super::index::{FileEntry, Redaction};
use super::fixture::states;
use super::*;

/// A page without its styles, which are the same in all.
fn unstyled(index: &BundleIndex, history: &Result<RecordedHistory, String>) -> String {
    let page = page(index, history);
    assert!(page.contains(STYLE), "{page}");
    page.replace(STYLE, "")
}

#[test]
fn the_page_has_findings_graphs_tables_and_files() {
    let history = fixture::history(&states("reflector", 51, |_, _| {}));
    // A line per element, to be read.
    assert_snapshot!(unstyled(&index(), &Ok(history)).replace("><", ">\n<"));
}

#[test]
fn a_page_without_a_recording_has_the_reason() {
    let (interrupted, redaction) = (true, Some(Redaction::DONE));
    let found = BundleFindings::default();
    let index = BundleIndex { interrupted, redaction, found, parts: Vec::new(), ..index() };
    let page = unstyled(&index, &Err("the app has ended".to_owned()));
    assert_snapshot!(page.replace("><", ">\n<"));
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = page(&index(), &Ok(fixture::history(&states("reflector", 9, |_, _| {}))));
    let policy = "<meta http-equiv=\"Content-Security-Policy\" \
                  content=\"default-src 'none'; style-src 'unsafe-inline'\">";
    assert!(page.contains(policy), "{page}");
    for way in ["<script", "<link", "<img", "<iframe", "<object", "src=", "href", "url(", "@import"]
    {
        assert!(!page.contains(way), "{way} in {page}");
    }
    assert!(!page.replace("http-equiv", "").contains("http"), "{page}");
}

/// What is within angle brackets: in text they are escaped.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0).collect()
}

/// A page on which everything that others choose is this text.
fn page_of(text: &str) -> String {
    let mut index = index();
    let own = || text.to_owned();
    index.host = own();
    index.found.not_checked = vec![own()];
    index.found.unasked[0].app = Some(own());
    index.found.unasked[0].reason = own();
    let finding = json!({
        "severity": text, "app": text, "subject": text, "lint": text, "evidence": text,
        "threshold": text, "advice": text, "since": text, "until": text, "times": 1, "present": true,
        "causes": [{ "cause": text, "share": 0.5, "evidence": text }],
    });
    index.found.findings.push(serde_json::from_value(finding).unwrap());
    for part in &mut index.parts {
        (part.app, part.reason) = (Some(own()), Some(own()));
        part.messages = vec![own()];
        part.files = part.files.iter().map(|_| FileEntry { path: own(), bytes: 1 }).collect();
    }
    let named = states(text, 30, |_, sample| {
        sample.app.dpdk_version = own();
        sample.ports.iter_mut().for_each(|port| port.device = own());
        sample.pools.truncate(1);
        sample.pools[0].name = own();
    });
    let mut history = fixture::history(&named);
    history.notes.push(own());
    unstyled(&index, &Ok(history))
}

#[test]
fn no_text_of_others_becomes_markup() {
    let plain = page_of("fwd");
    let evil = "</style></title><script>alert(1)</script>\"'><img src=x onerror=y>&lt;<!--\x1b[2J\u{202e}\0";
    let page = page_of(evil);
    assert_eq!(tags(&page), tags(&plain));
    // In the host, the finding, the app, its port and pool, the part, ...
    assert!(page.matches("&lt;script&gt;alert(1)").count() > 20, "{page}");
    let hidden =
        |letter: char| letter != '\n' && !pmdscope_telemetry::printable::is_printable(letter);
    assert!(!page.contains(hidden), "{page}");
}

#[test]
fn the_page_has_a_bounded_size() {
    let long = page_of(&"<".repeat(1 << 16));
    // An escaped sign has four characters.
    assert!(long.len() < 400_000, "{}", long.len());
    let many: Vec<FleetState> = states("fwd", 3, |_, sample| {
        sample.pools = (0..5000).map(|number| pool(&format!("p{number}"), 8, 1)).collect();
    });
    let page = unstyled(&index(), &Ok(fixture::history(&many)));
    assert!(page.contains("4900 more rows are in the recording"), "{page}");
    assert!(page.contains("4992 others are not drawn"), "{page}");
    assert!(page.len() < 400_000, "{}", page.len());
}
