//! Adds counts of pools and rings to samples, with one thread per app.

mod marks;
mod watcher;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::{CountSource, PoolOccupancy, RingSample, Sample, XraySample};
use pmdscope_telemetry::{Deadline, OccupancyReader};

use self::watcher::{Opener, Reading, Request, RingReading, Watcher};
use crate::budget::ReadBudget;
use crate::counts::RingEntries;
use crate::error::XrayError;
use crate::memory::ProcessMemory;
use crate::target::XrayTarget;

/// Timeout for an app that was read before: its address space may be locked, for instance while it
/// maps memory.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// An app that was not sampled for this long is no longer read.
const KEEP: Duration = Duration::from_secs(600);

/// Counts pools and rings of apps without libpmdscope in their memory. Each app has a thread, so
/// that an app whose memory cannot be read at the moment does not delay the others.
pub struct XrayReader {
    open: Opener,
    /// A failed read is a failed part of the sample.
    required: bool,
    /// By process id and start time.
    watched: Mutex<HashMap<(u32, u64), WatchedApp>>,
}

/// The thread of an app.
struct WatchedApp {
    requests: SyncSender<Request>,
    used: Instant,
    /// It has opened the app, or found out why it cannot.
    answered: bool,
}

impl fmt::Debug for XrayReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("XrayReader")
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

/// Without the right to read it, an app is not queried for its memzones.
fn open(app: &DiscoveredApp) -> Result<XrayTarget, XrayError> {
    app.pid.map(ProcessMemory::open).transpose()?;
    XrayTarget::open(app, ReadBudget::UNLIMITED)
}

impl XrayReader {
    /// A reader of all apps that are sampled. Why something could not be read is in [`Sample::xray`], and if
    /// it is `required` in [`Sample::partial`] as well.
    pub fn new(required: bool) -> Self {
        Self::opening(required, Arc::new(open))
    }

    fn opening(required: bool, open: Opener) -> Self {
        Self { open, required, watched: Mutex::default() }
    }

    fn read(&self, app: &DiscoveredApp, sample: &Sample, deadline: Deadline) -> Reading {
        let process = (sample.app.pid, sample.app.start_ticks);
        let (reply, answer) = mpsc::channel();
        let pools = sample.pools.iter().map(|pool| pool.name.clone()).collect();
        let heaps = sample.heaps.iter().map(|heap| heap.allocated);
        let allocated = heaps.reduce(u64::saturating_add);
        let wait = match self.ask(process, app, Request { pools, allocated, reply }) {
            Ok(true) => deadline.remaining().min(LONGEST_WAIT),
            Ok(false) => deadline.remaining(),
            Err(problem) => return Reading::failed(problem),
        };
        match answer.recv_timeout(wait) {
            Ok(reading) => {
                self.watched().entry(process).and_modify(|app| app.answered = true);
                reading
            }
            Err(RecvTimeoutError::Timeout) => {
                Reading::failed("its memory was not read in time; it is read again".to_owned())
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.watched().remove(&process);
                Reading::failed("the thread that reads its memory has panicked".to_owned())
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<(u32, u64), WatchedApp>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a read from the thread of an app; returns whether that thread has answered before.
    fn ask(
        &self,
        process: (u32, u64),
        app: &DiscoveredApp,
        request: Request,
    ) -> Result<bool, String> {
        let mut watched = self.watched();
        let now = Instant::now();
        if !watched.contains_key(&process) {
            watched.retain(|_, other| now.saturating_duration_since(other.used) < KEEP);
            let requests =
                self.start(app).map_err(|error| format!("cannot start a thread: {error}"))?;
            watched.insert(process, WatchedApp { requests, used: now, answered: false });
        }
        let Some(watched) = watched.get_mut(&process) else { return Ok(false) };
        watched.used = now;
        match watched.requests.try_send(request) {
            Err(TrySendError::Full(_)) => {
                Err("its memory is still being read for the last sample".to_owned())
            }
            // The reply reports the result.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(watched.answered),
        }
    }

    fn start(&self, app: &DiscoveredApp) -> std::io::Result<SyncSender<Request>> {
        let (requests, received) = mpsc::sync_channel(1);
        let watcher = Watcher::new(app.clone(), Arc::clone(&self.open));
        thread::Builder::new().name("xray".to_owned()).spawn(move || watcher.run(&received))?;
        Ok(requests)
    }
}

impl OccupancyReader for XrayReader {
    fn complete(&self, app: &DiscoveredApp, sample: &mut Sample, deadline: Deadline) {
        let reading = self.read(app, sample, deadline);
        if let Some(problem) = reading.problem.as_ref().filter(|_| self.required) {
            sample.partial.push(format!("xray: {problem}"));
        }
        add(sample, reading);
    }
}

/// Values that the app itself reported are kept.
fn add(sample: &mut Sample, reading: Reading) {
    for pool in &mut sample.pools {
        let Some((count, high_water)) = reading.pools.get(&pool.name) else { continue };
        if let (None, Some(common), Some(in_use)) = (pool.occupancy, count.common, count.in_use()) {
            pool.occupancy = Some(PoolOccupancy { common, cached: count.cached(), in_use });
            pool.source = Some(CountSource::Xray);
        }
        if pool.lcore_caches.is_empty() {
            pool.lcore_caches.clone_from(&count.caches);
        }
        pool.high_water = pool.high_water.or(*high_water);
        if let Some(feeds) = reading.feeds.get(&pool.name).filter(|_| pool.feeds.is_empty()) {
            pool.feeds.clone_from(feeds);
        }
    }
    for heap in &mut sample.heaps {
        heap.groups = reading.heaps.get(&heap.name).cloned().unwrap_or_default();
    }
    for reading in reading.rings {
        add_ring(sample, reading);
    }
    sample.rings.sort_by(|a, b| a.name.cmp(&b.name));
    sample.xray = Some(XraySample { problem: reading.problem, corrupt: reading.corrupt });
}

fn add_ring(sample: &mut Sample, RingReading { count, high_water, entries, users }: RingReading) {
    let known = sample.rings.iter().position(|ring| ring.name == count.name);
    let at = known.unwrap_or_else(|| {
        sample.rings.push(RingSample {
            name: count.name,
            capacity: count.capacity,
            used: count.used,
            source: Some(CountSource::Xray),
            ..RingSample::default()
        });
        sample.rings.len().saturating_sub(1)
    });
    let Some(ring) = sample.rings.get_mut(at) else { return };
    ring.high_water = ring.high_water.or(Some(high_water));
    (ring.enqueued, ring.dequeued) = (Some(count.enqueued), Some(count.dequeued));
    ring.single_producer = Some(count.single_producer);
    ring.single_consumer = Some(count.single_consumer);
    ring.users = users;
    match entries {
        Some(RingEntries::Mbufs(pool)) => (ring.holds_mbufs, ring.pool) = (Some(true), pool),
        Some(RingEntries::Other) => ring.holds_mbufs = Some(false),
        None => {}
    }
}
