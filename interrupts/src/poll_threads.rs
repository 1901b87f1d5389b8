//! Determines which threads of lcores poll: others sleep most of the time, and lose no CPU time.

use std::collections::BTreeMap;

use pmdscope_telemetry::sample::{Sample, ThreadSample};

/// Shortest time for which a thread is observed, nanoseconds.
const WATCHED_NS: u64 = 150_000_000;

/// Least share of the time that a polling thread runs or is ready to run: some poll loops sleep
/// while there are no packets.
const BUSY: f64 = 0.05;

/// Least share of its life in which a thread ran or was ready to run that is known to poll at first sight.
const ALWAYS_BUSY: f64 = 0.5;

/// The activity of threads, by id.
#[derive(Debug, Default)]
pub(crate) struct PollThreads(BTreeMap<u32, Activity>);

#[derive(Clone, Copy, Debug)]
enum Activity {
    Polls,
    /// Observed since this time, with this busy time at the start, both nanoseconds.
    Watched {
        since_ns: u64,
        busy_ns: u64,
    },
}

impl PollThreads {
    /// Returns whether a thread polls, as far as is known by now: from the counters of the app, or
    /// from its CPU time.
    pub(crate) fn polls(&mut self, thread: &ThreadSample, sample: &Sample) -> bool {
        let told = sample.lcores.iter().any(|lcore| lcore.lcore == thread.lcore && lcore.polls > 0);
        let Some(run_ns) = thread.run_ns else { return true };
        let busy_ns = run_ns + thread.run_delay_ns.unwrap_or(0);
        let watched = Activity::Watched { since_ns: thread.read_ns, busy_ns };
        let always = thread.age_ns >= WATCHED_NS && !thread.asleep;
        let always = always && busy_ns as f64 >= ALWAYS_BUSY * thread.age_ns as f64;
        let first = if always { Activity::Polls } else { watched };
        let activity = self.0.entry(thread.tid).or_insert(first);
        if let Activity::Watched { since_ns, busy_ns: before_ns } = *activity {
            let time_ns = thread.read_ns.saturating_sub(since_ns);
            let busy_ns = busy_ns.saturating_sub(before_ns);
            let judged = time_ns >= WATCHED_NS;
            if told || judged && busy_ns as f64 >= BUSY * time_ns as f64 {
                *activity = Activity::Polls;
            } else if judged {
                *activity = watched;
            }
        }
        matches!(activity, Activity::Polls)
    }

    /// Removes threads for which `is_kept` is false.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.0.retain(|tid, _| is_kept(*tid));
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::sample::LcoreSample;

    use super::*;

    fn thread(ms: u64, busy_ms: u64) -> ThreadSample {
        ThreadSample {
            lcore: 1,
            tid: 7,
            read_ns: ms * 1_000_000,
            run_ns: Some(busy_ms * 1_000_000),
            run_delay_ns: Some(1_000_000),
            ..ThreadSample::default()
        }
    }

    #[test]
    fn a_thread_polls_once_it_was_seen_to_be_busy() {
        let (mut threads, sample) = (PollThreads::default(), Sample::default());
        assert!(!threads.polls(&thread(1000, 50), &sample), "not known yet");
        assert!(!threads.polls(&thread(1100, 150), &sample), "too early");
        assert!(!threads.polls(&thread(2000, 51), &sample), "it slept");
        assert!(threads.polls(&thread(3000, 900), &sample));
        assert!(threads.polls(&thread(9000, 900), &sample), "it polled before");
    }

    #[test]
    fn a_thread_that_was_always_busy_polls_at_first_sight() {
        let old = |busy_ms, asleep| ThreadSample {
            age_ns: 1_000_000_000,
            asleep,
            ..thread(5000, busy_ms)
        };
        let sample = Sample::default();
        assert!(PollThreads::default().polls(&old(900, false), &sample));
        assert!(!PollThreads::default().polls(&old(900, true), &sample), "it sleeps now");
        assert!(!PollThreads::default().polls(&old(100, false), &sample));
    }

    #[test]
    fn what_the_app_says_is_believed() {
        let (mut threads, mut sample) = (PollThreads::default(), Sample::default());
        sample.lcores = vec![LcoreSample { lcore: 1, polls: 5, ..LcoreSample::default() }];
        assert!(threads.polls(&thread(1000, 50), &sample));
    }

    #[test]
    fn without_the_times_of_the_kernel_each_is_taken_for_one() {
        let (mut threads, sample) = (PollThreads::default(), Sample::default());
        assert!(threads.polls(&ThreadSample { run_ns: None, ..thread(1, 1) }, &sample));
    }
}
