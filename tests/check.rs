//! `pmdscope check` against an app that is stuck.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pmdscope_testing::output;

use support::{BANNER, FakeApp};

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
    let mut check = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    check.args(["check", "-q", "-a", "fake", "--for", "1", "--config", "none"]);
    let output = output(check.env("RUNTIME_DIRECTORY", stuck.discovery().roots.remove(0))).unwrap();
    let rounds = rounds.load(Ordering::Relaxed);
    assert!((1..=3).contains(&rounds), "asked in {rounds} rounds");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("fake: warning: unreachable: timed out"), "{text}");
}
