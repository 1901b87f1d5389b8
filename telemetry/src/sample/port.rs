//! Ports, their queues and devices.

use serde::{Deserialize, Serialize};

use super::{HighWater, Xstats};

/// One Ethernet port. Its counters are of this round, its link is at most a second old, its configuration
/// five.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortSample {
    /// DPDK port id.
    pub id: u16,
    /// Device name, for instance `0000:03:00.0` or `net_vhost0`.
    pub device: String,
    /// The app has started the port.
    pub started: bool,
    /// Link state; `None` if not reported.
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
    /// Packets for any address are accepted; `None` if not reported.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// Ethernet address, as DPDK writes it; `None` if not reported.
    #[serde(default)]
    pub mac: Option<String>,
    /// Descriptors of its receive queues in order of their numbers, of a stock app that was asked for
    /// them; `None` for a queue of which nothing was told. [`QueueSample`] has those of other apps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_descriptors: Vec<Option<u64>>,
    /// Basic counters.
    pub stats: PortStats,
    /// Extended counters, by driver's name; incomplete when `xstats_truncated`.
    #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, u64>"))]
    pub xstats: Xstats,
    /// DPDK may have cut the extended counters silently (256 entries or 16 KiB).
    pub xstats_truncated: bool,
}

/// Counters of `rte_eth_stats`.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// Direction of a queue as the app sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum QueueDirection {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// One queue of a port; libpmdscope only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueSample {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
    /// Direction.
    pub direction: QueueDirection,
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
    /// Descriptors of the ring; `None` where the driver does not report it.
    pub descriptors: Option<u64>,
    /// Burst sizes: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64, 65 and more. Empty if histograms were not asked for.
    pub bursts: Vec<u64>,
    /// Depths: 0, 1, 2-3, 4-7, ..., 2048 and more. Empty if histograms were not asked for.
    pub depths: Vec<u64>,
}

/// A PCI device that the app's arguments name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The PCIe link of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieLinkSample {
    /// Device name of the port.
    pub port: String,
    /// Megatransfers per second of a lane: 8000 is PCIe 3.0.
    pub speed_mts: u32,
    /// Lanes.
    pub width: u32,
    /// What the device can, megatransfers per second.
    pub max_speed_mts: u32,
    /// What the device can, lanes.
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
