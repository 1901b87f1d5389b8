//! `pmdscope check` against apps that are stuck, or tell only a part.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pmdscope_recording::{RecordingOptions, TelemetryRecorder};
use pmdscope_telemetry::fleet::Evaluator;
use pmdscope_telemetry::sample::{PortSample, SAMPLE_SCHEMA, Sample};
use pmdscope_telemetry::{AppLock, Deadline, FleetState, LintRules};
use pmdscope_testing::output;

use support::{BANNER, FakeApp, Recording};

/// What testpmd with two ports has answered.
const TESTPMD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/telemetry/tests/data/dpdk-22.11/testpmd-null.jsonl");

/// `pmdscope check` of a fake app for a second: exit code, and what it prints.
fn check(app: &FakeApp, options: &[&str]) -> (Option<i32>, String) {
    let mut check = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    check.args(["check", "-a", "fake", "--for", "1", "--config", "none"]).args(options);
    let output = output(check.env("RUNTIME_DIRECTORY", app.discovery().roots.remove(0))).unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Each of five rounds would wait a second for an answer.
#[test]
fn a_stuck_app_makes_no_check_longer_than_it_was_told() {
    let rounds = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&rounds);
    let stuck = FakeApp::start(move |connection| {
        connection.send(BANNER);
        while connection.receive().is_some() {
            asked.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (code, text) = check(&stuck, &["-q"]);
    let rounds = rounds.load(Ordering::Relaxed);
    assert!((1..=3).contains(&rounds), "asked in {rounds} rounds");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("fake: warning: unreachable: timed out"), "{text}");
}

/// One malformed list, one port that always answers for another, and ids that are never the same.
#[test]
fn an_app_whose_ports_cannot_be_read_is_not_fine() {
    let recording = || Recording::read(TESTPMD);
    let malformed = recording().with("/ethdev/list", r#"{"/ethdev/list":{"a":[0,"x"]}}"#);
    let wrong = recording().with("/ethdev/info,0", &recording().answer("/ethdev/info,1"));
    let wrong = wrong.with("/ethdev/list", r#"{"/ethdev/list":[0]}"#);
    let (jumping, asked) = (recording(), AtomicU32::new(7));
    let jump = move |request: &str| match request {
        "/ethdev/list" => {
            format!(r#"{{"/ethdev/list":[{}]}}"#, asked.fetch_add(1, Ordering::Relaxed))
        }
        other if other.starts_with("/ethdev/") => jumping.answer(&other.replace(',', ",0")),
        other => jumping.answer(other),
    };
    for (app, part) in [
        (FakeApp::replay(&malformed), "/ethdev/list: malformed reply"),
        (FakeApp::replay(&wrong), "/ethdev/info,0: the reply is about \"another object\""),
        (FakeApp::start(move |connection| connection.serve(&jump)), "/ethdev/info,"),
    ] {
        let (code, text) = check(&app, &[]);
        let found = format!("fake: warning: partly_seen: cannot read {part}");
        assert!(text.starts_with(&found) && code == Some(1), "{part}: {code:?} {text}");
        let (code, json) = check(&app, &["--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((code, &json["ok"]), (Some(1), &false.into()), "{json}");
    }
}

#[test]
fn a_tool_that_was_stopped_with_the_lock_makes_no_app_unhealthy() {
    let app = FakeApp::replay(&Recording::read(TESTPMD));
    let stopped = AppLock::open(app.dir()).unwrap();
    let _held = stopped.hold(Deadline::after(Duration::from_secs(60))).unwrap();
    let (code, text) = check(&app, &[]);
    // Most of the time went into the wait for the lock: there may be no second sample.
    assert!(text.starts_with("ok: 1 app, 2 ports: no "), "{text}");
    assert!(text.contains("; not checked: ") && code == Some(0), "{code:?} {text}");
}

/// A recording of 40 seconds, in which packets are missed in the fourth and in the thirtieth.
#[test]
fn findings_of_a_recording_have_their_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst");
    let options = RecordingOptions { path, ..RecordingOptions::default() };
    let begin_ns = 1_795_251_360_000_000_000;
    let mut recorder = TelemetryRecorder::create(options, begin_ns).unwrap();
    let (mut evaluator, mut fleet) = (Evaluator::new(LintRules::default()), FleetState::default());
    for second in 0..40 {
        let passed_ns = second * 1_000_000_000;
        let mut sample = Sample { realtime_ns: begin_ns + passed_ns, ..Sample::default() };
        (sample.schema, sample.app.name) = (SAMPLE_SCHEMA, "fwd".to_owned());
        (sample.monotonic_ns, sample.app.pid) = (1 + passed_ns, 7);
        let mut port = PortSample { device: "net0".into(), started: true, ..PortSample::default() };
        (port.stats.rx_packets, port.stats.rx_bytes) = (second * 1000, second * 64_000);
        port.stats.rx_missed = u64::from(second >= 4) + u64::from(second >= 30);
        sample.ports = vec![port];
        fleet.apply(evaluator.sampled(sample));
        (fleet.now_ns, fleet.realtime_ns) = (1 + passed_ns, begin_ns + passed_ns);
        recorder.record(&fleet, 0).unwrap();
    }
    let file = recorder.finish().unwrap().file;
    let replay = |option: &str| {
        let mut check = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
        check.args(["check", "--config", "none", option, "--replay"]).arg(&file);
        let output = output(&mut check).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, json) = replay("--json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found = &json["apps"][0]["findings"][0];
    assert_eq!((code, &found["lint"]), (Some(1), &"rx_missed".into()), "{json}");
    let expected = ["2026-11-21T08:56:04Z", "2026-11-21T08:56:30Z"];
    assert_eq!([&found["since"], &found["until"]], expected, "{json}");
    assert_eq!((&found["times"], &found["present"]), (&2.into(), &false.into()), "{json}");
    let (_, lines) = replay("-q");
    assert!(lines.contains(", 2 times)\n"), "{lines}");
}
