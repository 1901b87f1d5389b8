//! Numbers as text: SI prefixes, durations, shares. Unknown is `-`, never 0.

/// Text for an unknown value.
pub const UNKNOWN: &str = "-";

/// Formats with `format`, or [`UNKNOWN`] without a value.
pub fn known<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), format)
}

/// Three significant digits with an SI suffix: `0.4`, `987`, `12.3k`, `14.2M`, `1.00G`.
pub fn si(value: f64) -> String {
    const SUFFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let mut scaled = value.abs();
    let mut power = 0;
    // 999.5 would round to a fourth digit.
    while scaled >= 999.5 && power + 1 < SUFFIXES.len() {
        scaled /= 1000.0;
        power += 1;
    }
    let digits = match (power, scaled) {
        (0, s) if s < 0.05 => return "0".to_owned(),
        (0, s) if s < 9.95 && s.fract() > 0.0 => 1,
        (0, _) => 0,
        (_, s) if s < 9.995 => 2,
        (_, s) if s < 99.95 => 1,
        _ => 0,
    };
    format!("{sign}{scaled:.digits$}{}", SUFFIXES[power])
}

/// A signed change per second: `+412`, `-3.5`, `0`.
pub fn signed(value: f64) -> String {
    let text = si(value);
    if value > 0.0 && text != "0" { format!("+{text}") } else { text }
}

/// A whole count with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 packet`, `1,234 packets`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {}", count(number), plural_noun(number, noun))
}

/// A noun as it follows that number: `packet` after 1, `packets` after any other.
pub fn plural_noun(number: u64, noun: &str) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// A share between 0 and 1 in percent: `0%`, `0.4%`, `97%`. Never rounds to 0% or 100% what is not.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent {
        p if !p.is_finite() => UNKNOWN.to_owned(),
        p if p > 0.0 && p < 0.1 => "<0.1%".to_owned(),
        p if p > 0.0 && p < 9.95 => format!("{p:.1}%"),
        p if p > 99.0 && p < 100.0 => format!("{:.1}%", (p * 10.0).floor() / 10.0),
        p => format!("{p:.0}%"),
    }
}

/// Seconds: `0.4s`, `31s`, `2m05s`, `1h12m`, `3d04h`.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return UNKNOWN.to_owned();
    }
    if value < 9.95 {
        return format!("{value:.1}s");
    }
    let whole = whole(value);
    match whole {
        0..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{:02}m", whole / 3_600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3_600 % 24),
    }
}

/// Microseconds: `850us`, `1.24ms`, `2.50s`, `31s`.
pub fn micros(value: u64) -> String {
    match value {
        0..1_000 => format!("{value}us"),
        1_000..1_000_000 => three_digits(value as f64 / 1e3, "ms"),
        1_000_000..10_000_000 => format!("{:.2}s", value as f64 / 1e6),
        _ => seconds(value as f64 / 1e6),
    }
}

/// Nanoseconds, to the precision of [`micros`].
pub fn nanos(value: u64) -> String {
    micros(value / 1_000)
}

/// Bytes with binary prefixes: `512 B`, `2.0 KiB`, `128 MiB`.
pub fn bytes(value: u64) -> String {
    const SUFFIXES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut power = 0;
    while scaled >= 1023.5 && power + 1 < SUFFIXES.len() {
        scaled /= 1024.0;
        power += 1;
    }
    let digits = usize::from(power > 0 && scaled < 9.95);
    format!("{scaled:.digits$} {}", SUFFIXES[power])
}

fn three_digits(value: f64, unit: &str) -> String {
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // finite and positive: checked
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn si_keeps_three_digits_and_carries() {
        let cases = [
            (0.0, "0"),
            (0.04, "0"),
            (0.4, "0.4"),
            (7.0, "7"),
            (9.96, "10"),
            (987.0, "987"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (1_000.0, "1.00k"),
            (12_345.0, "12.3k"),
            (999_499.0, "999k"),
            (999_500.0, "1.00M"),
            (14_200_000.0, "14.2M"),
            (9.5e9, "9.50G"),
            (-2_500.0, "-2.50k"),
            (f64::NAN, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(si(value), text, "{value}");
        }
    }

    #[test]
    fn signs_only_where_something_changes() {
        assert_eq!(signed(412.0), "+412");
        assert_eq!(signed(-3.5), "-3.5");
        assert_eq!(signed(0.001), "0");
    }

    #[test]
    fn counts_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (value, text) in cases {
            assert_eq!(count(value), text);
        }
    }

    #[test]
    fn a_noun_follows_its_number() {
        assert_eq!([plural_noun(0, "file"), plural_noun(1, "file")], ["files", "file"]);
        assert_eq!([plural(1, "packet"), plural(1_234, "packet")], ["1 packet", "1,234 packets"]);
    }

    #[test]
    fn percent_never_rounds_to_0_or_100() {
        let cases = [
            (0.0, "0%"),
            (0.0004, "<0.1%"),
            (0.004, "0.4%"),
            (0.5, "50%"),
            (0.9996, "99.9%"),
            (1.0, "100%"),
        ];
        for (value, text) in cases {
            assert_eq!(percent(value), text, "{value}");
        }
    }

    #[test]
    fn durations_use_two_units() {
        let cases = [
            (0.42, "0.4s"),
            (9.96, "10s"),
            (59.7, "1m00s"),
            (125.0, "2m05s"),
            (4_320.0, "1h12m"),
            (273_600.0, "3d04h"),
            (-1.0, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(seconds(value), text, "{value}");
        }
        assert_eq!(micros(850), "850us");
        assert_eq!(micros(1_240), "1.24ms");
        assert_eq!(micros(48_000), "48.0ms");
        assert_eq!(micros(2_500_000), "2.50s");
        assert_eq!(nanos(1_240_999), "1.24ms");
    }

    #[test]
    fn bytes_and_unknowns() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(2048), "2.0 KiB");
        assert_eq!(bytes(1 << 20), "1.0 MiB");
        assert_eq!(known(None, si), "-");
        assert_eq!(known(Some(1.5), si), "1.5");
    }
}
