//! Gaps between the polls of lcores between two samples, and what used their CPUs.

use std::cmp::Reverse;

use crate::model::{ThiefRates, stolen};
use crate::sample::{LcoreSample, Sample, StolenCause, ThreadSample};
use crate::stall::{LcoreStalls, RecordedStall, threads};

/// Shorter gaps do not matter, microseconds: no receive ring is full by then.
const SHORT_US: u64 = 16;

/// A gap that has lasted for this long at a sample counts in the next interval too, microseconds.
const CARRIED_US: u64 = 1000;

/// The kernel updates the run time of a running thread only at each tick, so a thread may seem to be
/// without a CPU for this long, milliseconds.
const TICKS_MS: f64 = 20.0;

/// Reasons why one lcore did not poll between two samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LcoreGaps {
    /// lcore id.
    pub lcore: u32,
    /// Gaps of at least 16 us between two polls; empty for a stock app, for which they are unknown.
    pub gaps: Vec<PollGap>,
    /// The longest gap, microseconds, or a lower bound of it.
    pub longest_us: u64,
    /// The longest gap with a known time.
    pub recorded: Option<RecordedStall>,
    /// Time since the last poll at the end of the interval, microseconds, if it is long.
    pub unfinished_us: Option<u64>,
    /// Use of the CPU; `None` if the kernel was not queried at both ends of the interval.
    pub cpu: Option<CpuTime>,
    /// Thieves of the CPU, from a tracer, most time first; empty without one.
    pub thieves: Vec<ThiefRates>,
    /// Share of the time in which the lcore had work, 0 to 1, as the app itself counts it
    /// (`rte_lcore_register_usage_cb()`).
    pub busy_ratio: Option<f64>,
    /// Clock frequency of its CPU.
    pub frequency: Option<CpuFrequency>,
}

/// Gaps of about the same length between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollGap {
    /// Length of each, microseconds.
    pub us: u64,
    /// Part of this length that was before the interval, microseconds.
    pub earlier_us: u64,
    /// Number of gaps.
    pub count: u64,
}

/// Use of the time of one thread between two samples, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Ready to run, but without a CPU; `None` if the kernel does not count it.
    pub taken_ms: Option<f64>,
    /// Asleep; `None` if it is unknown.
    pub asleep_ms: Option<f64>,
    /// Taken by a hypervisor, in steps of 10.
    pub hypervisor_ms: f64,
    /// Number of times that its CPU was taken away.
    pub preemptions: u64,
    /// Number of times that it gave up its CPU.
    pub sleeps: u64,
}

/// Clock frequency of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuFrequency {
    /// The CPU.
    pub cpu: u32,
    /// Present frequency, kHz.
    pub khz: u64,
    /// Frequency at the previous sample, kHz.
    pub before_khz: Option<u64>,
    /// Sustainable frequency, kHz.
    pub max_khz: u64,
}

impl PollGap {
    /// Returns the packets that these gaps lose in the interval, at a queue with this packet rate and
    /// number of descriptors.
    pub(crate) fn lost(&self, pps: f64, descriptors: f64) -> f64 {
        let over = |us: u64| (pps * us as f64 / 1e6 - descriptors).max(0.0);
        self.count as f64 * (over(self.us) - over(self.earlier_us)).max(0.0)
    }

    /// Returns the time of these gaps in the interval, milliseconds.
    pub(crate) fn ms(&self) -> f64 {
        self.count as f64 * self.us.saturating_sub(self.earlier_us) as f64 / 1000.0
    }
}

impl LcoreGaps {
    /// Returns the gaps of all lcores that libpmdscope or the kernel reports.
    pub(crate) fn between(last: &Sample, sample: &Sample) -> Vec<Self> {
        let polling = sample.lcores.iter().map(|lcore| lcore.lcore);
        let others = sample.threads.iter().map(|thread| thread.lcore);
        let mut ids: Vec<u32> = polling.chain(others).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|lcore| Self::of(lcore, last, sample)).collect()
    }

    fn of(lcore: u32, last: &Sample, sample: &Sample) -> Self {
        let of = |sample: &Sample| sample.lcores.iter().find(|row| row.lcore == lcore).cloned();
        let mut gaps = Self {
            lcore,
            cpu: cpu_time(lcore, last, sample),
            thieves: thieves(lcore, last, sample),
            busy_ratio: busy_ratio(lcore, last, sample),
            frequency: frequency(lcore, last, sample),
            ..Self::default()
        };
        if let Some((before, now)) = of(last).zip(of(sample)) {
            gaps.add((last, &before), (sample, &now));
        }
        gaps
    }

    fn add(
        &mut self,
        (last, before): (&Sample, &LcoreSample),
        (sample, now): (&Sample, &LcoreSample),
    ) {
        let Some(mut new) = new_gaps(before, now) else { return };
        let stalls = LcoreStalls::between((last, before), (sample, now));
        self.recorded = stalls.and_then(|stalls| stalls.recorded);
        let edge = new.last().map_or(0, |(edge, _)| *edge);
        let finished_us = match stalls {
            Some(stalls) => stalls.longest_us.max(edge),
            None if now.gap_max_us > before.gap_max_us => now.gap_max_us,
            None => edge,
        };
        let polled = now.polls != before.polls;
        // The gap at the previous sample ended with the first poll since.
        let carried_us = Some(before.idle_us).filter(|us| *us >= CARRIED_US).unwrap_or(0);
        if let Some((_, count)) = new.last_mut() {
            *count -= 1;
            let earlier_us = carried_us.min(finished_us);
            self.gaps.push(PollGap { us: finished_us, earlier_us, count: 1 });
        }
        let middle = |(edge, count): (u64, u64)| {
            let us = (edge + edge / 2).min(finished_us);
            (count > 0).then_some(PollGap { us, earlier_us: 0, count })
        };
        self.gaps.extend(new.into_iter().filter_map(middle));
        self.unfinished_us = Some(now.idle_us).filter(|us| *us >= CARRIED_US);
        if let Some(us) = self.unfinished_us {
            let elapsed_us = sample.monotonic_ns.saturating_sub(last.monotonic_ns) / 1000;
            let earlier_us = if polled { 0 } else { us.saturating_sub(elapsed_us) };
            self.gaps.push(PollGap { us, earlier_us, count: 1 });
        }
        self.longest_us = self.gaps.iter().map(|gap| gap.us).max().unwrap_or(0);
    }

    /// Returns for how long, milliseconds, and how often its CPU was taken away: as a tracer measured if
    /// that is more than the kernel counts.
    pub(crate) fn taken(&self) -> (f64, u64) {
        let traced = self.stolen(|cause| cause != StolenCause::Sleep);
        let counted =
            self.cpu.map_or((0.0, 0), |cpu| (cpu.taken_ms.unwrap_or(0.0), cpu.preemptions));
        if traced.0 > counted.0 { traced } else { counted }
    }

    /// Returns for how long, milliseconds, and how often its thread slept.
    pub(crate) fn asleep(&self) -> (f64, u64) {
        let traced = self.stolen(|cause| cause == StolenCause::Sleep);
        let counted = self.cpu.map_or((0.0, 0), |cpu| (cpu.asleep_ms.unwrap_or(0.0), cpu.sleeps));
        if traced.0 > counted.0 { traced } else { counted }
    }

    /// Returns time and number of events that a tracer measured, for the given causes.
    fn stolen(&self, is_asked: impl Fn(StolenCause) -> bool) -> (f64, u64) {
        let asked = self.thieves.iter().filter(|thief| is_asked(thief.cause));
        asked.fold((0.0, 0), |(ms, events), thief| {
            let stolen_ms = thief.stolen_ns.unwrap_or(0) as f64 / 1e6;
            (ms + stolen_ms, events.saturating_add(thief.events))
        })
    }
}

/// Returns the lower edges of the buckets of a histogram of gaps, and the number of new gaps; `None`
/// after a reset.
fn new_gaps(before: &LcoreSample, now: &LcoreSample) -> Option<Vec<(u64, u64)>> {
    let edges = (0..63).map(|power| 1_u64 << power);
    let both = now.gaps.iter().zip(&before.gaps).skip(1);
    let new = both.map(|(now, before)| now.checked_sub(*before));
    let new: Vec<_> = new.collect::<Option<_>>()?;
    Some(edges.zip(new).filter(|(edge, gaps)| *edge >= SHORT_US && *gaps > 0).collect())
}

fn cpu_time(lcore: u32, last: &Sample, sample: &Sample) -> Option<CpuTime> {
    let (before, now) = threads(lcore, last, sample)?;
    let grown = |of: fn(&ThreadSample) -> Option<u64>| of(now)?.checked_sub(of(before)?);
    let ms = |ns: u64| ns as f64 / 1e6;
    let elapsed_ms = ms(now.read_ns.checked_sub(before.read_ns)?);
    let sleeps = now.sleeps_since(before)?;
    let preemptions = grown(|thread| Some(thread.involuntary_switches))?;
    let waited_ms = grown(|thread| thread.run_delay_ns).map(|ns| ms(ns).min(elapsed_ms));
    let off_ms = grown(|thread| thread.run_ns).map(|ns| (elapsed_ms - ms(ns)).max(0.0));
    let hypervisor_ms = grown(|thread| thread.cpu_stolen_ms)
        .filter(|_| before.cpu == now.cpu)
        .map_or(0.0, |ms| (ms as f64).min(elapsed_ms));
    // The kernel counts a wait when it ends: one that still lasts appears only as time without a CPU.
    let unfinished =
        |off: f64, waited: f64| sleeps == 0 && off - waited > (elapsed_ms / 5.0).max(TICKS_MS);
    let (taken_ms, asleep_ms) = match (waited_ms, off_ms) {
        (Some(waited), Some(off)) if unfinished(off, waited) => (Some(off), Some(0.0)),
        (Some(waited), _) if sleeps == 0 => (Some(waited), Some(0.0)),
        (Some(waited), Some(off)) => (Some(waited), Some((off - waited).max(0.0))),
        // Even without times, a thread that never left its CPU is known to have run.
        (None, _) if sleeps == 0 && preemptions == 0 => (Some(0.0), Some(0.0)),
        (waited, _) => (waited, None),
    };
    let taken_ms = taken_ms.map(|taken| (taken + hypervisor_ms).min(elapsed_ms));
    Some(CpuTime { taken_ms, asleep_ms, hypervisor_ms, preemptions, sleeps })
}

/// Returns the thieves with events, most time first.
fn thieves(lcore: u32, last: &Sample, sample: &Sample) -> Vec<ThiefRates> {
    let both = last.tracing.as_ref().zip(sample.tracing.as_ref());
    let both = both.filter(|(before, now)| stolen::same(before, now));
    let Some((before, now)) = both.filter(|(before, _)| before.lcores.contains(&lcore)) else {
        return Vec::new();
    };
    let mut thieves = stolen::thieves(lcore, before, now);
    thieves.retain(|thief| thief.events > 0);
    thieves.sort_by_key(|thief| Reverse(thief.stolen_ns.unwrap_or(0)));
    thieves
}

fn busy_ratio(lcore: u32, last: &Sample, sample: &Sample) -> Option<f64> {
    let of = |sample: &Sample| sample.usage.iter().find(|row| row.lcore == lcore).copied();
    let (before, now) = (of(last)?, of(sample)?);
    let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
    let busy = now.busy.checked_sub(before.busy)?;
    Some(busy.min(total) as f64 / total as f64)
}

fn frequency(lcore: u32, last: &Sample, sample: &Sample) -> Option<CpuFrequency> {
    let of = |sample: &Sample| sample.threads.iter().find(|row| row.lcore == lcore).cloned();
    let now = of(sample)?;
    let before_khz = of(last).filter(|old| old.cpu == now.cpu).and_then(|old| old.cpu_khz);
    Some(CpuFrequency { cpu: now.cpu, khz: now.cpu_khz?, before_khz, max_khz: now.cpu_max_khz? })
}

impl CpuFrequency {
    /// Returns the frequency relative to the sustainable one, 0 to 1 or a little more.
    pub(crate) fn ratio(&self) -> f64 {
        if self.max_khz == 0 { 1.0 } else { self.khz as f64 / self.max_khz as f64 }
    }
}
