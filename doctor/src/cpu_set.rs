//! Sets of CPUs, in the two spellings of the kernel.

use std::collections::BTreeSet;
use std::fmt;

use pmdscope_telemetry::host::cpu_list;
use serde::{Deserialize, Serialize};

/// CPU numbers above are taken for nonsense.
const MOST_CPUS: u32 = 8192;

/// A set of CPUs. It is written as the kernel does: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet(pub BTreeSet<u32>);

impl CpuSet {
    /// Reads a list such as `0,2-3`. What is not understood is left out, and so is `(null)`.
    pub fn of_list(text: &str) -> Self {
        Self(cpu_list(text))
    }

    /// Reads a mask such as `ff,0000000f`.
    pub(crate) fn of_mask(text: &str) -> Self {
        let digits = text.trim().trim_start_matches("0x").replace(',', "");
        let bits = (0..MOST_CPUS).step_by(4).zip(digits.chars().rev());
        let digits = bits.filter_map(|(at, digit)| Some((at, digit.to_digit(16)?)));
        Self(digits.flat_map(|(at, digit)| of_digit(at, digit)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    pub(crate) fn with(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// As a mask, in groups of eight digits, as the kernel reads it.
    pub(crate) fn mask(&self) -> String {
        let last = self.0.last().copied().unwrap_or(0);
        let word = |at: u32| {
            let bit = |bit: &u32| self.0.contains(&(at * 32 + bit));
            (0..32).filter(bit).fold(0_u32, |word, bit| word | 1 << bit)
        };
        let words = (0..=last / 32).rev().map(word).enumerate();
        let text = |(index, word)| {
            if index == 0 { format!("{word:x}") } else { format!("{word:08x}") }
        };
        words.map(text).collect::<Vec<_>>().join(",")
    }
}

fn of_digit(at: u32, digit: u32) -> impl Iterator<Item = u32> {
    (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| at + bit)
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
                _ => ranges.push((*cpu, *cpu)),
            }
        }
        let text = |(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        f.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masks_and_lists_name_the_same_cpus() {
        assert_eq!(CpuSet::of_mask("3,0000000f").to_string(), "0-3,32-33");
        assert_eq!(CpuSet::of_mask("fffffffe").to_string(), "1-31");
        assert_eq!(CpuSet::of_list("0-3,32-33").mask(), "3,0000000f");
        assert_eq!(
            (CpuSet::of_list("(null)"), CpuSet::of_list("").mask()),
            (CpuSet::default(), "0".into())
        );
    }

    proptest! {
        #[test]
        fn a_set_is_read_as_it_is_written(cpus in prop::collection::btree_set(0_u32..300, 0..40)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(&CpuSet::of_list(&set.to_string()), &set);
            prop_assert_eq!(&CpuSet::of_mask(&set.mask()), &set);
        }

        #[test]
        fn any_text_is_a_set(text: String) {
            let _ = CpuSet::of_list(&text);
            let _ = CpuSet::of_mask(&text);
        }
    }
}
