//! The sampling interval, shared between the keys that change it and the threads that use it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An interval that may change while a thread waits for its end. It ends for all threads at the same time,
/// so that what they have sampled is drawn at once.
#[derive(Debug)]
pub struct SamplingInterval {
    /// A time at which an interval began.
    origin: Instant,
    interval: Mutex<Duration>,
    changed: Condvar,
}

impl SamplingInterval {
    /// Starts with an interval.
    pub fn new(interval: Duration) -> Self {
        let origin = Instant::now();
        Self { origin, interval: Mutex::new(interval), changed: Condvar::new() }
    }

    /// Changes the interval, also for waiting threads.
    pub fn set(&self, interval: Duration) {
        *self.lock() = interval;
        self.changed.notify_all();
    }

    /// Waits for the end of the interval in which `start` is, or of the next one if that is nearer than half
    /// an interval.
    pub fn wait(&self, start: Instant) {
        let mut interval = self.lock();
        loop {
            let rest = self.end(start, *interval).saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(interval, rest);
            interval = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn end(&self, start: Instant, interval: Duration) -> Instant {
        let earliest = start.saturating_duration_since(self.origin) + interval / 2;
        let intervals = earliest.as_nanos().div_ceil(interval.as_nanos().max(1));
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.origin + interval.saturating_mul(intervals)
    }

    fn lock(&self) -> MutexGuard<'_, Duration> {
        self.interval.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_shorter_interval_ends_the_wait() {
        let pace = Arc::new(SamplingInterval::new(Duration::from_secs(600)));
        let waiter = std::thread::spawn({
            let pace = Arc::clone(&pace);
            move || pace.wait(Instant::now())
        });
        pace.set(Duration::from_millis(1));
        waiter.join().unwrap();
    }

    #[test]
    fn intervals_of_all_threads_end_at_the_same_time() {
        let pace = SamplingInterval::new(Duration::from_secs(1));
        let at = |ms| pace.origin + Duration::from_millis(ms);
        for (start, end) in [(0, 1000), (20, 1000), (499, 1000), (501, 2000), (1003, 2000)] {
            assert_eq!(pace.end(at(start), Duration::from_secs(1)), at(end), "{start}");
        }
        let early = pace.origin.checked_sub(Duration::from_secs(5)).unwrap();
        assert_eq!(pace.end(early, Duration::from_secs(2)), at(2000));
    }

    #[test]
    fn a_past_interval_does_not_wait() {
        let origin = Instant::now().checked_sub(Duration::from_secs(700)).unwrap();
        let pace = SamplingInterval { origin, ..SamplingInterval::new(Duration::from_secs(600)) };
        pace.wait(origin);
    }
}
