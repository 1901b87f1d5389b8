//! Turns the column tables of libpmdscope into rows (see docs/telemetry.md).

mod ledger;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value};

use crate::error::TelemetryError;
use crate::sample::{
    CountSource, HighWater, LcoreSample, PoolOccupancy, PoolSample, PortEventsSample,
    QueueDirection, QueueSample, RingSample, TeeSample,
};

/// The schema of tables that this code reads.
pub(crate) const SCHEMA: u64 = 1;

/// More rows than any app has; bounds the work that a broken app can cause.
const MAX_ROWS: u64 = 1 << 16;

/// Behind the name of a column of lists: how many values each has.
const BUCKETS_SUFFIX: &str = "_buckets";

/// Columns with a length of their own.
const SPARSE_PREFIX: &str = "caches_";

/// One page of a table.
#[derive(Debug)]
pub(crate) struct TablePage {
    pub(crate) generation: u64,
    /// Its first row.
    pub(crate) offset: u64,
    pub(crate) total: u64,
    /// First row of the next page; `None` on the last page.
    pub(crate) next: Option<u64>,
    rows: usize,
    columns: Vec<TableColumn>,
    sparse: Map<String, Value>,
}

/// A column with a cell for each row of its page.
#[derive(Debug)]
struct TableColumn {
    name: String,
    cells: Vec<Value>,
}

#[derive(Deserialize)]
struct PageHeader {
    schema: u64,
    generation: u64,
    offset: u64,
    total: u64,
    next: Option<u64>,
}

impl TablePage {
    /// Checks the header and the length of every column.
    pub(crate) fn parse(fields: Map<String, Value>) -> Result<Self, TelemetryError> {
        let (mut columns, mut header) = (Vec::new(), Map::new());
        for (name, value) in fields {
            match value {
                Value::Array(values) => columns.push((name, values)),
                value => {
                    header.insert(name, value);
                }
            }
        }
        let mut sparse = Map::new();
        let mut buckets = Vec::new();
        // Few tables have lists.
        let has_lists = header.keys().any(|name| name.ends_with(BUCKETS_SUFFIX));
        columns.retain_mut(|(name, values)| {
            let Some(name) = name.strip_prefix(SPARSE_PREFIX) else {
                let key = has_lists.then(|| format!("{name}{BUCKETS_SUFFIX}"));
                buckets.push(key.and_then(|key| header.remove(&key)));
                return true;
            };
            sparse.insert(name.into(), std::mem::take(values).into());
            false
        });
        let header: PageHeader = shape(Value::Object(header))?;
        let rows = header.rows()?;
        let columns = columns.into_iter().zip(buckets);
        let columns = columns
            .map(|((name, values), buckets)| TableColumn::new(name, values, buckets.as_ref(), rows))
            .collect::<Result<_, _>>()?;
        let PageHeader { generation, offset, total, next, .. } = header;
        Ok(Self { generation, offset, total, next, rows, columns, sparse })
    }

    /// The row behind its last.
    pub(crate) fn end(&self) -> u64 {
        self.next.unwrap_or(self.total)
    }

    pub(crate) fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>, TelemetryError> {
        let row = |row: usize| {
            let cells = self.columns.iter();
            let cells = cells.filter_map(|column| Some((&*column.name, column.cells.get(row)?)));
            T::deserialize(MapDeserializer::new(cells)).map_err(malformed)
        };
        (0..self.rows).map(row).collect()
    }

    /// The rows, read as `Row` and turned into samples.
    pub(crate) fn convert<Row, Sample>(&self) -> Result<Vec<Sample>, TelemetryError>
    where
        Row: DeserializeOwned,
        Sample: From<Row>,
    {
        Ok(self.rows::<Row>()?.into_iter().map(Sample::from).collect())
    }
}

impl TableColumn {
    /// `buckets`: how many values each row has, if it has a list of them.
    fn new(
        name: String,
        values: Vec<Value>,
        buckets: Option<&Value>,
        rows: usize,
    ) -> Result<Self, TelemetryError> {
        let width = match buckets {
            Some(buckets) => buckets.as_u64().and_then(|width| usize::try_from(width).ok()),
            None => Some(1),
        };
        let fits = |width: &usize| *width > 0 && rows.checked_mul(*width) == Some(values.len());
        let Some(width) = width.filter(fits) else {
            let count = values.len();
            let what = format!("column {name} has {count} values for {rows} rows");
            return Err(TelemetryError::Malformed(what));
        };
        let cells = match buckets {
            Some(_) => values.chunks_exact(width).map(Value::from).collect(),
            None => values,
        };
        Ok(Self { name, cells })
    }
}

impl PageHeader {
    /// Number of rows on the page, when the header makes sense.
    fn rows(&self) -> Result<usize, TelemetryError> {
        if self.schema != SCHEMA {
            return Err(TelemetryError::Schema(self.schema));
        }
        let end = self.next.unwrap_or(self.total);
        let last_or_advances = self.next.is_none_or(|next| next > self.offset && next < self.total);
        if self.total > MAX_ROWS || !last_or_advances {
            return Err(TelemetryError::Malformed(format!(
                "page from {} to {end} of {} rows",
                self.offset, self.total
            )));
        }
        end.checked_sub(self.offset).and_then(|rows| usize::try_from(rows).ok()).ok_or_else(|| {
            TelemetryError::Malformed(format!(
                "page starts at {} of {} rows",
                self.offset, self.total
            ))
        })
    }
}

fn shape<T: DeserializeOwned>(value: Value) -> Result<T, TelemetryError> {
    serde_json::from_value(value).map_err(malformed)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: serde_json::Error) -> TelemetryError {
    TelemetryError::Malformed(error.to_string())
}

/// A row type that a page can be read into.
pub(crate) trait FromPage: Sized {
    /// The rows of the page, in its order.
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
    fn from_page(mut page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        let caches: Caches = shape(Value::Object(std::mem::take(&mut page.sparse)))?;
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
    empty: u64,
    packets: u64,
    bytes: u64,
    depth_supported: u64,
    depth: u64,
    depth_window_max: u64,
    depth_max: u64,
    descriptors: u64,
    bursts: Vec<u64>,
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
}

impl From<RingRow> for RingSample {
    fn from(row: RingRow) -> Self {
        Self {
            name: row.name,
            capacity: row.capacity,
            used: row.used,
            source: Some(CountSource::Library),
            high_water: Some(HighWater { window: row.used_window_max, ever: row.used_max }),
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
