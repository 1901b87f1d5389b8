//! What a row, a selection or a detail view is about. Stays the same from sample to sample.

use pmdscope_telemetry::leak::SiteKind;
use pmdscope_telemetry::sample::Direction;

/// One thing of one app.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the fields are the names that operators use
pub enum Subject {
    /// The app itself.
    App { app: String },
    /// A finding, by its lint and subject.
    Finding { app: String, lint: &'static str, about: String },
    /// A port.
    Port { app: String, port: u16 },
    /// A queue of a port.
    Queue { app: String, port: u16, queue: u16, direction: Direction },
    /// A software ring.
    Ring { app: String, ring: String },
    /// A mempool.
    Pool { app: String, pool: String },
    /// The ledger of a mempool.
    Ledger { app: String, pool: String },
    /// A site that lost mbufs of a pool.
    Site { app: String, pool: String, id: u32, kind: SiteKind, site: String },
    /// A place that keeps mbufs for a while.
    Stage { app: String, stage: String },
    /// A polling lcore.
    Lcore { app: String, lcore: u32 },
    /// A ring of a capture session.
    Tee { app: String, session: u64, lcore: u32 },
}

impl Subject {
    /// The app that it belongs to.
    pub fn app(&self) -> &str {
        match self {
            Self::App { app }
            | Self::Finding { app, .. }
            | Self::Port { app, .. }
            | Self::Queue { app, .. }
            | Self::Ring { app, .. }
            | Self::Pool { app, .. }
            | Self::Ledger { app, .. }
            | Self::Site { app, .. }
            | Self::Stage { app, .. }
            | Self::Lcore { app, .. }
            | Self::Tee { app, .. } => app,
        }
    }

    /// In words, for headings.
    pub fn title(&self) -> String {
        match self {
            Self::App { app } => format!("app {app}"),
            Self::Finding { app, lint, about } if about.is_empty() => format!("{lint}: {app}"),
            Self::Finding { app, lint, about } => format!("{lint}: {app} {about}"),
            Self::Port { app, port } => format!("port {app}:{port}"),
            Self::Queue { app, port, queue, direction } => {
                format!("{} queue {app}:{port}:{queue}", direction_word(*direction))
            }
            Self::Ring { app, ring } => format!("ring {ring} of {app}"),
            Self::Pool { app, pool } => format!("pool {pool} of {app}"),
            Self::Ledger { app, pool } => format!("ledger of pool {pool} of {app}"),
            Self::Site { app, kind, site, .. } => format!("{kind} at {site} of {app}"),
            Self::Stage { app, stage } => format!("stage {stage} of {app}"),
            Self::Lcore { app, lcore } => format!("lcore {lcore} of {app}"),
            Self::Tee { app, session, lcore } => {
                format!("capture {session} of {app}, lcore {lcore}")
            }
        }
    }
}

/// `rx` or `tx`.
pub fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Rx => "rx",
        Direction::Tx => "tx",
    }
}
