//! Gaps between two polls of an lcore, and what used its CPU in the meantime.
//!
//! The kernel counts how long a thread waited for a CPU (`/proc/PID/task/TID/schedstat`) and how
//! often it lost its CPU or gave it up; the time that a hypervisor took is in `/proc/stat`. Compared
//! with the time without a poll, this shows whether the kernel or the app's own code is the cause.
//! The time of interrupts is added to the thread that they interrupt, so it counts as own code.

use serde::Serialize;

use crate::sample::{LcoreSample, Sample, ThreadSample};

/// Stalls of one lcore between two samples: gaps of at least the stall threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreStalls {
    /// Number of stalls.
    pub count: u64,
    /// Longest stall, or a lower bound of it, microseconds.
    pub longest_us: u64,
    /// Longest stall with a known end; `None` if there is none. The library records the last four stalls,
    /// those that no later one exceeded, and the longest since the app started; older versions record only
    /// the last of these.
    pub recorded: Option<RecordedStall>,
    /// Whether another stall may be longer than `recorded`.
    pub maybe_longer: bool,
    /// Total time of all stalls, milliseconds, estimated from a histogram with an error of up to about a
    /// third.
    pub total_ms: f64,
    /// Part of the longest stall that was in this interval, microseconds.
    #[serde(skip)]
    pub(crate) longest_part_us: u64,
    /// What used the CPU in this interval; `None` if the kernel does not report it, or if it was not read
    /// with both samples.
    pub thread: Option<ThreadTime>,
}

/// A stall with a known end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordedStall {
    /// Length of the stall, microseconds.
    pub us: u64,
    /// Wall clock at the end of the stall, nanoseconds since 1970.
    pub end_realtime_ns: u64,
}

/// Time between two samples in which a thread did not run, and its context switches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadTime {
    /// Time ready to run without a CPU, milliseconds; `None` if the kernel does not count it.
    pub waiting_ms: Option<f64>,
    /// Time asleep, milliseconds; `None` if it is unknown.
    pub sleeping_ms: Option<f64>,
    /// Time that a hypervisor took from the CPU of the thread, milliseconds, in steps of 10; `None` if it
    /// is unknown, or if the thread changed its CPU.
    pub stolen_ms: Option<f64>,
    /// Number of times that the thread gave up its CPU.
    pub voluntary_switches: u64,
    /// Number of times that the thread lost its CPU.
    pub involuntary_switches: u64,
}

/// Main cause of stalls, by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StallCause {
    /// The kernel ran something else on the CPU.
    Kernel,
    /// A hypervisor ran something else on the CPU.
    Hypervisor,
    /// The app's own code slept or waited for something.
    Sleep,
    /// The app's own code ran without polling.
    OwnCode,
    /// The app's own code and the loss of the CPU each had a quarter of the time or more.
    OwnCodeAndKernel,
}

/// What took most of one gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GapUse {
    /// Another thread, or a hypervisor, had the CPU.
    Taken,
    /// The thread slept.
    Asleep,
}

impl GapUse {
    /// Returns what took most of a gap of this length, milliseconds, from what happened in the same interval:
    /// the time, and the number of times, that the CPU was taken, and that the thread slept. A gap is one
    /// event or a few: many short ones do not explain a long gap. `None` if neither fits, or both.
    pub(crate) fn of(gap_ms: f64, taken: (f64, u64), asleep: (f64, u64)) -> Option<Self> {
        let mean = |(ms, count): (f64, u64)| ms / count.max(1) as f64;
        let fits = |of: (f64, u64)| of.0 >= gap_ms / 2.0 && mean(of) >= gap_ms / 4.0;
        match (fits(taken), fits(asleep)) {
            (true, false) => Some(Self::Taken),
            (false, true) => Some(Self::Asleep),
            (true, true) if mean(taken) > 2.0 * mean(asleep) => Some(Self::Taken),
            (true, true) if mean(asleep) > 2.0 * mean(taken) => Some(Self::Asleep),
            _ => None,
        }
    }
}

/// Shares of the time of stalls, 0 to 1. In the rest, the app's own code ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StallShares {
    /// Share in which the kernel or a hypervisor had taken the CPU away.
    pub taken: f64,
    /// Share in which the thread slept.
    pub asleep: f64,
}

impl LcoreStalls {
    /// Returns the stalls of an lcore since the previous sample; `None` when there were none, or when
    /// counters were reset.
    pub(crate) fn between(
        (last, before): (&Sample, &LcoreSample),
        (sample, now): (&Sample, &LcoreSample),
    ) -> Option<Self> {
        let count = now.stalls.checked_sub(before.stalls).filter(|count| *count > 0)?;
        let stall_us = sample.library.as_ref().map_or(0, |library| library.stall_us);
        let long = long_gaps(before, now, stall_us);
        let recorded = recorded(before, now, count);
        let edge = long.last().map_or(stall_us, |(edge, _)| *edge);
        let is_longest = now.stall_last_us.len() as u64 >= count
            || grown(before, now).is_some()
            || longest(before, now).is_some_and(|stall| stall.us >= edge);
        let longest_us = match recorded {
            Some(longest) if is_longest => longest.us,
            _ => longest_us(before, now, &long).max(stall_us),
        };
        let known: u64 = long.iter().map(|(_, gaps)| gaps).sum();
        let short = count.saturating_sub(known).saturating_mul(stall_us);
        let middle = |(edge, gaps): &(u64, u64)| gaps.saturating_mul(edge + edge / 2);
        let rest = long.iter().map(middle).fold(short, u64::saturating_add);
        let all_us = if count == 1 { longest_us } else { rest.max(longest_us) };
        let total_ms = all_us as f64 / 1000.0;
        let thread = thread_time(last, sample, now.lcore);
        // It may have begun before the interval.
        let longest_part_us = longest_us.saturating_sub(before.idle_us).max(longest_us.min(1000));
        Some(Self {
            count,
            longest_us,
            recorded,
            maybe_longer: !is_longest,
            total_ms,
            longest_part_us,
            thread,
        })
    }

    /// Whether the longest stall is much longer than the others, so that it has a cause of its own.
    pub(crate) fn stands_out(&self) -> bool {
        let longest_ms = self.longest_us as f64 / 1000.0;
        let others = self.count.saturating_sub(1);
        others > 0 && longest_ms * others as f64 >= 3.0 * (self.total_ms - longest_ms)
    }

    /// Returns what took most of the longest stall; `None` if that is not certain.
    fn use_of_longest(&self) -> Option<GapUse> {
        let thread = self.thread?;
        let taken_ms = thread.waiting_ms? + thread.stolen_ms.unwrap_or(0.0);
        let asleep = (thread.sleeping_ms?, thread.voluntary_switches);
        let gap_ms = self.longest_part_us as f64 / 1000.0;
        GapUse::of(gap_ms, (taken_ms, thread.involuntary_switches), asleep)
    }

    /// Returns what used the CPU; `None` if it is unknown.
    pub fn shares(&self) -> Option<StallShares> {
        let thread = self.thread?;
        let share = |ms: f64| (ms / self.total_ms.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let taken = share(thread.waiting_ms? + thread.stolen_ms.unwrap_or(0.0));
        let asleep = share(thread.sleeping_ms?).min(1.0 - taken);
        Some(StallShares { taken, asleep })
    }

    /// Returns the main cause, of the longest stall if it stands out; `None` if it is unknown.
    pub fn cause(&self) -> Option<StallCause> {
        let thread = self.thread?;
        let by_hypervisor = thread.stolen_ms.unwrap_or(0.0) > thread.waiting_ms.unwrap_or(0.0);
        if self.stands_out() {
            match self.use_of_longest() {
                Some(GapUse::Asleep) => return Some(StallCause::Sleep),
                Some(GapUse::Taken) if by_hypervisor => return Some(StallCause::Hypervisor),
                Some(GapUse::Taken) => return Some(StallCause::Kernel),
                None => {}
            }
        }
        let Some(shares) = self.shares() else {
            // Even without times, a thread that never left its CPU is known to have run.
            let never = thread.voluntary_switches == 0 && thread.involuntary_switches == 0;
            return never.then_some(StallCause::OwnCode);
        };
        let own = 1.0 - shares.taken - shares.asleep;
        if own.min(shares.taken) >= 0.25 {
            return Some(StallCause::OwnCodeAndKernel);
        }
        Some(match shares {
            StallShares { taken, .. } if taken >= 0.5 && by_hypervisor => StallCause::Hypervisor,
            StallShares { taken, .. } if taken >= 0.5 => StallCause::Kernel,
            StallShares { asleep, .. } if asleep >= 0.5 => StallCause::Sleep,
            _ => StallCause::OwnCode,
        })
    }
}

/// Returns the buckets of the histogram that contain only stalls: lower edge in microseconds, and new gaps.
fn long_gaps(before: &LcoreSample, now: &LcoreSample, stall_us: u64) -> Vec<(u64, u64)> {
    let edges = (0..63).map(|power| 1_u64 << power);
    let new = now.gaps.iter().zip(&before.gaps).skip(1);
    let new = new.map(|(now, before)| now.saturating_sub(*before));
    edges.zip(new).filter(|(edge, gaps)| *edge >= stall_us && *gaps > 0).collect()
}

/// Returns the longest gap since the start of the app, if it is new.
fn grown(before: &LcoreSample, now: &LcoreSample) -> Option<RecordedStall> {
    let longest = RecordedStall { us: now.gap_max_us, end_realtime_ns: now.gap_max_realtime_ns };
    (longest.us > before.gap_max_us && longest.end_realtime_ns > 0).then_some(longest)
}

/// Returns the longest new stall among those that no later one exceeded. A new stall began after the
/// end of the newest one of the previous sample. The middle of the stall is compared with that end,
/// since the clock of the library may be corrected in the meantime.
fn longest(before: &LcoreSample, now: &LcoreSample) -> Option<RecordedStall> {
    let newest = before.stall_last_realtime_ns.first().copied().unwrap_or(0);
    if newest == 0 && before.stalls > 0 {
        return None;
    }
    let all = now.stall_longest_us.iter().zip(&now.stall_longest_realtime_ns);
    let stall = |(us, end): (&u64, &u64)| RecordedStall { us: *us, end_realtime_ns: *end };
    let is_new = |stall: &RecordedStall| {
        stall.us > 0 && stall.end_realtime_ns.saturating_sub(stall.us.saturating_mul(500)) > newest
    };
    all.map(stall).filter(is_new).max_by_key(|stall| stall.us)
}

/// Returns the longest of `count` new stalls, as far as they are recorded.
fn recorded(before: &LcoreSample, now: &LcoreSample, count: u64) -> Option<RecordedStall> {
    let all = now.stall_last_us.iter().zip(&now.stall_last_realtime_ns);
    let stall = |(us, end): (&u64, &u64)| RecordedStall { us: *us, end_realtime_ns: *end };
    let new = all.take(usize::try_from(count).unwrap_or(usize::MAX)).map(stall);
    let new = new.filter(|stall| stall.us > 0);
    new.chain(longest(before, now)).chain(grown(before, now)).max_by_key(|stall| stall.us)
}

fn longest_us(before: &LcoreSample, now: &LcoreSample, long: &[(u64, u64)]) -> u64 {
    if now.gap_max_us > before.gap_max_us {
        return now.gap_max_us;
    }
    let edge = long.last().map_or(0, |(edge, _)| *edge);
    let window = now.gap_window_max_us;
    if window >= edge && window / 2 < edge { window } else { edge }
}

/// Returns the thread of an lcore in both samples. It must have been read in both rounds: values from
/// a previous round are not of this interval.
pub(crate) fn threads<'a>(
    lcore: u32,
    last: &'a Sample,
    sample: &'a Sample,
) -> Option<(&'a ThreadSample, &'a ThreadSample)> {
    let of = |sample: &'a Sample| {
        let fresh =
            |thread: &&ThreadSample| thread.lcore == lcore && thread.read_ns >= sample.monotonic_ns;
        sample.threads.iter().find(fresh)
    };
    let (before, now) = (of(last)?, of(sample)?);
    (before.tid == now.tid).then_some((before, now))
}

fn thread_time(last: &Sample, sample: &Sample, lcore: u32) -> Option<ThreadTime> {
    let (before, now) = threads(lcore, last, sample)?;
    let grown = |of: fn(&ThreadSample) -> Option<u64>| of(now)?.checked_sub(of(before)?);
    let ms = |ns: u64| ns as f64 / 1e6;
    let waiting_ms = grown(|thread| thread.run_delay_ns).map(ms);
    let voluntary_switches = now.sleeps_since(before)?;
    let elapsed_ms = ms(now.read_ns.checked_sub(before.read_ns)?);
    let sleeping_ms = if voluntary_switches == 0 {
        Some(0.0)
    } else {
        let running_ms = grown(|thread| thread.run_ns).map(ms);
        running_ms.zip(waiting_ms).map(|(run, wait)| (elapsed_ms - run - wait).max(0.0))
    };
    Some(ThreadTime {
        waiting_ms,
        sleeping_ms,
        stolen_ms: grown(|thread| thread.cpu_stolen_ms)
            .filter(|_| before.cpu == now.cpu)
            .map(|ms| ms as f64),
        voluntary_switches,
        involuntary_switches: grown(|thread| Some(thread.involuntary_switches))?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sample::LibrarySample;
    use crate::sample::tests::empty_sample;

    /// Returns the samples of a second of lcore 1 with these gaps, in which its thread was without a
    /// CPU and asleep for these milliseconds.
    pub(crate) fn second(gaps_us: &[u64], [waiting_ms, asleep_ms]: [u64; 2]) -> [Sample; 2] {
        let mut before = empty_sample();
        before.monotonic_ns = 1_000_000_000;
        before.library = Some(LibrarySample { stall_us: 1000, ..LibrarySample::default() });
        before.lcores = vec![LcoreSample { lcore: 1, gaps: vec![0; 24], ..LcoreSample::default() }];
        before.threads = vec![ThreadSample {
            lcore: 1,
            tid: 42,
            read_ns: before.monotonic_ns,
            run_ns: Some(0),
            run_delay_ns: Some(0),
            cpu_stolen_ms: Some(70),
            ..ThreadSample::default()
        }];
        let mut now = before.clone();
        now.monotonic_ns += 1_000_000_000;
        let lcore = &mut now.lcores[0];
        lcore.polls += 1;
        for us in gaps_us {
            let bucket = us.checked_ilog2().map_or(0, |power| power as usize + 1);
            lcore.gaps[bucket] += 1;
            lcore.stalls += u64::from(*us >= 1000);
            lcore.gap_max_us = lcore.gap_max_us.max(*us);
        }
        let thread = &mut now.threads[0];
        thread.read_ns = now.monotonic_ns + 1;
        thread.run_ns = Some((1000 - waiting_ms - asleep_ms) * 1_000_000);
        thread.run_delay_ns = Some(waiting_ms * 1_000_000);
        thread.involuntary_switches = waiting_ms;
        thread.voluntary_switches = asleep_ms;
        [before, now]
    }

    fn stalls([before, now]: &[Sample; 2]) -> Option<LcoreStalls> {
        LcoreStalls::between((before, &before.lcores[0]), (now, &now.lcores[0]))
    }

    #[test]
    fn a_gap_without_preemption_is_caused_by_the_thread() {
        let found = stalls(&second(&[5123, 3], [0, 0])).unwrap();
        assert_eq!((found.count, found.longest_us, found.total_ms), (1, 5123, 5.123));
        assert_eq!(found.cause(), Some(StallCause::OwnCode));
        assert_eq!(found.shares(), Some(StallShares { taken: 0.0, asleep: 0.0 }));
        assert_eq!(stalls(&second(&[999], [0, 0])), None);
    }

    #[test]
    fn a_gap_while_waiting_for_a_cpu_is_caused_by_the_kernel() {
        let gaps = [4000; 10];
        assert_eq!(stalls(&second(&gaps, [38, 0])).unwrap().cause(), Some(StallCause::Kernel));
        assert_eq!(stalls(&second(&gaps, [3, 0])).unwrap().cause(), Some(StallCause::OwnCode));
        assert_eq!(stalls(&second(&gaps, [0, 39])).unwrap().cause(), Some(StallCause::Sleep));
        let mut stolen = second(&gaps, [0, 0]);
        stolen[1].threads[0].cpu_stolen_ms = Some(110);
        assert_eq!(stalls(&stolen).unwrap().cause(), Some(StallCause::Hypervisor));
        stolen[1].threads[0].cpu = 3;
        assert_eq!(stalls(&stolen).unwrap().cause(), Some(StallCause::OwnCode), "another CPU");
    }

    #[test]
    fn the_longest_gap_has_a_cause_of_its_own() {
        // A lock of 200 ms each second, and noise of 5 ms that takes more time in all.
        let noisy = |sleeps: u64, preemptions: u64| {
            let mut gaps = vec![5000; 80];
            gaps.push(200_000);
            let mut samples = second(&gaps, [400, 200]);
            samples[1].threads[0].voluntary_switches = sleeps;
            samples[1].threads[0].involuntary_switches = preemptions;
            let found = stalls(&samples).unwrap();
            assert!(found.stands_out() && found.longest_us == 200_000, "{found:?}");
            found.cause()
        };
        assert_eq!(noisy(1, 80), Some(StallCause::Sleep));
        assert_eq!(noisy(1000, 1), Some(StallCause::Kernel), "one long preemption");
        let mut before = second(&[5000, 5000, 300_000], [0, 100]);
        before[0].lcores[0].idle_us = 200_000;
        before[1].threads[0].voluntary_switches = 1;
        assert_eq!(stalls(&before).unwrap().cause(), Some(StallCause::Sleep), "its second part");
        assert!(!stalls(&second(&[4000; 10], [15, 0])).unwrap().stands_out());
        assert!(!stalls(&second(&[4000], [15, 0])).unwrap().stands_out());
    }

    #[test]
    fn a_gap_is_explained_by_events_of_its_length() {
        let of = |taken, asleep| GapUse::of(200.0, taken, asleep);
        assert_eq!(of((500.0, 100), (200.0, 1)), Some(GapUse::Asleep));
        assert_eq!(of((500.0, 2), (50.0, 1)), Some(GapUse::Taken));
        assert_eq!(of((50.0, 1), (50.0, 1)), None, "own code");
        assert_eq!(of((500.0, 100), (500.0, 100)), None, "many short ones");
        assert_eq!(of((200.0, 1), (200.0, 1)), None, "either");
    }

    #[test]
    fn a_cause_without_kernel_counters_is_unknown() {
        let mut remembered = second(&[5000], [0, 0]);
        remembered[1].threads[0].read_ns = remembered[1].monotonic_ns - 1;
        assert_eq!(stalls(&remembered).unwrap().cause(), None);
        let mut other = second(&[5000], [0, 0]);
        other[1].threads[0].tid = 43;
        assert_eq!(stalls(&other).unwrap().cause(), None);
        let mut unseen = second(&[5000], [0, 0]);
        unseen[1].threads.clear();
        assert_eq!(stalls(&unseen).unwrap().cause(), None);
        let mut clockless = second(&[5000], [0, 0]);
        clockless[1].threads[0].run_delay_ns = None;
        assert_eq!(stalls(&clockless).unwrap().cause(), Some(StallCause::OwnCode));
        clockless[1].threads[0].involuntary_switches = 1;
        assert_eq!(stalls(&clockless).unwrap().cause(), None);
    }

    #[test]
    fn the_longest_of_the_new_stalls_has_its_time() {
        let mut samples = second(&[5000, 1500], [0, 0]);
        assert_eq!(stalls(&samples).unwrap().recorded, None, "the library is too old");
        // The third one was recorded before.
        samples[1].lcores[0].stall_last_us = vec![1500, 5001, 120_000, 0];
        samples[1].lcores[0].stall_last_realtime_ns = vec![30, 20, 10, 0];
        let found = stalls(&samples).unwrap();
        assert_eq!(found.recorded, Some(RecordedStall { us: 5001, end_realtime_ns: 20 }));
        assert_eq!(found.longest_us, 5001, "exact, where all are recorded");
        let mut many = second(&[1500; 5], [0, 0]);
        many[1].lcores[0].gap_max_us = 20_000;
        many[1].lcores[0].stall_last_us = vec![1500; 4];
        many[1].lcores[0].stall_last_realtime_ns = vec![9, 8, 7, 6];
        let found = stalls(&many).unwrap();
        assert_eq!((found.longest_us, found.recorded.unwrap().us), (20_000, 1500));
        assert!(found.maybe_longer);
        many[1].lcores[0].gap_max_realtime_ns = 5;
        let found = stalls(&many).unwrap();
        let longest = RecordedStall { us: 20_000, end_realtime_ns: 5 };
        assert_eq!((found.recorded, found.maybe_longer), (Some(longest), false));
    }

    #[test]
    fn of_many_stalls_the_longest_is_known_whenever_it_was() {
        let mut samples = second(&[1500, 120_000, 1500, 1500, 1500, 1500], [0, 0]);
        // A longer one, of the previous sample, ended just before the first of these.
        let ns = |us: u64| 1_780_000_000_000_000_000 + us * 1000;
        let [before, now] = &mut samples;
        before.lcores[0].stalls = 1;
        before.lcores[0].gap_max_us = 200_000;
        before.lcores[0].stall_last_us = vec![200_000, 0, 0, 0];
        before.lcores[0].stall_last_realtime_ns = vec![ns(0), 0, 0, 0];
        let lcore = &mut now.lcores[0];
        lcore.stalls += 1;
        lcore.gap_max_us = 200_000;
        lcore.stall_last_us = vec![1500; 4];
        lcore.stall_last_realtime_ns = [9, 7, 5, 3].map(|i| ns(130_000 + i * 2000)).to_vec();
        let old = LcoreSample { stall_longest_us: Vec::new(), ..lcore.clone() };
        lcore.stall_longest_us = vec![1500, 120_000, 200_000, 0];
        // The clock has been corrected by 3 us since.
        lcore.stall_longest_realtime_ns = vec![ns(148_000), ns(125_000), ns(3), 0];
        let found = stalls(&samples).unwrap();
        let longest = RecordedStall { us: 120_000, end_realtime_ns: ns(125_000) };
        assert_eq!((found.count, found.longest_us), (6, 120_000));
        assert_eq!((found.recorded, found.maybe_longer), (Some(longest), false));
        samples[1].lcores[0] = old;
        let found = stalls(&samples).unwrap();
        assert_eq!((found.recorded.unwrap().us, found.maybe_longer), (1500, true), "too old");
    }

    #[test]
    fn the_longest_gap_is_known_as_well_as_the_histogram_tells() {
        let mut samples = second(&[5000, 1500], [0, 0]);
        samples[0].lcores[0].gap_max_us = 5000;
        assert_eq!(stalls(&samples).unwrap().longest_us, 4096);
        samples[1].lcores[0].gap_window_max_us = 5000;
        assert_eq!(stalls(&samples).unwrap().longest_us, 5000);
        samples[1].lcores[0].gap_window_max_us = 1500;
        assert_eq!(stalls(&samples).unwrap().longest_us, 4096, "of another window");
        samples[1].lcores[0].gaps.clear();
        assert_eq!(stalls(&samples).unwrap().longest_us, 1000, "at least");
    }
}
