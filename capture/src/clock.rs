//! Converts TSC values to wall clock time.

use rustix::time::ClockId;

use crate::layout::ClockAnchor;

/// Shortest distance between two anchors from which a rate is computed, nanoseconds: reading a
/// clock is uncertain by some 100 ns, so this keeps the rate within 10 ppm.
const MIN_BASE_NS: u64 = 10_000_000;
/// Plausible TSC rates, Hz. Outside this range the anchors are invalid.
const RATES_HZ: std::ops::RangeInclusive<u128> = 1_000_000..=100_000_000_000;
/// Largest slew of a wall clock, nanoseconds per second; beyond that the wall clock was set.
const SLEW_MAX: i128 = 1_000_000;
/// A step back of less than this is noise between two anchors; a larger one means that the wall
/// clock was set.
const NOISE_NS: u64 = 1_000_000;

const NS_PER_S: u128 = 1_000_000_000;

/// The relation of one app's TSC to time: the rate between its two anchors, the wall clock of the
/// later one, and the recent rate of the wall clock, which NTP may slew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TscClock {
    last: ClockAnchor,
    ticks: u64,
    nanos: u64,
    /// The rate of the wall clock: ticks, and nanoseconds in that time.
    wall: (u64, u64),
}

impl TscClock {
    /// Returns a clock from two anchors; `None` as long as they are too close for a rate, or not
    /// plausible.
    pub(crate) fn new(first: ClockAnchor, last: ClockAnchor) -> Option<Self> {
        let nanos = last.raw_ns.checked_sub(first.raw_ns).filter(|ns| *ns >= MIN_BASE_NS)?;
        let ticks = last.tsc.checked_sub(first.tsc)?;
        let clock = Self { last, ticks, nanos, wall: (ticks, nanos) };
        RATES_HZ.contains(&clock.hz()).then_some(clock)
    }

    /// Returns this clock with the rate of the wall clock since an earlier one of the same app. If
    /// the wall clock was set in between, its rate is not known, and the clock is returned
    /// unchanged.
    #[must_use]
    pub(crate) fn paced_since(self, earlier: &Self) -> Self {
        let elapsed = |later: u64, earlier: u64| later.checked_sub(earlier);
        let ticks = elapsed(self.last.tsc, earlier.last.tsc);
        let raw = elapsed(self.last.raw_ns, earlier.last.raw_ns).filter(|ns| *ns >= MIN_BASE_NS);
        let wall = elapsed(self.last.realtime_ns, earlier.last.realtime_ns);
        let (Some(ticks), Some(raw), Some(wall)) = (ticks, raw, wall) else { return self };
        let slew = (i128::from(wall) - i128::from(raw)) * NS_PER_S.cast_signed() / i128::from(raw);
        if ticks == 0 || slew.abs() > SLEW_MAX {
            self
        } else {
            Self { wall: (ticks, wall), ..self }
        }
    }

    /// Returns the rate of the TSC, Hz.
    pub(crate) fn hz(&self) -> u128 {
        u128::from(self.ticks) * NS_PER_S / u128::from(self.nanos)
    }

    /// Returns the wall clock at a TSC value, nanoseconds since 1970; saturates at both ends of the
    /// range.
    pub(crate) fn realtime_ns(&self, tsc: u64) -> u64 {
        let (ticks, nanos) = self.wall;
        let distance = scale(tsc.abs_diff(self.last.tsc), nanos, ticks);
        if tsc >= self.last.tsc {
            self.last.realtime_ns.saturating_add(distance)
        } else {
            self.last.realtime_ns.saturating_sub(distance)
        }
    }

    /// Returns the TSC at a time of `CLOCK_MONOTONIC_RAW`; saturates at both ends of the range.
    pub(crate) fn tsc_at(&self, raw_ns: u64) -> u64 {
        let distance = scale(raw_ns.abs_diff(self.last.raw_ns), self.ticks, self.nanos);
        if raw_ns >= self.last.raw_ns {
            self.last.tsc.saturating_add(distance)
        } else {
            self.last.tsc.saturating_sub(distance)
        }
    }
}

fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Prevents packets from being reordered by noise of new anchors, without hiding that the clock was
/// set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MonotonicTime {
    last_ns: u64,
}

impl MonotonicTime {
    /// Returns the time to show for the next packet in TSC order.
    pub(crate) fn settle(&mut self, ns: u64) -> u64 {
        let back = self.last_ns.saturating_sub(ns);
        self.last_ns = if back < NOISE_NS { ns.max(self.last_ns) } else { ns };
        self.last_ns
    }
}

/// `CLOCK_MONOTONIC_RAW`, nanoseconds.
pub(crate) fn raw_clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicRaw);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: ClockAnchor = ClockAnchor {
        tsc: 1_000_000,
        realtime_ns: 1_700_000_000_000_000_000,
        raw_ns: 5_000_000_000,
    };

    fn after(seconds: u64, hz: u64) -> ClockAnchor {
        ClockAnchor {
            tsc: START.tsc + seconds * hz,
            realtime_ns: START.realtime_ns + seconds * 1_000_000_000,
            raw_ns: START.raw_ns + seconds * 1_000_000_000,
        }
    }

    #[test]
    fn a_century_of_ticks_at_3_7_ghz_is_exact() {
        let hz = 3_700_000_000;
        let century = 100 * 365 * 86_400;
        let clock = TscClock::new(START, after(century, hz)).unwrap();
        assert_eq!(clock.hz(), u128::from(hz));
        let later = START.tsc + (century + 3) * hz + 37;
        assert_eq!(clock.realtime_ns(later), after(century + 3, hz).realtime_ns + 10);
        assert_eq!(clock.realtime_ns(START.tsc), START.realtime_ns);
    }

    #[test]
    fn a_slewed_wall_clock_is_followed_and_a_set_one_is_not() {
        let hz = 2_000_000_000;
        let anchor = |seconds: u64, ahead_ns: u64| {
            let after = after(seconds, hz);
            ClockAnchor { realtime_ns: after.realtime_ns + ahead_ns, ..after }
        };
        let before = TscClock::new(START, anchor(10, 0)).unwrap();
        let slewed = TscClock::new(START, anchor(11, 100_000)).unwrap().paced_since(&before);
        let half = START.tsc + 10 * hz + hz / 2;
        assert_eq!(slewed.realtime_ns(half), anchor(10, 500_050_000).realtime_ns);
        assert_eq!(slewed.realtime_ns(half + hz), anchor(11, 500_150_000).realtime_ns);
        let set = TscClock::new(START, anchor(11, 5_000_000)).unwrap().paced_since(&before);
        assert_eq!(set.realtime_ns(half), anchor(11, 5_000_000).realtime_ns - 500_000_000);
        let same = before.paced_since(&before);
        assert_eq!(same, before);
    }

    #[test]
    fn a_packet_before_the_last_anchor_counts_backwards() {
        let clock = TscClock::new(START, after(10, 2_599_998_139)).unwrap();
        assert_eq!(clock.realtime_ns(after(9, 2_599_998_139).tsc), after(9, 1).realtime_ns);
    }

    #[test]
    fn the_wall_clock_comes_from_the_last_anchor() {
        let mut last = after(10, 2_600_000_000);
        last.realtime_ns += 3_600_000_000_000;
        let clock = TscClock::new(START, last).unwrap();
        assert_eq!(clock.realtime_ns(last.tsc + 2_600), last.realtime_ns + 1_000);
    }

    #[test]
    fn anchors_that_give_no_rate_give_no_clock() {
        assert!(TscClock::new(START, START).is_none());
        assert!(TscClock::new(ClockAnchor::default(), ClockAnchor::default()).is_none());
        assert!(TscClock::new(after(1, 2_600_000_000), START).is_none());
        assert!(TscClock::new(START, after(1, 1)).is_none());
    }

    #[test]
    fn noise_is_smoothed_and_a_set_clock_is_shown() {
        let mut monotone = MonotonicTime::default();
        assert_eq!(monotone.settle(5_000_000), 5_000_000);
        assert_eq!(monotone.settle(4_999_900), 5_000_000);
        assert_eq!(monotone.settle(1_000_000), 1_000_000);
        assert_eq!(monotone.settle(1_000_001), 1_000_001);
    }

    proptest! {
        #[test]
        fn any_clock_is_total_and_keeps_order(
            values in any::<[u64; 6]>(), a in any::<u64>(), b in any::<u64>(),
        ) {
            let [tsc, realtime_ns, raw_ns, tsc2, realtime2, raw2] = values;
            let first = ClockAnchor { tsc, realtime_ns, raw_ns };
            let last = ClockAnchor { tsc: tsc2, realtime_ns: realtime2, raw_ns: raw2 };
            if let Some(clock) = TscClock::new(first, last) {
                let (low, high) = (a.min(b), a.max(b));
                prop_assert!(clock.realtime_ns(low) <= clock.realtime_ns(high));
                prop_assert!(clock.tsc_at(low) <= clock.tsc_at(high));
            }
        }

        #[test]
        fn tsc_and_raw_clock_invert_each_other(
            hz in 1_000_000_000u64..5_000_000_000, days in 1u64..40_000, ns in 0u64..1_000_000_000_000,
        ) {
            let last = after(days * 86_400, hz);
            let clock = TscClock::new(START, last).unwrap();
            let tsc = clock.tsc_at(last.raw_ns + ns);
            prop_assert!(clock.realtime_ns(tsc).abs_diff(last.realtime_ns + ns) <= 1);
        }
    }
}
