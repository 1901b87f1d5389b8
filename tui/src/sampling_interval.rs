//! The sampling interval, shared between the keys that change it and the threads that use it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An interval that may change while a thread waits for its end.
#[derive(Debug)]
pub struct SamplingInterval {
    interval: Mutex<Duration>,
    changed: Condvar,
}

impl SamplingInterval {
    /// Starts with an interval.
    pub fn new(interval: Duration) -> Self {
        Self { interval: Mutex::new(interval), changed: Condvar::new() }
    }

    /// Changes the interval, also for waiting threads.
    pub fn set(&self, interval: Duration) {
        *self.lock() = interval;
        self.changed.notify_all();
    }

    /// Waits until one interval has passed since `start`.
    pub fn wait(&self, start: Instant) {
        let mut interval = self.lock();
        loop {
            let rest = interval.saturating_sub(start.elapsed());
            if rest.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(interval, rest);
            interval = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
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
    fn a_past_interval_does_not_wait() {
        let start = Instant::now().checked_sub(Duration::from_secs(700)).unwrap();
        SamplingInterval::new(Duration::from_secs(600)).wait(start);
    }
}
