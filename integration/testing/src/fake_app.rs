//! A fake app: listens on a telemetry socket, and answers as a test specifies.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::net::{accept_with, bind, listen, recv, send, shutdown, socket_with, sockopt};

/// The first message of DPDK.
pub const BANNER: &str = r#"{"version":"DPDK 22.11.11","pid":1,"max_output_len":16384}"#;

/// Largest message; more than the 16 KiB of DPDK.
const MAX_MESSAGE_BYTES: usize = 1 << 18;

/// A request of a client, and the reply to it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request.
    pub request: String,
    /// The reply; empty until it is sent.
    pub reply: String,
}

/// State that all connections share.
#[derive(Debug, Default)]
struct FakeAppState {
    exchanges: Mutex<Vec<Exchange>>,
    peers: Mutex<Vec<Arc<OwnedFd>>>,
    connections: AtomicUsize,
    unanswered: AtomicUsize,
    overlaps: AtomicUsize,
    /// Replies are held back.
    held: Mutex<bool>,
    released: Condvar,
}

/// A listening telemetry socket. Dropping it closes all connections and removes the socket.
#[derive(Debug)]
pub struct FakeApp {
    socket: PathBuf,
    listener: Arc<OwnedFd>,
    state: Arc<FakeAppState>,
    leaves_socket: bool,
}

/// The app's side of one connection.
#[derive(Clone, Debug)]
pub struct FakeConnection {
    peer: Arc<OwnedFd>,
    state: Arc<FakeAppState>,
}

impl FakeApp {
    /// Listens and never accepts, as a stopped app does.
    ///
    /// # Errors
    /// When the system refuses, for instance because the path is too long or in use.
    pub fn stopped(socket: &Path) -> io::Result<Self> {
        if let Some(dir) = socket.parent() {
            fs::create_dir_all(dir)?;
        }
        let listener = open()?;
        bind(&listener, &SocketAddrUnix::new(socket)?)?;
        // As DPDK does.
        listen(&listener, 1)?;
        let (socket, listener) = (socket.to_owned(), Arc::new(listener));
        Ok(Self { socket, listener, state: Arc::default(), leaves_socket: false })
    }

    /// Runs `behave` for each connection, all at the same time.
    ///
    /// # Errors
    /// As [`FakeApp::stopped`].
    pub fn start(
        socket: &Path,
        behave: impl Fn(&FakeConnection) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let app = Self::stopped(socket)?;
        let (listener, state) = (Arc::clone(&app.listener), Arc::clone(&app.state));
        let behave = Arc::new(behave);
        thread::spawn(move || {
            while let Ok(peer) = accept_with(&*listener, SocketFlags::CLOEXEC) {
                let (peer, state) = (Arc::new(peer), Arc::clone(&state));
                lock(&state.peers).push(Arc::clone(&peer));
                state.connections.fetch_add(1, Ordering::SeqCst);
                let behave = Arc::clone(&behave);
                thread::spawn(move || {
                    let connection = FakeConnection { peer, state };
                    behave(&connection);
                    connection.hang_up();
                });
            }
        });
        Ok(app)
    }

    /// Answers each request with what `reply` returns for it, or else with null, as DPDK does.
    ///
    /// # Errors
    /// As [`FakeApp::stopped`].
    pub fn answering(
        socket: &Path,
        reply: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start(socket, move |connection| {
            connection.send(BANNER);
            connection.answer(|request| {
                Some(reply(request).unwrap_or_else(|| null(request)).into_bytes())
            });
        })
    }

    /// The same as a killed app: its socket file remains, and no process listens.
    #[must_use]
    pub fn leaving_its_socket(mut self) -> Self {
        self.leaves_socket = true;
        self
    }

    /// All requests so far, and their replies.
    pub fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.state.exchanges).clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Requests that arrived while another was not answered yet.
    pub fn overlaps(&self) -> usize {
        self.state.overlaps.load(Ordering::SeqCst)
    }

    /// Requests that wait for their reply now.
    pub fn unanswered(&self) -> usize {
        self.state.unanswered.load(Ordering::SeqCst)
    }

    /// Holds back replies from now on, or releases them.
    pub fn hold(&self, held: bool) {
        *lock(&self.state.held) = held;
        self.state.released.notify_all();
    }
}

impl Drop for FakeApp {
    fn drop(&mut self) {
        self.hold(false);
        if !self.leaves_socket {
            // A test may have removed it.
            let _ = fs::remove_file(&self.socket);
        }
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for peer in lock(&self.state.peers).iter() {
            let _ = shutdown(&**peer, Shutdown::Both);
        }
    }
}

impl FakeConnection {
    /// Sends one message, also an empty one.
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        // The client may have left already; the client's side of the test checks that.
        let _ = send(&*self.peer, bytes.as_ref(), SendFlags::NOSIGNAL);
    }

    /// The next request; `None` when the client has left.
    pub fn receive(&self) -> Option<String> {
        self.next().map(|(_, request)| request)
    }

    /// Answers each request with what `reply` returns for it, until that or the client has enough.
    pub fn answer(&self, reply: impl Fn(&str) -> Option<Vec<u8>>) {
        while let Some((number, request)) = self.next() {
            if self.state.unanswered.fetch_add(1, Ordering::SeqCst) > 0 {
                self.state.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            let reply = reply(&request);
            let held = self.state.released.wait_while(lock(&self.state.held), |held| *held);
            drop(held);
            self.state.unanswered.fetch_sub(1, Ordering::SeqCst);
            let Some(reply) = reply else { return };
            if let Some(exchange) = lock(&self.state.exchanges).get_mut(number) {
                exchange.reply = String::from_utf8_lossy(&reply).into_owned();
            }
            self.send(reply);
        }
    }

    /// The next request, and its place among the exchanges.
    fn next(&self) -> Option<(usize, String)> {
        let request = String::from_utf8(receive(&self.peer)?).ok()?;
        let mut exchanges = lock(&self.state.exchanges);
        exchanges.push(Exchange { request: request.clone(), reply: String::new() });
        Some((exchanges.len() - 1, request))
    }

    fn hang_up(&self) {
        let _ = shutdown(&*self.peer, Shutdown::Both);
        lock(&self.state.peers).retain(|peer| !Arc::ptr_eq(peer, &self.peer));
    }
}

/// DPDK's reply to a request that it does not know.
pub fn null(request: &str) -> String {
    format!(r#"{{"{}":null}}"#, request.split(',').next().unwrap_or_default())
}

/// Connects as a telemetry client that waits no longer than a few seconds.
///
/// # Errors
/// When no process listens, or the system refuses.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = open()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(5)))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// One message; `None` at the end of the connection.
pub fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; MAX_MESSAGE_BYTES];
    let bytes = loop {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            other => break other.ok()?.1,
        }
    };
    buffer.truncate(bytes);
    (bytes > 0).then_some(buffer)
}

fn open() -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
