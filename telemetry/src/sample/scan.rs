//! Results of scans of an app's memory: mbufs that are not reachable any more.

use serde::{Deserialize, Serialize};

/// Result of the last scan of the memory of one app.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanSample {
    /// Wall clock at the end of the scan, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Number of passes over the memory.
    pub scans: u32,
    /// Size of the memory that the last pass searched, bytes.
    pub scanned_bytes: u64,
    /// Duration of all passes, with the pauses between them, milliseconds.
    pub duration_ms: u64,
    /// Mbuf pools, sorted by name.
    pub pools: Vec<PoolScanSample>,
    /// Parts that could not be read, and why, one sentence each. The rest is valid.
    pub problems: Vec<String>,
}

/// Mbufs of one pool, as found by a scan. Mbufs that are in no count are free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolScanSample {
    /// Name of the pool.
    pub name: String,
    /// Number of mbufs.
    pub size: u64,
    /// Mbufs in use that something refers to.
    pub held: u64,
    /// Mbufs that were unreachable in all passes, and unchanged between them.
    pub lost: u64,
    /// Mbufs in `lost` to which only blocks of `malloc()` refer that nothing reaches themselves.
    #[serde(default)]
    pub lost_in_blocks: u64,
    /// Mbufs in use that are neither lost nor held, because they moved during the scan.
    pub moving: u64,
    /// Mbufs in use that may be lost or not: the scan could not determine it.
    pub not_judged: u64,
    /// Reasons why mbufs were not judged; empty if all were judged.
    pub not_judged_why: Vec<String>,
    /// Growth of `lost`, mbufs per second; `None` if it is unknown.
    pub lost_ps: Option<f64>,
    /// Lower bound of the time since the first of the lost mbufs was lost, milliseconds.
    pub oldest_at_least_ms: u64,
    /// Lost mbufs by what their packets have in common, largest group first.
    pub groups: Vec<LostGroupSample>,
}

/// Lost mbufs with packets that have something in common. A property that differs within the group is
/// `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostGroupSample {
    /// Number of mbufs.
    pub mbufs: u64,
    /// DPDK port id that received the packets, according to the mbufs.
    pub port: Option<u16>,
    /// Protocol: `udp`, `arp`, an IP protocol number or an ethertype.
    pub protocol: Option<String>,
    /// Source address, with its port if it has one.
    pub source: Option<String>,
    /// Destination address, with its port if it has one.
    pub destination: Option<String>,
    /// Number of conversations of the packets; 0 if none could be read.
    pub conversations: u64,
    /// Length of the shortest packet, bytes.
    pub least_bytes: u32,
    /// Length of the longest packet, bytes.
    pub most_bytes: u32,
    /// Number of segments of each packet.
    pub segments: Option<u16>,
    /// Reference count of each mbuf.
    pub refcnt: Option<u16>,
    /// Lower bound of the time since the first of these mbufs was lost, milliseconds.
    pub oldest_at_least_ms: u64,
}

impl ScanSample {
    /// Returns the number of lost mbufs.
    pub fn lost(&self) -> u64 {
        self.pools.iter().fold(0, |sum, pool| sum.saturating_add(pool.lost))
    }
}

impl LostGroupSample {
    /// Returns the conversation, as `198.18.0.1:1024 > 198.18.1.1:53`, with `*` for what differs.
    /// `None` if both do.
    pub fn conversation(&self) -> Option<String> {
        let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "*".to_owned());
        let any = self.source.is_some() || self.destination.is_some();
        any.then(|| format!("{} > {}", end(&self.source), end(&self.destination)))
    }

    /// Returns the packet lengths, as `60` or `60-1514`.
    pub fn lengths(&self) -> String {
        if self.least_bytes == self.most_bytes {
            return self.most_bytes.to_string();
        }
        format!("{}-{}", self.least_bytes, self.most_bytes)
    }

    /// Returns the common properties of the packets as text.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.port.map(|port| format!("port {port}")));
        words.extend(self.protocol.clone());
        words.extend(self.conversation());
        words.push(format!("{} bytes", self.lengths()));
        words.join(", ")
    }
}
