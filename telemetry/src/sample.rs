//! What one app said at one moment: raw, serialisable, without any derivation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::leak::{LedgerSample, SiteSample, StageSample};

/// Version of the serialised form of [`Sample`]; raised when a field changes its meaning.
pub const SAMPLE_SCHEMA: u32 = 1;

/// Everything asked of one app in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`SAMPLE_SCHEMA`].
    pub schema: u32,
    /// Wall clock at the end of the round, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Monotonic clock at the same moment, nanoseconds; rates are computed from this.
    pub monotonic_ns: u64,
    /// Time that the round took, nanoseconds.
    pub duration_ns: u64,
    /// Requests made of the app in this round.
    pub requests: u32,
    /// Who answered.
    pub app: AppIdentity,
    /// Ports, in ascending order of id.
    pub ports: Vec<PortSample>,
    /// Mempools, by name.
    pub pools: Vec<PoolSample>,
    /// Queues; empty at level 0 (see [`PortSample::xstats`] for per-queue counters).
    pub queues: Vec<QueueSample>,
    /// Software rings.
    pub rings: Vec<RingSample>,
    /// Polling lcores.
    pub lcores: Vec<LcoreSample>,
    /// What ports have been through since libpmdscope started; libpmdscope only.
    #[serde(default)]
    pub port_events: Vec<PortEventsSample>,
    /// Capture sessions and their rings.
    pub tee: Vec<TeeSample>,
    /// Ledgers of mbuf pools, by name; libpmdscope only.
    #[serde(default)]
    pub ledger: Vec<LedgerSample>,
    /// Sites that lost or misused mbufs, most lost first; libpmdscope only.
    #[serde(default)]
    pub sites: Vec<SiteSample>,
    /// Places that hold mbufs, by name; libpmdscope only.
    #[serde(default)]
    pub stages: Vec<StageSample>,
    /// PCI devices that the app's own arguments name, as the kernel sees them.
    #[serde(default)]
    pub devices: Vec<DeviceSample>,
    /// Threads of lcores, as the kernel sees them; empty where `/proc` does not tell.
    #[serde(default)]
    pub threads: Vec<ThreadSample>,
    /// Heaps of the EAL; at most 10 s old, since reading them takes the lock of `rte_malloc()`.
    #[serde(default)]
    pub heaps: Vec<HeapSample>,
    /// Cycles per lcore as the app itself counts them (`rte_lcore_register_usage_cb()`); DPDK 23.03
    /// and later.
    #[serde(default)]
    pub usage: Vec<UsageSample>,
    /// Running secondary processes.
    #[serde(default)]
    pub secondaries: u32,
    /// Control threads, which answer our requests, may run on the CPU of a polling lcore; `None`
    /// where `/proc` does not tell.
    #[serde(default)]
    pub control_shares_poll_cpu: Option<bool>,
    /// What libpmdscope said of itself; `None` for a stock app (level 0).
    pub library: Option<LibrarySample>,
    /// Parts of the round that failed, as "endpoint: reason". The rest of the sample is valid.
    pub partial: Vec<String>,
}

impl Sample {
    /// 0 for a stock app, otherwise [`LibrarySample::level`].
    pub fn level(&self) -> u8 {
        self.library.as_ref().map_or(0, LibrarySample::level)
    }

    /// The library is too old to tell level 1 from level 2.
    pub fn level_may_be_higher(&self) -> bool {
        self.library.as_ref().is_some_and(|library| library.traced_units.is_none())
    }

    /// Whether the app told anything but lists of names.
    pub(crate) fn tells_anything(&self) -> bool {
        !self.ports.is_empty() || !self.pools.is_empty() || self.library.is_some()
    }

    /// Whether all ports are there: one that could not be read is left out, and proves nothing.
    pub fn ports_are_complete(&self) -> bool {
        let needed = ["/ethdev/list", "/ethdev/info", "/ethdev/stats"];
        !needed.iter().any(|command| self.failed(command))
    }

    /// Whether something below `command` could not be read, so that its absence proves nothing.
    pub fn failed(&self, command: &str) -> bool {
        self.partial.iter().any(|part| part.starts_with(command))
    }
}

/// Identity of a running app. Two samples are comparable only if `pid` and `start_ticks` agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppIdentity {
    /// DPDK file-prefix, with `:N` behind it for further in-memory instances.
    pub name: String,
    /// Process id on this host, from the socket's peer credentials.
    pub pid: u32,
    /// Start time of that process, clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
    /// Wall clock at that start, nanoseconds since the epoch; 0 when `/proc` does not tell.
    #[serde(default)]
    pub start_realtime_ns: u64,
    /// DPDK version, as "DPDK 22.11.11".
    pub dpdk_version: String,
    /// Executable, when readable.
    pub exe: Option<String>,
    /// Arguments of the EAL (`/eal/params`).
    pub eal_args: Vec<String>,
}

impl AppIdentity {
    /// Whether both are the same run of the same app.
    pub fn same_process(&self, other: &Self) -> bool {
        (self.pid, self.start_ticks) == (other.pid, other.start_ticks)
    }
}

/// One Ethernet port. Its counters are of this round, configuration and link at most a second old.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortSample {
    /// DPDK port id.
    pub id: u16,
    /// Device name, for instance `0000:03:00.0` or `net_vhost0`.
    pub device: String,
    /// The app has started the port.
    pub started: bool,
    /// Link state; `None` when it was not told.
    pub link_up: Option<bool>,
    /// Link speed, Mbit/s; `None` when the link is down or the speed unknown.
    pub link_mbps: Option<u64>,
    /// Maximum transmission unit, bytes.
    pub mtu: u64,
    /// Configured receive queues.
    pub rx_queues: u16,
    /// Configured transmit queues.
    pub tx_queues: u16,
    /// NUMA node, -1 when unknown.
    pub numa_node: i64,
    /// Packets for any address are accepted; `None` when it was not told.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// Ethernet address, as DPDK writes it; `None` when it was not told.
    #[serde(default)]
    pub mac: Option<String>,
    /// Basic counters.
    pub stats: PortStats,
    /// Extended counters, by driver's name; incomplete when `xstats_truncated`.
    pub xstats: BTreeMap<String, u64>,
    /// DPDK may have cut the extended counters silently (256 entries or 16 KiB).
    pub xstats_truncated: bool,
}

/// Counters of `rte_eth_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets the NIC dropped because no receive descriptor was free (`imissed`).
    pub rx_missed: u64,
    /// Erroneous packets received.
    pub rx_errors: u64,
    /// Failed transmissions.
    pub tx_errors: u64,
    /// Receive buffers that could not be allocated (`rx_nombuf`).
    pub rx_nombuf: u64,
}

/// What one port has been through, counted inside the app; libpmdscope only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortEventsSample {
    /// DPDK port id.
    pub port: u16,
    /// Device name.
    pub device: String,
    /// The port is started.
    pub started: bool,
    /// Times that it was started since libpmdscope watches it.
    pub starts: u64,
    /// Times that it was stopped; a stop shorter than the sampling period may be missed.
    pub stops: u64,
    /// Times that the driver told of a change of the link.
    pub link_changes: u64,
    /// Wall clock at the last of these, 0 before the first.
    pub changed_realtime_ns: u64,
}

/// One mempool. `size = common + cached + in_use` where the parts are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolSample {
    /// Name.
    pub name: String,
    /// Objects.
    pub size: u64,
    /// Bytes of one object with header and trailer.
    pub element_bytes: u64,
    /// Per-lcore cache limit.
    pub cache_size: u64,
    /// NUMA node, -1 for any.
    pub socket: i64,
    /// Where the objects are; `None` on DPDK before 23.03 without libpmdscope.
    pub occupancy: Option<Occupancy>,
    /// Highest in-use count in the last window and since start; libpmdscope only.
    pub high_water: Option<HighWater>,
    /// Objects in the cache of each lcore; libpmdscope only.
    pub lcore_caches: BTreeMap<u32, u64>,
}

/// Where the objects of a pool are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Free in the common ring.
    pub common: u64,
    /// Free in per-lcore caches.
    pub cached: u64,
    /// Not free.
    pub in_use: u64,
}

/// High-water marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighWater {
    /// In the last complete window.
    pub window: u64,
    /// Since libpmdscope started.
    pub ever: u64,
}

/// Direction of a queue as the app sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// One queue of a port; libpmdscope only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSample {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Direction.
    pub direction: Direction,
    /// Bursts asked for.
    pub polls: u64,
    /// Bursts without a packet.
    pub empty: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes without FCS, estimated from the lengths in one burst of each 16; never goes back.
    /// [`PortStats`] has what the NIC counted.
    pub bytes: u64,
    /// Waiting packets when a burst began: last sample; `None` where the driver cannot tell.
    pub depth: Option<u64>,
    /// High-water marks of the depth; `None` where the driver cannot tell.
    pub depth_high_water: Option<HighWater>,
    /// Descriptors of the ring; `None` where the driver does not tell.
    pub descriptors: Option<u64>,
    /// Burst sizes: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64, 65 and more.
    pub bursts: Vec<u64>,
    /// Depths: 0, 1, 2-3, 4-7, ..., 2048 and more.
    pub depths: Vec<u64>,
}

/// One software ring (`rte_ring`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingSample {
    /// Name.
    pub name: String,
    /// Usable entries.
    pub capacity: u64,
    /// Entries in use.
    pub used: u64,
    /// High-water marks; libpmdscope only.
    pub high_water: Option<HighWater>,
}

/// One polling lcore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LcoreSample {
    /// lcore id.
    pub lcore: u32,
    /// `main`, `worker` or `other`.
    pub role: String,
    /// Kernel thread id in the app's pid namespace.
    pub tid: u64,
    /// Turns of the poll loop.
    pub polls: u64,
    /// Turns with at least one packet.
    pub busy_polls: u64,
    /// Packets received.
    pub packets: u64,
    /// Time since the last turn, microseconds.
    pub idle_us: u64,
    /// Longest gap between two turns in the last complete window, microseconds.
    pub gap_window_max_us: u64,
    /// Longest gap since start, microseconds.
    pub gap_max_us: u64,
    /// Wall clock at the end of the longest gap, 0 before the first.
    pub gap_max_realtime_ns: u64,
    /// Gaps above the stall threshold.
    pub stalls: u64,
    /// Gaps: under 1 us, then [1,2), [2,4), ... us, the last open-ended.
    pub gaps: Vec<u64>,
}

/// One ring of one capture session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TeeSample {
    /// Session id.
    pub session: u64,
    /// Process id of the capturing tool.
    pub pid: u64,
    /// Packets are being copied.
    pub armed: bool,
    /// Producing lcore.
    pub lcore: u32,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Written and not yet read, bytes.
    pub used_bytes: u64,
    /// Packets written.
    pub records: u64,
    /// Packets lost because the ring was full.
    pub dropped: u64,
    /// Packets that the filter refused.
    pub filtered: u64,
    /// Packets left out by sampling.
    pub sampled_out: u64,
}

/// A PCI device that the app's arguments name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// Address with its domain, for instance `0000:03:00.0`.
    pub address: String,
    /// The machine has a device at this address.
    pub present: bool,
    /// It is a network device (class 0x02).
    pub network: bool,
    /// Kernel driver it is bound to; `None` for none.
    pub driver: Option<String>,
}

/// The kernel's view of the thread of one lcore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// lcore id.
    pub lcore: u32,
    /// Kernel thread id on this host.
    pub tid: u32,
    /// CPUs it may run on, as the kernel writes them, for instance `2-3`.
    pub cpus: String,
    /// CPU it ran on last.
    pub cpu: u32,
    /// Times that it gave up its CPU: it slept or waited, which a poll loop does not.
    pub voluntary_switches: u64,
    /// Times that its CPU was taken away.
    pub involuntary_switches: u64,
    /// When this was read, monotonic clock, nanoseconds; before [`Sample::monotonic_ns`] when it is
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
}

/// One heap of the EAL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapSample {
    /// Name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Of these, given out.
    pub allocated: u64,
    /// Of these, free.
    pub free: u64,
    /// The largest free piece, bytes.
    pub greatest_free: u64,
    /// Allocations.
    pub allocations: u64,
}

/// Cycles of one lcore as the app itself counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSample {
    /// lcore id.
    pub lcore: u32,
    /// Cycles with work.
    pub busy: u64,
    /// All cycles.
    pub total: u64,
}

/// What libpmdscope says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LibrarySample {
    /// Version of libpmdscope.
    pub version: String,
    /// Measured TSC frequency, Hz; 0 until measured.
    pub tsc_hz: u64,
    /// Wall clock at `pmdscope_init()`.
    pub start_realtime_ns: u64,
    /// Sampling period of pools and rings, milliseconds.
    pub sample_ms: u64,
    /// Window of high-water marks, milliseconds.
    pub window_ms: u64,
    /// Stall threshold, microseconds.
    pub stall_us: u64,
    /// Path of the capture socket; `None` when captures are not offered.
    pub tee_socket: Option<String>,
    /// Polls of threads without an lcore id.
    pub foreign_polls: u64,
    /// Bursts of such threads that a capture could not see.
    pub foreign_bursts: u64,
    /// The control thread may run on the CPU of a polling lcore.
    pub control_shares_poll_cpu: bool,
    /// Capture memory given up because a stuck lcore might still use it.
    pub abandoned_bytes: u64,
    /// Source files with call sites (`pmdscope_trace.h`); `None` when the library is too old to tell.
    #[serde(default)]
    pub traced_units: Option<u64>,
}

impl LibrarySample {
    /// 2 for an app that was compiled with `pmdscope_trace.h`; otherwise, or when that is not known, 1.
    pub fn level(&self) -> u8 {
        if self.traced_units.is_some_and(|units| units > 0) { 2 } else { 1 }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Small samples for the tests of this crate, and the round trip of a sample.

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn empty_sample() -> Sample {
        Sample {
            schema: SAMPLE_SCHEMA,
            realtime_ns: 1_700_000_000_000_000_000,
            monotonic_ns: 1,
            duration_ns: 100_000,
            requests: 3,
            app: AppIdentity { name: "app".into(), pid: 7, start_ticks: 70, ..Default::default() },
            ..Sample::default()
        }
    }

    /// A started port with this many received packets of 64 bytes.
    pub(crate) fn port(id: u16, packets: u64) -> PortSample {
        let rx_bytes = packets.saturating_mul(64);
        PortSample {
            id,
            device: format!("net_null{id}"),
            started: true,
            stats: PortStats { rx_packets: packets, rx_bytes, ..PortStats::default() },
            ..PortSample::default()
        }
    }

    pub(crate) fn pool(name: &str, size: u64, in_use: u64) -> PoolSample {
        let common = size.saturating_sub(in_use);
        let occupancy = Some(Occupancy { common, cached: 0, in_use });
        PoolSample { name: name.into(), size, occupancy, ..PoolSample::default() }
    }

    /// A receive queue of port 0 with its polls, empty polls and packets.
    pub(crate) fn queue(queue: u16, [polls, empty, packets]: [u64; 3]) -> QueueSample {
        QueueSample {
            port: 0,
            queue,
            direction: Direction::Rx,
            polls,
            empty,
            packets,
            bytes: packets * 64,
            depth: None,
            depth_high_water: None,
            descriptors: None,
            bursts: Vec::new(),
            depths: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn a_sample_survives_json(
            counters: [u64; 3],
            names in prop::collection::vec(".*", 0..4),
            link: Option<bool>,
        ) {
            let mut sample = empty_sample();
            sample.ports = vec![port(1, counters[0])];
            sample.ports[0].link_up = link;
            sample.pools = names.iter().map(|name| pool(name, counters[1], counters[2])).collect();
            sample.ports[0].xstats = names.iter().map(|n| (n.clone(), counters[2])).collect();
            sample.library = link.map(|_| LibrarySample::default());
            sample.partial = names;
            let json = serde_json::to_string(&sample).unwrap();
            prop_assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
        }

        #[test]
        fn any_text_reads_as_a_sample_or_fails(text: String) {
            let _ = serde_json::from_str::<Sample>(&text);
        }
    }
}
