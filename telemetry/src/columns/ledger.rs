//! The tables about leaks: ledgers, sites and stages.

use serde::Deserialize;

use super::{FromPage, TablePage};
use crate::error::TelemetryError;
use crate::sample::{LedgerMode, LedgerSample, SiteSample, StageSample};

#[derive(Deserialize)]
struct LedgerRow {
    name: String,
    size: u64,
    common: u64,
    cached: u64,
    rx_posted: u64,
    tx_pending: u64,
    rings: u64,
    held: u64,
    leaked: u64,
    unplaced: u64,
    lost_at_least: u64,
    prearm: u64,
    armed: u64,
    mode: LedgerMode,
    #[serde(default)]
    readable: Option<u64>,
    slope_milli: i64,
    exhausted_in_ms: u64,
    first_leak_realtime_ns: u64,
    walks: u64,
    walk_us: u64,
    double_frees: u64,
    use_after_frees: u64,
}

impl From<LedgerRow> for LedgerSample {
    fn from(row: LedgerRow) -> Self {
        Self {
            name: row.name,
            size: row.size,
            common: row.common,
            cached: row.cached,
            rx_posted: row.rx_posted,
            tx_pending: row.tx_pending,
            rings: row.rings,
            held: row.held,
            leaked: row.leaked,
            unplaced: row.unplaced,
            lost_at_least: row.lost_at_least,
            prearm: row.prearm,
            armed: row.armed != 0,
            mode: row.mode,
            opaque: row.readable == Some(0),
            slope_milli: row.slope_milli,
            exhausted_in_ms: (row.exhausted_in_ms > 0).then_some(row.exhausted_in_ms),
            first_leak_realtime_ns: row.first_leak_realtime_ns,
            walks: row.walks,
            walk_us: row.walk_us,
            double_frees: row.double_frees,
            use_after_frees: row.use_after_frees,
        }
    }
}

#[derive(Deserialize)]
struct StageRow {
    stage: String,
    held: u64,
    hold: u64,
    bound_ms: u64,
    longest_ms: u64,
}

impl From<StageRow> for StageSample {
    fn from(row: StageRow) -> Self {
        let StageRow { stage, held, hold, bound_ms, longest_ms } = row;
        Self { stage, held, hold: hold != 0, bound_ms, longest_ms }
    }
}

impl FromPage for LedgerSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.convert::<LedgerRow, Self>()
    }
}

impl FromPage for SiteSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.rows()
    }
}

impl FromPage for StageSample {
    fn from_page(page: TablePage) -> Result<Vec<Self>, TelemetryError> {
        page.convert::<StageRow, Self>()
    }
}
