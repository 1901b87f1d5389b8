//! Tests of what the reports of a bundle say.

use std::fs;

use serde_json::{Value, json};

use super::*;

fn finding(severity: &str, app: &str, lint: &str, evidence: &str) -> Value {
    json!({
        "severity": severity, "app": app, "subject": "net_vhost0", "lint": lint,
        "evidence": evidence, "threshold": "more than 0", "advice": "look for stalls",
    })
}

/// The findings of a recording, each with its times.
fn recorded(mut finding: Value) -> Value {
    let times = json!({
        "since": "2026-11-21T08:56:00Z", "until": "2026-11-21T08:57:00Z", "times": 2, "present": false,
    });
    finding.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
    finding
}

fn app(name: &str, findings: &[Value]) -> Value {
    json!({ "app": name, "state": "live", "findings": findings })
}

/// What a bundle with these reports says: of its recording, and of the time of the collection.
fn read(reports: [Option<&Value>; 2], unasked: Vec<UnaskedApp>) -> BundleFindings {
    let staging = tempfile::tempdir().unwrap();
    fs::create_dir(staging.path().join("findings")).unwrap();
    for (path, report) in REPORTS.iter().zip(reports) {
        if let Some(report) = report {
            fs::write(staging.path().join(path), report.to_string()).unwrap();
        }
    }
    BundleFindings::read(staging.path(), unasked)
}

fn report(apps: &[Value]) -> Value {
    json!({ "schema": 1, "ok": false, "apps": apps })
}

#[test]
fn findings_of_both_reports_are_listed_once_and_the_worst_first() {
    let of_recording = report(&[app(
        "fwd",
        &[
            recorded(finding("info", "fwd", "stall", "48 us")),
            recorded(finding("critical", "fwd", "leak", "9 lost")),
            recorded(finding("warning", "fwd", "rx_missed", "412 missed")),
        ],
    )]);
    let of_collection = report(&[
        app("fwd", &[finding("warning", "fwd", "rx_missed", "500 missed, queue 3 is hot")]),
        app("gen", &[finding("warning", "gen", "leak", "1 lost")]),
    ]);
    let found = read([Some(&of_recording), Some(&of_collection)], Vec::new());
    let lines: Vec<_> =
        found.findings.iter().map(|it| (it.rank(), it.place(), &*it.evidence)).collect();
    let expected = [
        (0, "fwd net_vhost0".to_owned(), "9 lost"),
        (1, "fwd net_vhost0".to_owned(), "500 missed, queue 3 is hot"),
        (1, "gen net_vhost0".to_owned(), "1 lost"),
        (2, "fwd net_vhost0".to_owned(), "48 us"),
    ];
    assert_eq!(lines, expected);
    let when = |at: usize| found.findings[at].when.as_ref().map(FindingSpan::text);
    let times = "2026-11-21T08:56:00Z to 2026-11-21T08:57:00Z, 2 times";
    assert_eq!((when(1).as_deref(), when(2)), (Some(times), None));
    assert_eq!(found.counts().as_deref(), Some("1 critical, 2 warning, 1 info"));
}

#[test]
fn a_lesser_finding_of_the_collection_does_not_replace_a_worse_one_of_the_recording() {
    let of_recording =
        report(&[app("fwd", &[recorded(finding("critical", "fwd", "leak", "9 lost"))])]);
    let of_collection = report(&[app("fwd", &[finding("info", "fwd", "leak", "1 lost")])]);
    let found = read([Some(&of_recording), Some(&of_collection)], Vec::new());
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].evidence, "9 lost");
}

#[test]
fn apps_that_do_not_answer_and_what_was_not_checked_are_told_once() {
    let lost = json!({ "app": "gen", "state": "lost", "reason": "timed out", "findings": [] });
    let known = json!({ "app": "old", "state": "lost", "reason": "x", "findings": [] });
    let mut live = app("fwd", &[]);
    let not = |device: &str| json!({ "what": "discards of the NIC", "needs": "its driver is unknown", "device": device });
    let pools = json!({ "what": "use of mempools", "needs": "libpmdscope", "device": null });
    let of_ports = (0..5).map(|port| not(&format!("net{port}")));
    let not_checked: Vec<Value> = of_ports.chain([pools]).collect();
    live["checked"] = json!({ "not_checked": not_checked });
    let report = report(&[live, lost, known]);
    let old = UnaskedApp { app: Some("old".to_owned()), reason: "has ended".to_owned() };
    let found = read([Some(&report), Some(&report)], vec![old.clone()]);
    let gone = UnaskedApp { app: Some("gen".to_owned()), reason: "timed out".to_owned() };
    assert_eq!(found.unasked, [old, gone]);
    let expected = [
        "discards of the NIC of fwd net0, fwd net1, fwd net2 and 2 more (its driver is unknown)",
        "use of mempools of fwd (libpmdscope)",
    ];
    assert_eq!(found.not_checked, expected);
    assert!(found.findings_known && found.counts().is_none());
}

#[test]
fn what_cannot_be_read_is_not_taken_for_health() {
    let found = read([None, None], Vec::new());
    assert!(!found.findings_known && found.not_checked.is_empty());
    let found = read([Some(&json!("no report")), None], Vec::new());
    assert!(!found.findings_known);
    assert!(found.not_checked[0].starts_with("cannot read recorded.json: "), "{found:?}");
}

#[test]
fn the_lists_have_an_end() {
    let findings = (0..MOST_FINDINGS + 7).map(|number| {
        let severity = if number == MOST_FINDINGS { "critical" } else { "warning" };
        finding(severity, "fwd", &format!("lint{number}"), "x")
    });
    let silent = (0..MOST_LINES + 5)
        .map(|number| json!({ "app": format!("a{number}"), "state": "waiting", "findings": [] }));
    let sick = app("fwd", &findings.collect::<Vec<_>>());
    let apps: Vec<Value> = [sick].into_iter().chain(silent).collect();
    let found = read([None, Some(&report(&apps))], Vec::new());
    assert_eq!((found.findings.len(), found.more_findings), (MOST_FINDINGS, 7));
    assert_eq!(found.findings[0].severity, "critical");
    assert_eq!(
        found.counts().unwrap(),
        format!("1 critical, {} warning, 7 more", MOST_FINDINGS - 1)
    );
    assert_eq!(found.unasked.len(), MOST_LINES + 1);
    assert_eq!(found.unasked[MOST_LINES].reason, "and 5 more");
}
