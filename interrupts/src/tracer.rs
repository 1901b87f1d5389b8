//! The tracer, which completes samples with the time stolen from polling threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pmdscope_telemetry::LcoreTracer;
use pmdscope_telemetry::sample::{Sample, StolenCause};
use serde::Serialize;

use crate::account::{HISTOGRAM_BUCKETS, StolenEvent};
use crate::manager::{self, Shared};
use crate::options::TracerOptions;

/// Traces the polling threads of the apps in the samples that it completes, by bpftrace, or else by
/// the counters in `/proc`. Tracing ends when the last reference is dropped, and bpftrace with it.
#[derive(Debug)]
pub struct Tracer {
    shared: Arc<Shared>,
    manager: Mutex<Option<JoinHandle<()>>>,
}

/// Histogram of the lengths of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StolenHistogram {
    /// lcore id.
    pub lcore: u32,
    /// Kind of event.
    pub cause: StolenCause,
    /// Number of events by length: element n counts events of 2^n to 2^(n+1) nanoseconds; the last has no
    /// upper limit.
    pub buckets: Vec<u64>,
}

impl Tracer {
    /// Starts a tracer, which traces once samples with threads come. Never fails:
    /// [`TracingSample::missing`] says what is not traced, and why.
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

    /// Returns whether all polling threads of its samples are traced, or the reason is known why
    /// they cannot be.
    pub fn is_settled(&self) -> bool {
        self.shared.state().is_settled()
    }

    /// Returns the number of polling threads of all apps.
    pub fn poll_threads(&self) -> usize {
        self.shared.state().wanted.len()
    }

    /// Returns the monotonic clock up to which the numbers of the samples are complete,
    /// nanoseconds: bpftrace prints them four times a second. `None` if they are read when a sample
    /// is completed.
    pub fn counted_until_ns(&self) -> Option<u64> {
        self.shared.state().counted_until_ns()
    }

    /// Returns the events after the one with this number, oldest first. The last 16384 are kept of
    /// those that took at least [`TracerOptions::min_event`] or longer than all before of the same
    /// thread and cause.
    pub fn events_after(&self, sequence: u64) -> Vec<StolenEvent> {
        self.shared.state().account.events_after(sequence)
    }

    /// Returns histograms of the events of an app, by lcore and cause; none if only counters are
    /// read.
    pub fn histograms(&self, pid: u32) -> Vec<StolenHistogram> {
        let all = self.shared.state().account.histograms_of(pid);
        let histogram = |((lcore, cause), buckets): (_, [u64; HISTOGRAM_BUCKETS])| {
            StolenHistogram { lcore, cause, buckets: buckets.to_vec() }
        };
        all.into_iter().map(histogram).collect()
    }

    /// Ends bpftrace after its last numbers, which may take some seconds. Samples can still be
    /// completed.
    pub fn stop(&self) {
        self.shared.state().stopped = true;
        self.shared.stop();
        let manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(manager) = manager {
            // A panic was reported on standard error.
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
    /// Nobody reads last numbers any more, so bpftrace is not asked for them.
    fn drop(&mut self) {
        self.shared.state().abandoned = true;
        self.stop();
    }
}
