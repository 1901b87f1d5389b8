//! `pmdscope check` against an app that is stuck.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::{BANNER, FakeApp};

/// Each of five rounds waits a second for an answer.
#[test]
fn a_stuck_app_makes_no_check_longer_than_it_was_told() {
    let stuck = FakeApp::start(|connection| {
        connection.send(BANNER);
        while connection.receive().is_some() {}
    });
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_pmdscope"))
        .args(["check", "-q", "-a", "fake", "--for", "1", "--config", "none"])
        .env("RUNTIME_DIRECTORY", stuck.discovery().roots.remove(0))
        .output()
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("fake: warning: unreachable: timed out"), "{text}");
}
