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
}
