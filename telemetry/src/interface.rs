//! Network interfaces of the kernel: their queues, the packet filter attached to them, and the queue that
//! bypasses the kernel.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// One interface at one moment. Counters start at 0 when the interface, or the filter, is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceSample {
    /// Its name in this network namespace.
    pub name: String,
    /// Its number, which tells two interfaces that had the same name one after the other.
    pub index: u32,
    /// Kernel driver; empty if unknown.
    pub driver: String,
    /// All packets that the kernel counts as received, whatever became of them; `None` if unknown.
    pub rx_packets: Option<u64>,
    /// Received packets that the kernel dropped before any socket saw them.
    pub rx_dropped: Option<u64>,
    /// Sent packets.
    pub tx_packets: Option<u64>,
    /// RX queues, in ascending order; empty where the driver counts none.
    pub queues: Vec<InterfaceQueueSample>,
    /// pmdscope's XDP filter, if it is attached.
    pub filter: Option<FilterSample>,
    /// The queue that bypasses the kernel, if there is one.
    pub bypass: Option<BypassSample>,
}

/// One RX queue of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceQueueSample {
    /// Number of the queue.
    pub queue: u32,
    /// Packets that the driver received, before any XDP program; `None` if the driver does not count.
    pub packets: Option<u64>,
    /// Packets lost for want of buffers or of room in a ring.
    pub dropped: Option<u64>,
    /// Packets that an XDP program redirected to a socket (`AF_XDP`) or another interface.
    pub redirected: Option<u64>,
}

/// Limit of the sources of a [`FilterSample`].
pub const TOP_SOURCES: usize = 10;

/// An XDP program of pmdscope that drops unwanted packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterSample {
    /// Number of the program, which tells two filters one after the other.
    pub program: u32,
    /// Where packets are dropped.
    pub mode: FilterMode,
    /// Packets and bytes by verdict; those that passed too. The packets add up to all that arrived.
    pub verdicts: Vec<VerdictSample>,
    /// Sources of most dropped packets, most first; at most [`TOP_SOURCES`].
    pub top_sources: Vec<SourceSample>,
    /// Dropped packets whose source could not be counted, for the table was full.
    pub uncounted_sources: u64,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FilterMode {
    /// In the driver, before the kernel allocates a packet.
    #[default]
    Native,
    /// In the network stack.
    Generic,
}

/// What became of packets, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerdictSample {
    /// `passed`, or why packets were dropped: `malformed`, `not_ip`, `fragment`, `denied`, `rate_limit`,
    /// `syn_flood`.
    pub reason: String,
    /// Whether they were dropped.
    pub dropped: bool,
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet header included.
    pub bytes: u64,
}

/// A sender of dropped packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceSample {
    /// IPv4 or IPv6 address.
    pub address: std::net::IpAddr,
    /// Its dropped packets.
    pub packets: u64,
}

/// A queue of an interface that bypasses the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassSample {
    /// Number of the RX queue.
    pub queue: u32,
    /// File-prefix of the app that polls it; `None` while there is none.
    pub app: Option<String>,
    /// Its port in that app.
    pub port: Option<u16>,
    /// Flows that are steered to the queue, as the user gave them.
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
