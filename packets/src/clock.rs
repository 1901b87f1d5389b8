//! The wall clock, for a crate that does not depend on the one of telemetry.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the wall clock in nanoseconds since 1970.
pub(crate) fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
