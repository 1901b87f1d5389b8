//! Software rings: rates of their entries, and for how long they are full.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{RingSample, Sample};

/// Rates of one software ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingRates {
    /// Name of the ring.
    pub name: String,
    /// Entries put in per second; `None` without an earlier sample, or without X-ray.
    pub enqueued_ps: Option<f64>,
    /// Entries taken out per second; `None` without an earlier sample, or without X-ray.
    pub dequeued_ps: Option<f64>,
    /// Time since which all samples found it full (90 % or more), seconds; `None` if it is not, or in the first
    /// sample.
    pub full_s: Option<f64>,
    /// Whether it was full in the first sample, so that it may be for longer than `full_s`.
    pub full_from_start: bool,
    /// Time since entries were last seen to be taken out, seconds; `None` without X-ray.
    pub untouched_s: Option<f64>,
    /// Whether entries were seen to come or go since the first sample.
    pub moves: bool,
}

/// The rings of one app as they were in earlier samples.
#[derive(Debug, Default)]
pub(super) struct RingHistory(BTreeMap<String, SeenRing>);

/// A ring in the last sample.
#[derive(Debug)]
struct SeenRing {
    read_ns: u64,
    capacity: u64,
    used: u64,
    positions: Option<[u32; 2]>,
    full_since_ns: Option<u64>,
    full_from_start: bool,
    taken_ns: u64,
    moves: bool,
}

impl RingHistory {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the rates of all rings, in the order of the sample.
    pub(super) fn update(&mut self, sample: &Sample) -> Vec<RingRates> {
        self.0.retain(|name, _| sample.rings.iter().any(|ring| ring.name == *name));
        sample.rings.iter().map(|ring| self.of(ring, sample.monotonic_ns)).collect()
    }

    fn of(&mut self, ring: &RingSample, now_ns: u64) -> RingRates {
        let before = self.0.remove(&ring.name).filter(|before| before.capacity == ring.capacity);
        let positions = ring.enqueued.zip(ring.dequeued).map(|(put, taken)| [put, taken]);
        let mut now = SeenRing {
            read_ns: now_ns,
            capacity: ring.capacity,
            used: ring.used,
            positions,
            full_since_ns: ring.is_full().then_some(now_ns),
            full_from_start: ring.is_full() && before.is_none(),
            taken_ns: now_ns,
            moves: false,
        };
        let mut rates = RingRates { name: ring.name.clone(), ..RingRates::default() };
        if let Some(before) = before {
            now.follow(&before);
            rates = rates.between(&before, &now);
        }
        rates.full_from_start = now.full_from_start;
        rates.moves = now.moves;
        self.0.insert(ring.name.clone(), now);
        rates
    }
}

impl SeenRing {
    /// Continues what began in an earlier sample.
    fn follow(&mut self, before: &Self) {
        if self.full_since_ns.is_some() && before.full_since_ns.is_some() {
            self.full_since_ns = before.full_since_ns;
            self.full_from_start = before.full_from_start;
        }
        if self.positions.is_some_and(|now| before.positions.is_some_and(|old| old[1] == now[1])) {
            self.taken_ns = before.taken_ns;
        }
        self.moves = before.moves || self.used != before.used || self.positions != before.positions;
    }
}

impl RingRates {
    fn between(self, before: &SeenRing, now: &SeenRing) -> Self {
        let since = |earlier_ns: u64| now.read_ns.saturating_sub(earlier_ns) as f64 / 1e9;
        let seconds = since(before.read_ns);
        let moved = before.positions.zip(now.positions).filter(|_| seconds > 0.0);
        let rate =
            |at: usize| moved.map(|(old, new)| f64::from(new[at].wrapping_sub(old[at])) / seconds);
        Self {
            enqueued_ps: rate(0),
            dequeued_ps: rate(1),
            full_s: now.full_since_ns.map(since).filter(|seconds| *seconds > 0.0),
            untouched_s: moved.map(|_| since(now.taken_ns)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::empty_sample;

    fn at(second: u64, used: u64, [enqueued, dequeued]: [u32; 2]) -> Sample {
        let ring = RingSample {
            name: "out".into(),
            capacity: 100,
            used,
            enqueued: Some(enqueued),
            dequeued: Some(dequeued),
            ..RingSample::default()
        };
        Sample { monotonic_ns: second * 1_000_000_000, rings: vec![ring], ..empty_sample() }
    }

    fn updated(history: &mut RingHistory, sample: &Sample) -> RingRates {
        history.update(sample).remove(0)
    }

    #[test]
    fn positions_wrap_and_have_rates() {
        let mut history = RingHistory::default();
        let first = updated(&mut history, &at(1, 10, [u32::MAX - 5, u32::MAX - 15]));
        assert_eq!((first.enqueued_ps, first.untouched_s, first.moves), (None, None, false));
        let second = updated(&mut history, &at(3, 14, [4, u32::MAX - 9]));
        assert_eq!((second.enqueued_ps, second.dequeued_ps), (Some(5.0), Some(3.0)));
        assert_eq!((second.full_s, second.untouched_s, second.moves), (None, Some(0.0), true));
    }

    #[test]
    fn it_is_known_since_when_a_ring_is_full_and_untouched() {
        let mut history = RingHistory::default();
        updated(&mut history, &at(1, 50, [50, 0]));
        let full = updated(&mut history, &at(2, 90, [90, 0]));
        assert_eq!((full.full_s, full.full_from_start, full.untouched_s), (None, false, Some(1.0)));
        let full = updated(&mut history, &at(5, 100, [100, 0]));
        assert_eq!((full.full_s, full.untouched_s), (Some(3.0), Some(4.0)));
        let taken = updated(&mut history, &at(6, 95, [100, 5]));
        assert_eq!((taken.full_s, taken.untouched_s), (Some(4.0), Some(0.0)));
        assert_eq!(updated(&mut history, &at(7, 89, [100, 11])).full_s, None);
    }

    #[test]
    fn a_ring_that_was_full_at_first_may_be_for_longer() {
        let mut history = RingHistory::default();
        updated(&mut history, &at(1, 100, [100, 0]));
        let full = updated(&mut history, &at(2, 100, [100, 0]));
        assert!(full.full_from_start && !full.moves);
        assert_eq!(full.full_s, Some(1.0));
        // Another ring of that name.
        let mut other = at(3, 100, [100, 0]);
        other.rings[0].capacity = 110;
        assert_eq!(updated(&mut history, &other).full_s, None);
    }
}
