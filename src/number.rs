//! Whole numbers on the command line, and errors about others.

use std::ops::RangeInclusive;

/// Reads a whole number within a range, both ends included.
///
/// The message of a refusal names the range.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| expected(&range))
    }
}

fn expected(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (least, &u64::MAX) => format!("expected a whole number of at least {least}"),
        (least, most) => format!("expected a whole number from {least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_range() {
        let seconds = whole::<u32>(1..=3600);
        assert_eq!([seconds("1"), seconds("3600")], [Ok(1), Ok(3600)]);
        for text in ["0", "3601", "-1", "", "x", "1.5", "99999999999999999999"] {
            let refusal = Err("expected a whole number from 1 to 3600".to_owned());
            assert_eq!(seconds(text), refusal, "{text}");
        }
        let packets = whole::<u64>(1..=u64::MAX);
        assert_eq!(packets("0"), Err("expected a whole number of at least 1".to_owned()));
    }
}
