//! Captures of other tools.

use serde::{Deserialize, Serialize};

/// A capture of another tool, such as `dpdk-dumpcap`: a secondary process that has the app copy its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignCaptureSample {
    /// Process id of the tool, in the PID namespace of the app; `None` if only its memory is known.
    pub pid: Option<u32>,
    /// Name of the tool; `None` if its process is not visible.
    pub program: Option<String>,
    /// Mempool of its copies; `None` if it has none yet.
    pub pool: Option<String>,
    /// Whether the process runs. One that was killed leaves its hooks in the app.
    pub runs: bool,
}

impl ForeignCaptureSample {
    /// Returns the process that made a mempool of `dpdk-dumpcap`, from its name: `capture_4711`.
    pub(crate) fn pid_of_pool(pool: &str) -> Option<u32> {
        pool.strip_prefix("capture_")?.parse().ok()
    }

    /// Whether a mempool of this name has the copies of `dpdk-pdump`, which has no process id.
    pub(crate) fn is_of_pdump(pool: &str) -> bool {
        let number = pool.strip_prefix("pdump_pool_");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    }
}
