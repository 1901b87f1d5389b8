//! Follows the names of collectors, beside the thread that sends: name servers may take their time.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::collector::IpfixCollector;

/// Between two looks at the addresses of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(60);

/// Finds addresses; may wait for name servers.
pub(super) type LookupFn = fn(&IpfixCollector) -> io::Result<Vec<SocketAddr>>;

/// Where a collector's name leads.
#[derive(Debug)]
pub(super) struct ResolvedName {
    pub(super) collector: IpfixCollector,
    look: LookupFn,
    /// When it was last looked up.
    looked: Instant,
    /// Of a look that is under way.
    answer: Option<Receiver<Vec<SocketAddr>>>,
}

impl ResolvedName {
    /// One that has just been looked up.
    pub(super) fn new(collector: IpfixCollector, look: LookupFn) -> Self {
        Self { collector, look, looked: Instant::now(), answer: None }
    }

    /// What a look has found, one a minute. Never waits.
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

    /// Begins to look; where that cannot be done, the next try is as far as after a failure.
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

    /// As if a minute had passed.
    #[cfg(test)]
    pub(super) fn age(&mut self, look: LookupFn) {
        self.look = look;
        self.looked = Instant::now().checked_sub(LOOKUP_INTERVAL).unwrap();
    }
}
