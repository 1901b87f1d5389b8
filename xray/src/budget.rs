//! Limits for reading an app: bytes per second, and a share of one CPU.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Shorter sleeps are added up: a timer costs more than they are worth.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A thread that was busy with other work for longer was not reading.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Limits for reading an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBudget {
    /// Maximum bytes per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Maximum percent of one CPU that the reading thread uses, 1 to 100; `None` for no limit.
    pub cpu_percent: Option<u8>,
}

impl ReadBudget {
    /// For a command that reads once.
    pub const UNLIMITED: Self = Self { bytes_per_second: None, cpu_percent: None };

    /// The minimum time of a step with this many bytes and this much CPU time.
    fn time(&self, bytes: usize, cpu: Duration) -> Duration {
        let bytes = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000);
        let by_bytes = self.bytes_per_second.map_or(0, |most| share(bytes, most));
        let cpu_ns = cpu.as_nanos().saturating_mul(100);
        let by_cpu = self.cpu_percent.map_or(0, |most| share(cpu_ns, most.min(100).into()));
        Duration::from_nanos(u64::try_from(by_bytes.max(by_cpu)).unwrap_or(u64::MAX))
    }
}

/// A limit of 0 counts as 1.
fn share(of: u128, limit: u64) -> u128 {
    of.checked_div(limit.into()).unwrap_or(of)
}

/// The clocks that a [`Pacer`] needs.
pub(crate) trait PacerClock: Debug + Send + Sync {
    /// Time since an arbitrary moment.
    fn now(&self) -> Duration;

    /// CPU time of the calling thread.
    fn thread_cpu(&self) -> Duration;

    /// Returns at that time or later.
    fn sleep(&self, time: Duration);
}

/// The clocks of the kernel.
#[derive(Debug)]
struct KernelClock {
    began: Instant,
}

impl PacerClock for KernelClock {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn thread_cpu(&self) -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Keeps readers to a budget: sleeps between their steps.
#[derive(Debug)]
pub(crate) struct Pacer {
    budget: ReadBudget,
    clock: Arc<dyn PacerClock>,
    state: Mutex<PacerState>,
}

#[derive(Debug, Default)]
struct PacerState {
    /// Time at which the budget of all steps so far is used up.
    paid: Duration,
    /// The thread that read last, and its CPU time then: processing the data that it has read
    /// counts too.
    last: Option<(ThreadId, Duration)>,
}

impl Pacer {
    pub(crate) fn new(budget: ReadBudget) -> Self {
        Self::with_clock(budget, Arc::new(KernelClock { began: Instant::now() }))
    }

    pub(crate) fn with_clock(budget: ReadBudget, clock: Arc<dyn PacerClock>) -> Self {
        Self { budget, clock, state: Mutex::default() }
    }

    /// To be called after each step, with the number of bytes read.
    pub(crate) fn step(&self, bytes: usize) {
        if self.budget == ReadBudget::UNLIMITED {
            return;
        }
        let wait = self.owed(bytes);
        if wait >= SHORTEST_SLEEP {
            self.clock.sleep(wait);
        }
    }

    /// How far the steps exceed the budget. Time without steps is not saved up.
    fn owed(&self, bytes: usize) -> Duration {
        let (now, cpu, thread) =
            (self.clock.now(), self.clock.thread_cpu(), thread::current().id());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.last.replace((thread, cpu)).filter(|(last, _)| *last == thread);
        let used = before.map_or(Duration::ZERO, |(_, before)| cpu.saturating_sub(before));
        let used = used.min(LONGEST_STEP);
        // The step began at the earliest when the earlier budget was used up.
        let began = state.paid.max(now.saturating_sub(used));
        state.paid = began.saturating_add(self.budget.time(bytes, used));
        state.paid.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps only advance this clock.
    #[derive(Debug, Default)]
    struct TestClock(Mutex<(Duration, Duration)>);

    impl TestClock {
        fn work(&self, cpu: Duration) {
            let mut time = self.0.lock().unwrap();
            time.0 += cpu;
            time.1 += cpu;
        }
    }

    impl PacerClock for TestClock {
        fn now(&self) -> Duration {
            self.0.lock().unwrap().0
        }

        fn thread_cpu(&self) -> Duration {
            self.0.lock().unwrap().1
        }

        fn sleep(&self, time: Duration) {
            self.0.lock().unwrap().0 += time;
        }
    }

    /// Total time of steps with this many bytes and this much work.
    fn paced(budget: ReadBudget, steps: u32, bytes: usize, work: Duration) -> Duration {
        let clock = Arc::new(TestClock::default());
        let pacer = Pacer::with_clock(budget, clock.clone());
        for _ in 0..steps {
            clock.work(work);
            pacer.step(bytes);
        }
        clock.now()
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn bytes_per_second_are_kept() {
        let budget = ReadBudget { bytes_per_second: Some(1_000_000), cpu_percent: None };
        let took = paced(budget, 1000, 2000, MS / 10);
        assert!((1990 * MS..2010 * MS).contains(&took), "{took:?}");
        // Slower than the budget even without sleeps; the cost of the first step before it is not
        // known.
        assert_eq!(paced(budget, 10, 1000, 5 * MS), 51 * MS);
    }

    #[test]
    fn the_share_of_a_cpu_is_kept() {
        let budget = ReadBudget { bytes_per_second: None, cpu_percent: Some(20) };
        let took = paced(budget, 100, 1 << 20, 2 * MS);
        assert!((980 * MS..1010 * MS).contains(&took), "{took:?}");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let clock = Arc::new(TestClock::default());
        let budget = ReadBudget { bytes_per_second: Some(1_000_000), cpu_percent: Some(50) };
        let pacer = Pacer::with_clock(budget, clock.clone());
        pacer.step(1);
        clock.sleep(Duration::from_secs(60));
        let began = clock.now();
        (0..10).for_each(|_| pacer.step(10_000));
        let took = clock.now().saturating_sub(began);
        assert!((99 * MS..101 * MS).contains(&took), "{took:?}");
    }

    #[test]
    fn no_limit_never_sleeps() {
        assert_eq!(paced(ReadBudget::UNLIMITED, 100, 1 << 30, MS), 100 * MS);
    }
}
