//! Tells collectors of conversations: IPFIX (RFC 7011) over UDP.
//!
//! The templates are few and never change, so the messages are written here: a crate with all of IANA's
//! elements, netgauze-flow-pkt, takes a minute to build.

mod collector;
mod counters;
mod encoder;
mod message;
mod name;
mod record;
mod sender;
mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Flow;
use crate::listener::{FlowEndReason, FlowListener};
pub use collector::{CollectorError, IpfixCollector};
use counters::ExportCounters;
pub use counters::{ExportCounts, ExportStatus};
use encoder::FlowEncoder;
use sender::SendQueue;

/// Largest message where nothing else is said: it goes through tunnels of Ethernet in one piece.
pub const MESSAGE: usize = 1420;

/// Bounds of what else may be said: templates must fit, and UDP must take it.
pub const SMALLEST: usize = 512;
/// The upper one.
pub const LARGEST: usize = 65_000;

/// Bytes that may wait to be sent: records of 200,000 ways, IPv4.
const QUEUE: usize = 16 << 20;

/// What to send, and where to.
#[derive(Clone, Debug)]
pub struct IpfixSettings {
    /// All of them get the same.
    pub collectors: Vec<IpfixCollector>,
    /// Observation domain. Collectors tell exporters of one host apart by it.
    pub domain: u32,
    /// How often templates, names of interfaces and the sampling are sent again.
    pub refresh: Duration,
    /// Most bytes of a message, [`SMALLEST`] to [`LARGEST`].
    pub message: usize,
    /// Announce that one packet in so many was counted, and send counts divided by it; 1 sends estimates as
    /// they are. Anything but 1 is right only where it holds for all packets from the first to the last.
    pub sample: u32,
    /// Wait for room rather than drop records: for files, not for rings.
    pub patient: bool,
}

/// Why conversations cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum IpfixError {
    /// A name has no address.
    #[error(
        "cannot find the collector {collector} (give an address, or a name that resolves here)"
    )]
    Unknown {
        /// Which.
        collector: IpfixCollector,
        /// Of the system.
        source: std::io::Error,
    },
    /// No socket.
    #[error("cannot send to the collector {collector}")]
    Socket {
        /// Which.
        collector: IpfixCollector,
        /// Of the system.
        source: std::io::Error,
    },
    /// No thread.
    #[error("cannot start the thread that sends to collectors")]
    Thread(#[source] std::io::Error),
}

/// Sends what it is told.
#[derive(Debug)]
pub struct IpfixExporter {
    encoder: FlowEncoder,
    queue: SendQueue,
    refresh: Duration,
    /// When templates were last sent.
    announced: Instant,
    counters: Arc<ExportCounters>,
}

/// Finds the collectors, and begins. This may wait for name servers.
///
/// # Errors
/// When a collector has no address, or there is no way to it.
pub fn start(settings: &IpfixSettings) -> Result<(IpfixExporter, ExportStatus), IpfixError> {
    let IpfixSettings { domain, sample, refresh, .. } = *settings;
    let message = settings.message.clamp(SMALLEST, LARGEST);
    let counters = Arc::new(ExportCounters::default());
    let queue = SendQueue::start(settings, QUEUE / message, &counters)?;
    let encoder = FlowEncoder::new(domain, sample, message, now);
    let announced = Instant::now();
    let status = ExportStatus(Arc::clone(&counters));
    Ok((IpfixExporter { encoder, queue, refresh, announced, counters }, status))
}

fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

impl FlowListener for IpfixExporter {
    fn flow(&mut self, flow: &Flow, apps: &[String], reason: FlowEndReason) {
        let Self { encoder, queue, counters, .. } = self;
        let encoded = encoder.flow(flow, apps, reason, &mut |datagram| queue.put(datagram));
        ExportCounters::add(&counters.flows, 1);
        ExportCounters::add(&counters.records, encoded.records);
        ExportCounters::add(&counters.rounded, encoded.rounded);
    }

    fn tick(&mut self, _now_ns: u64, _sample: u32) {
        let Self { encoder, queue, refresh, announced, .. } = self;
        if queue.is_announcement_wanted() || announced.elapsed() >= *refresh {
            *announced = Instant::now();
            encoder.announce();
        }
        encoder.flush(&mut |datagram| queue.put(datagram));
    }

    fn finish(&mut self) {
        self.encoder.flush(&mut |datagram| self.queue.put(datagram));
        self.queue.finish();
    }
}
