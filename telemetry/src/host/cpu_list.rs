//! Sets of CPUs and lcores, as the kernel and the EAL write them.

use std::collections::BTreeSet;

/// Upper limit of the lcores of any EAL; bounds the cost of a range.
const MAX_LCORES: u32 = 4096;

/// Parses a list as the kernel and the EAL write it, for instance `0-3,5`, up to 4095. Parts that are
/// not understood are ignored.
pub fn cpu_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        (last < MAX_LCORES).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Formats a set of CPUs as the kernel does, for instance `0-3,5`: the inverse of [`cpu_list`].
pub fn cpu_ranges(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Parses a mask as the kernel and the EAL write it, for instance `ff,0000000f` or `0xf`, up to 4095.
/// Digits that are not understood are ignored.
pub fn cpu_mask(hex: &str) -> BTreeSet<u32> {
    let digits = hex.trim().trim_start_matches("0x").trim_start_matches("0X").replace(',', "");
    let bits = (0..MAX_LCORES).step_by(4).zip(digits.chars().rev());
    let digits = bits.filter_map(|(at, digit)| Some((at, digit.to_digit(16)?)));
    let set =
        |(at, digit): (u32, u32)| (0..4).filter(move |b| digit >> b & 1 == 1).map(move |b| at + b);
    digits.flat_map(set).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_bounded() {
        assert_eq!(cpu_list("0-1,9"), [0, 1, 9].into());
        assert_eq!(cpu_list("0-4294967295,7,3-1,x,"), [7].into());
        assert_eq!(cpu_mask(&"f".repeat(2000)), (0..4096).collect());
    }

    proptest! {
        #[test]
        fn cpus_are_read_as_they_are_written(cpus in prop::collection::btree_set(0_u32..300, 0..40)) {
            prop_assert_eq!(cpu_list(&cpu_ranges(&cpus)), cpus);
        }
    }
}
