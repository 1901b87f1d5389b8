//! Threads that wait for apps, so that nobody else has to. They are hired when all others are busy, and
//! stay: at most one per app and one that looks for more.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::desk::{Desk, Job, Request};
use crate::journal;

/// The threads; they end with it.
#[derive(Debug)]
pub(super) struct Crew(Arc<Office>);

#[derive(Debug)]
struct Office {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug)]
struct State {
    desk: Desk,
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    closed: bool,
}

impl Crew {
    pub(super) fn new(desk: Desk) -> Self {
        let state = State { desk, jobs: VecDeque::new(), idle: 0, closed: false };
        Self(Arc::new(Office { state: Mutex::new(state), work: Condvar::new() }))
    }

    /// Takes a request in; its answer is sent when all is known.
    pub(super) fn accept(&self, request: Request) {
        let mut state = self.0.lock();
        let jobs = state.desk.accept(request);
        Office::proceed(&self.0, state, jobs);
    }

    /// Reads the desk; must not take long.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Desk) -> T) -> T {
        read(&self.0.lock().desk)
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
        let missing = state.jobs.len().saturating_sub(state.idle).min(new);
        let answer = state.desk.answer();
        // A thread that wakes up earlier would only wait for the lock.
        drop(state);
        for _ in missing..new {
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
        let hired = thread::Builder::new().name("collect".to_owned()).spawn(move || theirs.serve());
        if let Err(error) = hired {
            // The job waits for another thread, or for the next request to try again.
            journal::warn(&format!("cannot start a thread to ask apps with: {error}"));
        }
    }

    fn serve(self: Arc<Self>) {
        while let Some(job) = self.next() {
            let outcome = job.run();
            let mut state = self.lock();
            let jobs = state.desk.take(outcome);
            Self::proceed(&self, state, jobs);
        }
    }

    /// The next job; `None` when there will be no more.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        state.idle += 1;
        while state.jobs.is_empty() && !state.closed {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.idle -= 1;
        if state.closed { None } else { state.jobs.pop_front() }
    }
}
