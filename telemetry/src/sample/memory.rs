//! Mempools, software rings and heaps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One mempool. `size` is the sum of the counts in `occupancy`, if these are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolSample {
    /// Name of the pool.
    pub name: String,
    /// Number of objects.
    pub size: u64,
    /// Size of one object with header and trailer, bytes.
    pub element_bytes: u64,
    /// Size of each per-lcore cache, objects; 0 without caches.
    pub cache_size: u64,
    /// NUMA node; -1 for any.
    pub socket: i64,
    /// Objects by place; `None` if unknown: DPDK before 23.03 does not report them, only libpmdscope or
    /// X-ray does.
    pub occupancy: Option<PoolOccupancy>,
    /// Source of `occupancy`; `None` if unknown, as in recordings of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CountSource>,
    /// High-water marks of the objects in use; `None` without libpmdscope and X-ray.
    pub high_water: Option<HighWater>,
    /// Objects in the cache of each lcore, by lcore id, without empty caches; empty without libpmdscope and
    /// X-ray.
    pub lcore_caches: BTreeMap<u32, u64>,
    /// Receive queues that get their mbufs from it, as far as they are known: from libpmdscope, X-ray, or
    /// telemetry of DPDK 23.07 and later for some NICs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<FedQueue>,
}

/// A receive queue that gets its mbufs from a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FedQueue {
    /// DPDK port id.
    pub port: u16,
    /// Queue number.
    pub queue: u16,
}

impl PoolSample {
    /// Whether it is known to feed a queue of this port.
    pub fn feeds_port(&self, port: u16) -> bool {
        self.feeds.iter().any(|fed| fed.port == port)
    }
}

/// Source of the counts of a pool or ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CountSource {
    /// Telemetry of DPDK: pools since 23.03, rings since 24.03.
    Telemetry,
    /// libpmdscope in the app.
    Library,
    /// X-ray, which reads the memory of the app from outside.
    Xray,
}

impl CountSource {
    /// Returns its name in JSON and in labels of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Library => "library",
            Self::Xray => "xray",
        }
    }
}

/// Objects of a pool by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolOccupancy {
    /// Free objects in the common part: the ring or stack that all lcores share.
    pub common: u64,
    /// Free objects in per-lcore caches.
    pub cached: u64,
    /// Objects that are not free.
    pub in_use: u64,
}

/// High-water marks. libpmdscope samples every `sample_ms`; X-ray knows only the values that it read, and
/// no higher one in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HighWater {
    /// Highest value in the last complete window, or in the current one before that.
    pub window: u64,
    /// Highest value since libpmdscope started, or since X-ray first read the app.
    pub ever: u64,
}

/// One software ring (`rte_ring`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingSample {
    /// Name of the ring.
    pub name: String,
    /// Number of usable entries.
    pub capacity: u64,
    /// Entries in use.
    pub used: u64,
    /// Source of `used`; `None` if unknown, as in recordings of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CountSource>,
    /// High-water marks of the entries in use; `None` without libpmdscope and X-ray.
    pub high_water: Option<HighWater>,
    /// Entries that were put in since the ring was created, modulo 2^32; `None` without X-ray.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enqueued: Option<u32>,
    /// Entries that were taken out since the ring was created, modulo 2^32; `None` without X-ray.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dequeued: Option<u32>,
    /// Whether it is for a single producer; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_producer: Option<bool>,
    /// Whether it is for a single consumer; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_consumer: Option<bool>,
    /// Whether its entries are mbufs; `None` without X-ray, or if it has few entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds_mbufs: Option<bool>,
    /// Pool of these mbufs; `None` if they are of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Threads that refer to it on their stacks, if it is full; empty without X-ray.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<RingUserSample>,
}

/// A thread that refers to a ring on its stack, and so probably puts entries in or takes them out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingUserSample {
    /// Kernel thread id, as the app itself sees it.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
}

impl RingSample {
    /// Whether it is full, or nearly so: at least 90 % of its entries are in use.
    pub fn is_full(&self) -> bool {
        self.capacity > 0 && self.used.saturating_mul(10) >= self.capacity.saturating_mul(9)
    }
}

/// Result of reading the memory of the app from outside (X-ray).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XraySample {
    /// Reason why not everything could be read, as one sentence; `None` if everything was read.
    pub problem: Option<String>,
    /// Mempools with objects that are free more than once, or changed while they are free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrupt: Vec<CorruptPoolSample>,
}

/// A mempool of which two users will get the same object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CorruptPoolSample {
    /// Name of the pool.
    pub pool: String,
    /// Number of such objects.
    pub total: u64,
    /// Some of them.
    pub objects: Vec<CorruptObjectSample>,
}

/// An object of a corrupt mempool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CorruptObjectSample {
    /// Its address in the app, that of the `struct rte_mbuf`.
    pub address: u64,
    /// Where it is seen, and what is wrong there.
    pub seen: Vec<String>,
}

/// One heap of the EAL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapSample {
    /// Name of the heap.
    pub name: String,
    /// Size of the heap, bytes.
    pub size: u64,
    /// Allocated memory, bytes.
    pub allocated: u64,
    /// Free memory, bytes.
    pub free: u64,
    /// Largest free block, bytes.
    pub greatest_free: u64,
    /// Number of allocated blocks.
    pub allocations: u64,
    /// Monotonic clock when it was read, nanoseconds; 0 in recordings of older versions.
    #[serde(default)]
    pub read_ns: u64,
    /// Free hugepages of its NUMA node, from which it can grow, bytes; 0 if its memory is fixed, `None` if it is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growable: Option<u64>,
    /// Blocks of the same size, those that became most first; empty unless X-ray read a heap that grows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<HeapGroupSample>,
}

/// Allocated blocks of a heap that have the same size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapGroupSample {
    /// Size of each block, bytes.
    pub bytes_each: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// How many more there are than when they were last counted; `None` if that was the first time.
    pub grown: Option<u64>,
}
