//! Keeps one bpftrace running for the wanted threads.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::ChildStdout;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pmdscope_telemetry::monotonic_ns;

use crate::bpftrace::{BpftraceCall, BpftraceRun, read_lines};
use crate::options::{TracerOptions, TracingUnavailable};
use crate::record;
use crate::script::{self, PreparedScript};
use crate::state::{RunState, TracerState};

/// Interval of checks whether the wanted threads have changed.
const THREADS_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Interval of checks for threads that have ended.
const LOOK_FOR_ENDED: Duration = Duration::from_secs(1);

/// How long the set of threads must be unchanged before bpftrace starts for it: an app starts its
/// threads one after the other.
const SETTLED: Duration = Duration::from_millis(150);

/// How long to wait at the end for numbers up to then: bpftrace prints them four times a second.
const LAST_NUMBERS: Duration = Duration::from_millis(600);

/// How long to wait at the end for those that were killed; the kernel detaches their probes meanwhile, or later.
const ENDING: Duration = Duration::from_millis(50);

/// Interval of checks for them.
const LAST_NUMBERS_STEP: Duration = Duration::from_millis(5);

/// Shortest time between two starts: each costs seconds without events.
const BETWEEN_STARTS: Duration = Duration::from_secs(5);

/// First and longest time before a retry, with exponential backoff.
const RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// A run of at least this length resets the backoff.
const LONG_RUN: Duration = Duration::from_secs(60);

/// State that the threads of a tracer share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<TracerState>,
    stops: Mutex<bool>,
    stopped: Condvar,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, TracerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the manager to end.
    pub(crate) fn stop(&self) {
        *self.stops.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.notify_all();
    }

    /// Waits for `time`; returns `false` when the manager must end.
    fn wait(&self, time: Duration) -> bool {
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.stopped.wait_timeout_while(stops, time, |stops| !*stops);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Starts the thread that keeps bpftrace running. bpftrace dies with this thread.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(options: TracerOptions, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name("tracer".to_owned());
    thread.spawn(move || {
        let mut manager = Manager::new(options, shared);
        while manager.shared.wait(THREADS_CHECK_INTERVAL) {
            manager.look();
        }
        manager.end_run();
    })
}

struct Manager {
    options: TracerOptions,
    shared: Arc<Shared>,
    run: Option<Run>,
    /// Those that were killed, until the kernel has detached their probes.
    ending: Vec<BpftraceRun>,
    /// The wanted threads, and when they last changed.
    wanted: (BTreeSet<u32>, Instant),
    looked_for_ended: Instant,
    started: Option<Instant>,
    /// Earliest time of the next attempt.
    retry: Option<Instant>,
    pause: Duration,
}

impl Drop for Manager {
    fn drop(&mut self) {
        let begun = Instant::now();
        while !self.ending.is_empty() && begun.elapsed() < ENDING {
            thread::sleep(LAST_NUMBERS_STEP);
            self.ending.retain_mut(|bpftrace| !bpftrace.has_ended());
        }
        self.ending.drain(..).for_each(BpftraceRun::leave);
    }
}

/// A run of bpftrace, and the thread that reads its output.
struct Run {
    bpftrace: BpftraceRun,
    reader: JoinHandle<()>,
    tids: BTreeSet<u32>,
    started: Instant,
}

impl Manager {
    fn new(options: TracerOptions, shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        let wanted = (BTreeSet::new(), now);
        Self {
            options,
            shared,
            run: None,
            ending: Vec::new(),
            wanted,
            looked_for_ended: now,
            started: None,
            retry: None,
            pause: RETRY.0,
        }
    }

    fn look(&mut self) {
        self.ending.retain_mut(|bpftrace| !bpftrace.has_ended());
        if self.looked_for_ended.elapsed() >= LOOK_FOR_ENDED {
            self.looked_for_ended = Instant::now();
            self.shared.state().forget_ended();
        }
        self.notice_end();
        let wanted: BTreeSet<u32> = self.shared.state().wanted.keys().copied().collect();
        if wanted != self.wanted.0 {
            self.wanted = (wanted, Instant::now());
        }
        if self.needs_start() {
            self.restart();
        } else if self.wanted.0.is_empty() && self.wanted.1.elapsed() >= BETWEEN_STARTS {
            self.end_run();
        }
    }

    fn needs_start(&self) -> bool {
        let traced = |tid: &u32| self.run.as_ref().is_some_and(|run| run.tids.contains(tid));
        let settled = self.wanted.1.elapsed() >= SETTLED;
        let often = self.started.is_some_and(|started| started.elapsed() < BETWEEN_STARTS);
        let waits = self.retry.is_some_and(|retry| Instant::now() < retry);
        settled && !often && !waits && !self.wanted.0.iter().all(traced)
    }

    fn restart(&mut self) {
        self.end_run();
        self.started = Some(Instant::now());
        match self.try_start() {
            Ok(()) => self.shared.state().unavailable = None,
            Err(error) => self.give_up(&error.to_string()),
        }
    }

    fn try_start(&mut self) -> Result<(), TracingUnavailable> {
        self.options.check()?;
        let (tids, cpus): (BTreeSet<u32>, BTreeSet<u32>) = {
            let state = self.shared.state();
            state.wanted.iter().map(|(tid, thread)| (*tid, thread.cpu)).unzip()
        };
        let list: Vec<u32> = tids.iter().copied().collect();
        let system_calls = self.options.system_calls;
        let prepare = |events: &Path| script::prepare(&list, events, system_calls);
        let (PreparedScript { text, tracepoints, mut missing }, is_private) =
            self.options.with_tracepoints(prepare)?;
        let failed = |error: io::Error| {
            TracingUnavailable::Failed(format!("cannot start bpftrace: {error}"))
        };
        let call = BpftraceCall {
            program: &self.options.bpftrace,
            script: &text,
            min_event: self.options.min_event,
            polled_cpus: &cpus,
            mounts_tracefs: is_private,
            tracepoints: &tracepoints,
        };
        let started = BpftraceRun::start(&call);
        let (bpftrace, output, apart) = started.map_err(failed)?;
        if !apart {
            missing.push("CPUs that do not poll: bpftrace takes time of those that do".to_owned());
        }
        let (pid, run, live_ns) = (bpftrace.pid(), tids.clone(), None);
        self.shared.state().run = Some(RunState { pid, tids: run, live_ns, missing });
        let shared = Arc::clone(&self.shared);
        let reader = thread::Builder::new().name("bpftrace-output".to_owned());
        let reader = reader.spawn(move || read(&shared, pid, output)).map_err(|error| {
            self.shared.state().end_run();
            failed(error)
        })?;
        self.run = Some(Run { bpftrace, reader, tids, started: Instant::now() });
        Ok(())
    }

    /// Handles the end of a bpftrace that was not interrupted.
    fn notice_end(&mut self) {
        let ended = self.run.as_mut().is_some_and(|run| run.bpftrace.has_ended());
        let Some(run) = self.run.take_if(|_| ended) else { return };
        let lasted = run.started.elapsed();
        let errors = self.finish(run);
        if lasted >= LONG_RUN {
            self.pause = RETRY.0;
        }
        self.give_up(&format!("bpftrace has ended: {errors}"));
    }

    fn give_up(&mut self, reason: &str) {
        self.retry = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(RETRY.1);
        self.shared.state().unavailable = Some(reason.to_owned());
    }

    /// Asked to end, bpftrace prints its last numbers only after it has detached all probes, one after
    /// the other. So the numbers that it prints anyway are waited for, and then it is killed.
    fn end_run(&mut self) {
        let Some(mut run) = self.run.take() else { return };
        if self.shared.state().abandoned || self.await_numbers() {
            self.shared.state().end_run();
            run.bpftrace.begin_end();
            self.ending.push(run.bpftrace);
            return;
        }
        run.bpftrace.interrupt();
        self.finish(run);
    }

    /// Waits for numbers up to this moment, of a run that has printed any; false if none come.
    fn await_numbers(&self) -> bool {
        let (now_ns, begun) = (monotonic_ns(), Instant::now());
        loop {
            let last_ns = self.shared.state().run.as_ref().and_then(|run| run.live_ns);
            if last_ns.is_none_or(|(_, last_ns)| last_ns >= now_ns) {
                return true;
            }
            if begun.elapsed() >= LAST_NUMBERS {
                return false;
            }
            thread::sleep(LAST_NUMBERS_STEP);
        }
    }

    /// Waits for the reader of its output; returns the error of bpftrace.
    fn finish(&self, run: Run) -> String {
        // A panic of the reader was reported on standard error; the numbers that it read are kept.
        let _ = run.reader.join();
        self.shared.state().end_run();
        run.bpftrace.errors()
    }
}

/// Reads one line at a time, without delay: events that bpftrace cannot write are lost.
fn read(shared: &Shared, pid: u32, output: ChildStdout) {
    read_lines(output, |line| match line {
        None => shared.state().take_of(pid, None),
        Some(line) => {
            if let Some(record) = record::parse(line) {
                shared.state().take_of(pid, Some(record));
            }
        }
    });
}
