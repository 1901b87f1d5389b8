//! Mempools, software rings and heaps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    pub occupancy: Option<PoolOccupancy>,
    /// Highest in-use count in the last window and since start; libpmdscope only.
    pub high_water: Option<HighWater>,
    /// Objects in the cache of each lcore; libpmdscope only.
    pub lcore_caches: BTreeMap<u32, u64>,
}

/// Where the objects of a pool are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolOccupancy {
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
