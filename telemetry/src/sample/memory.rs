//! Mempools, software rings and heaps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One mempool. `size = common + cached + in_use` where the parts are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Where the objects are; `None` if unknown: DPDK before 23.03 tells it neither without libpmdscope
    /// nor without an [`OccupancyReader`](crate::OccupancyReader).
    pub occupancy: Option<PoolOccupancy>,
    /// Who counted [`PoolSample::occupancy`]; `None` if unknown, as in recordings of former versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CountSource>,
    /// Highest in-use count in the last window and since start; only of libpmdscope or an
    /// [`OccupancyReader`](crate::OccupancyReader).
    pub high_water: Option<HighWater>,
    /// Objects in the cache of each lcore, without empty caches; only of libpmdscope or an
    /// [`OccupancyReader`](crate::OccupancyReader).
    pub lcore_caches: BTreeMap<u32, u64>,
}

/// Who counted the objects of a pool or a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CountSource {
    /// The telemetry of DPDK: pools since 23.03, rings since 24.03.
    Telemetry,
    /// libpmdscope in the app.
    Library,
    /// They were read from the memory of the app, from outside.
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

/// Where the objects of a pool are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolOccupancy {
    /// Free in the common part: the ring or stack that all lcores share.
    pub common: u64,
    /// Free in per-lcore caches.
    pub cached: u64,
    /// Not free.
    pub in_use: u64,
}

/// High-water marks. libpmdscope looks every [`sample_ms`](crate::sample::LibrarySample::sample_ms); an
/// [`OccupancyReader`](crate::OccupancyReader) knows what it read itself, and no higher mark in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HighWater {
    /// In the last complete window; in the current one before that.
    pub window: u64,
    /// Since libpmdscope started, or since the app is watched.
    pub ever: u64,
}

/// One software ring (`rte_ring`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingSample {
    /// Name.
    pub name: String,
    /// Usable entries.
    pub capacity: u64,
    /// Entries in use.
    pub used: u64,
    /// Who counted it; `None` if unknown, as in recordings of former versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CountSource>,
    /// High-water marks; only of libpmdscope or an [`OccupancyReader`](crate::OccupancyReader).
    pub high_water: Option<HighWater>,
}

/// What reading the memory of the app gave, by an [`OccupancyReader`](crate::OccupancyReader).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct XraySample {
    /// Why not all of it could be read, as one sentence; `None` when all was.
    pub problem: Option<String>,
}

/// One heap of the EAL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
