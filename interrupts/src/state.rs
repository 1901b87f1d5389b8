//! The state of a tracer: the threads that it should trace, and the time stolen from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pmdscope_telemetry::sample::{Sample, StolenCause, ThreadSample, TracingMethod, TracingSample};
use pmdscope_telemetry::{monotonic_ns, realtime_ns};

use crate::account::StolenAccount;
use crate::kernel_counters::KernelCounters;
use crate::poll_threads::PollThreads;
use crate::record::Record;
use crate::unexplained::{TracedTime, UnexplainedTime};

/// Estimated CPU time that tracing takes from a traced CPU per event, nanoseconds;
/// docs/benchmarks.md has the measurement.
const EVENT_COST_NS: u64 = 2_500;

/// A thread that should be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedThread {
    pub(crate) pid: u32,
    pub(crate) lcore: u32,
    /// CPU on which it polls.
    pub(crate) cpu: u32,
}

/// One run of bpftrace.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// Process id of bpftrace.
    pub(crate) pid: u32,
    pub(crate) tids: BTreeSet<u32>,
    /// Monotonic clock when its first numbers were printed after all probes were attached, and its
    /// last ones.
    pub(crate) live_ns: Option<(u64, u64)>,
    /// Events that it does not see, and why.
    pub(crate) missing: Vec<String>,
}

/// The state of a tracer.
#[derive(Debug, Default)]
pub(crate) struct TracerState {
    pub(crate) wanted: BTreeMap<u32, WantedThread>,
    pub(crate) account: StolenAccount,
    pub(crate) run: Option<RunState>,
    /// Reason why tracing is not available.
    pub(crate) unavailable: Option<String>,
    /// No other run will start; then the report of missing events is that of the last run.
    pub(crate) stopped: bool,
    /// Nobody reads the numbers any more.
    pub(crate) abandoned: bool,
    last_missing: Vec<String>,
    poll_threads: PollThreads,
    counters: KernelCounters,
    unexplained: BTreeMap<u32, UnexplainedTime>,
    /// Wall clock when each thread was first traced.
    since: BTreeMap<u32, u64>,
    /// Monotonic clock up to which all numbers are complete, nanoseconds.
    counted_until_ns: Option<u64>,
}

impl TracerState {
    /// Updates the wanted threads of an app from a sample.
    pub(crate) fn want(&mut self, sample: &Sample) {
        let pid = sample.app.pid;
        let is_there = |tid: u32| sample.threads.iter().any(|thread| thread.tid == tid);
        self.wanted.retain(|tid, thread| thread.pid != pid || is_there(*tid));
        for thread in &sample.threads {
            if self.poll_threads.polls(thread, sample) {
                let wanted = WantedThread { pid, lcore: thread.lcore, cpu: thread.cpu };
                self.wanted.insert(thread.tid, wanted);
                self.account.open(thread.tid, pid, thread.lcore);
            }
        }
    }

    /// Removes threads of any app that have ended.
    pub(crate) fn forget_ended(&mut self) {
        self.wanted.retain(|tid, _| Path::new("/proc").join(tid.to_string()).exists());
        let wanted = &self.wanted;
        self.account.keep(|tid| wanted.contains_key(&tid));
        self.counters.keep(|tid| wanted.contains_key(&tid));
        self.poll_threads.keep(|tid| Path::new("/proc").join(tid.to_string()).exists());
        self.unexplained.retain(|tid, _| wanted.contains_key(tid));
        self.since.retain(|tid, _| wanted.contains_key(tid));
    }

    /// Applies a line that this bpftrace printed, unless it was given up: the next one counts from 0.
    pub(crate) fn take_of(&mut self, pid: u32, record: Option<Record>) {
        if self.run.as_ref().is_some_and(|run| run.pid == pid) {
            self.take(record);
        }
    }

    /// Applies a line that bpftrace printed; `None` is a line that was too long.
    fn take(&mut self, record: Option<Record>) {
        match record {
            None => self.account.lost(1),
            Some(Record::Lost(lines)) => self.account.lost(lines),
            Some(Record::Event(event)) => self.account.event(&event, realtime_offset_ns()),
            Some(Record::Totals(kind, totals)) => self.account.totals(kind, &totals),
            Some(Record::Histograms(kind, map)) => self.account.histograms(kind, &map),
            Some(Record::Unended(switches)) => self.account.unended(switches),
            Some(Record::Exit(tid)) => {
                self.wanted.remove(&tid);
            }
            Some(Record::Live(ns)) => self.live(ns),
        }
    }

    fn live(&mut self, ns: u64) {
        let Some(run) = &mut self.run else { return };
        let first_ns = run.live_ns.map_or(ns, |(first, _)| first);
        run.live_ns = Some((first_ns, ns));
        self.counted_until_ns = Some(ns);
        for tid in &run.tids {
            self.since
                .entry(*tid)
                .or_insert_with(|| crate::account::realtime(first_ns, realtime_offset_ns()));
        }
    }

    /// Handles the end of bpftrace.
    pub(crate) fn end_run(&mut self) {
        self.account.finish_run();
        if let Some(run) = self.run.take() {
            self.last_missing = run.missing;
        }
    }

    /// Returns the monotonic clock up to which all numbers are complete, nanoseconds; `None` for
    /// counters, which are read on demand.
    pub(crate) fn counted_until_ns(&self) -> Option<u64> {
        self.counted_until_ns.filter(|_| self.unavailable.is_none())
    }

    /// Returns whether bpftrace traces all wanted threads, or the reason is known why it cannot.
    pub(crate) fn is_settled(&self) -> bool {
        let attached = |run: &RunState| {
            run.live_ns.is_some() && self.wanted.keys().all(|tid| run.tids.contains(tid))
        };
        self.unavailable.is_some() || self.run.as_ref().is_some_and(attached)
    }

    /// Adds the time stolen from the threads of a sample to it.
    pub(crate) fn complete(&mut self, sample: &mut Sample) {
        self.want(sample);
        let wanted = |thread: &&ThreadSample| self.wanted.contains_key(&thread.tid);
        let threads: Vec<ThreadSample> = sample.threads.iter().filter(wanted).cloned().collect();
        for thread in &threads {
            self.counters.update(thread);
            let unexplained = self.unexplained.entry(thread.tid).or_default();
            unexplained.add_steal(thread, &mut self.account);
        }
        self.add_stalls(sample);
        sample.tracing = Some(match &self.unavailable {
            Some(reason) => self.by_counters(&threads, reason),
            None => self.by_tracepoints(&threads),
        });
    }

    fn add_stalls(&mut self, sample: &Sample) {
        let Some(run) = &self.run else { return };
        let Some((from_ns, to_ns)) = run.live_ns else { return };
        let realtime_offset = realtime_offset_ns();
        let realtime = |ns| crate::account::realtime(ns, realtime_offset);
        let (from_realtime, to_realtime) = (realtime(from_ns), realtime(to_ns));
        let traced = TracedTime { from_realtime, to_realtime, realtime_offset };
        for thread in sample.threads.iter().filter(|thread| run.tids.contains(&thread.tid)) {
            let lcore = sample.lcores.iter().find(|lcore| lcore.lcore == thread.lcore);
            let time = self.unexplained.get_mut(&thread.tid);
            if let Some((lcore, time)) = lcore.zip(time) {
                time.add_stalls(thread.tid, lcore, traced, &mut self.account);
            }
        }
    }

    fn by_counters(&self, threads: &[ThreadSample], reason: &str) -> TracingSample {
        let tids = || threads.iter().map(|thread| thread.tid);
        let mut stolen: Vec<_> = tids().flat_map(|tid| self.counters.stolen(tid)).collect();
        let hypervisor = tids().flat_map(|tid| self.account.stolen(tid));
        stolen.extend(hypervisor.filter(|stolen| stolen.cause == StolenCause::Unexplained));
        TracingSample {
            method: TracingMethod::Proc,
            since_realtime_ns: self.counters.since_realtime_ns(tids()).unwrap_or_else(realtime_ns),
            until_monotonic_ns: None,
            lcores: lcores(threads.iter()),
            lost_events: 0,
            overhead_ns: 0,
            missing: vec![format!("times and thieves: {reason}")],
            stolen,
        }
    }

    fn by_tracepoints(&self, threads: &[ThreadSample]) -> TracingSample {
        let since = |thread: &&ThreadSample| self.since.contains_key(&thread.tid);
        let traced: Vec<&ThreadSample> = threads.iter().filter(since).collect();
        let first = traced.iter().filter_map(|thread| self.since.get(&thread.tid)).min();
        let events: u64 = traced.iter().map(|thread| self.account.count(thread.tid)).sum();
        TracingSample {
            method: TracingMethod::Bpf,
            since_realtime_ns: first.copied().unwrap_or_else(realtime_ns),
            until_monotonic_ns: self.counted_until_ns(),
            lcores: lcores(traced.iter().copied()),
            lost_events: self.account.lost_events(),
            overhead_ns: events.saturating_mul(EVENT_COST_NS),
            missing: self.missing(threads),
            stolen: traced.iter().flat_map(|thread| self.account.stolen(thread.tid)).collect(),
        }
    }

    fn missing(&self, threads: &[ThreadSample]) -> Vec<String> {
        let Some(run) = &self.run else {
            let starts = || vec!["everything: bpftrace starts".to_owned()];
            return if self.stopped { self.last_missing.clone() } else { starts() };
        };
        let mut missing = run.missing.clone();
        let waits: Vec<String> = threads
            .iter()
            .filter(|thread| run.live_ns.is_none() || !run.tids.contains(&thread.tid))
            .map(|thread| thread.lcore.to_string())
            .collect();
        if !waits.is_empty() {
            let waits = waits.join(", ");
            missing
                .push(format!("lcores {waits}: bpftrace attaches its probes, which takes seconds"));
        }
        missing
    }
}

fn lcores<'a>(threads: impl Iterator<Item = &'a ThreadSample>) -> Vec<u32> {
    threads.map(|thread| thread.lcore).collect()
}

/// Returns the wall clock minus the monotonic clock, nanoseconds.
fn realtime_offset_ns() -> i128 {
    i128::from(realtime_ns()) - i128::from(monotonic_ns())
}
