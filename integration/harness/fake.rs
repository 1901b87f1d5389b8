//! Fake apps that listen on a telemetry socket: a relay that sees every request to a real app, or one
//! that answers from a recording.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};
pub use pmdscope_testing::{BANNER, Exchange, FakeApp, FakeConnection, receive};
use rustix::net::{SendFlags, send};
use serde_json::Value;

use crate::programs;

/// Passes everything on to the app that listens on `app`, and back.
pub fn relay(socket: &Path, app: &Path) -> Result<FakeApp> {
    let app = app.to_owned();
    let relay = FakeApp::start(socket, move |connection| {
        let Ok(app) = connect(&app) else { return };
        let Some(banner) = receive(&app) else { return };
        connection.send(banner);
        connection.answer(|request| {
            send(&app, request.as_bytes(), SendFlags::NOSIGNAL).ok()?;
            receive(&app)
        });
    });
    relay.with_context(|| socket.display().to_string())
}

/// Answers from a recording below `telemetry/tests/data`, and otherwise with null, as DPDK does.
pub fn replay(socket: &Path, recording: &str) -> Result<FakeApp> {
    let replies = recorded(recording)?;
    let replay = FakeApp::answering(socket, move |request| replies.get(request).cloned());
    replay.with_context(|| socket.display().to_string())
}

/// Connects as a telemetry client that waits no longer than a few seconds.
pub fn connect(path: &Path) -> Result<OwnedFd> {
    pmdscope_testing::connect(path).with_context(|| path.display().to_string())
}

/// Requests and replies of a recording below `telemetry/tests/data`.
pub fn recorded(name: &str) -> Result<BTreeMap<String, String>> {
    let path = programs::root().join("telemetry/tests/data").join(name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut replies = BTreeMap::new();
    for line in text.lines() {
        let exchange: Value = serde_json::from_str(line)?;
        if let (Some(request), Some(reply)) =
            (exchange["request"].as_str(), exchange["reply"].as_str())
        {
            replies.insert(request.to_owned(), reply.to_owned());
        }
    }
    Ok(replies)
}

/// The reply to a request.
pub fn answer(replies: &BTreeMap<String, String>, request: &str) -> String {
    replies.get(request).cloned().unwrap_or_else(|| pmdscope_testing::null(request))
}
