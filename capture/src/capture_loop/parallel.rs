//! Captures with several threads: each ring has a sink of its own, and each thread some of the rings.
//!
//! The thread of the capture listens to the apps, and hands every ring to one of the threads that read
//! rings. There a ring is a capture by itself, with a sink that no other ring shares: nothing is merged, and
//! nothing is shared between threads but the reports.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Instant;

use pmdscope_packets::{NullSink, PacketSink, SinkError};

use super::{
    CaptureError, CaptureLoop, CaptureReport, CapturedAppState, FLUSH_INTERVAL,
    HOUSEKEEPING_INTERVAL, PAUSE_MIN, REPORT_INTERVAL, RingReport, RoundStats, paced,
};
use crate::output::lcore_of;
use crate::ring::Ring;
use crate::source::{CaptureSettings, CaptureSource};

/// Opens the sink of a ring.
pub type RingSinkOpener =
    Box<dyn FnMut(&CaptureRingName) -> Result<Box<dyn PacketSink>, SinkError> + Send>;

/// Which ring of a capture: `fwd-lcore2-1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaptureRingName {
    /// App.
    pub app: String,
    /// Its lcore; none where packets do not come from the app itself.
    pub lcore: Option<u16>,
    /// Number among the rings of the same lcore, from 1: an app that comes back has new ones.
    pub sequence: u32,
}

impl fmt::Display for CaptureRingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { app, lcore, sequence } = self;
        match lcore {
            Some(lcore) => write!(f, "{app}-lcore{lcore}-{sequence}"),
            None => write!(f, "{app}-{sequence}"),
        }
    }
}

/// What became of a ring, or has so far.
#[derive(Debug)]
struct RingState {
    name: CaptureRingName,
    report: CaptureReport,
}

/// What became of each ring, by its number.
type RingStates = Arc<Mutex<Vec<RingState>>>;

/// One that panicked leaves numbers behind, and no broken ones.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ring with a sink of its own.
#[derive(Debug)]
struct RingCapture {
    number: usize,
    /// Index of its app.
    source: usize,
    capture: CaptureLoop,
    states: RingStates,
}

impl RingCapture {
    fn round(&mut self) -> RingFlow {
        match self.capture.round() {
            Ok(read) if !self.capture.output.done() => ControlFlow::Continue(read),
            // A writer that has failed takes no more; its end tells why.
            result => ControlFlow::Break(result.map(drop)),
        }
    }

    fn flush(&mut self) -> RingFlow {
        flow(self.capture.output.flush().map_err(CaptureError::from))
    }

    fn publish(&self) {
        locked(&self.states)[self.number].report = self.capture.report(None);
    }

    fn second(&mut self) {
        self.capture.report_counters();
        self.capture.update_sampling();
        self.publish();
        self.capture.fill = 0.0;
    }

    /// Writes what was published up to now, and the statistics.
    fn finish(mut self, result: Result<(), CaptureError>) {
        let result = self.capture.finish(result);
        locked(&self.states)[self.number].report = self.capture.report(result.err());
    }
}

/// What was read of a ring, or how it has ended.
type RingFlow = ControlFlow<Result<(), CaptureError>, RoundStats>;

fn flow(result: Result<(), CaptureError>) -> RingFlow {
    match result {
        Ok(()) => ControlFlow::Continue(RoundStats::default()),
        failed => ControlFlow::Break(failed),
    }
}

/// What a thread is to do.
#[derive(Debug)]
enum WorkerOrder {
    Add(Box<RingCapture>),
    /// An app has ended.
    Ended(usize),
    /// The rings of an app that has come back are to be finished.
    Retire(usize),
}

/// Finishes rings, each in a thread of its own if there can be so many: one may have to wait for a disk.
fn finish_all(rings: Vec<RingCapture>) -> Vec<JoinHandle<()>> {
    let count = rings.len();
    let queue = Arc::new(Mutex::new(rings));
    let finish = |queue: &Mutex<Vec<RingCapture>>| {
        while let Some(ring) = { locked(queue).pop() } {
            ring.finish(Ok(()));
        }
    };
    let spawn = |_| {
        let queue = Arc::clone(&queue);
        Builder::new().name("capture-finish".to_owned()).spawn(move || finish(&queue)).ok()
    };
    let threads = (0..count).map_while(spawn).collect::<Vec<_>>();
    if threads.is_empty() {
        finish(&queue);
    }
    threads
}

/// A thread that reads rings.
struct RingWorker {
    orders: Receiver<WorkerOrder>,
    rings: Vec<RingCapture>,
    finishing: Vec<JoinHandle<()>>,
}

impl RingWorker {
    /// Reads until nobody gives orders any more; false when a thread that finished rings has panicked.
    fn run(mut self) -> bool {
        let mut pause = PAUSE_MIN;
        let mut filled = 0.0;
        let begin = Instant::now();
        let (mut next_flush, mut next_orders) = (begin, begin);
        let mut next_second = begin + REPORT_INTERVAL;
        loop {
            let now = Instant::now();
            if now >= next_orders {
                next_orders = now + HOUSEKEEPING_INTERVAL;
                if !self.take_orders() {
                    break;
                }
                if now >= next_second {
                    next_second = now + REPORT_INTERVAL;
                    self.rings.iter_mut().for_each(RingCapture::second);
                }
            }
            let read = self.for_each(RingCapture::round);
            filled += read.filled;
            if !read.behind {
                if now >= next_flush {
                    next_flush = now + FLUSH_INTERVAL;
                    self.for_each(RingCapture::flush);
                }
                sleep(pause);
                pause = paced(pause, std::mem::take(&mut filled));
            }
        }
        self.finishing.extend(finish_all(self.rings));
        // All are waited for. What one panicked of was told on standard error.
        self.finishing.into_iter().filter_map(|thread| thread.join().err()).count() == 0
    }

    /// Does something with each ring; those that fail are finished.
    fn for_each(&mut self, mut act: impl FnMut(&mut RingCapture) -> RingFlow) -> RoundStats {
        let mut all = RoundStats::default();
        for index in (0..self.rings.len()).rev() {
            match act(&mut self.rings[index]) {
                ControlFlow::Continue(read) => {
                    all.filled = all.filled.max(read.filled);
                    all.behind |= read.behind;
                }
                ControlFlow::Break(result) => self.rings.swap_remove(index).finish(result),
            }
        }
        all
    }

    /// False when no more will come.
    fn take_orders(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(WorkerOrder::Add(ring)) => self.rings.push(*ring),
                Ok(WorkerOrder::Ended(app)) => {
                    for ring in self.rings.iter_mut().filter(|ring| ring.source == app) {
                        ring.capture.apps[0].state = CapturedAppState::Over;
                    }
                }
                Ok(WorkerOrder::Retire(app)) => {
                    let retired = self.rings.extract_if(.., |ring| ring.source == app);
                    self.finishing.extend(finish_all(retired.collect()));
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        self.for_each(|ring| flow(ring.capture.check_clocks()));
        true
    }
}

/// A thread that reads rings, from outside.
#[derive(Debug)]
struct WorkerThread {
    orders: Sender<WorkerOrder>,
    /// As of [`RingWorker::run`].
    thread: JoinHandle<bool>,
    /// Rings of each app.
    rings: BTreeMap<usize, usize>,
}

impl WorkerThread {
    fn start() -> std::io::Result<Self> {
        let (orders, taken) = channel();
        let worker = RingWorker { orders: taken, rings: Vec::new(), finishing: Vec::new() };
        let thread = Builder::new().name("capture-rings".to_owned()).spawn(move || worker.run())?;
        Ok(Self { orders, thread, rings: BTreeMap::new() })
    }
}

/// The threads that read rings.
pub(super) struct RingWorkers {
    threads: Vec<WorkerThread>,
    open: RingSinkOpener,
    settings: CaptureSettings,
    states: RingStates,
}

impl fmt::Debug for RingWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingWorkers").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl RingWorkers {
    /// Hands a ring of an app to the thread that has the fewest.
    pub(super) fn add(
        &mut self,
        index: usize,
        source: &CaptureSource,
        ring: Ring,
    ) -> Result<(), CaptureError> {
        let (app, lcore) = (source.app.clone(), lcore_of(ring.lcore()));
        let mut states = locked(&self.states);
        let same = |known: &&RingState| known.name.app == app && known.name.lcore == lcore;
        let earlier = states.iter().filter(same).count();
        let sequence = u32::try_from(earlier + 1).unwrap_or(u32::MAX);
        let name = CaptureRingName { app, lcore, sequence };
        let target = (self.open)(&name)?;
        let number = states.len();
        states.push(RingState { name, report: CaptureReport::default() });
        drop(states);
        let mut capture =
            CaptureLoop::new(vec![source.unattended()], self.settings.clone(), target);
        capture.begin(None)?;
        capture.add_ring(0, ring)?;
        let ring = RingCapture { number, source: index, capture, states: Arc::clone(&self.states) };
        ring.publish();
        let thread =
            self.threads.iter_mut().min_by_key(|thread| thread.rings.values().sum::<usize>());
        if let Some(thread) = thread {
            *thread.rings.entry(index).or_default() += 1;
            // A thread that has panicked takes nothing: the ring is dropped, and its sink ends.
            let _ = thread.orders.send(WorkerOrder::Add(Box::new(ring)));
        }
        Ok(())
    }

    /// An app has ended.
    pub(super) fn ended(&self, app: usize) {
        self.order(|| WorkerOrder::Ended(app));
    }

    /// Finishes the rings of an app.
    pub(super) fn retire(&mut self, app: usize) {
        self.order(|| WorkerOrder::Retire(app));
        for thread in &mut self.threads {
            thread.rings.remove(&app);
        }
    }

    fn order(&self, order: impl Fn() -> WorkerOrder) {
        for thread in &self.threads {
            let _ = thread.orders.send(order());
        }
    }

    /// Why a ring has ended, if one has, or all those of a thread that has panicked.
    pub(super) fn check(&self) -> Result<(), CaptureError> {
        let failure = locked(&self.states).iter_mut().find_map(|ring| ring.report.failure.take());
        let panicked = self.threads.iter().any(|worker| worker.thread.is_finished());
        failure.or(panicked.then_some(CaptureError::Panicked)).map_or(Ok(()), Err)
    }

    /// Finishes all rings.
    pub(super) fn finish(&mut self) -> Result<(), CaptureError> {
        // All of them at the same time: their last packets are of the same moment.
        let ended = self.threads.drain(..).map(|WorkerThread { thread, .. }| thread);
        let joined = ended.collect::<Vec<_>>().into_iter().map(JoinHandle::join);
        let panicked = joined.filter(|finished| !matches!(finished, Ok(true))).count();
        self.check()?;
        if panicked > 0 { Err(CaptureError::Panicked) } else { Ok(()) }
    }

    /// Adds what all rings have come to.
    pub(super) fn add_to(&self, report: &mut CaptureReport) {
        for RingState { name, report: ring } in locked(&self.states).iter() {
            report.add(ring);
            report.by_ring.push(RingReport {
                name: name.clone(),
                captured: ring.captured,
                received: ring.rings.passed_filter(),
                dropped: ring.rings.dropped,
                unwritten: ring.unwritten,
                bytes: ring.progress.bytes,
                file: ring.progress.file.clone(),
            });
        }
    }
}

impl CaptureLoop {
    /// A capture of sources with so many threads that read rings, each into a sink that `open` opens for
    /// it. Of the settings, `skip` and `count` hold for each ring.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn parallel(
        sources: Vec<CaptureSource>,
        settings: CaptureSettings,
        threads: usize,
        open: RingSinkOpener,
    ) -> std::io::Result<Self> {
        let threads = (0..threads).map(|_| WorkerThread::start()).collect::<Result<_, _>>()?;
        let workers =
            RingWorkers { threads, open, settings: settings.clone(), states: Arc::default() };
        let capture = Self::new(sources, settings, Box::new(NullSink::default()));
        Ok(Self { workers: Some(workers), ..capture })
    }
}

#[cfg(test)]
#[path = "parallel_tests.rs"]
mod tests;
