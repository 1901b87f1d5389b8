//! Threads that polled and do so no more: they have not run since the previous sample.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{Sample, ThreadSample};

/// Least share of the time in which a thread that polls runs or waits for a CPU.
const POLLS: f64 = 0.5;

/// CPU time from which a thread is judged by its past, nanoseconds: the start of an app takes some.
const LEAST_BUSY_NS: u64 = 1_000_000_000;

/// A thread that has not run since the previous sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StillThread {
    /// Time since it last ran, seconds.
    pub seconds: f64,
    /// Whether `seconds` is an estimate; otherwise it is at least that long.
    pub is_estimate: bool,
    /// Whether the thread polled before: it kept a CPU busy.
    pub polled: bool,
}

/// What is known of the threads of one app, by thread id.
#[derive(Debug, Default)]
pub(super) struct StillThreads(BTreeMap<u32, Past>);

#[derive(Clone, Debug)]
struct Past {
    /// As it was read last.
    last: ThreadSample,
    /// When it was first seen not to run, monotonic clock.
    still_since_ns: u64,
    was_busy: bool,
}

impl StillThreads {
    /// Discards everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns which threads have not run, in the order of `sample.threads`.
    pub(super) fn update(&mut self, sample: &Sample) -> Vec<Option<StillThread>> {
        self.0.retain(|tid, _| sample.threads.iter().any(|thread| thread.tid == *tid));
        sample.threads.iter().map(|thread| self.thread(thread, sample)).collect()
    }

    fn thread(&mut self, now: &ThreadSample, sample: &Sample) -> Option<StillThread> {
        let past = self.0.entry(now.tid).or_insert_with(|| Past {
            last: now.clone(),
            still_since_ns: now.read_ns,
            was_busy: false,
        });
        let before = std::mem::replace(&mut past.last, now.clone());
        past.was_busy |= busy_share(&before, now).is_some_and(|share| share >= POLLS);
        if !is_still(&before, now) {
            past.still_since_ns = now.read_ns;
            return None;
        }
        let watched_ns = now.read_ns.saturating_sub(past.still_since_ns);
        if watched_ns == 0 {
            return None;
        }
        // It cannot have been off its CPU for longer than in all of its life.
        let off_ns = now.busy_ns().map(|busy| now.age_ns.saturating_sub(busy));
        let estimate = now.since_run_ns.map(|ns| ns.min(off_ns.unwrap_or(u64::MAX)));
        let estimate = estimate.filter(|ns| *ns > watched_ns);
        let still_ns = estimate.unwrap_or(watched_ns);
        Some(StillThread {
            seconds: still_ns as f64 / 1e9,
            is_estimate: estimate.is_some(),
            polled: past.was_busy || polled_before(now, still_ns) && is_judged(now, sample),
        })
    }
}

fn is_still(before: &ThreadSample, now: &ThreadSample) -> bool {
    let counts = |of: &ThreadSample| (of.voluntary_switches, of.involuntary_switches, of.run_ns);
    before.asleep && now.asleep && counts(before) == counts(now)
}

fn busy_share(before: &ThreadSample, now: &ThreadSample) -> Option<f64> {
    let passed = now.read_ns.checked_sub(before.read_ns).filter(|passed| *passed > 0)?;
    Some(now.busy_ns()?.checked_sub(before.busy_ns()?)? as f64 / passed as f64)
}

/// Whether a thread was busy for most of its life before it fell asleep.
fn polled_before(thread: &ThreadSample, still_ns: u64) -> bool {
    let awake_ns = thread.age_ns.saturating_sub(still_ns) as f64;
    thread.busy_ns().is_some_and(|busy| busy >= LEAST_BUSY_NS && busy as f64 >= POLLS * awake_ns)
}

/// Whether the past of a thread tells anything: the first thread of a process is busy while the EAL
/// starts, and mostly sleeps afterwards if others poll.
fn is_judged(thread: &ThreadSample, sample: &Sample) -> bool {
    let is_first = thread.tid == thread.secondary.unwrap_or(sample.app.pid);
    !is_first || sample.threads.len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn thread(seconds: u64, busy_s: u64) -> ThreadSample {
        ThreadSample {
            lcore: 1,
            tid: 42,
            read_ns: seconds * SECOND,
            age_ns: seconds * SECOND,
            run_ns: Some(busy_s * SECOND),
            run_delay_ns: Some(0),
            asleep: true,
            ..ThreadSample::default()
        }
    }

    fn after(threads: Vec<ThreadSample>) -> Option<StillThread> {
        let mut still = StillThreads::default();
        let mut update = |thread| {
            let sample = Sample { threads: vec![thread], ..Sample::default() };
            still.update(&sample)[0]
        };
        threads.into_iter().map(&mut update).last().unwrap()
    }

    #[test]
    fn a_thread_that_polled_and_sleeps_is_still() {
        let found = after(vec![thread(9, 8), thread(10, 8), thread(12, 8)]).unwrap();
        assert_eq!(found, StillThread { seconds: 3.0, is_estimate: false, polled: true });
        assert_eq!(after(vec![thread(9, 8)]), None, "one look shows nothing");
        assert_eq!(after(vec![thread(9, 7), thread(10, 8)]), None, "it ran");
        let awake = ThreadSample { asleep: false, ..thread(10, 8) };
        assert_eq!(after(vec![thread(9, 8), awake]), None);
    }

    #[test]
    fn the_scheduler_tells_how_long_within_the_life_of_the_thread() {
        let told =
            |seconds: u64| ThreadSample { since_run_ns: Some(seconds * SECOND), ..thread(100, 40) };
        let of = |seconds| after(vec![thread(98, 40), told(seconds)]).unwrap();
        assert_eq!(of(55), StillThread { seconds: 55.0, is_estimate: true, polled: true });
        let most = StillThread { seconds: 60.0, is_estimate: true, polled: true };
        assert_eq!(of(1000), most, "all the time that it had no CPU");
        assert_eq!(of(1), StillThread { seconds: 2.0, is_estimate: false, polled: false });
    }

    #[test]
    fn a_thread_that_never_polled_is_told_from_one_that_did() {
        assert!(!after(vec![thread(90, 0), thread(92, 0)]).unwrap().polled);
        let sleepy = vec![thread(90, 2), thread(92, 2)];
        assert!(!after(sleepy).unwrap().polled, "2 s of 90 s");
        let busy = vec![thread(88, 0), thread(90, 2), thread(92, 2)];
        assert!(after(busy).unwrap().polled, "it was seen to poll");
        let mut still = StillThreads::default();
        let others = |seconds| {
            let first = ThreadSample { tid: 7, ..thread(seconds, 8) };
            let mut sample =
                Sample { threads: vec![first, thread(seconds, 8)], ..Sample::default() };
            sample.app.pid = 7;
            sample
        };
        still.update(&others(9));
        let found = still.update(&others(10));
        let polled: Vec<_> = found.iter().map(|found| found.unwrap().polled).collect();
        assert_eq!(polled, [false, true], "the first thread starts the EAL");
    }
}
