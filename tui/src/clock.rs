//! Times as text, and the unit of clocks.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_render::number::UNKNOWN;

/// Nanoseconds in a second.
pub(crate) const NS_PER_SECOND: u64 = 1_000_000_000;

/// Wall clock in the given zone; 0 means never.
pub(crate) fn time_of_day(realtime_ns: u64, zone: &TimeZone) -> String {
    if realtime_ns == 0 {
        return UNKNOWN.to_owned();
    }
    Timestamp::from_nanosecond(i128::from(realtime_ns)).map_or_else(
        |_| UNKNOWN.to_owned(),
        |time| time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string(),
    )
}
