//! The thread that reads one app: for samples, and between them for high-water marks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::{
    CorruptObjectSample, CorruptPoolSample, FedQueue, HeapGroupSample, HighWater, RingUserSample,
};

use super::marks::HighWaterMarks;
use crate::counts::{Counts, PoolCount, RingCount, RingEntries, counts, entries};
use crate::error::XrayError;
use crate::holders::{HeapGroups, PoolFeeds, RingUsers};
use crate::scan::{CorruptObject, CorruptPool, corrupt_pools};
use crate::target::{Pool, XrayTarget};

/// Opens an app.
pub(super) type Opener = Arc<dyn Fn(&DiscoveredApp) -> Result<XrayTarget, XrayError> + Send + Sync>;

/// Time between two reads for high-water marks while samples are taken: as libpmdscope does by default.
const MARK_INTERVAL: Duration = Duration::from_millis(100);

/// An app that was not sampled for this long is not watched: twice the usual scrape interval.
const IDLE: Duration = Duration::from_secs(120);

/// Interval at which memzones are looked up again, as the app creates and frees rings without
/// notice.
const REFRESH: Duration = Duration::from_secs(30);

/// Interval at which the free lists of pools are read.
const CORRUPT_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which ports and pools are compared with those whose queues were read.
const FEEDS_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two attempts to open an app: the first, and the longest after several failures.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Requests the current counts.
pub(super) struct Request {
    /// The pools that the app reports.
    pub(super) pools: BTreeSet<String>,
    /// Memory that is allocated in the heaps of the EAL, bytes; `None` if the app reports none.
    pub(super) allocated: Option<u64>,
    pub(super) reply: Sender<Reading>,
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) pools: BTreeMap<String, (PoolCount, Option<HighWater>)>,
    pub(super) rings: Vec<RingReading>,
    /// Why some could not be counted.
    pub(super) problem: Option<String>,
    pub(super) corrupt: Vec<CorruptPoolSample>,
    /// Receive queues that get their mbufs from each pool, by name.
    pub(super) feeds: BTreeMap<String, Vec<FedQueue>>,
    /// Blocks of heaps that have grown, by name of the heap.
    pub(super) heaps: BTreeMap<String, Vec<HeapGroupSample>>,
}

/// What is known of a ring.
#[derive(Debug)]
pub(super) struct RingReading {
    pub(super) count: RingCount,
    pub(super) high_water: HighWater,
    pub(super) entries: Option<RingEntries>,
    /// Threads that refer to it, if it is full.
    pub(super) users: Vec<RingUserSample>,
}

impl Reading {
    pub(super) fn failed(problem: String) -> Self {
        Self { problem: Some(problem), ..Self::default() }
    }
}

/// Reads one app.
pub(super) struct Watcher {
    app: DiscoveredApp,
    open: Opener,
    target: Option<XrayTarget>,
    /// Why there is no target.
    problem: String,
    /// When it was last opened or refreshed, or an attempt failed.
    opened: Option<Instant>,
    /// Minimum time before the next attempt after a failure.
    retry: Duration,
    requested: Option<Instant>,
    pools: HighWaterMarks,
    rings: HighWaterMarks,
    /// When the free lists were last read, and what was wrong with them then.
    corrupt: Option<(Instant, Vec<CorruptPoolSample>)>,
    feeds: PoolFeeds,
    /// When ports and pools were last compared with those of `feeds`.
    feeds_read: Option<Instant>,
    users: RingUsers,
    heaps: HeapGroups,
    /// Memory that was allocated in the heaps of the EAL at the last request.
    allocated: Option<u64>,
}

impl Watcher {
    pub(super) fn new(app: DiscoveredApp, open: Opener) -> Self {
        Self {
            app,
            open,
            target: None,
            problem: String::new(),
            opened: None,
            retry: FIRST_RETRY,
            requested: None,
            pools: HighWaterMarks::default(),
            rings: HighWaterMarks::default(),
            corrupt: None,
            feeds: PoolFeeds::default(),
            feeds_read: None,
            users: RingUsers::default(),
            heaps: HeapGroups::default(),
            allocated: None,
        }
    }

    /// Answers requests until all senders have ended.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let request = if self.is_watched() {
                requests.recv_timeout(MARK_INTERVAL)
            } else {
                requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match request {
                Ok(request) => {
                    let reading = self.read(&request.pools, Instant::now());
                    // The requester may have given up.
                    let _ = request.reply.send(reading);
                    self.look_into_heaps(request.allocated);
                }
                Err(RecvTimeoutError::Timeout) => self.mark(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Counts the blocks of heaps if these grow. That may take longer than a sample, so it is done after it.
    fn look_into_heaps(&mut self, allocated: Option<u64>) {
        let before = std::mem::replace(&mut self.allocated, allocated);
        if let Some(target) =
            self.target.as_ref().filter(|_| before.is_some() && allocated > before)
        {
            self.heaps.refresh(target);
        }
    }

    fn is_watched(&self) -> bool {
        self.target.is_some() && self.requested.is_some_and(|requested| requested.elapsed() < IDLE)
    }

    /// Reads for the high-water marks only; a failure is reported with the next sample.
    pub(super) fn mark(&mut self) {
        if let Some(Ok(counts)) = self.target.as_ref().map(counts) {
            self.take(&counts);
        }
    }

    fn take(&mut self, counts: &Counts) {
        let now = Instant::now();
        let in_use = |pool: &'_ PoolCount| pool.in_use();
        let pools =
            counts.pools.iter().filter_map(|pool| Some((pool.name.as_str(), in_use(pool)?)));
        self.pools.take(now, pools);
        self.rings.take(now, counts.rings.iter().map(|ring| (ring.name.as_str(), ring.used)));
    }

    pub(super) fn read(&mut self, pools: &BTreeSet<String>, now: Instant) -> Reading {
        self.requested = Some(now);
        if self.target.is_none() || (self.is_open_for(REFRESH, now) && !self.refresh(now)) {
            self.open(now);
        }
        let mut read = self.counts();
        let doubtful = match &read {
            Ok(counts) => counts.outdated || lacking(counts, pools).next().is_some(),
            Err(_) => true,
        };
        if !doubtful {
            self.retry = FIRST_RETRY;
        } else if self.target.is_some() && self.open(now) {
            read = self.counts();
        }
        match read {
            Ok(counts) => Reading {
                corrupt: self.corrupt(now),
                feeds: self.feeds(now),
                heaps: self.heaps.groups().clone(),
                ..self.reading(counts, pools)
            },
            Err(problem) => Reading::failed(problem),
        }
    }

    /// What is wrong with the free lists, which are longer than counts: they are read less often.
    fn corrupt(&mut self, now: Instant) -> Vec<CorruptPoolSample> {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < CORRUPT_INTERVAL;
        if !self.corrupt.as_ref().is_some_and(|(at, _)| is_recent(at))
            && let Some(target) = &self.target
        {
            let found = corrupt_pools(target).unwrap_or_default();
            self.corrupt = Some((now, found.into_iter().map(CorruptPoolSample::from).collect()));
        }
        self.corrupt.as_ref().map(|(_, found)| found.clone()).unwrap_or_default()
    }

    /// The receive queues that each pool feeds; ports are rarely configured anew.
    fn feeds(&mut self, now: Instant) -> BTreeMap<String, Vec<FedQueue>> {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < FEEDS_INTERVAL;
        if !self.feeds_read.is_some_and(is_recent)
            && let Some(target) = &self.target
        {
            self.feeds.refresh(target);
            self.feeds_read = Some(now);
        }
        self.feeds.feeds().clone()
    }

    /// The counts, or why there are none.
    fn counts(&mut self) -> Result<Counts, String> {
        let target = self.target.as_ref().ok_or_else(|| self.problem.clone())?;
        counts(target).map_err(|error| {
            self.problem = error.to_string();
            self.target = None;
            self.problem.clone()
        })
    }

    fn is_open_for(&self, time: Duration, now: Instant) -> bool {
        self.opened.is_none_or(|opened| now.saturating_duration_since(opened) >= time)
    }

    /// Looks up the memzones again; false if the app must be opened again for that.
    fn refresh(&mut self, now: Instant) -> bool {
        let refreshed = self.target.as_mut().is_some_and(|target| target.refresh().is_ok());
        if refreshed {
            self.opened = Some(now);
        }
        refreshed
    }

    /// Opens the app, unless that was tried a short time ago. If that fails, it is read as before.
    /// True if it was opened.
    fn open(&mut self, now: Instant) -> bool {
        if !self.is_open_for(self.retry, now) {
            return false;
        }
        let again = self.opened.replace(now).is_some();
        if again {
            self.retry = self.retry.saturating_mul(2).min(LAST_RETRY);
        }
        match (self.open)(&self.app) {
            Ok(target) => self.target = Some(target),
            Err(error) => self.problem = error.to_string(),
        }
        self.target.is_some()
    }

    /// What the entries of a ring are; who uses it, if it is full.
    fn ring(&mut self, count: RingCount, pools: &[Pool]) -> RingReading {
        let target = self.target.as_ref();
        RingReading {
            high_water: self.rings.of(&count.name).unwrap_or_default(),
            entries: target.and_then(|target| entries(target, &count, pools)),
            users: target.map(|target| self.users.of(target, &count)).unwrap_or_default(),
            count,
        }
    }

    fn reading(&mut self, counts: Counts, pools: &BTreeSet<String>) -> Reading {
        self.take(&counts);
        let unread = counts.problems.iter().map(ToString::to_string);
        let lacking = lacking(&counts, pools).map(|pool| format!("mempool {pool} is not found"));
        let named = !counts.problems.is_empty();
        let problems: Vec<String> = unread.chain(lacking.filter(|_| !named)).collect();
        let problem = match &problems[..] {
            [] => None,
            [problem] => Some(problem.clone()),
            [problem, others @ ..] => Some(format!("{problem}; and {} more", others.len())),
        };
        let pools = counts.pools.into_iter().map(|pool| {
            let high_water = self.pools.of(&pool.name);
            (pool.name.clone(), (pool, high_water))
        });
        let pools = pools.collect();
        let headers: Vec<_> = self.target.iter().flat_map(XrayTarget::pools).flatten().collect();
        let rings = counts.rings.into_iter().map(|count| self.ring(count, &headers)).collect();
        Reading {
            pools,
            rings,
            problem,
            corrupt: Vec::new(),
            feeds: BTreeMap::new(),
            heaps: BTreeMap::new(),
        }
    }
}

impl From<CorruptPool> for CorruptPoolSample {
    fn from(CorruptPool { pool, total, objects }: CorruptPool) -> Self {
        let objects = objects.into_iter();
        let object = |CorruptObject { address, seen }| CorruptObjectSample { address, seen };
        Self { pool, total, objects: objects.map(object).collect() }
    }
}

/// The pools that were not counted.
fn lacking<'a>(
    counts: &'a Counts,
    pools: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    pools.iter().filter(|name| !counts.pools.iter().any(|pool| pool.name == **name))
}
