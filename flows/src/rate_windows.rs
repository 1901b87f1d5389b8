//! Rates of conversations over the last 2, 10 and 40 seconds, as in iftop, from bytes in slots of two
//! seconds.

/// Lengths of the windows, seconds.
pub const RATE_WINDOWS: [usize; 3] = [2, 10, 40];

const SLOT_SECONDS: usize = 2;
/// A slot may end after this time: snapshots are made about once a second.
const SLOT_NS: u64 = 1_750_000_000;
/// Slots of the longest window.
const SLOTS: usize = RATE_WINDOWS[2] / SLOT_SECONDS;

/// Bytes of one conversation in each slot.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteHistory {
    /// Bytes by slot; sums of them need few digits.
    slots: [f32; SLOTS],
    /// Bytes before the current slot.
    before: u64,
}

impl ByteHistory {
    /// Ends a slot; `bytes` is the number of all bytes so far.
    pub(super) fn mark(&mut self, slot: usize, bytes: u64) {
        self.slots[slot % SLOTS] = bytes.saturating_sub(self.before) as f32;
        self.before = bytes;
    }

    /// Returns bits per second over each window.
    #[allow(clippy::cast_possible_truncation)] // Few digits matter.
    pub(super) fn bps(&self, windows: &RateWindows) -> [f32; 3] {
        std::array::from_fn(|at| {
            let bytes = windows.slots(at).map(|slot| self.slots[slot % SLOTS]).sum::<f32>();
            let seconds = windows.seconds[at];
            if seconds > 0.0 { bytes * 8.0 / seconds as f32 } else { 0.0 }
        })
    }
}

/// The completed slots, which are the same for all conversations.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotClock {
    lengths: [f64; SLOTS],
    /// Number of completed slots.
    over: usize,
    begin_ns: Option<u64>,
}

/// The windows at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateWindows {
    over: usize,
    /// Length of each window; shorter than in [`RATE_WINDOWS`] until that much time has passed.
    pub(super) seconds: [f64; 3],
}

impl SlotClock {
    /// Ends the current slot if it is long enough, and returns its number. The first slot begins with
    /// the counting.
    pub(super) fn advance(&mut self, begin_ns: u64, now_ns: u64) -> Option<usize> {
        let slot_ns = *self.begin_ns.get_or_insert(begin_ns);
        let length_ns = now_ns.checked_sub(slot_ns).filter(|ns| *ns >= SLOT_NS)?;
        let slot = self.over;
        self.lengths[slot % SLOTS] = length_ns as f64 / 1e9;
        (self.over, self.begin_ns) = (slot + 1, Some(now_ns));
        Some(slot)
    }

    /// Returns the current windows; `None` before the first slot is complete.
    pub(super) fn windows(&self) -> Option<RateWindows> {
        let mut windows = RateWindows { over: self.over, seconds: [0.0; 3] };
        for at in 0..windows.seconds.len() {
            windows.seconds[at] = windows.slots(at).map(|slot| self.lengths[slot % SLOTS]).sum();
        }
        (self.over > 0).then_some(windows)
    }
}

impl RateWindows {
    fn slots(&self, window: usize) -> std::ops::Range<usize> {
        self.over.saturating_sub(RATE_WINDOWS[window] / SLOT_SECONDS)..self.over
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // The numbers are exact.
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn windows_are_of_the_last_2_10_and_40_seconds() {
        let (mut clock, mut history, mut bytes) = (SlotClock::default(), ByteHistory::default(), 0);
        assert!(clock.windows().is_none());
        assert_eq!(clock.advance(5 * SECOND, 6 * SECOND), None);
        // 1000 bytes a second for a minute, and nothing for 12 seconds.
        for second in (2..=60).step_by(2) {
            bytes += 2000;
            let slot = clock.advance(0, (5 + second) * SECOND).unwrap();
            history.mark(slot, bytes);
            let windows = clock.windows().unwrap();
            let expected = [2, 10, 40].map(|length| second.min(length) as f64);
            assert_eq!(windows.seconds, expected);
            assert_eq!(history.bps(&windows), [8000.0; 3]);
        }
        for second in (62..=72).step_by(2) {
            let slot = clock.advance(0, (5 + second) * SECOND).unwrap();
            history.mark(slot, bytes);
        }
        assert_eq!(history.bps(&clock.windows().unwrap()), [0.0, 0.0, 8000.0 * 28.0 / 40.0]);
    }

    #[test]
    fn slots_that_last_longer_are_counted_as_long_as_they_lasted() {
        let (mut clock, mut history) = (SlotClock::default(), ByteHistory::default());
        let slot = clock.advance(0, 8 * SECOND).unwrap();
        history.mark(slot, 8000);
        let windows = clock.windows().unwrap();
        assert_eq!((windows.seconds, history.bps(&windows)), ([8.0; 3], [8000.0; 3]));
    }
}
