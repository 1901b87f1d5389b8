//! `pmdscope-pdump`, the helper beside an app without libpmdscope: where it is, and how it runs.

pub(crate) mod helper;
mod process;
mod program;
#[cfg(test)]
pub(crate) mod script;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use self::helper::PdumpProcess;
pub use self::program::{PdumpProgram, PdumpProgramError};

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
pub struct PdumpOptions {
    /// The program.
    pub program: PathBuf,
    /// File-prefix of the app, without what stands for further instances.
    pub file_prefix: String,
    /// Directory that holds `dpdk/<file-prefix>`, which the EAL calls `$RUNTIME_DIRECTORY`.
    pub runtime_root: PathBuf,
    /// Process id of the app.
    pub pid: u32,
    /// CPUs that it may run on, as `0,2-3`.
    pub cpus: String,
    /// The app polls on these, because there are no others.
    pub crowded: bool,
    /// All ports of the app.
    pub ports: Vec<PdumpPort>,
    /// Go ahead where that may harm the app.
    pub force: bool,
}

/// Waits until the helpers of sessions that were dropped have left their apps, but not for longer than
/// told. What comes back are the process ids of those that have not, which leave when they can.
pub fn settle(timeout: Duration) -> Vec<u32> {
    helper::settle(None, timeout, &AtomicBool::new(false))
}

/// What helpers that are gone had to leave in their apps, as long as no later one has cleaned up: files
/// that say what, each in the runtime directory of its app.
pub fn left_behind() -> Vec<PathBuf> {
    helper::left_behind()
}
