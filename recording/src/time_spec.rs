//! Times in a recording, as users specify them.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{DateTime, Time};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// A time in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeSpec {
    /// `2026-11-21T08:56:00Z`, with any offset.
    At(Timestamp),
    /// `08:56:00`: the last time in the recording with this time of day, local time of the
    /// recorder.
    Clock(Time),
    /// `-90s`: this long before the end.
    BeforeEnd(Duration),
}

/// Why a time is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeSpecError {
    /// The syntax is wrong.
    #[error(
        "invalid time {0:?}: expected RFC 3339 (2026-11-21T08:56:00Z), HH:MM:SS in the local time of \
         the recorder, or -90s (90 seconds before the end)"
    )]
    Syntax(String),
    /// It is before or after the recording.
    #[error("the recording is from {first} to {last}")]
    Outside {
        /// First time, in local time of the recorder.
        first: String,
        /// Last time.
        last: String,
    },
}

impl FromStr for TimeSpec {
    type Err = TimeSpecError;

    fn from_str(text: &str) -> Result<Self, TimeSpecError> {
        let wrong = || TimeSpecError::Syntax(text.to_owned());
        if let Some(back) = text.strip_prefix('-') {
            let back: SignedDuration = back.parse().map_err(|_| wrong())?;
            return Ok(Self::BeforeEnd(back.try_into().map_err(|_| wrong())?));
        }
        if let Ok(timestamp) = text.parse() {
            return Ok(Self::At(timestamp));
        }
        // Without this check, a date without an offset would be read as its time of day.
        let clock = text.as_bytes().get(2) == Some(&b':');
        if clock { text.parse().map(Self::Clock).map_err(|_| wrong()) } else { Err(wrong()) }
    }
}

impl TimeSpec {
    /// Returns the wall clock, nanoseconds since the epoch, in a recording of this `span` with
    /// local time `utc_offset_s` seconds east of UTC.
    ///
    /// # Errors
    /// [`TimeSpecError::Outside`].
    pub fn resolve(&self, span: (u64, u64), utc_offset_s: i32) -> Result<u64, TimeSpecError> {
        let offset = Offset::from_seconds(utc_offset_s).unwrap_or(Offset::UTC);
        let found = match self {
            Self::At(timestamp) => nanoseconds(*timestamp),
            Self::BeforeEnd(back) => {
                let back = u64::try_from(back.as_nanos()).unwrap_or(u64::MAX);
                Some(span.1.saturating_sub(back))
            }
            Self::Clock(time) => last_at(*time, span, offset),
        };
        // A time has whole seconds, so the whole second in which the recording starts is valid.
        let first = span.0 - span.0 % 1_000_000_000;
        found.filter(|ns| (first..=span.1).contains(ns)).ok_or_else(|| TimeSpecError::Outside {
            first: local(span.0, offset),
            last: local(span.1, offset),
        })
    }
}

fn nanoseconds(timestamp: Timestamp) -> Option<u64> {
    u64::try_from(timestamp.as_nanosecond()).ok()
}

fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX)
}

/// Returns the last time with this time of day up to the end of the span.
fn last_at(time: Time, span: (u64, u64), offset: Offset) -> Option<u64> {
    let end = timestamp(span.1);
    let date = offset.to_datetime(end).date();
    let days = [Some(date), date.yesterday().ok()];
    let on = |date| offset.to_timestamp(DateTime::from_parts(date, time)).ok();
    days.into_iter().flatten().filter_map(on).find(|found| *found <= end).and_then(nanoseconds)
}

fn local(ns: u64, offset: Offset) -> String {
    format!("{}{offset}", offset.to_datetime(timestamp(ns)).strftime("%Y-%m-%d %H:%M:%S "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T08:56:00.5Z, and an hour later.
    const SPAN: (u64, u64) = (1_795_251_360_500_000_000, 1_795_254_960_500_000_000);

    fn resolve(text: &str, utc_offset_s: i32) -> Result<u64, TimeSpecError> {
        text.parse::<TimeSpec>()?.resolve(SPAN, utc_offset_s)
    }

    #[test]
    fn all_ways_to_write_a_time_mean_the_same() {
        let expected = Ok(1_795_252_260_000_000_000);
        assert_eq!(resolve("2026-11-21T09:11:00Z", 0), expected);
        assert_eq!(resolve("2026-11-21T10:11:00+01:00", 7), expected);
        assert_eq!(resolve("10:11:00", 3600), expected);
        assert_eq!(resolve("-2700.5s", 0), expected);
        assert_eq!(resolve("-45m 500ms", 0), expected);
        assert_eq!(resolve("08:56:00", 0), Ok(1_795_251_360_000_000_000));
        assert_eq!(resolve("00:56:01", -8 * 3600), Ok(1_795_251_361_000_000_000));
    }

    #[test]
    fn a_time_of_day_may_be_of_the_day_before() {
        let midnight = 1_795_219_200_000_000_000;
        let span = (midnight - 7_200_000_000_000, midnight + 7_200_000_000_000);
        let at = |text: &str| text.parse::<TimeSpec>().unwrap().resolve(span, 0).unwrap();
        assert_eq!(at("23:00:00"), midnight - 3_600_000_000_000);
        assert_eq!(at("01:00:00"), midnight + 3_600_000_000_000);
    }

    #[test]
    fn times_outside_the_recording_show_its_span() {
        for text in ["2026-11-21T08:55:59Z", "2027-01-01T00:00:00Z", "07:00:00", "-2h"] {
            let error = resolve(text, 3600).unwrap_err().to_string();
            assert_eq!(
                error, "the recording is from 2026-11-21 09:56:00 +01 to 2026-11-21 10:56:00 +01",
                "{text}"
            );
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "now", "-", "--5s", "-5x", "25:00:00", "2026-11-21", "2026-11-21T08:56:00"]
        {
            assert!(matches!(text.parse::<TimeSpec>(), Err(TimeSpecError::Syntax(_))), "{text:?}");
        }
    }
}
