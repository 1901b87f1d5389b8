//! `pmdscope-pdump`, the helper that captures from an app without libpmdscope: how it is found and
//! started.

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

/// A port of an app, described for a helper that does not see the ports itself.
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

/// How to start `pmdscope-pdump` for a stock app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdumpOptions {
    /// The program.
    pub program: PathBuf,
    /// File-prefix of the app, without the suffix of further instances.
    pub file_prefix: String,
    /// Directory that holds `dpdk/<file-prefix>`, which the EAL calls `$RUNTIME_DIRECTORY`.
    pub runtime_root: PathBuf,
    /// Process id of the app.
    pub pid: u32,
    /// CPUs that the helper may run on, as `0,2-3`.
    pub cpus: String,
    /// Whether the app polls on these CPUs, because there are no others.
    pub crowded: bool,
    /// All ports of the app.
    pub ports: Vec<PdumpPort>,
    /// Whether the app is in another PID namespace, as in a container: the helper enters it, so that its
    /// process id there is not known.
    pub other_pids: bool,
    /// Start even if that may harm the app.
    pub force: bool,
}

/// Waits until the helpers of dropped sessions have exited, or until the timeout. Returns the process
/// ids of those that are still running; they exit as soon as they can.
pub fn wait_for_exits(timeout: Duration) -> Vec<u32> {
    helper::wait_for_exits(None, timeout, &AtomicBool::new(false))
}

/// Returns the state files of helpers that exited without undoing everything, unless a later one
/// has cleaned up. Each is in the runtime directory of its app, and lists the changes that remain
/// in the app.
pub fn remaining_state_files() -> Vec<PathBuf> {
    helper::remaining_state_files()
}
