//! Lcores and their threads.

use serde::{Deserialize, Serialize};

/// One polling lcore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreSample {
    /// lcore id.
    pub lcore: u32,
    /// `main`, `worker` or `other`.
    pub role: String,
    /// Kernel thread id in the app's pid namespace.
    pub tid: u64,
    /// Iterations of the poll loop.
    pub polls: u64,
    /// Iterations with at least one packet.
    pub busy_polls: u64,
    /// Packets received.
    pub packets: u64,
    /// Time since the last iteration, microseconds.
    pub idle_us: u64,
    /// Longest gap between two iterations in the last complete window, microseconds.
    pub gap_window_max_us: u64,
    /// Longest gap since start, microseconds.
    pub gap_max_us: u64,
    /// Wall clock at the end of the longest gap, 0 before the first.
    pub gap_max_realtime_ns: u64,
    /// Gaps above the stall threshold.
    pub stalls: u64,
    /// Lengths of the last stalls, newest first, microseconds; 0 where there is none. Empty where the
    /// library is too old to tell.
    #[serde(default)]
    pub stall_last_us: Vec<u64>,
    /// Wall clock at the ends of the same stalls.
    #[serde(default)]
    pub stall_last_realtime_ns: Vec<u64>,
    /// Lengths of the stalls that no later one exceeded, newest and shortest first, microseconds; 0 where
    /// there is none. Empty where the library is too old to tell.
    #[serde(default)]
    pub stall_longest_us: Vec<u64>,
    /// Wall clock at the ends of the same stalls.
    #[serde(default)]
    pub stall_longest_realtime_ns: Vec<u64>,
    /// Gaps: under 1 us, then [1,2), [2,4), ... us, the last open-ended.
    pub gaps: Vec<u64>,
}

/// The kernel's view of the thread of one lcore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadSample {
    /// lcore id.
    pub lcore: u32,
    /// Kernel thread id on this host.
    pub tid: u32,
    /// CPUs it may run on, as the kernel writes them, for instance `2-3`.
    pub cpus: String,
    /// CPU it ran on last.
    pub cpu: u32,
    /// Voluntary context switches: it slept or waited, which a poll loop should not do.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// It slept or waited when this was read: no switch tells that it did so in the time after.
    #[serde(default)]
    pub asleep: bool,
    /// When this was read, monotonic clock, nanoseconds; before [`Sample::monotonic_ns`](super::Sample::monotonic_ns) when it is
    /// remembered from a round before.
    #[serde(default)]
    pub read_ns: u64,
    /// Time on a CPU, nanoseconds; `None` where the kernel does not count it.
    #[serde(default)]
    pub run_ns: Option<u64>,
    /// Time ready to run without a CPU, nanoseconds; `None` where the kernel does not count it.
    #[serde(default)]
    pub run_delay_ns: Option<u64>,
    /// Time that a hypervisor took from `cpu`, milliseconds, in steps of a clock tick (mostly 10).
    #[serde(default)]
    pub cpu_stolen_ms: Option<u64>,
    /// Clock of `cpu`, kHz; read when a port has missed packets, and at least every 10 s. `None` where
    /// the kernel does not report it.
    #[serde(default)]
    pub cpu_khz: Option<u64>,
    /// The clock that `cpu` can sustain, kHz; without short boosts where the kernel tells them apart.
    #[serde(default)]
    pub cpu_max_khz: Option<u64>,
}

impl ThreadSample {
    /// Returns how often it slept or waited since it was read `before`; `None` after a reset. A sleep
    /// that began before has no context switch in this time, but counts.
    pub(crate) fn sleeps_since(&self, before: &Self) -> Option<u64> {
        let switches = self.voluntary_switches.checked_sub(before.voluntary_switches)?;
        Some(switches.saturating_add(before.asleep.into()))
    }
}

/// Cycles of one lcore as the app itself counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageSample {
    /// lcore id.
    pub lcore: u32,
    /// Cycles with work.
    pub busy: u64,
    /// All cycles.
    pub total: u64,
}

/// Role of one lcore, as the EAL says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreRoleSample {
    /// lcore id.
    pub lcore: u32,
    /// DPDK's word: `RTE`, `SERVICE`, or `NON_EAL` for a thread that the app registered itself.
    pub role: String,
}
