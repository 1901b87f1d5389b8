//! How long a cache line takes from one CPU to another and back, and so how far apart they are.
//!
//! A virtual CPU that has slept may continue on another core of the host, which nothing in the guest
//! controls or shows. What two CPUs exchange then takes up to ten times as long.

use std::fmt;
use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::machine::{real_time_thread, run_on};

/// A cache line takes 30, 60, 330 or 700 ns: times that differ by less are of one distance.
const SAME: f64 = 1.25;
/// Round trips that are timed together: reading the clock takes as long as half a short one.
const BATCH: u32 = 100;
const BATCHES: usize = 100;
const LIMIT: Duration = Duration::from_secs(1);
const SPINS_PER_CLOCK: u32 = 1 << 16;
const END: u64 = u64::MAX;

/// Round trips of a cache line between two CPUs before and after a measurement, nanoseconds; NaN where they
/// could not be timed.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    /// Before the measurement.
    pub before_ns: f64,
    /// After it.
    pub after_ns: f64,
}

/// What round trips take at one distance of two CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The shortest, nanoseconds.
    pub from_ns: f64,
    /// The longest, nanoseconds.
    pub to_ns: f64,
}

impl Distance {
    /// The distance of most measurements; none is at it if there are none.
    pub fn most_frequent(measurements: impl Iterator<Item = RoundTrips>) -> Self {
        let times: Vec<f64> = measurements.flat_map(|of| [of.before_ns, of.after_ns]).collect();
        let count = |ns| times.iter().filter(|&&time| Self::around(ns).includes(time)).count();
        let most = times.iter().copied().max_by_key(|&ns| count(ns));
        Self::around(most.unwrap_or(f64::NAN))
    }

    /// Whether the CPUs had this distance before and after a measurement.
    pub fn is_of(self, measurement: RoundTrips) -> bool {
        self.includes(measurement.before_ns) && self.includes(measurement.after_ns)
    }

    fn around(ns: f64) -> Self {
        Self { from_ns: ns / SAME, to_ns: ns * SAME }
    }

    fn includes(self, time_ns: f64) -> bool {
        (self.from_ns..=self.to_ns).contains(&time_ns)
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} to {:.0} ns", self.from_ns, self.to_ns)
    }
}

/// A number in a cache line of its own: odd for one thread, even for the other.
#[repr(align(128))]
struct Turn(AtomicU64);

impl Turn {
    /// Waits until the number is `wanted`. False if the other thread has ended, or after the deadline.
    fn wait(&self, wanted: u64, deadline: Instant) -> bool {
        let mut spins = 0;
        loop {
            match self.0.load(Ordering::Acquire) {
                now if now == wanted => return true,
                END => return false,
                _ => {}
            }
            spin_loop();
            spins += 1;
            if spins % SPINS_PER_CLOCK == 0 && Instant::now() > deadline {
                return false;
            }
        }
    }

    fn set(&self, turn: u64) {
        self.0.store(turn, Ordering::Release);
    }
}

/// Nanoseconds that a cache line takes from one CPU to another and back: the median of batches, which take
/// the CPUs from other processes for some milliseconds. NaN if the CPUs are too busy, as without the
/// right to real-time priority next to processes that poll.
pub fn round_trip_ns(cpus: (usize, usize)) -> Result<f64> {
    let turn = Turn(AtomicU64::new(0));
    let ready = Barrier::new(2);
    let mut batches = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            take(cpus.1, &ready)?;
            answer(&turn);
            Ok::<_, anyhow::Error>(())
        });
        // A thread of its own, as the caller keeps its CPUs.
        let asking = scope.spawn(|| {
            take(cpus.0, &ready)?;
            let batches = ask(&turn);
            turn.set(END);
            Ok::<_, anyhow::Error>(batches)
        });
        let batches = asking.join().map_err(|_| anyhow::anyhow!("the asking thread panicked"))?;
        answering.join().map_err(|_| anyhow::anyhow!("the answering thread panicked"))??;
        batches
    })?;
    if batches.len() < BATCHES {
        return Ok(f64::NAN);
    }
    batches.sort();
    Ok(batches[BATCHES / 2].as_nanos() as f64 / f64::from(BATCH))
}

fn ask(turn: &Turn) -> Vec<Duration> {
    let deadline = Instant::now() + LIMIT;
    let mut batches = Vec::with_capacity(BATCHES);
    let mut next = 0;
    while batches.len() < BATCHES {
        let begin = Instant::now();
        for _ in 0..BATCH {
            turn.set(next + 1);
            next += 2;
            if !turn.wait(next, deadline) {
                return batches;
            }
        }
        batches.push(begin.elapsed());
    }
    batches
}

fn answer(turn: &Turn) {
    let deadline = Instant::now() + LIMIT;
    let mut next = 1;
    while turn.wait(next, deadline) {
        turn.set(next + 1);
        next += 2;
    }
}

/// Moves this thread to a CPU. It runs before all others there, if this process may do that: two threads
/// that take turns with others on their CPUs may never run at the same time. Then it waits for the other
/// thread, which may have to leave this CPU first.
fn take(cpu: usize, ready: &Barrier) -> Result<()> {
    let moved = run_on(cpu);
    let _ = real_time_thread();
    ready.wait();
    moved
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::machine::Machine;

    fn trips(before_ns: f64, after_ns: f64) -> RoundTrips {
        RoundTrips { before_ns, after_ns }
    }

    #[test]
    fn the_most_frequent_distance_is_found() {
        let all = [trips(62.0, 340.0), trips(66.0, 60.0), trips(330.0, 310.0), trips(28.0, 63.0)];
        let distance = Distance::most_frequent(all.into_iter());
        assert_eq!(all.map(|measurement| distance.is_of(measurement)), [false, true, false, false]);
    }

    #[test]
    fn round_trips_are_timed_between_busy_cpus() -> Result<()> {
        let Some(machine) = Machine::new()? else {
            println!("SKIP: one CPU");
            return Ok(());
        };
        let cpus = machine.ends();
        let done = AtomicBool::new(false);
        let poll = |cpu| {
            run_on(cpu)?;
            while !done.load(Ordering::Relaxed) {
                spin_loop();
            }
            Ok::<_, anyhow::Error>(())
        };
        let times = thread::scope(|scope| {
            let polling =
                [cpus.0, cpus.1, cpus.0, cpus.1].map(|cpu| scope.spawn(move || poll(cpu)));
            let times = [round_trip_ns(cpus), round_trip_ns(cpus)];
            done.store(true, Ordering::Relaxed);
            for thread in polling {
                thread.join().map_err(|_| anyhow::anyhow!("a polling thread panicked"))??;
            }
            times.into_iter().collect::<Result<Vec<_>>>()
        })?;
        // Without the right to real-time priority it may fail, but never block.
        let privileged = thread::spawn(real_time_thread).join().is_ok_and(|result| result.is_ok());
        assert!(times.iter().all(|&ns| ns > 1.0 || ns.is_nan() && !privileged), "{times:?}");
        Ok(())
    }

    #[test]
    fn measurements_without_times_have_no_distance() {
        let all = [trips(f64::NAN, 60.0), trips(f64::NAN, f64::NAN), trips(61.0, 62.0)];
        let distance = Distance::most_frequent(all.into_iter());
        assert_eq!(all.map(|measurement| distance.is_of(measurement)), [false, false, true]);
    }

    #[test]
    fn without_measurements_no_distance_is_found() {
        assert!(!Distance::most_frequent([].into_iter()).is_of(trips(60.0, 60.0)));
    }
}
