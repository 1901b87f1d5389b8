//! The client of a telemetry socket: one request at a time, each with a deadline.
//!
//! A reply names its command but not its parameters, so a reply that arrives after its deadline could
//! be taken for the answer to the next request. Therefore a timeout closes the connection for good.

mod announced;
mod greeting;

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::de::{DeserializeOwned, DeserializeSeed};

use self::announced::AnnouncedRequests;
pub(crate) use self::greeting::Greeting;
use crate::commands::{HeapId, LcoreId, PoolName, PortId, RingName, TelemetryCommand};
use crate::deadline::Deadline;
use crate::error::TelemetryError;
use crate::raw_replies::ReplyKeeper;
use crate::reply::{self, SocketBanner};

/// Size of the buffer before the banner: the limit that every DPDK release so far announces.
const BANNER_BYTES: usize = 16384;

/// Requests of a batch that are sent ahead of their replies. Few, so that an app that was stopped has
/// few to answer for a client that has left, and their replies fit into a socket.
const IN_FLIGHT: usize = 8;

/// DPDK silently truncates lists at this number of entries.
pub(crate) const LIST_LIMIT: usize = 512;

/// A process, distinguished from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketPeer {
    /// Process id on this host; 0 if the app is in a PID namespace that is not visible from here.
    pub pid: u32,
    /// Start of the process, clock ticks since boot; 0 when `/proc` does not report it.
    pub start_ticks: u64,
}

/// A connection to one app.
#[derive(Debug)]
pub struct TelemetryClient {
    /// `None` once the connection is closed.
    socket: Option<OwnedFd>,
    banner: SocketBanner,
    peer: SocketPeer,
    buffer: Vec<u8>,
    requests: u32,
    reply_bytes: usize,
    announced: AnnouncedRequests,
    /// Receives the raw replies.
    keeper: Option<ReplyKeeper>,
}

impl TelemetryClient {
    /// Connects and reads the banner.
    ///
    /// # Errors
    /// [`TelemetryError::Refused`], [`TelemetryError::Permission`], [`TelemetryError::Untrusted`],
    /// [`TelemetryError::Busy`] (all connections of the app are taken), [`TelemetryError::Timeout`] (a
    /// stopped app), [`TelemetryError::Malformed`] (not a DPDK app).
    pub fn connect(socket: &Path, deadline: Deadline) -> Result<Self, TelemetryError> {
        Self::connect_to(socket, &mut None, deadline)
    }

    /// Connects as [`TelemetryClient::connect`]; sets `found` to the process that listens, which the
    /// kernel reports even if the app does not answer.
    pub(crate) fn connect_to(
        socket: &Path,
        found: &mut Option<SocketPeer>,
        deadline: Deadline,
    ) -> Result<Self, TelemetryError> {
        let mut greeting = Greeting::new(socket)?;
        let connected = deadline.retry(|| greeting.connect());
        *found = greeting.peer;
        connected?.ok_or(TelemetryError::Timeout("connecting"))?;
        let mut buffer = Vec::new();
        let banner = loop {
            if let Some(banner) = greeting.banner(&mut buffer)? {
                break banner;
            }
            await_event(&greeting, PollFlags::IN, deadline, "waiting for the banner")?;
        };
        let longest = usize::try_from(banner.max_output_len).unwrap_or(BANNER_BYTES);
        buffer.resize(longest.max(BANNER_BYTES), 0);
        let peer = greeting.peer.ok_or(TelemetryError::Closed)?;
        Ok(Self {
            socket: Some(greeting.into_socket()),
            banner,
            peer,
            buffer,
            requests: 0,
            reply_bytes: 0,
            announced: AnnouncedRequests::default(),
            keeper: None,
        })
    }

    /// Sets the keeper of the next replies.
    pub(crate) fn keep_replies(&mut self, keeper: Option<ReplyKeeper>) {
        self.keeper = keeper;
    }

    /// Returns the banner, which the app sent on connecting.
    pub fn banner(&self) -> &SocketBanner {
        &self.banner
    }

    /// Returns the process at the other end.
    pub fn peer(&self) -> SocketPeer {
        self.peer
    }

    /// Returns the number of requests made so far.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Whether the connection is open and nothing unexpected arrived on it.
    pub fn is_usable(&self) -> bool {
        // A connection that waits for replies may have data to read.
        self.socket.as_ref().is_some_and(|socket| self.announced.is_under_way() || is_quiet(socket))
    }

    /// Whether the last reply is so long that DPDK may have truncated it.
    pub(crate) fn reply_nearly_full(&self) -> bool {
        self.reply_bytes as u64 + 128 >= self.banner.max_output_len
    }

    /// Sends the request `endpoint`, and parses the reply as `T`.
    ///
    /// # Errors
    /// [`TelemetryError::Null`] when the app answers null; [`TelemetryError::Timeout`], [`TelemetryError::Closed`],
    /// [`TelemetryError::Mismatch`] and [`TelemetryError::Io`] close the connection for good; the others concern this
    /// request alone.
    pub fn request<T: DeserializeOwned>(
        &mut self,
        endpoint: &TelemetryCommand,
        deadline: Deadline,
    ) -> Result<T, TelemetryError> {
        self.request_as(endpoint, PhantomData, deadline)
    }

    /// Sends a request as [`TelemetryClient::request`]; the reply is parsed by `shape`.
    pub(crate) fn request_as<T>(
        &mut self,
        endpoint: &TelemetryCommand,
        shape: impl for<'de> DeserializeSeed<'de, Value = T>,
        deadline: Deadline,
    ) -> Result<T, TelemetryError> {
        let result = self.exchange(endpoint, shape, deadline);
        if result.as_ref().is_err_and(TelemetryError::ends_connection) {
            self.close();
        }
        result
    }

    /// Requests the ids of the ports, sorted.
    ///
    /// # Errors
    /// As [`TelemetryClient::request`].
    pub fn ports(&mut self, deadline: Deadline) -> Result<Vec<PortId>, TelemetryError> {
        let mut ids: Vec<u16> = self.request(&TelemetryCommand::EthdevList, deadline)?;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.into_iter().map(PortId).collect())
    }

    /// Requests the ids of the heaps, sorted.
    ///
    /// # Errors
    /// As [`TelemetryClient::request`].
    pub fn heaps(&mut self, deadline: Deadline) -> Result<Vec<HeapId>, TelemetryError> {
        let mut ids: Vec<u16> = self.request(&TelemetryCommand::HeapList, deadline)?;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.into_iter().map(HeapId).collect())
    }

    /// Requests the ids of the lcores, sorted; DPDK 23.03 and later.
    ///
    /// # Errors
    /// As [`TelemetryClient::request`].
    pub fn lcores(&mut self, deadline: Deadline) -> Result<Vec<LcoreId>, TelemetryError> {
        let mut ids: Vec<u32> = self.request(&TelemetryCommand::LcoreList, deadline)?;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.into_iter().map(LcoreId).collect())
    }

    /// Requests the names of the mempools, sorted.
    ///
    /// # Errors
    /// As [`TelemetryClient::request`].
    pub fn pools(&mut self, deadline: Deadline) -> Result<Vec<PoolName>, TelemetryError> {
        Ok(self
            .names(&TelemetryCommand::MempoolList, deadline)?
            .into_iter()
            .map(PoolName)
            .collect())
    }

    /// Requests the names of the software rings, sorted; DPDK 24.03 and later.
    ///
    /// # Errors
    /// As [`TelemetryClient::request`].
    pub fn rings(&mut self, deadline: Deadline) -> Result<Vec<RingName>, TelemetryError> {
        Ok(self.names(&TelemetryCommand::RingList, deadline)?.into_iter().map(RingName).collect())
    }

    fn names(
        &mut self,
        list: &TelemetryCommand,
        deadline: Deadline,
    ) -> Result<Vec<String>, TelemetryError> {
        let mut names: Vec<String> = self.request(list, deadline)?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Announces the next requests, in their order. A few are sent ahead of the replies, so that
    /// neither side sleeps between two of them: DPDK answers the requests of a connection in order.
    /// Any other request withdraws those that are left.
    pub(crate) fn announce(&mut self, requests: Vec<TelemetryCommand>, deadline: Deadline) {
        self.withdraw(deadline);
        if self.is_usable() {
            self.announced = AnnouncedRequests::new(requests);
            self.send_ahead(deadline);
        }
    }

    /// Withdraws the announced requests that were not made. Replies to those that were sent ahead are
    /// received and discarded.
    pub(crate) fn withdraw(&mut self, deadline: Deadline) {
        while self.announced.is_under_way() {
            self.announced.pop();
            if self.await_reply(deadline).is_err() {
                self.close();
            }
        }
        self.announced = AnnouncedRequests::default();
    }

    /// Makes several requests, a few ahead of the replies. Once the connection is lost, the others fail.
    pub(crate) fn request_each<T>(
        &mut self,
        requests: &[(TelemetryCommand, impl for<'de> DeserializeSeed<'de, Value = T> + Copy)],
        deadline: Deadline,
    ) -> Vec<Result<T, TelemetryError>> {
        let commands = requests.iter().map(|(endpoint, _)| endpoint);
        if !self.announced.begin_with(commands.clone()) {
            self.announce(commands.cloned().collect(), deadline);
        }
        let request =
            |(endpoint, shape): &(TelemetryCommand, _)| self.request_as(endpoint, *shape, deadline);
        requests.iter().map(request).collect()
    }

    /// Sends announced requests, up to the limit of outstanding ones.
    fn send_ahead(&mut self, deadline: Deadline) {
        while let Some(next) = self.announced.next_to_send(IN_FLIGHT).cloned() {
            // The request is sent again, and fails again, when it is made.
            if self.send(&next, deadline).is_err() {
                return;
            }
            self.announced.sent();
        }
    }

    fn close(&mut self) {
        self.socket = None;
        self.announced = AnnouncedRequests::default();
    }

    fn exchange<T>(
        &mut self,
        endpoint: &TelemetryCommand,
        shape: impl for<'de> DeserializeSeed<'de, Value = T>,
        deadline: Deadline,
    ) -> Result<T, TelemetryError> {
        if !self.announced.begin_with([endpoint]) {
            self.withdraw(deadline);
        }
        if !self.announced.pop() {
            self.ask(endpoint, deadline)?;
        }
        self.await_reply(deadline)?;
        // While this reply is parsed, the app answers the next requests.
        self.send_ahead(deadline);
        self.parse(endpoint, shape)
    }

    fn ask(
        &mut self,
        endpoint: &TelemetryCommand,
        deadline: Deadline,
    ) -> Result<(), TelemetryError> {
        self.socket.as_ref().filter(|s| is_quiet(s)).ok_or(TelemetryError::Closed)?;
        self.send(endpoint, deadline)
    }

    fn send(
        &mut self,
        endpoint: &TelemetryCommand,
        deadline: Deadline,
    ) -> Result<(), TelemetryError> {
        let request = endpoint.request()?;
        let socket = self.socket.as_ref().ok_or(TelemetryError::Closed)?;
        self.requests += 1;
        transmit(socket, request.as_bytes(), deadline)
    }

    fn await_reply(&mut self, deadline: Deadline) -> Result<(), TelemetryError> {
        let socket = self.socket.as_ref().ok_or(TelemetryError::Closed)?;
        let bytes = receive(socket, &mut self.buffer, deadline, "waiting for a reply")?;
        self.reply_bytes = bytes.len();
        if bytes.is_empty() { Err(TelemetryError::Closed) } else { Ok(()) }
    }

    /// Parses the last received reply.
    fn parse<T>(
        &self,
        endpoint: &TelemetryCommand,
        shape: impl for<'de> DeserializeSeed<'de, Value = T>,
    ) -> Result<T, TelemetryError> {
        let bytes = self.buffer.get(..self.reply_bytes).unwrap_or_default();
        if let Some(keeper) = &self.keeper {
            keeper.keep(&endpoint.to_string(), bytes);
        }
        reply::reply_as(bytes, endpoint.command(), shape)
    }
}

/// Whether the socket is open and has nothing to read.
fn is_quiet(socket: &OwnedFd) -> bool {
    let mut byte = [0];
    matches!(
        recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

fn transmit(socket: &OwnedFd, bytes: &[u8], deadline: Deadline) -> Result<(), TelemetryError> {
    loop {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => await_event(socket, PollFlags::OUT, deadline, "sending")?,
            Err(errno) => return Err(TelemetryError::io("cannot send", errno)),
        }
    }
}

/// Receives one message; empty at the end of the connection.
fn receive<'a>(
    socket: &OwnedFd,
    buffer: &'a mut [u8],
    deadline: Deadline,
    action: &'static str,
) -> Result<&'a [u8], TelemetryError> {
    let bytes = loop {
        // The reply has often arrived: the app wrote it while the one before was parsed.
        match recv(socket, &mut *buffer, RecvFlags::TRUNC) {
            Ok((_, bytes)) => break bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => await_event(socket, PollFlags::IN, deadline, action)?,
            Err(errno) => return Err(TelemetryError::io("cannot receive", errno)),
        }
    };
    buffer.get(..bytes).ok_or(TelemetryError::Truncated { bytes })
}

fn await_event(
    socket: impl AsFd,
    events: PollFlags,
    deadline: Deadline,
    action: &'static str,
) -> Result<(), TelemetryError> {
    match deadline.wait(socket, events) {
        Ok(true) => Ok(()),
        Ok(false) => Err(TelemetryError::Timeout(action)),
        Err(errno) => Err(TelemetryError::io("cannot wait for the socket", errno)),
    }
}
