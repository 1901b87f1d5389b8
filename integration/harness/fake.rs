//! What listens on a telemetry socket without being an app: one that answers as a test has it, or a
//! relay that hears every request made of a real one.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::net::{accept_with, bind, listen, recv, send, shutdown, socket_with, sockopt};
use serde_json::Value;

use crate::programs;

/// What DPDK says first.
pub const BANNER: &str = r#"{"version":"DPDK 22.11.11","pid":1,"max_output_len":16384}"#;

/// Largest message; more than the 16 KiB of DPDK.
const LARGEST: usize = 1 << 18;

/// What a client asked, and what it was told.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request.
    pub request: String,
    /// The reply; empty as long as there is none.
    pub reply: String,
}

/// What all connections have in common.
#[derive(Debug, Default)]
struct Shared {
    exchanges: Mutex<Vec<Exchange>>,
    peers: Mutex<Vec<Arc<OwnedFd>>>,
    connections: AtomicUsize,
    asked: AtomicUsize,
    overlaps: AtomicUsize,
    held: AtomicBool,
}

/// A listening telemetry socket. Dropping it hangs up on everybody.
#[derive(Debug)]
pub struct Fake {
    socket: PathBuf,
    listener: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

/// The app's side of one connection.
#[derive(Debug)]
pub struct Connection {
    peer: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

impl Fake {
    /// Listens and never accepts, as a stopped app does.
    pub fn stopped(socket: &Path) -> Result<Self> {
        fs::create_dir_all(socket.parent().context("a socket without a directory")?)?;
        let listener = open()?;
        bind(&listener, &SocketAddrUnix::new(socket)?)?;
        // As DPDK does.
        listen(&listener, 1)?;
        let shared = Arc::default();
        Ok(Self { socket: socket.to_owned(), listener: Arc::new(listener), shared })
    }

    /// Runs `behave` for each connection, all at once.
    pub fn start(
        socket: &Path,
        behave: impl Fn(&Connection) + Send + Sync + 'static,
    ) -> Result<Self> {
        let fake = Self::stopped(socket)?;
        let (listener, shared) = (Arc::clone(&fake.listener), Arc::clone(&fake.shared));
        let behave = Arc::new(behave);
        thread::spawn(move || {
            while let Ok(peer) = accept_with(&*listener, SocketFlags::CLOEXEC) {
                let (peer, shared) = (Arc::new(peer), Arc::clone(&shared));
                lock(&shared.peers).push(Arc::clone(&peer));
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let behave = Arc::clone(&behave);
                thread::spawn(move || {
                    let connection = Connection { peer, shared };
                    behave(&connection);
                    connection.hang_up();
                });
            }
        });
        Ok(fake)
    }

    /// Passes everything on to the app that listens on `app`, and back.
    pub fn relay(socket: &Path, app: &Path) -> Result<Self> {
        let app = app.to_owned();
        Self::start(socket, move |connection| {
            let Ok(app) = connect(&app) else { return };
            let Some(banner) = receive(&app) else { return };
            connection.send(banner);
            connection.answer(|request| {
                send(&app, request.as_bytes(), SendFlags::NOSIGNAL).ok()?;
                receive(&app)
            });
        })
    }

    /// Answers from a recording below `telemetry/tests/data`, and otherwise with null, as DPDK does.
    pub fn replay(socket: &Path, recording: &str) -> Result<Self> {
        let replies = recorded(recording)?;
        Self::start(socket, move |connection| {
            connection.send(BANNER);
            connection.answer(|request| Some(answer(&replies, request).into_bytes()));
        })
    }

    /// All requests so far, and their replies.
    pub fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.shared.exchanges).clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Requests that arrived while another was not answered yet.
    pub fn overlaps(&self) -> usize {
        self.shared.overlaps.load(Ordering::SeqCst)
    }

    /// From now on replies are kept back, or given.
    pub fn hold(&self, held: bool) {
        self.shared.held.store(held, Ordering::SeqCst);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.hold(false);
        let _ = fs::remove_file(&self.socket);
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for peer in lock(&self.shared.peers).iter() {
            let _ = shutdown(&**peer, Shutdown::Both);
        }
    }
}

impl Connection {
    /// Sends one message, also an empty one.
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        // The client may have left already; that is for the client's side of the test to judge.
        let _ = send(&*self.peer, bytes.as_ref(), SendFlags::NOSIGNAL);
    }

    /// The next request; `None` when the client has left.
    pub fn receive(&self) -> Option<String> {
        self.next().map(|(_, request)| request)
    }

    /// Answers each request with what `reply` returns for it, until that or the client has enough.
    pub fn answer(&self, reply: impl Fn(&str) -> Option<Vec<u8>>) {
        while let Some((number, request)) = self.next() {
            if self.shared.asked.fetch_add(1, Ordering::SeqCst) > 0 {
                self.shared.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            let reply = reply(&request);
            while self.shared.held.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            self.shared.asked.fetch_sub(1, Ordering::SeqCst);
            let Some(reply) = reply else { return };
            if let Some(exchange) = lock(&self.shared.exchanges).get_mut(number) {
                exchange.reply = String::from_utf8_lossy(&reply).into_owned();
            }
            self.send(reply);
        }
    }

    /// The next request, and its place among the exchanges.
    fn next(&self) -> Option<(usize, String)> {
        let request = String::from_utf8(receive(&self.peer)?).ok()?;
        let mut exchanges = lock(&self.shared.exchanges);
        exchanges.push(Exchange { request: request.clone(), reply: String::new() });
        Some((exchanges.len() - 1, request))
    }

    fn hang_up(&self) {
        let _ = shutdown(&*self.peer, Shutdown::Both);
        lock(&self.shared.peers).retain(|peer| !Arc::ptr_eq(peer, &self.peer));
    }
}

/// Connects as a telemetry client that waits no longer than a few seconds.
pub fn connect(path: &Path) -> Result<OwnedFd> {
    let socket = open()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(5)))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::net::connect(&socket, &address).with_context(|| path.display().to_string())?;
    Ok(socket)
}

/// One message; `None` at the end of the connection.
pub fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; LARGEST];
    let bytes = loop {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            other => break other.ok()?.1,
        }
    };
    buffer.truncate(bytes);
    (bytes > 0).then_some(buffer)
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
    let command = request.split(',').next().unwrap_or_default();
    replies.get(request).cloned().unwrap_or_else(|| format!(r#"{{"{command}":null}}"#))
}

fn open() -> Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
