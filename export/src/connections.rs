//! Open connections: which client may have one more, and which one is closed for it.
//!
//! A connection waits for a request, or has one. Only those that wait are closed for others: first those
//! of the client with the most connections, the oldest first. So a client with many idle connections, or
//! with requests that never end, takes nothing from the others.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::options::ConnectionLimits;

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    V4(Ipv4Addr),
    /// The first 64 bits: a machine can use every address that begins with them.
    V6(u64),
    /// A user of a unix socket; `None` if the kernel does not tell.
    User(Option<u32>),
}

impl Client {
    /// Returns the client at an address.
    pub(crate) fn at(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(network(address)),
        }
    }
}

fn network(address: Ipv6Addr) -> u64 {
    (address.to_bits() >> 64) as u64
}

/// Why a connection was refused or closed, besides those that clients close or do not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Refused: its client has too many.
    ClientLimit,
    /// Refused: there are too many.
    TotalLimit,
    /// Closed: its request, or TLS handshake, was not complete in time.
    HeaderTimeout,
    /// Closed: the client did not read its response in time.
    ResponseTimeout,
}

/// Counts of connections since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectionCounts {
    /// Open now.
    pub(crate) open: u64,
    pub(crate) client_limit: u64,
    pub(crate) total_limit: u64,
    pub(crate) displaced: u64,
    pub(crate) header_timeout: u64,
    pub(crate) response_timeout: u64,
}

impl ConnectionCounts {
    fn of(&mut self, why: Rejection) -> &mut u64 {
        match why {
            Rejection::ClientLimit => &mut self.client_limit,
            Rejection::TotalLimit => &mut self.total_limit,
            Rejection::HeaderTimeout => &mut self.header_timeout,
            Rejection::ResponseTimeout => &mut self.response_timeout,
        }
    }
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has sent a part of a request, or none since it was accepted.
    Header,
    /// Its request is being answered.
    Answering,
    /// It is sent a response.
    Sending,
    /// It has had a response, and may send another request.
    Idle,
    /// It is to be closed.
    Displaced,
}

impl Phase {
    fn waits(self) -> bool {
        matches!(self, Self::Header | Self::Idle)
    }
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenConnections {
    by_id: BTreeMap<u64, OpenConnection>,
    counts: ConnectionCounts,
}

#[derive(Debug)]
struct OpenConnection {
    client: Client,
    /// Since when it waits for a complete request.
    waits_since: Instant,
    /// What it does, and since when.
    phase: watch::Sender<(Phase, Instant)>,
}

impl OpenConnection {
    fn phase(&self) -> Phase {
        self.phase.borrow().0
    }
}

impl ConnectionTable {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default(), last: AtomicU64::new(0) })
    }

    /// Returns the counts.
    pub(crate) fn counts(&self) -> ConnectionCounts {
        let open = self.lock();
        ConnectionCounts { open: open.by_id.len() as u64, ..open.counts }
    }

    /// Makes room for a connection of a client, if need be by closing another.
    ///
    /// # Errors
    /// Fails if all connections that could be closed for it have a request.
    pub(crate) fn admit(self: &Arc<Self>, client: Client) -> Result<Place, Rejection> {
        let mut open = self.lock();
        let made = open.make_room(client, &self.limits);
        if let Err(why) = made {
            *open.counts.of(why) += 1;
            return Err(why);
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let (phase, changes) = watch::channel((Phase::Header, now));
        open.by_id.insert(id, OpenConnection { client, waits_since: now, phase });
        let table = Arc::clone(self);
        Ok(Place { table, id, changes, buffered: AtomicBool::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn make_room(&mut self, client: Client, limits: &ConnectionLimits) -> Result<(), Rejection> {
        let own = self.by_id.values().filter(|open| open.client == client).count();
        let (victim, otherwise) = if own >= limits.per_client {
            (self.oldest_waiting(client), Rejection::ClientLimit)
        } else if self.by_id.len() >= limits.total {
            (self.dispensable(), Rejection::TotalLimit)
        } else {
            return Ok(());
        };
        let victim = victim.and_then(|id| self.by_id.remove(&id)).ok_or(otherwise)?;
        victim.phase.send_replace((Phase::Displaced, Instant::now()));
        self.counts.displaced += 1;
        Ok(())
    }

    /// Returns the connection of a client that has waited longest for a request.
    fn oldest_waiting(&self, client: Client) -> Option<u64> {
        let own = self.by_id.iter().filter(|(_, open)| open.client == client);
        let waiting = own.filter(|(_, open)| open.phase().waits());
        waiting.min_by_key(|(id, open)| (open.waits_since, **id)).map(|(id, _)| *id)
    }

    /// Returns the connection that has waited longest, of the client with the most connections among
    /// those that have one that waits.
    fn dispensable(&self) -> Option<u64> {
        let mut clients = BTreeMap::<Client, (usize, Option<(Instant, u64)>)>::new();
        for (id, open) in &self.by_id {
            let (number, oldest) = clients.entry(open.client).or_default();
            *number += 1;
            if open.phase().waits() {
                let this = (open.waits_since, *id);
                *oldest = Some(oldest.map_or(this, |oldest| oldest.min(this)));
            }
        }
        let waiting = clients.into_values().filter_map(|(number, oldest)| Some((number, oldest?)));
        waiting
            .max_by_key(|(number, oldest)| (*number, std::cmp::Reverse(*oldest)))
            .map(|(_, (_, id))| id)
    }
}

/// The place of one connection; released when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    table: Arc<ConnectionTable>,
    id: u64,
    changes: watch::Receiver<(Phase, Instant)>,
    /// All of the response is in buffers.
    buffered: AtomicBool,
}

impl Place {
    /// Notes what the connection does now.
    pub(crate) fn enter(&self, phase: Phase) {
        let now = Instant::now();
        let mut open = self.table.lock();
        // A connection that is being closed is not open any more.
        let Some(open) = open.by_id.get_mut(&self.id) else { return };
        if phase == Phase::Idle {
            open.waits_since = now;
        }
        open.phase.send_replace((phase, now));
    }

    /// Notes that the client has sent something.
    pub(crate) fn receives(&self) {
        if self.changes.borrow().0 == Phase::Idle {
            self.enter(Phase::Header);
        }
    }

    /// Notes that all of the response is in buffers.
    pub(crate) fn has_buffered(&self) {
        self.buffered.store(true, Ordering::Relaxed);
    }

    /// Notes that the buffers are empty.
    pub(crate) fn has_flushed(&self) {
        if self.buffered.swap(false, Ordering::Relaxed) {
            self.enter(Phase::Idle);
        }
    }

    /// Waits until the connection has to be closed.
    pub(crate) async fn overdue(&self) {
        let mut changes = self.changes.clone();
        let limits = self.table.limits;
        loop {
            let (phase, since) = *changes.borrow_and_update();
            let (limit, why) = match phase {
                Phase::Header => (Some(limits.header_timeout), Some(Rejection::HeaderTimeout)),
                Phase::Answering => (None, None),
                Phase::Sending => (Some(limits.response_timeout), Some(Rejection::ResponseTimeout)),
                Phase::Idle => (Some(limits.idle_timeout), None),
                Phase::Displaced => return,
            };
            tokio::select! {
                () = pause(since, limit) => {
                    if let Some(why) = why {
                        *self.table.lock().counts.of(why) += 1;
                    }
                    return;
                }
                // The sender is gone only after it has said that this one is displaced.
                Ok(()) = changes.changed() => {}
            }
        }
    }
}

async fn pause(since: Instant, limit: Option<Duration>) {
    match limit.and_then(|limit| since.checked_add(limit)) {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
