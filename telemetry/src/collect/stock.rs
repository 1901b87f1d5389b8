//! Reads mempools, rings, heaps and cycles, which every DPDK app reports if its version has them.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::client::TelemetryClient;
use crate::clock::monotonic_ns;
use crate::commands::{HeapId, PoolName, RingName, TelemetryCommand};
use crate::error::TelemetryError;
use crate::reply::{HeapInfo, LcoreUsage, PoolInfo, RingInfo};
use crate::sample::{CountSource, HeapSample, PoolOccupancy, PoolSample, RingSample, UsageSample};

use super::cached::Cached;
use super::round::RequestRound;
use super::{FACTS_AGE, SLOW};

/// The mempools of one app.
#[derive(Debug, Default)]
pub(super) struct StockPoolReader {
    names: Cached<Vec<PoolName>>,
    /// Pools of a DPDK release that reports no counts: their data do not change.
    fixed: Vec<PoolSample>,
}

impl StockPoolReader {
    /// Reads the mempools. Before DPDK 23.03 their replies contain nothing that changes, so they are
    /// cached until the list changes.
    pub(super) fn read(&mut self, round: &mut RequestRound<'_>) -> Vec<PoolSample> {
        let now = Instant::now();
        if self.names.is_older(now, FACTS_AGE) {
            match round.list(&TelemetryCommand::MempoolList, TelemetryClient::pools) {
                Some(names) => self.names.set(now, names),
                None => return Vec::new(),
            }
        }
        let names = self.names.value();
        if !names.is_empty() && names.iter().map(|n| &n.0).eq(self.fixed.iter().map(|p| &p.name)) {
            return self.fixed.clone();
        }
        let listed = names.len();
        let pools: Vec<_> = names.iter().filter_map(|name| pool(round, name)).collect();
        let complete = pools.len() == listed;
        if !complete {
            self.names.forget();
        }
        let fixed = complete && pools.iter().all(|pool| pool.occupancy.is_none());
        self.fixed = if fixed { pools.clone() } else { Vec::new() };
        pools
    }
}

fn pool(round: &mut RequestRound<'_>, name: &PoolName) -> Option<PoolSample> {
    let endpoint = TelemetryCommand::MempoolInfo(name.clone());
    let info: PoolInfo = round.ask_about(&endpoint, |info: &PoolInfo| info.name == name.0)?;
    let parts = [info.elt_size, info.header_size, info.trailer_size];
    let occupancy = occupancy(&info);
    Some(PoolSample {
        occupancy,
        source: occupancy.map(|_| CountSource::Telemetry),
        name: info.name,
        size: info.size.0,
        element_bytes: parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.0)),
        cache_size: info.cache_size.0,
        socket: info.socket_id,
        ..PoolSample::default()
    })
}

/// The app counts common ring and caches one after the other while it works, so that their sum may
/// exceed the size for a moment; `in_use` is then 0.
fn occupancy(info: &PoolInfo) -> Option<PoolOccupancy> {
    let (common, cached) = (info.common_pool_count?.0, info.total_cache_count?.0);
    let in_use = info.size.0.saturating_sub(common.saturating_add(cached));
    Some(PoolOccupancy { common, cached, in_use })
}

/// Rings that are requested per second: each takes a request. An app with more rings has them
/// requested in turn.
const RINGS_PER_SECOND: u128 = 50;

/// Least number of rings that are requested in one round, however short the interval.
const MIN_RINGS: usize = 8;

/// The software rings of one app.
#[derive(Debug, Default)]
pub(super) struct StockRingReader {
    names: Cached<Vec<RingName>>,
    /// Rings as they were read last.
    known: BTreeMap<String, RingSample>,
    /// Index of the ring to request next.
    next: usize,
    read: Option<Instant>,
}

impl StockRingReader {
    /// Reads the software rings, without those in which the pools keep their free objects. All are
    /// requested in the first round; later, if there are many, those that are due.
    pub(super) fn read(
        &mut self,
        round: &mut RequestRound<'_>,
        pools: &[PoolSample],
    ) -> Vec<RingSample> {
        let now = Instant::now();
        if self.names.is_older(now, FACTS_AGE) {
            match round.list(&TelemetryCommand::RingList, TelemetryClient::rings) {
                Some(names) => self.names.set(now, names),
                None => return Vec::new(),
            }
        }
        let of_pool = |ring: &&RingName| {
            let pool = ring.0.strip_prefix("MP_");
            pool.is_some_and(|name| pools.iter().any(|pool| pool.name == name))
        };
        let names: Vec<_> = self.names.value().iter().filter(|ring| !of_pool(ring)).collect();
        self.known.retain(|name, _| names.iter().any(|listed| listed.0 == *name));
        let budget = self.read.replace(now).map_or(names.len(), |read| {
            let ms = now.saturating_duration_since(read).as_millis();
            usize::try_from(ms * RINGS_PER_SECOND / 1000).unwrap_or(usize::MAX).max(MIN_RINGS)
        });
        let budget = budget.min(names.len());
        let new = names.iter().filter(|name| !self.known.contains_key(&name.0));
        let known = names.iter().cycle().skip(self.next).take(names.len());
        let known = known.filter(|name| self.known.contains_key(&name.0));
        let asked: Vec<RingName> =
            new.chain(known).take(budget).map(|name| (*name).clone()).collect();
        let last = asked.last().and_then(|last| names.iter().position(|name| *name == last));
        self.next = last.map_or(0, |last| (last + 1) % names.len());
        let mut complete = true;
        for (name, ring) in asked.iter().zip(rings(round, &asked)) {
            complete &= ring.is_some();
            match ring {
                Some(ring) => self.known.insert(name.0.clone(), ring),
                None => self.known.remove(&name.0),
            };
        }
        let rings = names.iter().filter_map(|name| self.known.get(&name.0).cloned()).collect();
        if !complete {
            self.names.forget();
        }
        rings
    }
}

/// Requests these rings; `None` for each that could not be read.
fn rings(round: &mut RequestRound<'_>, names: &[RingName]) -> Vec<Option<RingSample>> {
    let request = |name: &RingName| (TelemetryCommand::RingInfo(name.clone()), PhantomData);
    let requests: Vec<(TelemetryCommand, PhantomData<RingInfo>)> =
        names.iter().map(request).collect();
    let replies = round.request_each(&requests);
    let ring = |(name, reply): (&RingName, Result<RingInfo, TelemetryError>)| match reply {
        Ok(info) if info.name == name.0 => Some(ring_sample(info)),
        // Later requests fail only because the connection is lost; this error has the reason.
        Err(error) if round.is_over() => {
            round.keep(TelemetryCommand::RingInfo(name.clone()), Err(error))
        }
        _ => ring(round, name),
    };
    names.iter().zip(replies).map(ring).collect()
}

fn ring(round: &mut RequestRound<'_>, name: &RingName) -> Option<RingSample> {
    let endpoint = TelemetryCommand::RingInfo(name.clone());
    round.ask_about(&endpoint, |info: &RingInfo| info.name == name.0).map(ring_sample)
}

fn ring_sample(info: RingInfo) -> RingSample {
    RingSample {
        name: info.name,
        capacity: info.capacity.0,
        used: info.used_count.0,
        source: Some(CountSource::Telemetry),
        single_producer: info.producer_type.map(|kind| kind.starts_with("SP")),
        single_consumer: info.consumer_type.map(|kind| kind.starts_with("SC")),
        ..RingSample::default()
    }
}

/// Time after the first reading of the heaps of an app, and while they grow, until they are read again.
const HEAP_RETRY: Duration = Duration::from_millis(450);

/// Readings at short intervals in a row, which are enough for a trend.
const FREQUENT_READINGS: u32 = 8;

/// Interval at which heaps are read that still grow after these.
const GROWING: Duration = Duration::from_secs(2);

/// The heaps of one app. Each request takes the lock of `rte_malloc()`, so there are few unless a heap grows.
#[derive(Debug, Default)]
pub(super) struct HeapReader {
    heaps: Cached<Vec<HeapSample>>,
    readings: u32,
    grows: bool,
}

impl HeapReader {
    /// Returns the heaps, at most 10 s old. Their ids come from a list that is requested immediately
    /// before: DPDK does not check them, and reads beyond its heaps.
    pub(super) fn read(&mut self, round: &mut RequestRound<'_>) -> Vec<HeapSample> {
        let now = Instant::now();
        if self.heaps.is_older(now, self.interval()) {
            let Some(ids) = round.list(&TelemetryCommand::HeapList, TelemetryClient::heaps) else {
                return Vec::new();
            };
            let heaps: Vec<_> = ids.iter().filter_map(|id| heap(round, *id)).collect();
            let complete = heaps.len() == ids.len();
            self.note(&heaps);
            self.heaps.set(now, heaps);
            if !complete {
                self.heaps.forget();
            }
        }
        self.heaps.value().clone()
    }

    fn interval(&self) -> Duration {
        match self.readings {
            0..=1 => HEAP_RETRY,
            _ if !self.grows => SLOW,
            2..=FREQUENT_READINGS => HEAP_RETRY,
            _ => GROWING,
        }
    }

    fn note(&mut self, heaps: &[HeapSample]) {
        let before = self.heaps.value();
        let grown = |heap: &HeapSample| {
            let same = before.iter().find(|before| before.name == heap.name);
            same.is_some_and(|before| heap.allocated > before.allocated)
        };
        self.grows = heaps.iter().any(grown);
        self.readings = self.readings.saturating_add(1);
    }
}

fn heap(round: &mut RequestRound<'_>, id: HeapId) -> Option<HeapSample> {
    let about = |info: &HeapInfo| info.id.0 == u64::from(id.0);
    let info = round.ask_about(&TelemetryCommand::HeapInfo(id), about)?;
    Some(HeapSample {
        name: info.name,
        size: info.size.0,
        allocated: info.allocated.0,
        free: info.free.0,
        greatest_free: info.greatest_free.0,
        allocations: info.allocations.0,
        read_ns: monotonic_ns(),
        ..HeapSample::default()
    })
}

/// Reads the cycles that an app counts for its lcores; most apps count none.
#[derive(Debug, Default)]
pub(super) struct LcoreUsageReader {
    /// Whether the app does not count, and when that was found.
    none: Cached<bool>,
}

impl LcoreUsageReader {
    /// Reads the cycles by lcore; an app that counts none is asked again periodically, since it may begin.
    pub(super) fn read(&mut self, round: &mut RequestRound<'_>) -> Vec<UsageSample> {
        let now = Instant::now();
        if *self.none.value() && !self.none.is_older(now, SLOW) {
            return Vec::new();
        }
        let asked = round.request::<LcoreUsage>(&TelemetryCommand::LcoreUsage).and_then(usage);
        let usage = round.keep(TelemetryCommand::LcoreUsage, asked).unwrap_or_default();
        self.none.set(now, usage.is_empty());
        usage
    }
}

fn usage(columns: LcoreUsage) -> Result<Vec<UsageSample>, TelemetryError> {
    let LcoreUsage { lcore_ids, total_cycles, busy_cycles } = columns;
    let lengths = [lcore_ids.len(), total_cycles.len(), busy_cycles.len()];
    if lengths != [lcore_ids.len(); 3] {
        return Err(TelemetryError::Malformed(format!("columns of {lengths:?} values")));
    }
    let cycles = total_cycles.into_iter().zip(busy_cycles);
    let rows = lcore_ids.into_iter().zip(cycles);
    Ok(rows
        .map(|(lcore, (total, busy))| UsageSample { lcore, busy: busy.0, total: total.0 })
        .collect())
}
