//! The clocks of samples and views, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic clock, nanoseconds; for rates and ages.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Returns the wall clock, nanoseconds since the epoch.
pub fn realtime_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// Neither clock is ever negative.
fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
