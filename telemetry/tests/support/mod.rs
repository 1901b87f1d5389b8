//! A fake telemetry socket of an app, with a script for each test.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "test code, of which each program uses its part"
)]

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::{DiscoverOptions, DiscoveredApp, Reachability};
use pmdscope_testing::FakeConnection;
use serde::Deserialize;
use tempfile::TempDir;

pub const BANNER: &str = r#"{"version":"DPDK 22.11.11","pid":4711,"max_output_len":16384}"#;

/// A runtime directory with a listening telemetry socket.
pub struct FakeApp {
    root: TempDir,
    dir: PathBuf,
    _app: pmdscope_testing::FakeApp,
}

/// The app's side of one connection.
pub struct Connection(FakeConnection);

impl Connection {
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        self.0.send(bytes);
    }

    /// Returns the next request; `None` when the client has left.
    pub fn receive(&self) -> Option<String> {
        self.0.receive()
    }

    /// Sends the banner, then answers each request with what `answer` returns for it.
    pub fn serve(&self, mut answer: impl FnMut(&str) -> String) {
        self.send(BANNER);
        while let Some(request) = self.receive() {
            self.send(answer(&request));
        }
    }
}

impl FakeApp {
    /// Listens, but never accepts, as a stopped app does.
    pub fn stopped() -> Self {
        Self::with(pmdscope_testing::FakeApp::stopped)
    }

    /// Runs `behave` for each connection, one after the other.
    pub fn start(behave: impl FnMut(Connection) + Send + 'static) -> Self {
        let behave = Mutex::new(behave);
        let behave = move |connection: &FakeConnection| {
            let mut behave = behave.lock().unwrap_or_else(PoisonError::into_inner);
            behave(Connection(connection.clone()));
        };
        Self::with(|socket| pmdscope_testing::FakeApp::start(socket, behave))
    }

    fn with(start: impl FnOnce(&Path) -> io::Result<pmdscope_testing::FakeApp>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("dpdk/fake");
        let app = start(&dir.join("dpdk_telemetry.v2")).unwrap();
        Self { root, dir, _app: app }
    }

    /// Answers every request from a recording; others are answered by null.
    pub fn replay(recording: &Recording) -> Self {
        let recording = recording.clone();
        Self::start(move |connection| connection.serve(|request| recording.answer(request)))
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("dpdk_telemetry.v2")
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn discovery(&self) -> DiscoverOptions {
        DiscoverOptions {
            roots: vec![self.root.path().into()],
            proc: None,
            timeout: Duration::from_secs(1),
            ..DiscoverOptions::default()
        }
    }

    pub fn app(&self) -> DiscoveredApp {
        DiscoveredApp::in_dir(&self.dir, "fake", "dpdk_telemetry.v2", Reachability::Live)
    }
}

/// Runtime directories of several apps, which start and end.
pub struct Machine(TempDir);

/// An app that runs until it is dropped, and then leaves its socket behind, as a killed one does.
pub struct Running {
    _app: pmdscope_testing::FakeApp,
}

impl Machine {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn settings(&self) -> FleetSettings {
        let roots = vec![self.0.path().into()];
        let timeout = Duration::from_secs(2);
        FleetSettings {
            discover: DiscoverOptions { roots, proc: None, timeout, ..DiscoverOptions::default() },
            ..FleetSettings::default()
        }
    }

    /// Starts an app that answers from a recording.
    pub fn run(&self, prefix: &str, recording: &Recording) -> Running {
        let recording = recording.clone();
        self.serve(prefix, move |request| Some(recording.answer(request)))
    }

    /// Starts an app that receives requests, but answers none.
    pub fn run_stuck(&self, prefix: &str) -> Running {
        self.serve(prefix, |_| None)
    }

    /// Starts an app that does not accept connections, as a stopped one does.
    pub fn run_silent(&self, prefix: &str) -> Running {
        let app = pmdscope_testing::FakeApp::stopped(&self.socket(prefix)).unwrap();
        Running { _app: app.leaving_its_socket() }
    }

    /// Starts an app that sends its banner when `wait` returns, and answers no requests.
    pub fn greet_after(&self, prefix: &str, wait: impl Fn() + Send + Sync + 'static) -> Running {
        let app = pmdscope_testing::FakeApp::start(&self.socket(prefix), move |connection| {
            wait();
            connection.send(BANNER);
            while connection.receive().is_some() {}
        });
        Running { _app: app.unwrap().leaving_its_socket() }
    }

    /// Starts an app that answers each request with the result of `answer`; no answer for `None`.
    pub fn serve(
        &self,
        prefix: &str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Running {
        let socket = self.socket(prefix);
        let _ = std::fs::remove_file(&socket);
        let app = pmdscope_testing::FakeApp::start(&socket, move |connection| {
            connection.send(BANNER);
            while let Some(request) = connection.receive() {
                if let Some(reply) = answer(&request) {
                    connection.send(reply);
                }
            }
        });
        Running { _app: app.unwrap().leaving_its_socket() }
    }

    fn socket(&self, prefix: &str) -> PathBuf {
        self.0.path().join("dpdk").join(prefix).join("dpdk_telemetry.v2")
    }
}

#[derive(Clone, Deserialize)]
struct Exchange {
    request: Option<String>,
    reply: String,
}

/// Requests and replies as recorded by data/record.py, in order.
#[derive(Clone, Default)]
pub struct Recording(VecDeque<Exchange>);

impl Recording {
    pub fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let lines = std::fs::read_to_string(path).unwrap();
        Self(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Replaces the reply to `request`, or adds it.
    pub fn with(mut self, request: &str, reply: &str) -> Self {
        self.0.retain(|exchange| exchange.request.as_deref() != Some(request));
        self.0.push_back(Exchange { request: Some(request.into()), reply: reply.into() });
        self
    }

    pub fn answer(&self, request: &str) -> String {
        let known = self.0.iter().find(|exchange| exchange.request.as_deref() == Some(request));
        known.map_or_else(
            || format!(r#"{{"{}":null}}"#, request.split(',').next().unwrap_or_default()),
            |exchange| exchange.reply.clone(),
        )
    }
}
