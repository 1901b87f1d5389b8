//! The subject of a row, a selection or a detail view. It stays the same from sample to sample.

use pmdscope_flows::{Flow, FlowEndpoint, IcmpKind, Tunnel};
use pmdscope_packets::{DIR_RX, DIR_TX};
use pmdscope_telemetry::finding::{FindingSubject, Lint};
use pmdscope_telemetry::sample::{QueueDirection, SiteKind};

use crate::conversation::{endpoint, protocol};
use crate::number::{UNKNOWN, known};

/// One thing of one app, or of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the fields are the names that operators use
pub enum Subject {
    /// The app itself.
    App { app: String },
    /// A finding, by its lint and subject; without an app about an interface of the host.
    Finding { app: String, lint: Lint, about: FindingSubject },
    /// A port.
    Port { app: String, port: u16 },
    /// An interface of the kernel, or one of its RX queues.
    Interface { interface: String, queue: Option<u32> },
    /// A queue of a port.
    Queue { app: String, port: u16, queue: u16, direction: QueueDirection },
    /// All queues of a port in one direction.
    Queues { app: String, port: u16, direction: QueueDirection },
    /// A software ring.
    Ring { app: String, ring: String },
    /// A mempool.
    Pool { app: String, pool: String },
    /// The ledger of a mempool.
    Ledger { app: String, pool: String },
    /// A site that lost mbufs of a pool.
    Site { app: String, pool: String, id: u32, kind: SiteKind, site: String },
    /// Lost packets of a mempool that have something in common, by their place in the scan.
    Lost { app: String, pool: String, group: usize },
    /// The last reply to a request.
    Reply { app: String, request: String },
    /// A place that keeps mbufs for a while.
    Stage { app: String, stage: String },
    /// A polling lcore.
    Lcore { app: String, lcore: u32 },
    /// A ring of a capture session.
    Tee { app: String, session: u64, lcore: u32 },
    /// The packets captured from an app.
    Tap { app: String },
    /// A conversation.
    Conversation { app: String, key: ConversationKey },
    /// The load of a queue; `dir` as in [`pmdscope_flows::QueueCounts`].
    Load { app: String, port: u16, dir: u8, queue: Option<u16> },
}

/// Identifies a conversation of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the fields are those of a flow
pub struct ConversationKey {
    pub proto: u8,
    pub local: FlowEndpoint,
    pub remote: FlowEndpoint,
    pub vlans: [u16; 2],
    pub inner_vlans: [u16; 2],
    pub tunnel: Option<Tunnel>,
    pub icmp: Option<IcmpKind>,
    /// The same ends may meet again.
    pub first_ns: u64,
}

impl ConversationKey {
    /// The key of a conversation.
    pub fn of(flow: &Flow) -> Self {
        let Flow { proto, local, remote, vlans, inner_vlans, tunnel, icmp, first_ns, .. } = *flow;
        Self { proto, local, remote, vlans, inner_vlans, tunnel, icmp, first_ns }
    }
}

impl Subject {
    /// The app that it belongs to; empty for the host.
    pub fn app(&self) -> &str {
        match self {
            Self::App { app }
            | Self::Finding { app, .. }
            | Self::Port { app, .. }
            | Self::Queue { app, .. }
            | Self::Queues { app, .. }
            | Self::Ring { app, .. }
            | Self::Pool { app, .. }
            | Self::Ledger { app, .. }
            | Self::Site { app, .. }
            | Self::Lost { app, .. }
            | Self::Reply { app, .. }
            | Self::Stage { app, .. }
            | Self::Lcore { app, .. }
            | Self::Tee { app, .. }
            | Self::Tap { app }
            | Self::Conversation { app, .. }
            | Self::Load { app, .. } => app,
            Self::Interface { .. } => "",
        }
    }

    /// In words, for headings.
    pub fn title(&self) -> String {
        match self {
            Self::App { app } => format!("app {app}"),
            Self::Finding { app, lint, about } if about.is_app() => format!("{lint}: {app}"),
            Self::Finding { app, lint, about } if app.is_empty() => format!("{lint}: {about}"),
            Self::Finding { app, lint, about } => format!("{lint}: {app} {about}"),
            Self::Port { app, port } => format!("port {app}:{port}"),
            Self::Queue { app, port, queue, direction } => {
                format!("{} queue {app}:{port}:{queue}", direction_word(*direction))
            }
            Self::Queues { app, port, direction } => {
                format!("{} queues of port {app}:{port}", direction_word(*direction))
            }
            Self::Interface { interface, queue: None } => format!("interface {interface}"),
            Self::Interface { interface, queue: Some(queue) } => {
                format!("queue {queue} of interface {interface}")
            }
            Self::Ring { app, ring } => format!("ring {ring} of {app}"),
            Self::Pool { app, pool } => format!("pool {pool} of {app}"),
            Self::Ledger { app, pool } => format!("ledger of pool {pool} of {app}"),
            Self::Site { app, kind, site, .. } => format!("{kind} at {site} of {app}"),
            Self::Lost { app, pool, .. } => format!("lost packets of pool {pool} of {app}"),
            Self::Reply { app, request } => format!("{request} of {app}"),
            Self::Stage { app, stage } => format!("stage {stage} of {app}"),
            Self::Lcore { app, lcore } => format!("lcore {lcore} of {app}"),
            Self::Tee { app, session, lcore } => {
                format!("capture {session} of {app}, lcore {lcore}")
            }
            Self::Tap { app } => format!("packets of {app}"),
            Self::Conversation { app, key } => {
                let [local, remote] = [key.local, key.remote].map(endpoint);
                format!("{} {local} - {remote} of {app}", protocol(key.proto))
            }
            Self::Load { app, port, dir, queue } => {
                format!(
                    "{} load of queue {app}:{port}:{}",
                    direction_name(*dir),
                    known(*queue, |q| q.to_string())
                )
            }
        }
    }
}

/// `rx` or `tx`.
pub fn direction_word(direction: QueueDirection) -> &'static str {
    match direction {
        QueueDirection::Rx => "rx",
        QueueDirection::Tx => "tx",
    }
}

/// `rx`, `tx` or, where the direction is not known, `-`.
pub fn direction_name(dir: u8) -> &'static str {
    match dir {
        DIR_RX => "rx",
        DIR_TX => "tx",
        _ => UNKNOWN,
    }
}
