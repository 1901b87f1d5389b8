//! How many gaps an lcore had between its polls, by their length: little enough to keep for minutes.

use pmdscope_telemetry::missed::LcoreGaps;
use pmdscope_telemetry::model::Model;

/// The shortest gaps that count, as a power of two of microseconds. Shorter ones fill no receive ring.
const SHORTEST: u32 = 4;

/// Classes of lengths, each twice as long as the one before; the last holds all longer gaps.
pub const LENGTHS: usize = 17;

/// Gaps of one lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapPoint {
    /// lcore id.
    pub lcore: u32,
    /// Of each length: 0 for none, else one more than the binary logarithm of their number.
    pub levels: [u8; LENGTHS],
}

impl GapPoint {
    /// Those of a sample; none of an lcore that does not poll through the library.
    pub(crate) fn all(model: &Model) -> Vec<Self> {
        let polls =
            |gaps: &&LcoreGaps| model.sample.lcores.iter().any(|lcore| lcore.lcore == gaps.lcore);
        model.gaps.iter().filter(polls).map(Self::of).collect()
    }

    fn of(gaps: &LcoreGaps) -> Self {
        let mut point = Self { lcore: gaps.lcore, levels: [0; LENGTHS] };
        for gap in &gaps.gaps {
            point.add(gap.us, gap.count);
        }
        point
    }

    fn add(&mut self, us: u64, count: u64) {
        let level = count.checked_ilog2().map_or(0, |log| log + 1);
        let slot = &mut self.levels[length_of(us)];
        *slot = (*slot).max(u8::try_from(level).unwrap_or(u8::MAX));
    }

    /// Stands for an earlier point as well.
    pub(crate) fn replace(&mut self, earlier: &Self) {
        for (level, before) in self.levels.iter_mut().zip(earlier.levels) {
            *level = (*level).max(before);
        }
    }
}

/// The class of a length, microseconds.
pub(crate) fn length_of(us: u64) -> usize {
    let power = us.checked_ilog2().unwrap_or(0).saturating_sub(SHORTEST);
    usize::try_from(power).map_or(LENGTHS - 1, |power| power.min(LENGTHS - 1))
}

/// The shortest of a class, microseconds.
pub(crate) fn shortest_us(length: usize) -> u64 {
    1_u64 << (length.min(LENGTHS) + SHORTEST as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmdscope_telemetry::missed::PollGap;

    #[test]
    fn gaps_are_counted_by_their_length() {
        let gap = |us, count| PollGap { us, earlier_us: 0, count };
        let gaps = LcoreGaps {
            lcore: 3,
            gaps: vec![gap(16, 1), gap(31, 9), gap(70, 1), gap(2_310, 2), gap(u64::MAX, 1)],
            ..LcoreGaps::default()
        };
        let point = GapPoint::of(&gaps);
        assert_eq!(point.levels[..9], [4, 0, 1, 0, 0, 0, 0, 2, 0]);
        assert_eq!(point.levels[LENGTHS - 1], 1);
        let mut none = GapPoint { lcore: 3, levels: [0; LENGTHS] };
        none.replace(&point);
        assert_eq!(none, point);
    }

    #[test]
    fn lengths_are_told_by_their_shortest_gap() {
        for length in 0..LENGTHS {
            let us = shortest_us(length);
            assert_eq!((length_of(us), length_of(2 * us - 1)), (length, length));
        }
        assert_eq!((length_of(0), length_of(15), length_of(u64::MAX)), (0, 0, LENGTHS - 1));
    }
}
