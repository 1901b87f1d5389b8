//! Resolves the names of collectors again, without blocking the thread that sends: name servers may be
//! slow.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::collector::IpfixCollector;

/// Time between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(60);

/// A function that resolves a collector; it may wait for name servers.
pub(super) type LookupFn = fn(&IpfixCollector) -> io::Result<Vec<SocketAddr>>;

/// The name of a collector, which is resolved once a minute.
#[derive(Debug)]
pub(super) struct ResolvedName {
    pub(super) collector: IpfixCollector,
    look: LookupFn,
    /// Time of the last lookup.
    looked: Instant,
    /// Result of a lookup in progress.
    answer: Option<Receiver<Vec<SocketAddr>>>,
}

impl ResolvedName {
    /// Wraps a collector that has just been resolved.
    pub(super) fn new(collector: IpfixCollector, look: LookupFn) -> Self {
        Self { collector, look, looked: Instant::now(), answer: None }
    }

    /// Returns the result of a completed lookup; starts one a minute after the last. Never waits.
    pub(super) fn new_addresses(&mut self) -> Option<Vec<SocketAddr>> {
        let Some(answer) = &self.answer else {
            if self.collector.is_name() && self.looked.elapsed() >= LOOKUP_INTERVAL {
                self.ask();
            }
            return None;
        };
        let found = answer.try_recv();
        if found != Err(TryRecvError::Empty) {
            self.answer = None;
        }
        found.ok()
    }

    /// Starts a lookup in a thread. If that fails, the next attempt is a minute later, as after any
    /// failure.
    fn ask(&mut self) {
        self.looked = Instant::now();
        let (tell, answer) = sync_channel(1);
        let (collector, look) = (self.collector.clone(), self.look);
        let ask = move || {
            if let Ok(found) = look(&collector) {
                let _ = tell.send(found);
            }
        };
        let asks = thread::Builder::new().name("ipfix-name".to_owned()).spawn(ask);
        self.answer = asks.is_ok().then_some(answer);
    }

    /// Sets the time of the last lookup to a minute ago.
    #[cfg(test)]
    pub(super) fn age(&mut self, look: LookupFn) {
        self.look = look;
        self.looked = Instant::now().checked_sub(LOOKUP_INTERVAL).unwrap();
    }
}
