//! Exports conversations to collectors: IPFIX (RFC 7011) over UDP.
//!
//! The templates are few and never change, so messages are encoded here: netgauze-flow-pkt, a crate
//! with all IANA elements, takes a minute to build.

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

/// Default size limit of a message: it fits into one frame, also in Ethernet tunnels.
pub const MESSAGE: usize = 1420;

/// Smallest size limit of a message: templates must fit.
pub const SMALLEST: usize = 512;
/// Largest size limit of a message: UDP must be able to send it.
pub const LARGEST: usize = 65_000;

/// Bytes that may wait to be sent: more than 200,000 IPv4 records.
const QUEUE: usize = 16 << 20;

/// Collectors, and settings of the export.
#[derive(Clone, Debug)]
pub struct IpfixSettings {
    /// Collectors; all of them get the same messages.
    pub collectors: Vec<IpfixCollector>,
    /// Observation domain, by which collectors distinguish exporters of one host.
    pub domain: u32,
    /// Interval at which templates, interface names and the sampling are sent again.
    pub refresh: Duration,
    /// Most bytes of a message, [`SMALLEST`] to [`LARGEST`].
    pub message: usize,
    /// Sampling interval to announce: counts are divided by it. 1 sends estimates as they are. Other
    /// values are only valid if they apply to all packets from the first to the last.
    pub sample: u32,
    /// Wait for space in the queue instead of dropping records: for files, not for captures.
    pub patient: bool,
}

/// Why conversations cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum IpfixError {
    /// The name of a collector does not resolve.
    #[error(
        "cannot find the collector {collector} (give an address, or a name that resolves here)"
    )]
    Unknown {
        /// The collector.
        collector: IpfixCollector,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A socket could not be opened or connected.
    #[error("cannot send to the collector {collector}")]
    Socket {
        /// The collector.
        collector: IpfixCollector,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the thread that sends to collectors")]
    Thread(#[source] std::io::Error),
}

/// A listener that exports the conversations reported to it.
#[derive(Debug)]
pub struct IpfixExporter {
    encoder: FlowEncoder,
    queue: SendQueue,
    refresh: Duration,
    /// When templates were last sent.
    announced: Instant,
    counters: Arc<ExportCounters>,
}

/// Resolves the collectors and starts the export. This may wait for name servers.
///
/// # Errors
/// Fails if a collector has no address, if no socket can be opened, or if the thread cannot be started.
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
