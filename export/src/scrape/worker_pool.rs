//! Threads that wait for apps, so that nobody else has to. They are started when all others are busy, and
//! stay: at most one per app and one that looks for more.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pmdscope_telemetry::Error;

use super::scheduler::{JobOutcome, Scheduler, ScrapeJob, ScrapeRequest};
use super::scope::ScrapeScope;
use crate::journal;
use crate::snapshot::ScrapeSnapshot;

/// The threads; they end with it.
#[derive(Debug)]
pub(super) struct WorkerPool(Arc<PoolShared>);

#[derive(Debug)]
struct PoolShared {
    state: Mutex<PoolState>,
    work: Condvar,
    start: SpawnThread,
    run: RunJob,
}

/// Starts a thread that does this.
type SpawnThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Does a job.
type RunJob = fn(ScrapeJob) -> JobOutcome;

fn start(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    thread::Builder::new().name("collect".to_owned()).spawn(work).map(drop)
}

#[derive(Debug)]
struct PoolState {
    scheduler: Scheduler,
    jobs: VecDeque<ScrapeJob>,
    /// Threads that wait for a job, or will as soon as they run.
    idle: usize,
    closed: bool,
}

impl WorkerPool {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self::with_functions(start, ScrapeJob::run, scheduler)
    }

    fn with_functions(start: SpawnThread, run: RunJob, scheduler: Scheduler) -> Self {
        let state = PoolState { scheduler, jobs: VecDeque::new(), idle: 0, closed: false };
        Self(Arc::new(PoolShared { state: Mutex::new(state), work: Condvar::new(), start, run }))
    }

    /// Takes a request in; its answer is sent when all is known.
    pub(super) fn accept(&self, request: ScrapeRequest) {
        let mut state = self.0.lock();
        let jobs = state.scheduler.accept(request);
        PoolShared::proceed(&self.0, state, jobs);
    }

    /// What is known by now; see [`Scheduler::late`].
    pub(super) fn late(&self, scope: &ScrapeScope) -> ScrapeSnapshot {
        self.0.lock().scheduler.late(scope)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands jobs out, and answers whoever need not wait any longer.
    fn proceed(shared: &Arc<Self>, mut state: MutexGuard<'_, PoolState>, jobs: Vec<ScrapeJob>) {
        let new = jobs.len();
        state.jobs.extend(jobs);
        // More than are new when threads could not be started before.
        let missing = state.jobs.len().saturating_sub(state.idle);
        state.idle += missing;
        let answer = state.scheduler.answer();
        // A thread that wakes up earlier would only wait for the lock.
        drop(state);
        for _ in 0..new.saturating_sub(missing) {
            shared.work.notify_one();
        }
        for _ in 0..missing {
            Self::spawn(shared);
        }
        if let Some(answer) = answer {
            answer.send();
        }
    }

    fn spawn(shared: &Arc<Self>) {
        let theirs = Arc::clone(shared);
        if let Err(error) = (shared.start)(Box::new(move || theirs.serve())) {
            // The job waits for another thread, or for the next request to try again.
            shared.lock().idle -= 1;
            journal::warn(&format!("cannot start a thread to ask apps with: {error}"));
        }
    }

    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        while let Some(job) = self.next(state) {
            let outcome = self.outcome(job);
            let mut changed = self.lock();
            let jobs = changed.scheduler.take(outcome);
            Self::proceed(&self, changed, jobs);
            state = self.lock();
            state.idle += 1;
        }
    }

    /// What a job brought. One that panics has failed: those who wait for it are told so at once, and
    /// the next request tries again.
    fn outcome(&self, job: ScrapeJob) -> JobOutcome {
        let app = job.app();
        catch_unwind(AssertUnwindSafe(|| (self.run)(job))).unwrap_or_else(|panic| {
            let error = Error::panicked(&*panic);
            match &app {
                Some(app) => journal::warn(&format!("{}: {error}", app.name)),
                None => journal::warn(&format!("cannot look for apps: {error}")),
            }
            JobOutcome::Failed(app, error)
        })
    }

    /// The next job for a thread that counts as idle; `None` when there will be no more.
    fn next(&self, mut state: MutexGuard<'_, PoolState>) -> Option<ScrapeJob> {
        while state.jobs.is_empty() && !state.closed {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.idle -= 1;
        if state.closed { None } else { state.jobs.pop_front() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use pmdscope_telemetry::discover::DiscoverOptions;
    use pmdscope_telemetry::{AppStatus, ErrorClass, FleetSettings};
    use tokio::sync::oneshot;

    use super::*;
    use crate::fake::Fake;
    use crate::snapshot::RenderOptions;

    fn scheduler(root: &Path) -> Scheduler {
        let discover =
            DiscoverOptions { roots: vec![root.to_owned()], ..DiscoverOptions::default() };
        let settings = FleetSettings { discover, ..FleetSettings::default() };
        Scheduler::new(settings, RenderOptions::default(), Duration::from_secs(5))
    }

    static STARTED: AtomicUsize = AtomicUsize::new(0);

    /// Every other thread cannot be started.
    fn now_and_then(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        match STARTED.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => start(work),
        }
    }

    #[tokio::test]
    async fn a_job_without_a_thread_is_done_for_the_next_request() {
        let root = tempfile::tempdir().unwrap();
        let _apps = ["a", "b", "c"].map(|name| Fake::start(root.path(), name));
        let scheduler = scheduler(root.path());
        let worker_pool = WorkerPool::with_functions(now_and_then, ScrapeJob::run, scheduler);
        let ask = || {
            let (answer, answered) = oneshot::channel();
            worker_pool.accept(ScrapeRequest::new(ScrapeScope::All, None, answer));
            tokio::time::timeout(Duration::from_secs(1), answered)
        };
        assert!(ask().await.is_err(), "nobody looks for apps");
        let mut answers = 0;
        for _ in 0..4 {
            answers += usize::from(ask().await.is_ok());
        }
        assert!(answers >= 2, "{answers}");
        assert_eq!(worker_pool.0.lock().jobs.len(), 0);
    }

    static FIXED: AtomicBool = AtomicBool::new(false);

    /// The first look panics, and so does whatever asks the app "a" as long as that is so.
    fn panics_for_a(job: ScrapeJob) -> JobOutcome {
        static LOOKED: AtomicBool = AtomicBool::new(false);
        let fixed = match job.app() {
            None => LOOKED.swap(true, Ordering::SeqCst),
            Some(app) => app.name != "a" || FIXED.load(Ordering::SeqCst),
        };
        assert!(fixed, "a bug");
        job.run()
    }

    #[tokio::test]
    async fn a_job_that_panics_is_told_at_once_and_tried_again() {
        let root = tempfile::tempdir().unwrap();
        let _apps = ["a", "b"].map(|name| Fake::start(root.path(), name));
        let worker_pool = WorkerPool::with_functions(start, panics_for_a, scheduler(root.path()));
        // As long as nobody is told, this waits for ever, as a scrape does until its deadline.
        let scrape = || async {
            let (answer, answered) = oneshot::channel();
            worker_pool.accept(ScrapeRequest::new(ScrapeScope::All, None, answer));
            tokio::time::timeout(Duration::from_secs(10), answered).await.unwrap().unwrap()
        };
        assert!(scrape().await.world.apps.is_empty(), "the look failed");
        for round in 1..=2 {
            let world = &scrape().await.world;
            let lost = world.find("a").unwrap();
            let AppStatus::Lost { reason } = &lost.status else { panic!("{lost:?}") };
            assert!(reason.contains("a bug"), "{reason}");
            assert_eq!(lost.errors[&ErrorClass::Internal], round);
            assert_eq!(world.find("b").unwrap().status, AppStatus::Live);
        }
        FIXED.store(true, Ordering::SeqCst);
        assert_eq!(scrape().await.world.find("a").unwrap().status, AppStatus::Live);
    }
}
