//! Times on the command line and in the configuration: `300ms`, `5s`, `1h`.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Units by name, longest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// Reads a number with a unit behind it; `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    if number.starts_with(['+', '-']) {
        return None;
    }
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*nanos).map(Duration::from_nanos);
    }
    let seconds = number.parse::<f64>().ok()? * (*nanos as f64 / 1e9);
    Duration::try_from_secs_f64(seconds).ok()
}

/// As [`parse`], where a number without a unit is one of seconds, as in all options.
pub(crate) fn parse_or_seconds(text: &str) -> Option<Duration> {
    parse(text).or_else(|| parse(&format!("{text}s")))
}

/// Reads the time of an option, which is within a range. The message of a refusal names the range and examples.
pub(crate) fn within(
    text: &str,
    range: RangeInclusive<Duration>,
    examples: &str,
) -> Result<Duration, String> {
    parse_or_seconds(text).filter(|time| range.contains(time)).ok_or_else(|| {
        let least = show(*range.start());
        match *range.end() {
            Duration::MAX => format!("expected a time of at least {least}, such as {examples}"),
            most => format!("expected a time from {least} to {}, such as {examples}", show(most)),
        }
    })
}

/// Reads the time between two samples.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(100)..=Duration::from_secs(60), "1s or 500ms")
}

/// Reads a time of whole seconds, within a range; `u64::MAX` stands for no limit.
pub(crate) fn whole_seconds(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let most = match *range.end() {
        u64::MAX => Duration::MAX,
        seconds => Duration::from_secs(seconds),
    };
    let limits = Duration::from_secs(*range.start())..=most;
    let time = within(text, limits, "60, 60s or 5m")?;
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err("expected a time of whole seconds, such as 60, 60s or 5m".to_owned()),
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()))
}

/// Writes a duration such that [`parse`] reads it: in the longest unit that needs no fraction.
pub(crate) fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let whole = |&&(_, unit): &&(&str, u64)| nanos > 0 && nanos.is_multiple_of(unit.into());
    match UNITS.iter().find(whole) {
        Some((name, unit)) => format!("{}{name}", nanos / u128::from(*unit)),
        None => format!("{}s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_and_a_unit() {
        for (text, nanos) in [
            ("300ms", 300_000_000),
            ("5s", 5_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            ("1.5s", 1_500_000_000),
            ("90m", 5_400_000_000_000),
            ("90min", 5_400_000_000_000),
            ("10us", 10_000),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse(text), Some(duration), "{text}");
            assert_eq!(parse(&show(duration)), Some(duration), "{text}");
        }
        assert_eq!(show(Duration::from_secs(5400)), "90m");
        assert_eq!(show(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn seconds_need_no_unit_where_that_is_allowed() {
        assert_eq!(parse_or_seconds("10"), Some(Duration::from_secs(10)));
        assert_eq!(parse_or_seconds("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(
            [parse_or_seconds(""), parse_or_seconds("m"), parse_or_seconds("-1")],
            [None; 3]
        );
        assert_eq!([whole_seconds("90", 1..=90), whole_seconds("1.5m", 1..=90)], [Ok(90), Ok(90)]);
        for wrong in ["500ms", "91", "0", "1.5", "-1", "x", ""] {
            assert!(whole_seconds(wrong, 1..=90).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_refusal_names_the_range() {
        let range = || Duration::from_millis(100)..=Duration::from_secs(7 * 86_400);
        assert_eq!(within("7d", range(), "2s"), Ok(*range().end()));
        let refusal = Err("expected a time from 100ms to 7d, such as 2s".to_owned());
        for text in ["99ms", "8d", "", "x"] {
            assert_eq!(within(text, range(), "2s"), refusal, "{text}");
        }
        let refusal = Err("expected a time of at least 1s, such as 90s or 10m".to_owned());
        assert_eq!(within("0", Duration::from_secs(1)..=Duration::MAX, "90s or 10m"), refusal);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "5", "s", "-1s", "+1s", "1 s", "1S", "1h30m", "infs", "NaNs", "1e400s", "1x"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            parse(&text);
        }

        #[test]
        fn what_is_written_is_read(micros in 0..u64::MAX / 1000) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(parse(&show(duration)), Some(duration));
        }
    }
}
