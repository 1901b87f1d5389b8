//! The tracer.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pmdscope_telemetry::LcoreTracer;
use pmdscope_telemetry::sample::{Sample, StolenCause};
use serde::Serialize;

use crate::account::{HISTOGRAM_BUCKETS, StolenEvent};
use crate::manager::{self, Shared};
use crate::options::TracerOptions;

/// Traces the polling threads of the apps whose samples it completes, by bpftrace, or else by the counters
/// in `/proc`. Ends with the last reference to it, and bpftrace with it.
#[derive(Debug)]
pub struct Tracer {
    shared: Arc<Shared>,
    manager: Mutex<Option<JoinHandle<()>>>,
}

/// How long events took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StolenHistogram {
    /// lcore id.
    pub lcore: u32,
    /// What kind of event.
    pub cause: StolenCause,
    /// Events of 2^n to 2^(n+1) nanoseconds, n from 0, the last open-ended.
    pub buckets: Vec<u64>,
}

impl Tracer {
    /// Starts to trace once samples with threads come. Never fails: [`TracingSample::missing`] says what
    /// is not traced, and why.
    ///
    /// [`TracingSample::missing`]: pmdscope_telemetry::sample::TracingSample::missing
    pub fn start(options: TracerOptions) -> Arc<Self> {
        let shared = Arc::<Shared>::default();
        if let Err(reason) = options.check() {
            shared.state().unavailable = Some(reason.to_string());
        }
        let manager = match manager::start(options, Arc::clone(&shared)) {
            Ok(manager) => Some(manager),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                shared.state().unavailable = Some(reason);
                None
            }
        };
        Arc::new(Self { shared, manager: Mutex::new(manager) })
    }

    /// Either all threads that it was told of are traced, or it is known why they cannot be.
    pub fn is_settled(&self) -> bool {
        self.shared.state().is_settled()
    }

    /// Threads that poll, of all apps.
    pub fn poll_threads(&self) -> usize {
        self.shared.state().wanted.len()
    }

    /// Until when the numbers of the samples are complete, monotonic clock, nanoseconds: bpftrace prints
    /// them four times a second. `None` where they are read when a sample is completed.
    pub fn counted_until_ns(&self) -> Option<u64> {
        self.shared.state().counted_until_ns()
    }

    /// Events after the one of this number, oldest first; of the last 16384 those of at least
    /// [`TracerOptions::min_event`], and those that were the longest of their cause.
    pub fn events_after(&self, sequence: u64) -> Vec<StolenEvent> {
        self.shared.state().account.events_after(sequence)
    }

    /// How long the events of an app took, by lcore and cause; none where only counters are read.
    pub fn histograms(&self, pid: u32) -> Vec<StolenHistogram> {
        let all = self.shared.state().account.histograms_of(pid);
        let histogram = |((lcore, cause), buckets): (_, [u64; HISTOGRAM_BUCKETS])| {
            StolenHistogram { lcore, cause, buckets: buckets.to_vec() }
        };
        all.into_iter().map(histogram).collect()
    }

    /// Ends bpftrace after its last numbers, which takes up to some seconds. Samples can still be
    /// completed.
    pub fn stop(&self) {
        self.shared.state().stopped = true;
        self.shared.stop();
        let manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(manager) = manager {
            // A panic has been told by itself.
            let _ = manager.join();
        }
    }
}

impl LcoreTracer for Tracer {
    fn complete(&self, sample: &mut Sample) {
        self.shared.state().complete(sample);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.stop();
    }
}
