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
pub use self::program::{BUILD_COMMAND, PdumpProgram, PdumpProgramError, release};

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
    /// Go into the namespaces of the app, as of its container.
    pub enter: bool,
    /// Go ahead where that may harm the app.
    pub force: bool,
}

/// Waits until the helpers of dropped sessions have exited, or until the timeout. Returns the process
/// ids of those that are still running; they exit as soon as they can.
pub fn wait_for_exits(timeout: Duration) -> Vec<u32> {
    helper::wait_for_exits(None, timeout, &AtomicBool::new(false))
}

/// State files of helpers that exited without undoing everything, unless a later one has cleaned up.
/// Each is in the runtime directory of its app and lists what is left in the app.
pub fn remaining_state_files() -> Vec<PathBuf> {
    helper::remaining_state_files()
}
