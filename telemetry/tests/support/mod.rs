//! A stand-in for the telemetry socket of an app, scripted by each test.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "test code, of which each program uses its part"
)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::{DiscoverOptions, DiscoveredApp, Reachability};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept,
    bind, listen, recv, send, shutdown, socket_with,
};
use serde::Deserialize;
use tempfile::TempDir;

pub const BANNER: &str = r#"{"version":"DPDK 22.11.11","pid":4711,"max_output_len":16384}"#;

/// A runtime directory with a listening telemetry socket.
pub struct FakeApp {
    root: TempDir,
    dir: PathBuf,
    listener: Arc<OwnedFd>,
}

/// The app's side of one connection.
pub struct Connection(OwnedFd);

impl Connection {
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        // The client may have left already; that is for the client's side of the test to judge.
        let _ = send(&self.0, bytes.as_ref(), SendFlags::NOSIGNAL);
    }

    /// The next request; `None` when the client has left.
    pub fn receive(&self) -> Option<String> {
        let mut buffer = [0; 2048];
        let (bytes, _) = recv(&self.0, &mut buffer, RecvFlags::empty()).ok()?;
        (bytes > 0).then(|| String::from_utf8(buffer[..bytes].to_vec()).unwrap())
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
    /// Listens and never accepts, as a stopped app does.
    pub fn stopped() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("dpdk/fake");
        std::fs::create_dir_all(&dir).unwrap();
        let listener = listener(&dir.join("dpdk_telemetry.v2"));
        Self { root, dir, listener: Arc::new(listener) }
    }

    /// Runs `behave` for each connection, one after the other.
    pub fn start(mut behave: impl FnMut(Connection) + Send + 'static) -> Self {
        let app = Self::stopped();
        let listener = Arc::clone(&app.listener);
        thread::spawn(move || {
            while let Ok(connection) = accept(&*listener) {
                behave(Connection(connection));
            }
        });
        app
    }

    /// Answers every request from a recording; a request that is not in it is answered with null.
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
            stale: false,
            timeout: Duration::from_secs(1),
        }
    }

    pub fn app(&self) -> DiscoveredApp {
        DiscoveredApp {
            name: "fake".into(),
            dir: self.dir.clone(),
            socket: self.socket(),
            pid: None,
            dpdk_version: None,
            state: Reachability::Live,
        }
    }
}

/// Runtime directories of several apps, which come and go.
pub struct Machine(TempDir);

/// An app that runs until it is dropped.
pub struct Running {
    listener: Arc<OwnedFd>,
    ended: Arc<AtomicBool>,
}

impl Machine {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn settings(&self) -> FleetSettings {
        let roots = vec![self.0.path().into()];
        let timeout = Duration::from_secs(2);
        FleetSettings {
            discover: DiscoverOptions { roots, stale: false, timeout },
            ..FleetSettings::default()
        }
    }

    /// Starts an app that answers from a recording.
    pub fn run(&self, prefix: &str, recording: &Recording) -> Running {
        let recording = recording.clone();
        self.serve(prefix, move |request| Some(recording.answer(request)))
    }

    /// Starts an app that takes requests and answers none.
    pub fn run_stuck(&self, prefix: &str) -> Running {
        self.serve(prefix, |_| None)
    }

    /// Starts an app that accepts nobody, as a stopped one does.
    pub fn run_silent(&self, prefix: &str) -> Running {
        let dir = self.0.path().join("dpdk").join(prefix);
        std::fs::create_dir_all(&dir).unwrap();
        let listener = Arc::new(listener(&dir.join("dpdk_telemetry.v2")));
        Running { listener, ended: Arc::new(AtomicBool::new(true)) }
    }

    fn serve(
        &self,
        prefix: &str,
        answer: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Running {
        let dir = self.0.path().join("dpdk").join(prefix);
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("dpdk_telemetry.v2");
        let _ = std::fs::remove_file(&socket);
        let (listener, ended) = (Arc::new(listener(&socket)), Arc::new(AtomicBool::new(false)));
        let (accepting, over) = (Arc::clone(&listener), Arc::clone(&ended));
        let answer = Arc::new(std::sync::Mutex::new(answer));
        thread::spawn(move || {
            while let Ok(connection) = accept(&*accepting) {
                let (answer, over) = (Arc::clone(&answer), Arc::clone(&over));
                thread::spawn(move || {
                    let connection = Connection(connection);
                    connection.send(BANNER);
                    while let Some(request) = connection.receive() {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        let reply = answer.lock().unwrap()(&request);
                        if let Some(reply) = reply {
                            connection.send(reply);
                        }
                    }
                });
            }
        });
        Running { listener, ended }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = shutdown(&*self.listener, Shutdown::Both);
    }
}

fn listener(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 1).unwrap();
    socket
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
