//! Reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock, nanoseconds since 1970.
pub fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
