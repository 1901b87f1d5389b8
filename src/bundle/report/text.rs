//! Text of apps on the page: without control characters, and of limited length. `maud` escapes it.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_render::{Theme, cut};
use pmdscope_telemetry::printable::harmless;

/// Longest sentence, and longest name or value of a table, characters.
const LONGEST_SENTENCE: usize = 1000;
const LONGEST_NAME: usize = 100;

/// A sentence, such as the evidence of a finding.
pub(super) fn sentence(text: &str) -> String {
    cut(&harmless(text, &[]), LONGEST_SENTENCE, Theme::default())
}

/// A name, or a value of a table.
pub(super) fn name(text: &str) -> String {
    cut(&harmless(text, &[]), LONGEST_NAME, Theme::default())
}

/// A moment in local time, with its date and zone.
pub(super) fn date_and_time(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
}

/// The time of day.
pub(super) fn time(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}
