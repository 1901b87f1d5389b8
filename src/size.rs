//! Numbers of bytes on the command line: `500000`, `64K`, `10G`.

/// Letters for powers of 1024.
pub(crate) const BINARY: [(char, u64); 4] =
    [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

/// Reads a number above 0 with one of these letters behind it, in either case; `none` is the factor
/// without a letter. `None` for anything else.
pub(crate) fn parse(text: &str, units: &[(char, u64)], none: u64) -> Option<u64> {
    let last = text.chars().last()?;
    let unit = units.iter().find(|(letter, _)| letter.eq_ignore_ascii_case(&last));
    let (digits, factor) = match unit {
        Some((_, factor)) => (&text[..text.len() - 1], *factor),
        None => (text, none),
    };
    let number = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'))?;
    number.checked_mul(factor).filter(|bytes| *bytes > 0)
}

/// A number of bytes, with K, M, G, T behind it or not.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number of bytes, such as 500000, 64K, 100M, 10G or 1T".to_owned();
    parse(text, &BINARY, 1).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_powers_of_1024() {
        assert_eq!(parse_bytes("500000"), Ok(500_000));
        assert_eq!([parse_bytes("64k"), parse_bytes("2T")], [Ok(64 << 10), Ok(2 << 40)]);
        assert_eq!(parse("3", &BINARY, 1_000), Some(3_000));
        for bad in ["", "K", "0", "-1", "+1", "1.5G", "1KB", "99999999999T"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("1T", &BINARY[..3], 1), None);
    }
}
