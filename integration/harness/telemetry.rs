//! DPDK's telemetry socket, asked without any of the code under test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::net::{SendFlags, send};
use serde_json::Value;

use crate::fake::{connect, receive};

/// Runtime directory of an app.
pub fn runtime_dir(app: &str) -> PathBuf {
    Path::new("/var/run/dpdk").join(app)
}

/// Telemetry socket of an app.
pub fn socket(app: &str) -> PathBuf {
    socket_in(&runtime_dir(app))
}

/// The same by its runtime directory.
pub fn socket_in(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("dpdk_telemetry.v2")
}

/// The reply of an app to one request.
pub fn ask(app: &str, request: &str) -> Result<Value> {
    ask_at(&socket(app), request)
}

/// The same, of the app that listens there.
pub fn ask_at(socket: &Path, request: &str) -> Result<Value> {
    let peer = connect(socket)?;
    receive(&peer).context("no greeting")?;
    send(&peer, request.as_bytes(), SendFlags::NOSIGNAL)?;
    let reply = receive(&peer).with_context(|| format!("no reply to {request}"))?;
    let mut reply: Value = serde_json::from_slice(&reply)?;
    let command = request.split(',').next().unwrap_or(request);
    let value = reply.get_mut(command).with_context(|| format!("no {command} in the reply"))?;
    Ok(value.take())
}

/// A number that an app answers with.
pub fn number(app: &str, request: &str, field: &str) -> Result<u64> {
    let reply = ask(app, request)?;
    reply[field].as_u64().with_context(|| format!("no number {field} in {request}: {reply}"))
}
