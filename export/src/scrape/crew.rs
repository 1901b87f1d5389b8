//! Threads that wait for apps, so that nobody else has to. They are hired when all others are busy, and
//! stay: at most one per app and one that looks for more.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pmdscope_telemetry::Error;

use super::desk::{Desk, Job, Outcome, Request};
use super::scope::Wants;
use crate::journal;
use crate::snapshot::Snapshot;

/// The threads; they end with it.
#[derive(Debug)]
pub(super) struct Crew(Arc<Office>);

#[derive(Debug)]
struct Office {
    state: Mutex<State>,
    work: Condvar,
    start: Start,
    run: Run,
}

/// Starts a thread that does this.
type Start = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Does a job.
type Run = fn(Job) -> Outcome;

fn start(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    thread::Builder::new().name("collect".to_owned()).spawn(work).map(drop)
}

#[derive(Debug)]
struct State {
    desk: Desk,
    jobs: VecDeque<Job>,
    /// Threads that wait for a job, or will as soon as they run.
    idle: usize,
    closed: bool,
}

impl Crew {
    pub(super) fn new(desk: Desk) -> Self {
        Self::hired_by(start, Job::run, desk)
    }

    fn hired_by(start: Start, run: Run, desk: Desk) -> Self {
        let state = State { desk, jobs: VecDeque::new(), idle: 0, closed: false };
        Self(Arc::new(Office { state: Mutex::new(state), work: Condvar::new(), start, run }))
    }

    /// Takes a request in; its answer is sent when all is known.
    pub(super) fn accept(&self, request: Request) {
        let mut state = self.0.lock();
        let jobs = state.desk.accept(request);
        Office::proceed(&self.0, state, jobs);
    }

    /// What is known by now; see [`Desk::late`].
    pub(super) fn late(&self, wants: &Wants) -> Snapshot {
        self.0.lock().desk.late(wants)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl Office {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands jobs out, and answers whoever need not wait any longer.
    fn proceed(office: &Arc<Self>, mut state: MutexGuard<'_, State>, jobs: Vec<Job>) {
        let new = jobs.len();
        state.jobs.extend(jobs);
        // More than are new when threads could not be started before.
        let missing = state.jobs.len().saturating_sub(state.idle);
        state.idle += missing;
        let answer = state.desk.answer();
        // A thread that wakes up earlier would only wait for the lock.
        drop(state);
        for _ in 0..new.saturating_sub(missing) {
            office.work.notify_one();
        }
        for _ in 0..missing {
            Self::hire(office);
        }
        if let Some(answer) = answer {
            answer.send();
        }
    }

    fn hire(office: &Arc<Self>) {
        let theirs = Arc::clone(office);
        if let Err(error) = (office.start)(Box::new(move || theirs.serve())) {
            // The job waits for another thread, or for the next request to try again.
            office.lock().idle -= 1;
            journal::warn(&format!("cannot start a thread to ask apps with: {error}"));
        }
    }

    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        while let Some(job) = self.next(state) {
            let outcome = self.outcome(job);
            let mut changed = self.lock();
            let jobs = changed.desk.take(outcome);
            Self::proceed(&self, changed, jobs);
            state = self.lock();
            state.idle += 1;
        }
    }

    /// What a job brought. One that panics has failed: those who wait for it are told so at once, and
    /// the next request tries again.
    fn outcome(&self, job: Job) -> Outcome {
        let app = job.app();
        catch_unwind(AssertUnwindSafe(|| (self.run)(job))).unwrap_or_else(|panic| {
            let error = Error::panicked(&*panic);
            match &app {
                Some(app) => journal::warn(&format!("{}: {error}", app.name)),
                None => journal::warn(&format!("cannot look for apps: {error}")),
            }
            Outcome::Failed(app, error)
        })
    }

    /// The next job for a thread that counts as idle; `None` when there will be no more.
    fn next(&self, mut state: MutexGuard<'_, State>) -> Option<Job> {
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

    use pmdscope_telemetry::Settings;
    use pmdscope_telemetry::discover::DiscoverOptions;
    use pmdscope_telemetry::error::ErrorClass;
    use pmdscope_telemetry::world::Status;
    use tokio::sync::oneshot;

    use super::*;
    use crate::fake::Fake;
    use crate::snapshot::Exhibit;

    fn desk(root: &Path) -> Desk {
        let discover =
            DiscoverOptions { roots: vec![root.to_owned()], ..DiscoverOptions::default() };
        let settings = Settings { discover, ..Settings::default() };
        Desk::new(settings, Exhibit::default(), Duration::from_secs(5))
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
        let desk = desk(root.path());
        let crew = Crew::hired_by(now_and_then, Job::run, desk);
        let ask = || {
            let (answer, answered) = oneshot::channel();
            crew.accept(Request::new(Wants::All, None, answer));
            tokio::time::timeout(Duration::from_secs(1), answered)
        };
        assert!(ask().await.is_err(), "nobody looks for apps");
        let mut answers = 0;
        for _ in 0..4 {
            answers += usize::from(ask().await.is_ok());
        }
        assert!(answers >= 2, "{answers}");
        assert_eq!(crew.0.lock().jobs.len(), 0);
    }

    static SOUND: AtomicBool = AtomicBool::new(false);

    /// The first look panics, and so does whatever asks the app "a" as long as that is so.
    fn broken(job: Job) -> Outcome {
        static LOOKED: AtomicBool = AtomicBool::new(false);
        let sound = match job.app() {
            None => LOOKED.swap(true, Ordering::SeqCst),
            Some(app) => app.name != "a" || SOUND.load(Ordering::SeqCst),
        };
        assert!(sound, "a bug");
        job.run()
    }

    #[tokio::test]
    async fn a_job_that_panics_is_told_at_once_and_tried_again() {
        let root = tempfile::tempdir().unwrap();
        let _apps = ["a", "b"].map(|name| Fake::start(root.path(), name));
        let crew = Crew::hired_by(start, broken, desk(root.path()));
        // As long as nobody is told, this waits for ever, as a scrape does until its deadline.
        let scrape = || async {
            let (answer, answered) = oneshot::channel();
            crew.accept(Request::new(Wants::All, None, answer));
            tokio::time::timeout(Duration::from_secs(10), answered).await.unwrap().unwrap()
        };
        assert!(scrape().await.world.apps.is_empty(), "the look failed");
        for round in 1..=2 {
            let world = &scrape().await.world;
            let lost = world.find("a").unwrap();
            let Status::Lost { reason } = &lost.status else { panic!("{lost:?}") };
            assert!(reason.contains("a bug"), "{reason}");
            assert_eq!(lost.errors[&ErrorClass::Internal], round);
            assert_eq!(world.find("b").unwrap().status, Status::Live);
        }
        SOUND.store(true, Ordering::SeqCst);
        assert_eq!(scrape().await.world.find("a").unwrap().status, Status::Live);
    }
}
