//! Parses the column tables of libpmdscope into rows (see docs/telemetry.md).

mod cells;
mod ledger;
mod page;

use serde::Deserialize;

pub(crate) use self::page::{PageFields, SCHEMA, TablePage};
use crate::error::TelemetryError;
use crate::sample::{
    CountSource, HighWater, LcoreSample, PoolOccupancy, PoolSample, PortEventsSample,
    QueueDirection, QueueSample, RingSample, TeeSample,
};

/// A row type that can be parsed from a page.
pub(crate) trait FromPage: Sized {
    /// Returns the rows of the page, in order.
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError>;
}

#[derive(Deserialize)]
struct PoolRow {
    name: String,
    socket: i64,
    size: u64,
    element_bytes: u64,
    cache_size: u64,
    common: u64,
    cached: u64,
    in_use: u64,
    in_use_window_max: u64,
    in_use_max: u64,
}

impl From<PoolRow> for PoolSample {
    fn from(row: PoolRow) -> Self {
        let PoolRow { common, cached, in_use, .. } = row;
        Self {
            name: row.name,
            size: row.size,
            element_bytes: row.element_bytes,
            cache_size: row.cache_size,
            socket: row.socket,
            occupancy: Some(PoolOccupancy { common, cached, in_use }),
            source: Some(CountSource::Library),
            high_water: Some(HighWater { window: row.in_use_window_max, ever: row.in_use_max }),
            lcore_caches: std::collections::BTreeMap::new(),
            feeds: Vec::new(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Caches {
    row: Vec<usize>,
    lcore: Vec<u32>,
    objects: Vec<u64>,
}

impl FromPage for PoolSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        let caches: Caches = page.sparse()?;
        let rows = page.rows::<PoolRow>()?;
        let mut pools: Vec<Self> = rows.into_iter().map(Self::from).collect();
        let entries = caches.row.len();
        if caches.lcore.len() != entries || caches.objects.len() != entries {
            return Err(TelemetryError::Malformed("columns caches_* differ in length".into()));
        }
        let cells = caches.lcore.into_iter().zip(caches.objects);
        for (row, (lcore, objects)) in caches.row.into_iter().zip(cells) {
            let pool = pools.get_mut(row).ok_or_else(|| {
                TelemetryError::Malformed(format!("caches_row {row} is not on the page"))
            })?;
            pool.lcore_caches.insert(lcore, objects);
        }
        Ok(pools)
    }
}

#[derive(Deserialize)]
struct QueueRow {
    port: u16,
    queue: u16,
    dir: QueueDirection,
    polls: u64,
    #[serde(default)]
    empty: u64,
    packets: u64,
    bytes: u64,
    #[serde(default)]
    depth_supported: u64,
    #[serde(default)]
    depth: u64,
    #[serde(default)]
    depth_window_max: u64,
    #[serde(default)]
    depth_max: u64,
    #[serde(default)]
    descriptors: u64,
    #[serde(default)]
    pool_row: u64,
    #[serde(default)]
    bursts: Vec<u64>,
    #[serde(default)]
    depths: Vec<u64>,
}

impl From<QueueRow> for QueueSample {
    fn from(row: QueueRow) -> Self {
        let depth_known = row.depth_supported != 0;
        let high_water = HighWater { window: row.depth_window_max, ever: row.depth_max };
        Self {
            port: row.port,
            queue: row.queue,
            direction: row.dir,
            polls: row.polls,
            empty: row.empty,
            packets: row.packets,
            bytes: row.bytes,
            depth: depth_known.then_some(row.depth),
            depth_high_water: depth_known.then_some(high_water),
            descriptors: (row.descriptors > 0).then_some(row.descriptors),
            pool_row: row.pool_row.checked_sub(1).and_then(|row| usize::try_from(row).ok()),
            bursts: row.bursts,
            depths: row.depths,
        }
    }
}

#[derive(Deserialize)]
struct RingRow {
    name: String,
    capacity: u64,
    used: u64,
    used_window_max: u64,
    used_max: u64,
    #[serde(default)]
    producers: String,
    #[serde(default)]
    consumers: String,
}

impl From<RingRow> for RingSample {
    fn from(row: RingRow) -> Self {
        Self {
            name: row.name,
            capacity: row.capacity,
            used: row.used,
            source: Some(CountSource::Library),
            high_water: Some(HighWater { window: row.used_window_max, ever: row.used_max }),
            single_producer: (!row.producers.is_empty()).then(|| row.producers == "sp"),
            single_consumer: (!row.consumers.is_empty()).then(|| row.consumers == "sc"),
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
struct TeeRow {
    session: u64,
    pid: u64,
    armed: u64,
    lcore: u32,
    ring_bytes: u64,
    used_bytes: u64,
    records: u64,
    dropped: u64,
    filtered: u64,
    sampled_out: u64,
}

impl From<TeeRow> for TeeSample {
    fn from(row: TeeRow) -> Self {
        Self {
            session: row.session,
            pid: row.pid,
            armed: row.armed != 0,
            lcore: row.lcore,
            ring_bytes: row.ring_bytes,
            used_bytes: row.used_bytes,
            records: row.records,
            dropped: row.dropped,
            filtered: row.filtered,
            sampled_out: row.sampled_out,
        }
    }
}

#[derive(Deserialize)]
struct PortRow {
    port: u16,
    device: String,
    started: u64,
    starts: u64,
    stops: u64,
    link_changes: u64,
    changed_realtime_ns: u64,
}

impl From<PortRow> for PortEventsSample {
    fn from(row: PortRow) -> Self {
        Self {
            port: row.port,
            device: row.device,
            started: row.started != 0,
            starts: row.starts,
            stops: row.stops,
            link_changes: row.link_changes,
            changed_realtime_ns: row.changed_realtime_ns,
        }
    }
}

impl FromPage for PortEventsSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.convert::<PortRow, Self>()
    }
}

impl FromPage for QueueSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.convert::<QueueRow, Self>()
    }
}

impl FromPage for RingSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.convert::<RingRow, Self>()
    }
}

impl FromPage for LcoreSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.rows()
    }
}

impl FromPage for TeeSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.convert::<TeeRow, Self>()
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
