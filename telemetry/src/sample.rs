//! The data of one app at one time: raw, serialisable, nothing derived.

mod capture;
mod lcore;
pub(crate) mod ledger;
mod memory;
mod netdev;
mod port;
pub mod queue_counters;
mod scan;
mod sent;
mod stolen;
mod xstats;

use serde::{Deserialize, Serialize};

use crate::host::Container;

pub use self::capture::ForeignCaptureSample;
pub use self::lcore::{LcoreRoleSample, LcoreSample, ThreadSample, UsageSample};
use self::ledger::LEDGER_IMBALANCE;
pub use self::ledger::{
    BEFORE_ARMING, LedgerMode, LedgerSample, MbufPlace, NOT_PROVEN, SiteKind, SiteSample,
    StageSample, UNTRACED_CODE,
};
pub use self::memory::{
    CorruptObjectSample, CorruptPoolSample, CountSource, FedQueue, HeapGroupSample, HeapSample,
    HighWater, PoolOccupancy, PoolSample, RingSample, RingUserSample, XraySample,
};
pub use self::netdev::{NetdevSample, NetdevState};
pub use self::port::{
    DeviceSample, PcieLinkSample, PortEventsSample, PortSample, PortStats, QueueDirection,
    QueueSample, counts_bytes,
};
pub use self::scan::{LostGroupSample, PoolScanSample, ScanSample};
pub(crate) use self::sent::SentByPort;
pub use self::stolen::{CauseTotals, StolenCause, StolenSample, TracingMethod, TracingSample};
pub use self::xstats::Xstats;
use crate::error::TelemetryError;

/// Version of the serialised form of [`Sample`]; raised when a field changes its meaning.
pub const SAMPLE_SCHEMA: u32 = 1;

/// The reason of a part that was read, but may be incomplete.
pub(crate) const CUT_LIST: &str = "DPDK may have cut the list";

/// The part of a round that names the lock between tools.
pub(crate) const LOCK_PART: &str = "lock";

/// All data that were read from one app in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Version of the format of a sample; raised when a field changes its meaning.
    pub schema: u32,
    /// Wall clock at the end of the round, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Monotonic clock at the same moment, nanoseconds; rates are computed from it.
    pub monotonic_ns: u64,
    /// Duration of the round, nanoseconds.
    pub duration_ns: u64,
    /// Number of requests to the app in this round.
    pub requests: u32,
    /// Identity of the app.
    pub app: AppIdentity,
    /// End of the process of the app that answered before this one; `None` if there was none, or if the
    /// kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<EndedProcess>,
    /// Ports, in ascending order of id.
    pub ports: Vec<PortSample>,
    /// Mempools, sorted by name.
    pub pools: Vec<PoolSample>,
    /// Queues; empty without libpmdscope (`xstats` of a port may have counters of its queues).
    pub queues: Vec<QueueSample>,
    /// Software rings.
    pub rings: Vec<RingSample>,
    /// Polling lcores; empty without libpmdscope.
    pub lcores: Vec<LcoreSample>,
    /// Starts, stops and link changes of ports since libpmdscope started; empty without it.
    #[serde(default)]
    pub port_events: Vec<PortEventsSample>,
    /// Rings of capture sessions.
    pub tee: Vec<TeeSample>,
    /// Ledgers of mbuf pools, sorted by name; empty without libpmdscope.
    #[serde(default)]
    pub ledger: Vec<LedgerSample>,
    /// Sites that lost or misused mbufs, most lost mbufs first; empty without libpmdscope.
    #[serde(default)]
    pub sites: Vec<SiteSample>,
    /// Places that hold mbufs, sorted by name; empty without libpmdscope.
    #[serde(default)]
    pub stages: Vec<StageSample>,
    /// Result of the last scan of the app's memory; `None` if it was not scanned.
    #[serde(default)]
    pub scan: Option<ScanSample>,
    /// PCI devices that the EAL arguments of the app name, as reported by the kernel.
    #[serde(default)]
    pub devices: Vec<DeviceSample>,
    /// Interfaces of the kernel that virtual devices in the EAL arguments use, in the network namespace of the app;
    /// at most 1 s old.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netdevs: Vec<NetdevSample>,
    /// PCIe links of the ports, as reported by the kernel; at most 10 s old.
    #[serde(default)]
    pub pcie_links: Vec<PcieLinkSample>,
    /// Threads that poll or serve lcores, of the app and of its secondary processes, as reported by the
    /// kernel; empty if `/proc` does not report them.
    #[serde(default)]
    pub threads: Vec<ThreadSample>,
    /// Threads that may poll and are not among `threads`, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads_left_out: Vec<String>,
    /// Time taken from lcores; `None` without tracing.
    #[serde(default)]
    pub tracing: Option<TracingSample>,
    /// Heaps of the EAL; at most 10 s old, because reading them takes the lock of `rte_malloc()`.
    #[serde(default)]
    pub heaps: Vec<HeapSample>,
    /// Cycles of lcores as counted by the app (`rte_lcore_register_usage_cb()`); DPDK 23.03 and later.
    #[serde(default)]
    pub usage: Vec<UsageSample>,
    /// Roles of lcores; at most 10 s old; DPDK 23.03 and later.
    #[serde(default)]
    pub roles: Vec<LcoreRoleSample>,
    /// Captures of other tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_captures: Vec<ForeignCaptureSample>,
    /// Number of running secondary processes.
    #[serde(default)]
    pub secondaries: u32,
    /// Whether control threads, which answer requests, may run on the CPU of a polling lcore; `None` if
    /// `/proc` does not report it.
    #[serde(default)]
    pub control_shares_poll_cpu: Option<bool>,
    /// Version, settings and counters of libpmdscope; `None` for a stock app (level 0).
    pub library: Option<LibrarySample>,
    /// Result of reading the memory of the app from outside; `None` if it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xray: Option<XraySample>,
    /// Parts of the round that failed or may be incomplete, as `endpoint: reason`. The rest of the sample
    /// is valid.
    pub partial: Vec<String>,
}

impl Sample {
    /// Returns 0 for a stock app, otherwise [`LibrarySample::level`].
    pub fn level(&self) -> u8 {
        self.library.as_ref().map_or(0, LibrarySample::level)
    }

    /// Whether the library is too old to distinguish level 1 from level 2.
    pub fn level_may_be_higher(&self) -> bool {
        self.library.as_ref().is_some_and(|library| library.traced_units.is_none())
    }

    /// Returns the port of this sample with the number and the device of `port`.
    pub(crate) fn same_port(&self, port: &PortSample) -> Option<&PortSample> {
        self.ports.iter().find(|own| (own.id, &own.device) == (port.id, &port.device))
    }

    /// Returns the descriptors of a receive queue of a port, if libpmdscope or DPDK reported them.
    pub fn rx_descriptors(&self, port: &PortSample, queue: u16) -> Option<u64> {
        let told = || port.rx_descriptors.get(usize::from(queue)).copied().flatten();
        self.descriptors((port.id, queue, QueueDirection::Rx)).or_else(told)
    }

    /// Returns the descriptors of a transmit queue of a port, if libpmdscope reported them.
    pub fn tx_descriptors(&self, port: &PortSample, queue: u16) -> Option<u64> {
        self.descriptors((port.id, queue, QueueDirection::Tx))
    }

    /// Returns the pools that feed the receive queues of a port; `None` unless that is known of all its queues.
    /// The only pool of an app feeds all queues.
    pub fn feeding_pools(&self, port: &PortSample) -> Option<Vec<&PoolSample>> {
        if let [only] = &self.pools[..] {
            return Some(vec![only]);
        }
        let is_fed = |queue: u16| {
            let fed = FedQueue { port: port.id, queue };
            self.pools.iter().any(|pool| pool.feeds.contains(&fed))
        };
        let is_known = port.rx_queues > 0 && (0..port.rx_queues).all(is_fed);
        is_known.then(|| self.pools.iter().filter(|pool| pool.feeds_port(port.id)).collect())
    }

    fn descriptors(&self, key: (u16, u16, QueueDirection)) -> Option<u64> {
        let mut queues = self.queues.iter();
        queues.find(|own| (own.port, own.queue, own.direction) == key)?.descriptors
    }

    /// Whether the app reported anything but lists of names.
    pub(crate) fn tells_anything(&self) -> bool {
        !self.ports.is_empty() || !self.pools.is_empty() || self.library.is_some()
    }

    /// Whether all ports are present: a port that could not be read is left out, so its absence
    /// proves nothing.
    pub fn ports_are_complete(&self) -> bool {
        let needed = ["/ethdev/list", "/ethdev/info", "/ethdev/stats"];
        !needed.iter().any(|command| self.failed(command)) && !self.lacks_counted_port()
    }

    /// Whether a port is missing because its extended counters could not be read, which include the
    /// basic ones.
    fn lacks_counted_port(&self) -> bool {
        let failed = self.partial.iter().filter_map(|part| part.strip_prefix("/ethdev/xstats,"));
        let ids = failed.filter_map(|part| part.split(':').next()?.parse::<u16>().ok());
        ids.into_iter().any(|id| self.ports.iter().all(|port| port.id != id))
    }

    /// Returns the failed requests, as "endpoint: reason"; the rest of [`Sample::partial`] are remarks.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        let parts = self.partial.iter().map(String::as_str);
        parts.filter(|part| part.starts_with('/') && !part.contains(LEDGER_IMBALANCE))
    }

    /// Whether a request that begins with `command` failed, so that missing data prove nothing.
    pub fn failed(&self, command: &str) -> bool {
        self.partial.iter().any(|part| part.starts_with(command))
    }

    /// Returns the role of an lcore: from libpmdscope, which knows the main one, otherwise from the EAL.
    pub fn role_of(&self, lcore: u32) -> Option<&str> {
        let library = self.lcores.iter().find(|own| own.lcore == lcore).map(|own| &own.role);
        let eal = self.roles.iter().find(|own| own.lcore == lcore).map(|own| &own.role);
        library.or(eal).map(String::as_str)
    }

    /// Whether another tool did not release the lock of this app, so that it was queried without it.
    pub(crate) fn was_asked_without_lock(&self) -> bool {
        let reason = TelemetryError::Locked.to_string();
        let lock = self.partial.iter().filter_map(|part| part.strip_prefix(LOCK_PART));
        lock.filter_map(|part| part.strip_prefix(": ")).any(|why| why == reason)
    }

    /// Returns the mempools of the last scan.
    pub fn scanned_pools(&self) -> impl Iterator<Item = &PoolScanSample> {
        self.scan.iter().flat_map(|scan| &scan.pools)
    }

    /// Whether mbufs are certainly lost, or were misused. A trend alone is not proof.
    pub fn has_leaks(&self) -> bool {
        let of_pool = |ledger: &LedgerSample| {
            ledger.loses() || ledger.double_frees > 0 || ledger.use_after_frees > 0
        };
        let at_site = |site: &SiteSample| {
            if site.kind.is_loss() { site.count > 0 } else { site.events > 0 }
        };
        let by_ledger = self.ledger.iter().any(of_pool) || self.sites.iter().any(at_site);
        by_ledger || self.ledger.is_empty() && self.scan.iter().any(|scan| scan.lost() > 0)
    }
}

/// Identity of a running app. Two samples are comparable only if `pid` and `start_ticks` agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppIdentity {
    /// DPDK file-prefix; further in-memory instances have `:N` appended.
    pub name: String,
    /// Process id on this host, from the peer credentials of the app's socket.
    pub pid: u32,
    /// Start time of the process, clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
    /// Wall clock at the start of the process, nanoseconds since 1970; 0 if `/proc` does not report it.
    #[serde(default)]
    pub start_realtime_ns: u64,
    /// DPDK version, for instance `DPDK 22.11.11`.
    pub dpdk_version: String,
    /// Path of the executable; `None` if it cannot be read.
    pub exe: Option<String>,
    /// Arguments of the EAL (`/eal/params`).
    pub eal_args: Vec<String>,
    /// Container of the app; `None` if it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

impl AppIdentity {
    /// Whether both are the same process.
    pub fn same_process(&self, other: &Self) -> bool {
        (self.pid, self.start_ticks) == (other.pid, other.start_ticks)
    }

    /// Returns the seconds from the boot of the host to that start. Unlike the wall clock it never changes.
    pub fn start_since_boot_s(&self) -> f64 {
        self.start_ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
    }
}

/// A process of an app that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedProcess {
    /// Process id on this host.
    pub pid: u32,
    /// Start time of the process, clock ticks since boot.
    pub start_ticks: u64,
    /// Exit status, as in `wait(2)`.
    pub wait_status: i32,
}

/// One ring of one capture session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeeSample {
    /// Session id.
    pub session: u64,
    /// Process id of the capturing tool.
    pub pid: u64,
    /// Whether packets are being copied.
    pub armed: bool,
    /// Lcore that writes packets to the ring.
    pub lcore: u32,
    /// Size of the ring, bytes.
    pub ring_bytes: u64,
    /// Data written and not yet read, bytes.
    pub used_bytes: u64,
    /// Packets written.
    pub records: u64,
    /// Packets lost because the ring was full.
    pub dropped: u64,
    /// Packets that the filter rejected.
    pub filtered: u64,
    /// Packets left out by sampling.
    pub sampled_out: u64,
}

/// Version, settings and counters of libpmdscope, as reported by the library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LibrarySample {
    /// Version of libpmdscope.
    pub version: String,
    /// Measured TSC frequency, Hz; 0 until measured.
    pub tsc_hz: u64,
    /// Wall clock at `pmdscope_init()`, nanoseconds since 1970.
    pub start_realtime_ns: u64,
    /// Sampling period of pools and rings, milliseconds.
    pub sample_ms: u64,
    /// Window of high-water marks, milliseconds.
    pub window_ms: u64,
    /// Stall threshold, microseconds.
    pub stall_us: u64,
    /// Path of the capture socket; `None` if captures are not offered.
    pub tee_socket: Option<String>,
    /// Polls by threads without an lcore id.
    pub foreign_polls: u64,
    /// Bursts of threads without an lcore id that a capture could not see.
    pub foreign_bursts: u64,
    /// Whether the control thread may run on the CPU of a polling lcore.
    pub control_shares_poll_cpu: bool,
    /// Capture memory that is not freed because a stuck lcore might still use it, bytes.
    pub abandoned_bytes: u64,
    /// Source files of the app that were compiled with `pmdscope_trace.h`; `None` if the library is too old
    /// to report it.
    #[serde(default)]
    pub traced_units: Option<u64>,
}

impl LibrarySample {
    /// Returns 2 for an app that was compiled with `pmdscope_trace.h`; otherwise, or if that is unknown, 1.
    pub fn level(&self) -> u8 {
        if self.traced_units.is_some_and(|units| units > 0) { 2 } else { 1 }
    }
}

#[cfg(test)]
pub(crate) mod tests;
