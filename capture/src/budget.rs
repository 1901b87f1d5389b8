//! Adjusts the sampling so that a capture stays within a CPU budget, or loses no packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pmdscope_packets::RunControl;
use rustix::time::{ClockId, clock_gettime};

use crate::capture_loop::{CaptureObserver, CaptureReport};

/// Default share of one core.
pub const SHARE: f64 = 0.25;
/// Highest sampling: one packet in this many is kept.
pub const SAMPLE_MAX: u32 = 65_536;
/// CPU time to process a packet, seconds, before it is measured: an overestimate.
const PACKET_COST_S: f64 = 400e-9;

/// Share of the budget below which twice as many packets are taken: twice that cost is still
/// clearly within the budget.
const LOW: f64 = 0.4;
/// Fill level of a ring from which on the next burst may be dropped.
const FULL: f64 = 0.75;
/// A helper gets too little CPU time if drops exceed this share of the packets processed. It then
/// keeps at least one packet in `STARVED_MAX`. Fewer would not help: skipping a packet takes half
/// as long as copying it, and in benchmarks 1 in 256 lost as many as 1 in 16.
const STARVED: f64 = 0.05;
const STARVED_MAX: u32 = 16;
/// Packets per second that are always within the budget: below this rate, CPU time is not spent on
/// packets.
const FEW: f64 = 1000.0;
/// Shortest and longest time between a change and the next attempt to take more packets.
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(64);

/// The cost of processing packets during an interval, and the losses in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CaptureLoad {
    /// Length of the interval, by the monotonic clock.
    pub elapsed: Duration,
    /// CPU time of the thread that processes the packets.
    pub cpu: Duration,
    /// Packets processed.
    pub looked_at: u64,
    /// Packets that rings dropped.
    pub dropped: u64,
    /// Packets that were processed, but lost on their way to a file because its queue was full.
    pub unwritten: u64,
    /// Highest fill level of a ring, 0 to 1.
    pub fill: f64,
    /// Sampling at the end of the interval: one packet in this many was kept.
    pub sample: u32,
}

impl CaptureLoad {
    fn per_second(&self, count: f64) -> f64 {
        count / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn busy(&self) -> f64 {
        self.per_second(self.cpu.as_secs_f64())
    }

    /// Whether keeping fewer packets would reduce the losses. Drops while rings have room may have
    /// other causes, such as an app without memory for the copies that a helper takes.
    fn presses(&self) -> bool {
        self.fill > FULL || self.unwritten > 0
    }

    /// Whether packets were dropped although rings had room: the app made more copies than a helper
    /// could take.
    fn starves(&self) -> bool {
        !self.presses() && self.dropped as f64 > STARVED * self.looked_at as f64
    }

    /// Returns the ratio of all packets to those that could be processed.
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

/// Decides the sampling from the cost of the last packets. Reads no clock.
#[derive(Clone, Debug)]
pub struct SamplingPolicy {
    share: f64,
    sample: u32,
    /// Whether a helper captures the packets.
    helped: bool,
    last: Option<SampleChange>,
    /// Time since the last change.
    since: Duration,
    /// Least time between a change and taking more packets. Doubles each time that this turns out
    /// to be too many.
    wait: Duration,
}

impl SamplingPolicy {
    /// Returns a policy for a share of one core, above 0, that begins with one packet in `sample`.
    pub fn new(share: f64, sample: u32) -> Self {
        let sample = sample.clamp(1, SAMPLE_MAX).next_power_of_two();
        let share = share.max(f64::MIN_POSITIVE);
        Self { share, sample, helped: false, last: None, since: Duration::ZERO, wait: WAIT_MIN }
    }

    /// Returns the sampling, a power of two up to [`SAMPLE_MAX`]: one packet in this many is kept.
    pub fn sample(&self) -> u32 {
        self.sample
    }

    /// Updates the sampling from a load, about once a second, and returns it.
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

    /// Returns the factor, a power of two, by which there were too many packets. Right after a
    /// change, drops may be from before it.
    fn excess(&self, load: &CaptureLoad, fresh: bool) -> u32 {
        if load.sample < self.sample {
            return 1; // Apps have not applied the last change yet.
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

/// Returns the initial sampling for a packet rate and a share of one core, above 0. A budget takes
/// some seconds to adjust, and by then rings may have dropped packets.
pub fn first_sample(pps: f64, share: f64) -> u32 {
    power_of_two(pps * PACKET_COST_S / share)
}

/// Returns `factor` rounded up to a power of two, at most [`SAMPLE_MAX`].
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped.
fn power_of_two(factor: f64) -> u32 {
    (factor.ceil().clamp(1.0, f64::from(SAMPLE_MAX)) as u32).next_power_of_two()
}

/// Counters at a point in time.
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

/// Adjusts the sampling of apps so that processing their packets stays within a share of one core.
///
/// It is updated once a second, by [`CaptureObserver::second`], on the thread that runs the
/// capture, because it measures the CPU time of that thread. The first call only stores the
/// counters.
#[derive(Debug)]
pub struct CpuBudget {
    share: f64,
    helped: bool,
    control: Arc<AtomicU32>,
    policy: Option<SamplingPolicy>,
    last: Option<LoadMark>,
}

impl CpuBudget {
    /// Returns a budget of a share of one core, above 0, for the capture that `control` controls.
    /// It begins with the sampling that `control` asks for, or else with the current one.
    pub fn new(share: f64, control: &RunControl) -> Self {
        let sample = control.sample.load(Ordering::Relaxed);
        let policy = (sample != 0).then(|| SamplingPolicy::new(share, sample));
        if let Some(policy) = &policy {
            control.sample.store(policy.sample(), Ordering::Relaxed);
        }
        Self { share, helped: false, control: Arc::clone(&control.sample), policy, last: None }
    }

    /// Like [`CpuBudget::new`], but without a limit of CPU time: all packets are kept until some
    /// are lost. With `helped`, packets also count as lost if the app copied them, but the helper
    /// did not take them.
    pub fn unlimited(control: &RunControl, helped: bool) -> Self {
        Self { helped, ..Self::new(f64::INFINITY, control) }
    }

    /// Returns the sampling that apps are asked for. [`CaptureReport::sample`] is the one they use.
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
        // Fewer packets do not help when a disk is full.
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
