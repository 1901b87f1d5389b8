//! Deadlines: points in time at which waits end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The time at which the caller stops waiting.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

/// Limit of a timeout; protects the clock arithmetic against absurd durations.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Deadline {
    /// Returns the deadline `timeout` from now; at most one day.
    pub fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout.min(LONGEST))
    }

    /// Returns the remaining time; zero if the deadline has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    pub fn passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// Waits for `events`; false if the deadline passed first.
    pub(crate) fn wait(self, fd: impl AsFd, events: PollFlags) -> Result<bool, Errno> {
        loop {
            let left = self.remaining();
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&fd, events)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Calls `attempt` until it returns a value, with a longer pause after each `None`; `None` if the
    /// deadline passed first.
    pub(crate) fn retry<T, E>(
        self,
        mut attempt: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(value) = attempt()? {
                return Ok(Some(value));
            }
            if self.passed() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(self.remaining()));
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
}
