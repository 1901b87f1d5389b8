//! How the packets of an app are reached: by its own capture socket, or by a helper of ours.

use std::path::PathBuf;
use std::time::Duration;

use crate::layout::Request;
use crate::session::{Session, SessionError};

/// A port as DPDK knows it, for a helper that sees no ports itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdumpPort {
    /// DPDK port id.
    pub id: u16,
    /// Device name.
    pub device: String,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
}

/// How to start `pmdscope-pdump` beside a stock app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdump {
    /// The program.
    pub program: PathBuf,
    /// File-prefix of the app, without what stands for further instances.
    pub file_prefix: String,
    /// Process id of the app.
    pub pid: u32,
    /// CPUs that it may run on, as `0,2-3`.
    pub cpus: String,
    /// All ports of the app.
    pub ports: Vec<PdumpPort>,
    /// Go ahead where that may harm the app.
    pub force: bool,
}

/// How the packets of an app are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// The app has libpmdscope, which listens there.
    Socket(PathBuf),
    /// The app has only called `rte_pdump_init()`.
    Pdump(Box<Pdump>),
}

impl Door {
    /// Arms a capture.
    ///
    /// # Errors
    /// As [`Session::open`]; and when the helper cannot be started, or finds that it would do harm.
    pub fn open(&self, request: &Request, timeout: Duration) -> Result<Session, SessionError> {
        match self {
            Self::Socket(path) => Session::open(path, request, timeout),
            Self::Pdump(_) => Err(SessionError::Closed),
        }
    }

    /// What stands between the app and its packets, for people; `None` for the app itself.
    pub fn via(&self) -> Option<&'static str> {
        match self {
            Self::Socket(_) => None,
            Self::Pdump(_) => Some("pdump"),
        }
    }
}
