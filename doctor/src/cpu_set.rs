//! Sets of CPUs, in the two formats of the kernel.

use std::collections::BTreeSet;
use std::fmt;

use pmdscope_telemetry::host::{cpu_list, cpu_mask, cpu_ranges};
use serde::{Deserialize, Serialize};

/// A set of CPUs. `Display` writes it as the kernel does: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet(pub BTreeSet<u32>);

impl CpuSet {
    /// Parses a list such as `0,2-3`. Words that are not understood are ignored, and so is `(null)`.
    pub fn of_list(text: &str) -> Self {
        Self(cpu_list(text))
    }

    /// Parses a mask such as `ff,0000000f`.
    pub(crate) fn of_mask(text: &str) -> Self {
        Self(cpu_mask(text))
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

    /// Returns the set as a mask, in groups of eight digits, as the kernel reads it.
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

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cpu_ranges(&self.0))
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
