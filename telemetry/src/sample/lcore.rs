//! Lcores and their threads.

use serde::{Deserialize, Serialize};

/// One polling lcore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreSample {
    /// lcore id.
    pub lcore: u32,
    /// Role: `main`, `worker` or `other`.
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
    /// Wall clock at the end of the longest gap, nanoseconds since 1970; 0 before the first gap.
    pub gap_max_realtime_ns: u64,
    /// Number of stalls: gaps of at least the stall threshold.
    pub stalls: u64,
    /// Lengths of the last stalls, newest first, microseconds; 0 if there are fewer. Empty if the library
    /// is too old to report them.
    #[serde(default)]
    pub stall_last_us: Vec<u64>,
    /// Wall clock at the ends of the stalls in `stall_last_us`, nanoseconds since 1970.
    #[serde(default)]
    pub stall_last_realtime_ns: Vec<u64>,
    /// Lengths of the stalls that no later one exceeded, newest and shortest first, microseconds; 0 if
    /// there are fewer. Empty if the library is too old to report them.
    #[serde(default)]
    pub stall_longest_us: Vec<u64>,
    /// Wall clock at the ends of the stalls in `stall_longest_us`, nanoseconds since 1970.
    #[serde(default)]
    pub stall_longest_realtime_ns: Vec<u64>,
    /// Histogram of gaps: less than 1 us, then [1,2), [2,4), ... us; the last bucket has no upper limit.
    pub gaps: Vec<u64>,
}

/// A thread that polls or serves an lcore, as reported by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadSample {
    /// lcore id; the thread id for a thread that serves no lcore.
    pub lcore: u32,
    /// Kernel thread id on this host.
    pub tid: u32,
    /// Name of the thread.
    #[serde(default)]
    pub name: String,
    /// Process id on this host of the secondary process that it belongs to; `None` for a thread of the app
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary: Option<u32>,
    /// CPUs that the thread may run on, as formatted by the kernel, for instance `2-3`.
    pub cpus: String,
    /// CPU that the thread last ran on.
    pub cpu: u32,
    /// Voluntary context switches: the thread slept or waited, which a poll loop should not do.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Whether the thread slept or waited when it was read: this sleep has no context switch in the time
    /// after.
    #[serde(default)]
    pub asleep: bool,
    /// State of the thread when it was read, as one letter of `/proc/PID/task/TID/stat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<char>,
    /// Function of the kernel in which the thread sleeps; `None` if it does not, or if the kernel does not
    /// tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_channel: Option<String>,
    /// Time since a thread that sleeps had a CPU, nanoseconds, estimated from the clock of the scheduler;
    /// `None` if it does not sleep, or if the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_run_ns: Option<u64>,
    /// Age of the thread when it was read, nanoseconds; 0 if unknown.
    #[serde(default)]
    pub age_ns: u64,
    /// Monotonic clock when the thread was read, nanoseconds; before `monotonic_ns` of the sample if the
    /// values are those of an earlier round.
    #[serde(default)]
    pub read_ns: u64,
    /// Time on a CPU, nanoseconds; `None` if the kernel does not count it.
    #[serde(default)]
    pub run_ns: Option<u64>,
    /// Time ready to run without a CPU, nanoseconds; `None` if the kernel does not count it.
    #[serde(default)]
    pub run_delay_ns: Option<u64>,
    /// Time that a hypervisor took from `cpu`, milliseconds, in steps of a clock tick (mostly 10); `None`
    /// if it is unknown.
    #[serde(default)]
    pub cpu_stolen_ms: Option<u64>,
    /// Frequency of `cpu`, kHz; read when a port has missed packets, and at least every 10 s. `None` if the
    /// kernel does not report it.
    #[serde(default)]
    pub cpu_khz: Option<u64>,
    /// Highest frequency that `cpu` can sustain, kHz, without short boosts if the kernel distinguishes
    /// them; `None` if it is unknown.
    #[serde(default)]
    pub cpu_max_khz: Option<u64>,
}

impl ThreadSample {
    /// Returns its time on a CPU or ready to run, nanoseconds; `None` if the kernel does not count it.
    pub(crate) fn busy_ns(&self) -> Option<u64> {
        Some(self.run_ns?.saturating_add(self.run_delay_ns.unwrap_or(0)))
    }

    /// Returns how often it slept or waited since it was read `before`; `None` after a reset. A sleep
    /// that began before has no context switch in this time, but counts.
    pub(crate) fn sleeps_since(&self, before: &Self) -> Option<u64> {
        let switches = self.voluntary_switches.checked_sub(before.voluntary_switches)?;
        Some(switches.saturating_add(before.asleep.into()))
    }
}

/// Cycles of one lcore, as counted by the app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageSample {
    /// lcore id.
    pub lcore: u32,
    /// Cycles spent on work.
    pub busy: u64,
    /// All cycles.
    pub total: u64,
}

/// Role of one lcore, as reported by the EAL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreRoleSample {
    /// lcore id.
    pub lcore: u32,
    /// Role in terms of DPDK: `RTE`, `SERVICE`, or `NON_EAL` for a thread that the app registered itself.
    pub role: String,
    /// CPUs of the lcore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
}
