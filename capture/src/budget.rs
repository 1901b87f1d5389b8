//! Sampling that keeps to a budget: as many packets are looked at as a share of one core allows, or
//! as can be had without losses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pmdscope_packets::RunControl;
use rustix::time::{ClockId, clock_gettime};

use crate::capture_loop::{CaptureObserver, CaptureReport};

/// Share of one core where nothing else is said.
pub const SHARE: f64 = 0.25;
/// Most packets that one stands for.
pub const SAMPLE_MAX: u32 = 65_536;
/// What looking at a packet takes, seconds, before that is measured: rather too much.
const PACKET_COST_S: f64 = 400e-9;

/// Twice the packets must cost clearly less than the budget before twice the packets are taken.
const LOW: f64 = 0.4;
/// A ring that was so full would drop in the next burst.
const FULL: f64 = 0.75;
/// Share of drops, of packets looked at, that tells of a helper that gets too little CPU time; and one packet
/// in so many is what it may then keep. Fewer would not help: passing over a packet takes it half as
/// long as copying it, and in benchmarks 1 in 256 lost as much as 1 in 16.
const STARVED: f64 = 0.05;
const STARVED_MAX: u32 = 16;
/// Packets a second that no budget is too small for: what is spent on fewer is not spent on packets.
const FEW: f64 = 1000.0;
/// Least and longest time between a change and taking more packets again.
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(64);

/// What looking at packets has cost in some time, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CaptureLoad {
    /// That time, by the wall clock.
    pub elapsed: Duration,
    /// CPU time of the thread that looks at them.
    pub cpu: Duration,
    /// Packets looked at.
    pub looked_at: u64,
    /// Packets that rings dropped.
    pub dropped: u64,
    /// Packets that were looked at, and were lost for want of room on their way to a file.
    pub unwritten: u64,
    /// How full the fullest ring was, 0 to 1.
    pub fill: f64,
    /// One packet in so many was kept at its end.
    pub sample: u32,
}

impl CaptureLoad {
    fn per_second(&self, count: f64) -> f64 {
        count / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn busy(&self) -> f64 {
        self.per_second(self.cpu.as_secs_f64())
    }

    /// Drops beside rings that were not full are none that fewer packets in them would cure for sure:
    /// the app had no memory for the copies of a helper, say.
    fn presses(&self) -> bool {
        self.fill > FULL || self.unwritten > 0
    }

    /// Beside rings with room: the app made more copies than a helper could take over.
    fn starves(&self) -> bool {
        !self.presses() && self.dropped as f64 > STARVED * self.looked_at as f64
    }

    /// How many times more packets there were than could be looked at.
    fn excess(&self) -> f64 {
        let looked_at = self.looked_at.max(1) as f64;
        (looked_at + self.dropped as f64 + self.unwritten as f64) / looked_at
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleChange {
    Fewer,
    More,
}

/// Decides how many packets to take, from what the last ones have cost. Knows no clock.
#[derive(Clone, Debug)]
pub struct SamplingPolicy {
    share: f64,
    sample: u32,
    /// A helper brings the packets.
    helped: bool,
    last: Option<SampleChange>,
    /// Since the last change.
    since: Duration,
    /// Grows as long as taking more packets turns out to be too many.
    wait: Duration,
}

impl SamplingPolicy {
    /// A policy for a share of one core, above 0, that begins with one packet in so many.
    pub fn new(share: f64, sample: u32) -> Self {
        let sample = sample.clamp(1, SAMPLE_MAX).next_power_of_two();
        let share = share.max(f64::MIN_POSITIVE);
        Self { share, sample, helped: false, last: None, since: Duration::ZERO, wait: WAIT_MIN }
    }

    /// One packet in so many is to be kept: a power of two up to [`SAMPLE_MAX`].
    pub fn sample(&self) -> u32 {
        self.sample
    }

    /// Takes note of a load, about once a second, and decides anew.
    pub fn next(&mut self, load: &CaptureLoad) -> u32 {
        let fresh = self.last == Some(SampleChange::Fewer) && self.since.is_zero();
        self.since += load.elapsed;
        let factor = self.excess(load, fresh);
        let sample = self.sample.saturating_mul(factor).min(SAMPLE_MAX);
        if sample > self.sample {
            if self.last == Some(SampleChange::More) && self.since <= 2 * self.wait {
                self.wait = (2 * self.wait).min(WAIT_MAX);
            }
            self.change(sample, SampleChange::Fewer);
        } else if self.sample > 1 && self.has_room(load) && self.since >= self.wait {
            if self.last == Some(SampleChange::More) {
                self.wait = WAIT_MIN;
            }
            self.change(self.sample / 2, SampleChange::More);
        }
        self.sample
    }

    fn change(&mut self, sample: u32, change: SampleChange) {
        (self.sample, self.last, self.since) = (sample, Some(change), Duration::ZERO);
    }

    /// By how much there were too many packets, as a power of two. Right after a change, drops may be
    /// from before it.
    fn excess(&self, load: &CaptureLoad, fresh: bool) -> u32 {
        if load.sample < self.sample {
            return 1; // Apps have yet to obey.
        }
        let counts = load.per_second(load.looked_at as f64) >= FEW;
        let over = if counts { load.busy() / self.share } else { 0.0 };
        let presses = load.presses() && !fresh;
        let starves = self.helped && load.starves() && !fresh && self.sample < STARVED_MAX;
        match (over > 1.0, presses, starves) {
            (true, true, _) => power_of_two(over * load.excess()),
            (true, false, _) => power_of_two(over),
            (false, true, _) => power_of_two(load.excess()).max(2),
            (false, false, true) => power_of_two(load.excess()).clamp(2, STARVED_MAX / self.sample),
            (false, false, false) => 1,
        }
    }

    fn has_room(&self, load: &CaptureLoad) -> bool {
        let few = 2.0 * load.per_second(load.looked_at as f64) < FEW;
        let lacks = load.presses() || self.helped && load.starves();
        !lacks && (few || load.busy() < LOW * self.share)
    }
}

/// One packet in so many for a start, where that many come in a second and a share of one core, above 0,
/// may be used: a budget needs a while to find out, and by then rings may have dropped packets.
pub fn first_sample(pps: f64, share: f64) -> u32 {
    power_of_two(pps * PACKET_COST_S / share)
}

/// The next one; at most [`SAMPLE_MAX`].
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped.
fn power_of_two(factor: f64) -> u32 {
    (factor.ceil().clamp(1.0, f64::from(SAMPLE_MAX)) as u32).next_power_of_two()
}

/// What had been counted at a moment.
#[derive(Clone, Copy, Debug)]
struct LoadMark {
    wall: Instant,
    cpu: Duration,
    looked_at: u64,
    dropped: u64,
    unwritten: u64,
}

impl LoadMark {
    fn of(report: &CaptureReport) -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            wall: Instant::now(),
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            looked_at: report.captured,
            dropped: report.rings.dropped,
            unwritten: report.progress.lost,
        }
    }
}

/// Has apps sample so that looking at their packets keeps to a share of one core.
///
/// It is told once a second, by [`CaptureObserver::second`], on the thread that runs the capture: the CPU time
/// of that thread is what counts. The first call only takes note of what was spent before.
#[derive(Debug)]
pub struct CpuBudget {
    share: f64,
    helped: bool,
    control: Arc<AtomicU32>,
    policy: Option<SamplingPolicy>,
    last: Option<LoadMark>,
}

impl CpuBudget {
    /// A budget of a share of one core, above 0, for the capture that `control` controls. It begins
    /// with the sampling that `control` asks for, or else with the one that is in force.
    pub fn new(share: f64, control: &RunControl) -> Self {
        let sample = control.sample.load(Ordering::Relaxed);
        let policy = (sample != 0).then(|| SamplingPolicy::new(share, sample));
        if let Some(policy) = &policy {
            control.sample.store(policy.sample(), Ordering::Relaxed);
        }
        Self { share, helped: false, control: Arc::clone(&control.sample), policy, last: None }
    }

    /// As [`CpuBudget::new`] with any amount of CPU time: all packets are kept until some are lost. With
    /// `helped`, those that the app makes copies of in vain are among them.
    pub fn unlimited(control: &RunControl, helped: bool) -> Self {
        Self { helped, ..Self::new(f64::INFINITY, control) }
    }

    /// Apps are asked to keep one packet in so many. [`CaptureReport::sample`] is what they do.
    pub fn sample(&self) -> u32 {
        self.policy.as_ref().map_or(1, SamplingPolicy::sample)
    }
}

impl CaptureObserver for CpuBudget {
    fn second(&mut self, report: &CaptureReport) {
        let share = self.share;
        let policy = self.policy.get_or_insert_with(|| SamplingPolicy::new(share, report.sample));
        policy.helped = self.helped;
        let now = LoadMark::of(report);
        // A disk that is full does not become less so by fewer packets.
        let waits = report.progress.waiting.is_some();
        if let Some(last) = self.last.replace(now) {
            policy.next(&CaptureLoad {
                elapsed: now.wall - last.wall,
                cpu: now.cpu.saturating_sub(last.cpu),
                looked_at: now.looked_at.saturating_sub(last.looked_at),
                dropped: now.dropped.saturating_sub(last.dropped),
                unwritten: if waits { 0 } else { now.unwritten.saturating_sub(last.unwritten) },
                fill: report.fill,
                sample: report.sample,
            });
        }
        self.control.store(policy.sample(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
