//! Network interfaces of the kernel: their queues, the packet filter attached to them, and the queue that
//! bypasses the kernel.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// One network interface of the kernel at one moment. Counters start at 0 when the interface, or its
/// filter, is created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceSample {
    /// Name of the interface in the network namespace of the tool.
    pub name: String,
    /// Interface index; it differs between two interfaces that had the same name one after the other.
    pub index: u32,
    /// Kernel driver; empty if unknown.
    pub driver: String,
    /// Packets received as counted by the kernel, whether processed or dropped; `None` if unknown.
    pub rx_packets: Option<u64>,
    /// Received packets that the kernel dropped before they reached a socket; `None` if unknown.
    pub rx_dropped: Option<u64>,
    /// Packets sent; `None` if unknown.
    pub tx_packets: Option<u64>,
    /// RX queues, in ascending order; empty if the driver has no counters of queues.
    pub queues: Vec<InterfaceQueueSample>,
    /// The XDP filter of pmdscope; `None` if none is attached.
    pub filter: Option<FilterSample>,
    /// The queue that bypasses the kernel; `None` if there is none.
    pub bypass: Option<BypassSample>,
}

/// One RX queue of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceQueueSample {
    /// Queue number.
    pub queue: u32,
    /// Packets that the driver received, before any XDP program; `None` if the driver does not count them.
    pub packets: Option<u64>,
    /// Packets lost for lack of buffers or of room in a ring; `None` if the driver does not count them.
    pub dropped: Option<u64>,
    /// Packets that an XDP program redirected to a socket (`AF_XDP`) or another interface; `None` if the
    /// driver does not count them.
    pub redirected: Option<u64>,
}

/// Limit of the sources of a [`FilterSample`].
pub const TOP_SOURCES: usize = 10;

/// The XDP filter of pmdscope on an interface, which drops unwanted packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterSample {
    /// Id of the XDP program; it differs between two filters that were attached one after the other.
    pub program: u32,
    /// Where the program runs.
    pub mode: FilterMode,
    /// Packets and bytes by verdict, including passed ones. The packets add up to all that arrived.
    pub verdicts: Vec<VerdictSample>,
    /// Sources of the most dropped packets, in descending order, at most 10.
    pub top_sources: Vec<SourceSample>,
    /// Dropped packets that were not counted for a source, because the table of sources was full.
    pub uncounted_sources: u64,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilterMode {
    /// In the driver, before the kernel allocates a socket buffer.
    #[default]
    Native,
    /// In the network stack, after that allocation.
    Generic,
}

/// Packets with one verdict of an XDP filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerdictSample {
    /// `passed`, or the reason why packets were dropped: `malformed`, `not_ip`, `fragment`, `denied`,
    /// `rate_limit`, `syn_flood`.
    pub reason: String,
    /// Whether the packets were dropped.
    pub dropped: bool,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, Ethernet header included.
    pub bytes: u64,
}

/// A source of dropped packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceSample {
    /// IPv4 or IPv6 address of the source.
    pub address: std::net::IpAddr,
    /// Number of dropped packets from this address.
    pub packets: u64,
}

/// An RX queue that bypasses the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassSample {
    /// Queue number.
    pub queue: u32,
    /// File-prefix of the app that polls the queue; `None` if no app does.
    pub app: Option<String>,
    /// DPDK port id of the queue in that app; `None` if no app polls the queue, or if the port is unknown.
    pub port: Option<u16>,
    /// Flows that are steered to the queue, as specified by the user.
    pub flows: Vec<String>,
}

/// Reads the interfaces that have something to show: those with a filter or a bypass. Shared by the
/// threads that sample.
pub trait InterfaceReader: Debug + Send + Sync {
    /// Returns the present interfaces, sorted by name. Takes at most some milliseconds.
    ///
    /// # Errors
    /// A sentence for people: what failed, on what, and what to do.
    fn read(&self) -> Result<Vec<InterfaceSample>, String>;
}
