//! Results of scans of an app's memory: mbufs that are not reachable any more.

use serde::{Deserialize, Serialize};

/// What the last scan of the memory of one app found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanSample {
    /// Wall clock at the end of the scan, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Passes over the memory.
    pub scans: u32,
    /// Bytes that the last pass searched.
    pub scanned_bytes: u64,
    /// Time that all passes took, with the pauses between them, milliseconds.
    pub duration_ms: u64,
    /// Mbuf pools, by name.
    pub pools: Vec<PoolScanSample>,
    /// What could not be read, and why; a sentence each. The rest is valid.
    pub problems: Vec<String>,
}

/// One mbuf pool, as a scan found it. What is missing of the size is free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolScanSample {
    /// Name.
    pub name: String,
    /// Mbufs that it has.
    pub size: u64,
    /// In use, and referred to.
    pub held: u64,
    /// Unreachable in all passes, and unchanged between them.
    pub lost: u64,
    /// In use, neither lost nor held: they moved during the scan.
    pub moving: u64,
    /// In use, but it is unknown whether they are lost.
    pub not_judged: u64,
    /// Why; empty if all were judged.
    pub not_judged_why: Vec<String>,
    /// Growth of `lost`, mbufs per second; `None` when it is not known.
    pub lost_ps: Option<f64>,
    /// The longest time that one of them was lost for at least, milliseconds.
    pub oldest_at_least_ms: u64,
    /// The lost ones by what their packets have in common, most first.
    pub groups: Vec<LostGroupSample>,
}

/// Lost mbufs whose packets have something in common. What differs within the group is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostGroupSample {
    /// Mbufs.
    pub mbufs: u64,
    /// Port that received them, as the mbufs say.
    pub port: Option<u16>,
    /// `udp`, `arp`, an IP protocol number or an ethertype.
    pub protocol: Option<String>,
    /// Sender, with its port where there is one.
    pub source: Option<String>,
    /// Receiver, with its port where there is one.
    pub destination: Option<String>,
    /// Conversations that they belong to; 0 when none could be read.
    pub conversations: u64,
    /// Length of the shortest packet, bytes.
    pub least_bytes: u32,
    /// Length of the longest packet, bytes.
    pub most_bytes: u32,
    /// Segments of each packet.
    pub segments: Option<u16>,
    /// Reference count.
    pub refcnt: Option<u16>,
    /// The longest time that one of them was lost for at least, milliseconds.
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
