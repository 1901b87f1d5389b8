//! Metrics of mempools, leaks, rings and heaps.

use std::collections::BTreeMap;

use pmdscope_telemetry::model::PoolTrend;
use pmdscope_telemetry::sample::{
    CountSource, LedgerSample, PoolOccupancy, PoolSample, RingSample, SiteSample,
};

use super::LiveApp;
use super::row::{FamilyList, LabelledRow, SuppressReason, SuppressedSeries, rows};
use crate::catalogue as metric;
use crate::family::{LabelValues, MetricSample};
use crate::series_limits::SeriesLimits;

/// Site label of the mbufs lost at sites beyond the limit.
const OTHER: &str = "other";

pub(super) fn families<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
    limits: &SeriesLimits,
) {
    pools(families, suppressed, live);
    leaks(families, suppressed, live, limits);
    rings(families, suppressed, live);
    heaps(families, suppressed, live);
}

fn pools<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
) {
    let pools: Vec<LabelledRow<(&PoolSample, &PoolTrend)>> = rows(live, suppressed, |app| {
        let pools = app.model.sample.pools.iter().zip(&app.model.pools);
        pools.map(|(pool, trend)| ([pool.name.clone()], (pool, trend)))
    });
    let part = |of: fn(PoolOccupancy) -> u64| {
        move |(pool, _): &(&PoolSample, &PoolTrend)| pool.occupancy.map(of)
    };
    families.per(&metric::MEMPOOL_OBJECTS, &pools, |(pool, _)| Some(pool.size));
    let source =
        |row: &LabelledRow<(&PoolSample, &PoolTrend)>| counted(&row.labels, row.of.0.source);
    families.add(&metric::MEMPOOL_INFO, pools.iter().filter_map(source));
    families.per(&metric::MEMPOOL_OBJECTS_IN_USE, &pools, part(|objects| objects.in_use));
    families.per(&metric::MEMPOOL_OBJECTS_COMMON, &pools, part(|objects| objects.common));
    families.per(&metric::MEMPOOL_CACHED_OBJECTS, &pools, part(|objects| objects.cached));
    families.per(&metric::MEMPOOL_CACHE_SIZE_OBJECTS, &pools, |(pool, _)| Some(pool.cache_size));
    families.per(&metric::MEMPOOL_ELEMENT_BYTES, &pools, |(pool, _)| Some(pool.element_bytes));
    families.per(&metric::MEMPOOL_OBJECTS_IN_USE_WINDOW_MAX, &pools, |(pool, _)| {
        Some(pool.high_water?.window)
    });
    families.per(&metric::MEMPOOL_EXHAUSTED_IN, &pools, |(_, trend)| trend.exhausted_in_s);
    families.add(&metric::MEMPOOL_LCORE_CACHED_OBJECTS, pools.iter().flat_map(caches));
}

fn caches(row: &LabelledRow<(&PoolSample, &PoolTrend)>) -> Vec<MetricSample> {
    let caches = row.of.0.lcore_caches.iter();
    let sample = |(lcore, objects): (&u32, &u64)| sample(&row.labels, lcore.to_string(), *objects);
    caches.map(sample).collect()
}

/// Returns who counted the objects of a pool or a ring.
fn counted(labels: &LabelValues, source: Option<CountSource>) -> Option<MetricSample> {
    source.map(|source| sample(labels, source.name().to_owned(), 1))
}

/// Returns a sample with one more label than the object has.
fn sample(labels: &LabelValues, more: String, value: u64) -> MetricSample {
    MetricSample { labels: labels.iter().cloned().chain([more]).collect(), value: value.into() }
}

/// The ledger of a pool.
struct AppLedger<'a> {
    app: LiveApp<'a>,
    sample: &'a LedgerSample,
}

impl<'a> AppLedger<'a> {
    /// Returns the sites at which mbufs of this pool are lost.
    fn losses(&self) -> impl Iterator<Item = &'a SiteSample> {
        let pool = &self.sample.name;
        let sites = self.app.model.sample.sites.iter();
        sites.filter(move |site| site.pool == *pool && site.kind.is_loss() && site.count > 0)
    }

    fn leaked_bytes(&self) -> Option<u64> {
        let pool = self.app.model.sample.pools.iter().find(|pool| pool.name == self.sample.name)?;
        Some(self.sample.leaked.saturating_mul(pool.element_bytes))
    }

    fn oldest_age_s(&self) -> Option<f64> {
        self.losses().map(|site| site.oldest_ms).max().map(|ms| ms as f64 / 1000.0)
    }
}

fn leaks<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
    limits: &SeriesLimits,
) {
    let ledgers: Vec<LabelledRow<AppLedger<'a>>> = rows(live, suppressed, |app| {
        let app = *app;
        app.model
            .sample
            .ledger
            .iter()
            .map(move |sample| ([sample.name.clone()], AppLedger { app, sample }))
    });
    families.add(&metric::MBUF_PLACED, ledgers.iter().flat_map(places));
    families.per(&metric::MBUF_LEAKED, &ledgers, |ledger| Some(ledger.sample.leaked));
    families.per(&metric::MBUF_LEAKED_BYTES, &ledgers, AppLedger::leaked_bytes);
    families.per(&metric::MBUF_OLDEST_AGE, &ledgers, AppLedger::oldest_age_s);
    families.per(&metric::MBUF_LOST_AT_LEAST, &ledgers, |ledger| Some(ledger.sample.lost_at_least));
    families.per(&metric::MBUF_DOUBLE_FREES, &ledgers, |ledger| Some(ledger.sample.double_frees));
    families
        .per(&metric::MBUF_USE_AFTER_FREES, &ledgers, |ledger| Some(ledger.sample.use_after_frees));
    families.per(&metric::MBUF_LEDGER_ARMED, &ledgers, |ledger| Some(ledger.sample.armed));
    let sites: Vec<_> = ledgers.iter().flat_map(|row| sites(row, suppressed, limits)).collect();
    families.add(&metric::MBUF_LEAK_SITE_MBUFS, sites);
    stages(families, suppressed, live, limits);
}

fn places(row: &LabelledRow<AppLedger<'_>>) -> Vec<MetricSample> {
    let parts = row.of.sample.parts().into_iter();
    parts.map(|(place, mbufs)| sample(&row.labels, place.name().to_owned(), mbufs)).collect()
}

/// Returns the sites that lost most mbufs, and the sum of the others.
fn sites<'a>(
    row: &LabelledRow<AppLedger<'a>>,
    suppressed: &mut SuppressedSeries<'a>,
    limits: &SeriesLimits,
) -> Vec<MetricSample> {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for site in row.of.losses() {
        let mbufs = lost.entry(site.place()).or_default();
        *mbufs = mbufs.saturating_add(site.count);
    }
    let mut other = lost.remove(OTHER);
    let mut lost: Vec<_> = lost.into_iter().collect();
    // A stable sort: sites with the same number of lost mbufs stay sorted by name.
    lost.sort_by_key(|(_, mbufs)| std::cmp::Reverse(*mbufs));
    let keep =
        suppressed.keep(row.of.app.name, SuppressReason::Sites, lost.len(), limits.sites_per_pool);
    for (_, mbufs) in lost.drain(keep..) {
        other = Some(other.unwrap_or(0).saturating_add(mbufs));
    }
    lost.extend(other.map(|mbufs| (OTHER.to_owned(), mbufs)));
    lost.into_iter().map(|(site, mbufs)| sample(&row.labels, site, mbufs)).collect()
}

/// Adds the stages that hold most mbufs.
fn stages<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
    limits: &SeriesLimits,
) {
    let mut samples = Vec::new();
    for app in live {
        let mut stages = rows(&[*app], suppressed, |app| {
            let stages = app.model.sample.stages.iter();
            stages.map(|stage| ([stage.stage.clone()], stage.held))
        });
        stages.sort_by_key(|row| std::cmp::Reverse(row.of));
        let keep =
            suppressed.keep(app.name, SuppressReason::Stages, stages.len(), limits.sites_per_pool);
        let sample =
            |row: LabelledRow<u64>| MetricSample { labels: row.labels, value: row.of.into() };
        samples.extend(stages.into_iter().take(keep).map(sample));
    }
    families.add(&metric::STAGE_HELD_MBUFS, samples);
}

fn rings<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
) {
    let rings: Vec<LabelledRow<&RingSample>> = rows(live, suppressed, |app| {
        app.model.sample.rings.iter().map(|ring| ([ring.name.clone()], ring))
    });
    families.per(&metric::RING_CAPACITY_OBJECTS, &rings, |ring| Some(ring.capacity));
    let source = |row: &LabelledRow<&RingSample>| counted(&row.labels, row.of.source);
    families.add(&metric::RING_INFO, rings.iter().filter_map(source));
    families.per(&metric::RING_USED_OBJECTS, &rings, |ring| Some(ring.used));
    families
        .per(&metric::RING_USED_WINDOW_MAX_OBJECTS, &rings, |ring| Some(ring.high_water?.window));
}

fn heaps<'a>(
    families: &mut FamilyList,
    suppressed: &mut SuppressedSeries<'a>,
    live: &[LiveApp<'a>],
) {
    let heaps = rows(live, suppressed, |app| {
        app.model.sample.heaps.iter().map(|heap| ([heap.name.clone()], heap))
    });
    families.per(&metric::HEAP_SIZE, &heaps, |heap| Some(heap.size));
    families.per(&metric::HEAP_ALLOCATED, &heaps, |heap| Some(heap.allocated));
    families.per(&metric::HEAP_FREE, &heaps, |heap| Some(heap.free));
    families.per(&metric::HEAP_GREATEST_FREE, &heaps, |heap| Some(heap.greatest_free));
    families.per(&metric::HEAP_ALLOCATIONS, &heaps, |heap| Some(heap.allocations));
}
