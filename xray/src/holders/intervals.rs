//! Parts of an address space, with a value each.

use crate::address::AddressRange;

/// Addresses with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) range: AddressRange,
    pub(super) value: u32,
}

/// In ascending order, none empty, without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Intervals(Vec<Interval>);

impl Intervals {
    /// Sorts any intervals. Of overlapping ones the one that begins first counts; empty ones are
    /// left out.
    pub(super) fn new(mut intervals: Vec<Interval>) -> Self {
        intervals.sort_by_key(|interval| interval.range.start());
        let (mut kept, mut behind): (Vec<Interval>, u64) = (Vec::new(), 0);
        for interval in intervals {
            let (_, range) = interval.range.split_at(behind);
            if !range.is_empty() {
                kept.push(Interval { range, ..interval });
                behind = range.end();
            }
        }
        Self(kept)
    }

    /// The value of an address; a binary search.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let behind = self.0.partition_point(|interval| interval.range.start() <= address);
        let interval = self.0[..behind].last()?;
        interval.range.contains(address).then_some(interval.value)
    }

    /// These intervals, with those of `above` taking precedence.
    pub(super) fn overlaid(self, above: &Self) -> Self {
        let mut result = Vec::with_capacity(self.0.len().saturating_add(above.0.len()));
        let mut upper = above.0.iter().peekable();
        for mut below in self.0 {
            let end = below.range.end();
            while let Some(interval) = upper.next_if(|upper| upper.range.start() < end) {
                let (before, _) = below.range.split_at(interval.range.start());
                result.push(Interval { range: before, ..below });
                (_, below.range) = below.range.split_at(interval.range.end());
                result.push(*interval);
            }
            result.push(below);
        }
        result.extend(upper);
        Self::new(result)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Interval> {
        self.0.iter()
    }

    pub(super) fn renumber(&mut self, value: impl Fn(u32) -> u32) {
        self.0.iter_mut().for_each(|interval| interval.value = value(interval.value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn any_intervals() -> impl Strategy<Value = Vec<Interval>> {
        let interval =
            |(start, length, value)| Interval { range: (start..start + length).into(), value };
        vec((0..64_u64, 0..16_u64, 0..8_u32).prop_map(interval), 0..12)
    }

    proptest! {
        #[test]
        fn what_lies_above_counts(below in any_intervals(), above in any_intervals()) {
            let (below, above) = (Intervals::new(below), Intervals::new(above));
            let both = below.clone().overlaid(&above);
            for address in 0..96 {
                let wanted = above.find(address).or_else(|| below.find(address));
                prop_assert_eq!(both.find(address), wanted, "{}", address);
            }
            prop_assert!(both.0.windows(2).all(|pair| pair[0].range.end() <= pair[1].range.start()));
        }

        #[test]
        fn each_address_of_an_interval_has_a_value(intervals in any_intervals()) {
            let kept = Intervals::new(intervals.clone());
            for address in 0..96 {
                let wanted = intervals.iter().any(|i| i.range.contains(address));
                prop_assert_eq!(kept.find(address).is_some(), wanted, "{}", address);
            }
        }
    }

    #[test]
    fn the_end_of_the_address_space_is_no_trap() {
        let all = Intervals::new(vec![Interval { range: (0..u64::MAX).into(), value: 1 }]);
        assert_eq!(
            (all.find(0), all.find(u64::MAX - 1), all.find(u64::MAX)),
            (Some(1), Some(1), None)
        );
    }
}
