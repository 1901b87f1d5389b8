//! Names of hosts and services for `--resolve`, looked up in the background.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pmdscope_flows::FlowEndpoint;

use super::format::UDP;

/// A name server that does not answer holds up as many lookups at once.
const THREADS: usize = 4;
/// Names that are kept, also those that there are none of; and lookups that wait.
const CACHED: usize = 4096;
const WAITING: usize = 1024;
/// Most characters of a name: those of DNS.
const NAME_MAX: usize = 253;

/// What may have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LookupKey {
    /// A host.
    Host(IpAddr),
    /// A port of UDP, or else of another protocol.
    Service { udp: bool, port: u16 },
}

type Lookup = dyn Fn(LookupKey) -> Option<String> + Send + Sync;

/// Looks names up and keeps them until it is dropped.
#[derive(Clone)]
pub(crate) struct NameResolver(Arc<ResolverState>);

struct ResolverState {
    names: Mutex<NameCache>,
    /// A lookup waits, or has ended.
    changed: Condvar,
    lookup: Box<Lookup>,
}

#[derive(Default)]
struct NameCache {
    /// `None` of what has no name.
    known: HashMap<LookupKey, Option<String>>,
    waiting: VecDeque<LookupKey>,
    /// Those that wait, and those being looked up.
    pending: HashSet<LookupKey>,
    closed: bool,
}

impl fmt::Debug for NameResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameResolver").finish_non_exhaustive()
    }
}

impl NameResolver {
    /// One where `--resolve` is given.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn for_option(resolve: bool) -> Result<Option<Self>> {
        let resolver = resolve.then(Self::start).transpose();
        resolver.context("cannot start the threads that look up names: leave out --resolve")
    }

    /// Asks the system: the files and servers that `nsswitch.conf` names.
    ///
    /// # Errors
    /// When no thread can be started.
    fn start() -> io::Result<Self> {
        Self::with(look_up)
    }

    /// Asks `lookup`, in several threads.
    pub(super) fn with(
        lookup: impl Fn(LookupKey) -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let state = Arc::new(ResolverState {
            names: Mutex::default(),
            changed: Condvar::new(),
            lookup: Box::new(lookup),
        });
        for _ in 0..THREADS {
            let state = Arc::clone(&state);
            // They end with the process: a lookup cannot be interrupted.
            thread::Builder::new().name("names".to_owned()).spawn(move || state.work())?;
        }
        Ok(Self(state))
    }

    /// Has the names of such ends looked up, and waits for all of them, for at most so long. Beyond
    /// [`WAITING`], they stay numbers until they are asked for again.
    pub(super) fn look_up(&self, ends: impl Iterator<Item = (u8, FlowEndpoint)>, wait: Duration) {
        let wanted = ends.flat_map(|(protocol, end)| keys(protocol, end)).collect::<HashSet<_>>();
        let mut names = self.0.lock();
        for key in &wanted {
            if names.waiting.len() < WAITING
                && !names.known.contains_key(key)
                && names.pending.insert(*key)
            {
                names.waiting.push_back(*key);
            }
        }
        self.0.changed.notify_all();
        let deadline = Instant::now() + wait;
        while wanted.iter().any(|key| names.pending.contains(key)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let result = self.0.changed.wait_timeout(names, left);
            names = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The name of a host, where it is known.
    pub(super) fn host(&self, end: FlowEndpoint) -> Option<String> {
        self.name(LookupKey::Host(end.addr))
    }

    /// The name of a port, where it is known.
    pub(super) fn service(&self, protocol: u8, end: FlowEndpoint) -> Option<String> {
        keys(protocol, end).nth(1).and_then(|key| self.name(key))
    }

    /// An end as in reports, with the names that are known.
    pub(super) fn endpoint(&self, protocol: u8, end: FlowEndpoint) -> String {
        let host = self.host(end).unwrap_or_else(|| match end.addr {
            IpAddr::V6(addr) if end.port != 0 => format!("[{addr}]"),
            addr => addr.to_string(),
        });
        match (end.port, self.service(protocol, end)) {
            (0, _) => host,
            (port, None) => format!("{host}:{port}"),
            (_, Some(service)) => format!("{host}:{service}"),
        }
    }

    /// As [`Self::endpoint`], with the names that are known by now. Those that are not are looked up
    /// meanwhile.
    pub(crate) fn endpoint_by_now(&self, protocol: u8, end: FlowEndpoint) -> String {
        self.look_up(std::iter::once((protocol, end)), Duration::ZERO);
        self.endpoint(protocol, end)
    }

    fn name(&self, key: LookupKey) -> Option<String> {
        self.0.lock().known.get(&key).cloned().flatten()
    }
}

impl Drop for NameResolver {
    fn drop(&mut self) {
        // The threads hold the others.
        if Arc::strong_count(&self.0) <= THREADS + 1 {
            self.0.lock().closed = true;
            self.0.changed.notify_all();
        }
    }
}

impl ResolverState {
    fn lock(&self) -> MutexGuard<'_, NameCache> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up what waits, one after the other.
    fn work(&self) {
        let mut names = self.lock();
        while !names.closed {
            let Some(key) = names.waiting.pop_front() else {
                names = self.changed.wait(names).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(names);
            let name = (self.lookup)(key).filter(|name| is_name(name));
            names = self.lock();
            if names.known.len() >= CACHED {
                names.known.clear();
            }
            names.known.insert(key, name);
            names.pending.remove(&key);
            self.changed.notify_all();
        }
    }
}

fn keys(protocol: u8, end: FlowEndpoint) -> impl Iterator<Item = LookupKey> {
    let service = LookupKey::Service { udp: protocol == UDP, port: end.port };
    std::iter::once(LookupKey::Host(end.addr)).chain((end.port != 0).then_some(service))
}

/// The owner of an address chooses its name, which may be anything.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(allowed)
}

fn look_up(key: LookupKey) -> Option<String> {
    match key {
        LookupKey::Host(addr) => {
            let name = dns_lookup::lookup_addr(&addr).ok()?;
            // Where there is no name, it is the address.
            (name.parse::<IpAddr>() != Ok(addr)).then_some(name)
        }
        LookupKey::Service { udp, port } => {
            let numeric_host = 1;
            let datagram = if udp { 16 } else { 0 };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let (_, name) = dns_lookup::getnameinfo(&address, numeric_host | datagram).ok()?;
            (name.parse() != Ok(port)).then_some(name)
        }
    }
}

#[cfg(test)]
mod tests;
