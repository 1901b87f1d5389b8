//! Ports, their queues and devices.

use serde::{Deserialize, Serialize};

use super::{HighWater, Xstats};

/// One Ethernet port. Counters are of this round, the link state is at most 1 s old, and the configuration
/// at most 5 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortSample {
    /// DPDK port id.
    pub id: u16,
    /// Device name, for instance `0000:03:00.0` or `net_vhost0`.
    pub device: String,
    /// Whether the app has started the port.
    pub started: bool,
    /// Whether the link is up; `None` if not reported.
    pub link_up: Option<bool>,
    /// Link speed, Mbit/s; `None` if the link is down or the speed is unknown.
    pub link_mbps: Option<u64>,
    /// Maximum transmission unit, bytes.
    pub mtu: u64,
    /// Number of configured receive queues.
    pub rx_queues: u16,
    /// Number of configured transmit queues.
    pub tx_queues: u16,
    /// NUMA node; -1 if unknown.
    pub numa_node: i64,
    /// Whether the port is in promiscuous mode; `None` if not reported.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// Ethernet address, as formatted by DPDK; `None` if not reported.
    #[serde(default)]
    pub mac: Option<String>,
    /// PCI ids of its device, `vendor:device` in hexadecimal; `None` if the kernel lists no such device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
    /// Number of descriptors of each receive queue, in order of queue numbers, if DPDK reports them for a
    /// stock app; `None` for a queue without a report. For other apps, the queues of the sample have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_descriptors: Vec<Option<u64>>,
    /// Receive queues that the app has not started, while others of the port are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_queues_stopped: Vec<u16>,
    /// Basic counters.
    pub stats: PortStats,
    /// Extended counters, by the name that the driver gives them; incomplete if `xstats_truncated` is set.
    #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, u64>"))]
    pub xstats: Xstats,
    /// Whether DPDK may have truncated the extended counters silently (256 entries or 16 KiB).
    pub xstats_truncated: bool,
}

/// Basic counters of a port, of `rte_eth_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the NIC dropped because no receive descriptor was free (`imissed`).
    pub rx_missed: u64,
    /// Received packets with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Failed allocations of receive buffers (`rx_nombuf`).
    pub rx_nombuf: u64,
}

impl PortStats {
    /// Names of the extended counters that repeat the basic ones.
    pub(crate) const NAMES: [&str; 8] = [
        "rx_good_packets",
        "tx_good_packets",
        "rx_good_bytes",
        "tx_good_bytes",
        "rx_missed_errors",
        "rx_errors",
        "tx_errors",
        "rx_mbuf_allocation_errors",
    ];

    /// Returns the counters in the order of [`Self::NAMES`].
    pub(crate) fn values(&self) -> [u64; Self::NAMES.len()] {
        [
            self.rx_packets,
            self.tx_packets,
            self.rx_bytes,
            self.tx_bytes,
            self.rx_missed,
            self.rx_errors,
            self.tx_errors,
            self.rx_nombuf,
        ]
    }
}

impl From<[u64; PortStats::NAMES.len()]> for PortStats {
    /// From an array in the order of [`PortStats::NAMES`].
    fn from(counters: [u64; Self::NAMES.len()]) -> Self {
        let [
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_missed,
            rx_errors,
            tx_errors,
            rx_nombuf,
        ] = counters;
        Self {
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_missed,
            rx_errors,
            tx_errors,
            rx_nombuf,
        }
    }
}

/// Starts, stops and link changes of one port, counted by libpmdscope in the app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortEventsSample {
    /// DPDK port id.
    pub port: u16,
    /// Device name.
    pub device: String,
    /// Whether the port is started.
    pub started: bool,
    /// Number of starts since libpmdscope first saw the port.
    pub starts: u64,
    /// Number of stops; a stop shorter than the sampling period may be missed.
    pub stops: u64,
    /// Number of link changes that the driver reported.
    pub link_changes: u64,
    /// Wall clock of the last start, stop or link change, nanoseconds since 1970; 0 if there was none.
    pub changed_realtime_ns: u64,
}

/// Direction of a queue, as seen by the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum QueueDirection {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// One queue of a port, as counted by libpmdscope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueSample {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Direction of the queue.
    pub direction: QueueDirection,
    /// Number of bursts requested.
    pub polls: u64,
    /// Number of bursts without a packet.
    pub empty: u64,
    /// Packets received, or offered to the driver for sending.
    pub packets: u64,
    /// Bytes of these packets without FCS, estimated from the packet lengths in one of 16 bursts; never
    /// decreases. `stats` of the port has the bytes that the NIC counted.
    pub bytes: u64,
    /// Packets waiting at the start of a burst, last sample; `None` if the driver does not report it.
    pub depth: Option<u64>,
    /// High-water marks of the depth; `None` if the driver does not report it.
    pub depth_high_water: Option<HighWater>,
    /// Number of descriptors of the queue; `None` if the driver does not report it.
    pub descriptors: Option<u64>,
    /// Row of the pool that feeds a receive queue, in the table of pools of the same round; `None` if it is
    /// unknown. [`PoolSample::feeds`](super::PoolSample::feeds) has the result.
    #[serde(skip)]
    pub pool_row: Option<usize>,
    /// Histogram of packets per burst: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64, 65 and more. Empty if histograms
    /// were not requested.
    pub bursts: Vec<u64>,
    /// Histogram of depths: 0, 1, 2-3, 4-7, ..., 2048 and more. Empty if histograms were not requested.
    pub depths: Vec<u64>,
}

/// A PCI device that the EAL arguments of the app name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceSample {
    /// PCI address with its domain, for instance `0000:03:00.0`.
    pub address: String,
    /// Whether the host has a device at this address.
    pub present: bool,
    /// Whether it is a network device (class 0x02).
    pub network: bool,
    /// Kernel driver that the device is bound to; `None` if it is bound to none.
    pub driver: Option<String>,
}

/// PCIe link of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieLinkSample {
    /// Device name of the port.
    pub port: String,
    /// Speed of a lane, megatransfers per second; 8000 is PCIe 3.0.
    pub speed_mts: u32,
    /// Number of lanes.
    pub width: u32,
    /// Highest speed of a lane that the device supports, megatransfers per second.
    pub max_speed_mts: u32,
    /// Highest number of lanes that the device supports.
    pub max_width: u32,
}

impl PcieLinkSample {
    /// Whether the link is slower or narrower than the device supports.
    pub fn is_reduced(&self) -> bool {
        self.speed_mts < self.max_speed_mts || self.width < self.max_width
    }
}

/// Whether these bytes were counted: some drivers, `net_null` for one, count packets only.
pub fn counts_bytes(packets: u64, bytes: u64) -> bool {
    packets == 0 || bytes > 0
}
