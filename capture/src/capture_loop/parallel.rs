//! Captures with several threads: each ring has its own sink, and each thread reads some of the
//! rings.
//!
//! The main thread of the capture handles the events of the apps, and assigns every ring to one of
//! the threads that read rings. There each ring is a separate capture with its own sink: nothing is
//! merged, and the threads share only the reports.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use pmdscope_packets::{NullSink, PacketSink, SinkError};

use super::{
    CaptureError, CaptureLoop, CaptureReport, CapturedAppState, FLUSH_INTERVAL,
    HOUSEKEEPING_INTERVAL, REPORT_INTERVAL, ReadPace, RingReport, RoundStats,
};
use crate::output::lcore_of;
use crate::ring::Ring;
use crate::source::{CaptureSettings, CaptureSource};

/// Callback that opens the sink of a ring.
pub type RingSinkOpener =
    Box<dyn FnMut(&CaptureRingName) -> Result<Box<dyn PacketSink>, SinkError> + Send>;

/// The name of a ring of a capture, as `fwd-lcore2-1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaptureRingName {
    /// Name of the app.
    pub app: String,
    /// The lcore; `None` if the packets do not come from the app itself.
    pub lcore: Option<u16>,
    /// Number among the rings of the same lcore, from 1: an app that comes back has new rings.
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

/// The result of a ring, so far or final.
#[derive(Debug)]
struct RingState {
    name: CaptureRingName,
    report: CaptureReport,
}

/// The results of all rings, by number.
type RingStates = Arc<Mutex<Vec<RingState>>>;

/// Locks a mutex and ignores poisoning: a panic leaves no inconsistent data.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ring with its own sink.
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
            // A writer that has failed accepts no more packets; its end reports why.
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

    /// Writes the packets published so far, and the statistics.
    fn finish(mut self, result: Result<(), CaptureError>) {
        let result = self.capture.finish(result);
        locked(&self.states)[self.number].report = self.capture.report(result.err());
    }
}

/// The result of one round of a ring: what was read, or how the ring has ended.
type RingFlow = ControlFlow<Result<(), CaptureError>, RoundStats>;

fn flow(result: Result<(), CaptureError>) -> RingFlow {
    match result {
        Ok(()) => ControlFlow::Continue(RoundStats::default()),
        failed => ControlFlow::Break(failed),
    }
}

/// A message to a thread that reads rings.
#[derive(Debug)]
enum WorkerOrder {
    Add(Box<RingCapture>),
    /// An app has ended.
    Ended(usize),
    /// The rings of an app that has come back must be finished.
    Retire(usize),
}

/// Finishes rings, each in its own thread if these can be started: one may have to wait for a disk.
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
    /// Reads until the sender of orders is dropped; returns false if a thread that finished rings
    /// has panicked.
    fn run(mut self) -> bool {
        let mut pace = ReadPace::default();
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
            pace.add(&read);
            if !read.behind {
                if now >= next_flush {
                    next_flush = now + FLUSH_INTERVAL;
                    self.for_each(RingCapture::flush);
                }
                pace.sleep();
            }
        }
        self.finishing.extend(finish_all(self.rings));
        // Waits for all of them. Panics were reported on standard error.
        self.finishing.into_iter().filter_map(|thread| thread.join().err()).count() == 0
    }

    /// Calls `act` for each ring, and finishes those that end or fail.
    fn for_each(&mut self, mut act: impl FnMut(&mut RingCapture) -> RingFlow) -> RoundStats {
        let mut all = RoundStats::default();
        for index in (0..self.rings.len()).rev() {
            match act(&mut self.rings[index]) {
                ControlFlow::Continue(read) => all.merge(&read),
                ControlFlow::Break(result) => self.rings.swap_remove(index).finish(result),
            }
        }
        all
    }

    /// Processes pending orders; returns false when no more will come.
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

/// The handle of a thread that reads rings.
#[derive(Debug)]
struct WorkerThread {
    orders: Sender<WorkerOrder>,
    /// Returns the result of [`RingWorker::run`].
    thread: JoinHandle<bool>,
    /// Number of rings by app.
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
    /// Assigns a ring of an app to the thread that has the fewest.
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
            // A thread that has panicked receives nothing: the ring is dropped, and its sink ends.
            let _ = thread.orders.send(WorkerOrder::Add(Box::new(ring)));
        }
        Ok(())
    }

    /// Tells the threads that an app has ended.
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

    /// Returns the error of a ring if one has failed, or of a thread if one has panicked.
    pub(super) fn check(&self) -> Result<(), CaptureError> {
        let failure = locked(&self.states).iter_mut().find_map(|ring| ring.report.failure.take());
        let panicked = self.threads.iter().any(|worker| worker.thread.is_finished());
        failure.or(panicked.then_some(CaptureError::Panicked)).map_or(Ok(()), Err)
    }

    /// Finishes all rings.
    pub(super) fn finish(&mut self) -> Result<(), CaptureError> {
        // All channels are closed first, so that all rings end at the same time.
        let ended = self.threads.drain(..).map(|WorkerThread { thread, .. }| thread);
        let joined = ended.collect::<Vec<_>>().into_iter().map(JoinHandle::join);
        let panicked = joined.filter(|finished| !matches!(finished, Ok(true))).count();
        self.check()?;
        if panicked > 0 { Err(CaptureError::Panicked) } else { Ok(()) }
    }

    /// Adds the results of all rings to a report.
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
    /// Returns a capture with `threads` threads that read rings, each ring into a sink that `open`
    /// opens for it. The settings `skip` and `count` apply to each ring.
    ///
    /// # Errors
    /// When a thread cannot be started.
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
