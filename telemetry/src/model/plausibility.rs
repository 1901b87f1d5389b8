//! Counters that cannot be right: rates of them would be nonsense.
//!
//! Drivers subtract a value at the last reset from registers that something else has reset, keep 64 bits
//! of a register with fewer, or answer a request with zeros while a device is reset.

use serde::Serialize;

use crate::sample::{PortSample, PortStats};

/// A counter from here on has been below 0.
const BELOW_ZERO: u64 = 1 << 63;

/// Widths of registers of NICs, bits.
const WIDTHS: [u32; 4] = [32, 36, 40, 48];

/// Bytes of the shortest frame on the wire, with preamble and gap.
const SHORTEST_FRAME: f64 = 84.0;

/// Packets per second that no port exceeds, whatever its speed: some virtual devices report a speed
/// that does not limit them.
const MOST_PPS: f64 = 1e10;

/// Bytes per second that no port exceeds.
const MOST_BYTES_PS: f64 = 1e13;

/// How much faster than its link a counter may grow: virtual functions pass packets to each other.
const MARGIN: f64 = 1.5;

/// Time in which a counter may be late, seconds: some drivers update theirs once a second.
const LATE_S: f64 = 2.5;

/// Why a counter cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Implausibility {
    /// It is just below 2^64: it went below 0.
    BelowZero,
    /// It started again at 0 at the end of a register with fewer than 64 bits.
    Wrapped,
    /// One reply had zeros in place of all counters.
    Zeros,
    /// It grew by more than the link can carry.
    TooFast,
}

/// A counter that cannot be right.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImplausibleCounter {
    /// Name of the extended counter, also of a basic one.
    pub counter: String,
    /// Why it cannot be right.
    pub why: Implausibility,
    /// Value at the previous sample.
    pub before: u64,
    /// Value at this sample.
    pub now: u64,
}

impl PortStats {
    /// What the basic counters count, in the order of [`PortStats::NAMES`].
    const QUANTITIES: [Quantity; PortStats::NAMES.len()] = {
        use Quantity::{Bytes, Other, Packets};
        // Some drivers count the allocations that fail at each poll, with or without packets.
        [Packets, Packets, Bytes, Bytes, Packets, Packets, Packets, Other]
    };
}

/// What a counter counts, for the most that it can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Packets,
    Bytes,
    /// Not limited by a link.
    Other,
}

/// The most that counters of a port can grow per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkLimits {
    packets_ps: f64,
    bytes_ps: f64,
}

impl LinkLimits {
    /// Returns the limits of a port; the speed of virtual devices is not one.
    pub(super) fn of(port: &PortSample) -> Self {
        let is_virtual = |id: &String| id.starts_with("1af4:") || id.starts_with("15ad:");
        let is_nic = crate::host::device::is_pci(&port.device)
            && !port.pci_id.as_ref().is_some_and(is_virtual);
        let bytes_ps =
            port.link_mbps.filter(|_| is_nic).map(|mbps| mbps as f64 * 1e6 / 8.0 * MARGIN);
        let bytes_ps = bytes_ps.unwrap_or(MOST_BYTES_PS).min(MOST_BYTES_PS);
        Self { packets_ps: (bytes_ps / SHORTEST_FRAME).min(MOST_PPS), bytes_ps }
    }

    fn per_second(self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Packets => self.packets_ps,
            Quantity::Bytes => self.bytes_ps,
            Quantity::Other => MOST_BYTES_PS,
        }
    }
}

/// Checks the growth of one counter over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GrowthCheck {
    /// Growth beyond what the link carried in the time since, at most.
    ahead: f64,
}

impl GrowthCheck {
    /// Returns why the growth between two samples cannot be right; `None` if it can.
    pub(super) fn check(
        &mut self,
        before: u64,
        now: u64,
        most_ps: f64,
        seconds: f64,
    ) -> Option<Implausibility> {
        if now >= BELOW_ZERO {
            return (now != before).then_some(Implausibility::BelowZero);
        }
        let Some(growth) = now.checked_sub(before) else {
            self.ahead = 0.0;
            if before >= BELOW_ZERO {
                return Some(Implausibility::BelowZero);
            }
            let most = most_ps * (seconds + LATE_S);
            let is_end = |bits: &&u32| before >> (**bits - 1) == 1;
            let width = WIDTHS.iter().find(is_end);
            let wrapped = width.map(|bits| (1_u64 << bits) - before + now);
            return wrapped
                .filter(|growth| *growth as f64 <= most)
                .map(|_| Implausibility::Wrapped);
        };
        self.ahead = (self.ahead + growth as f64 - most_ps * seconds).max(0.0);
        if self.ahead <= most_ps * LATE_S {
            return None;
        }
        self.ahead = 0.0;
        Some(Implausibility::TooFast)
    }
}

/// Checks the basic counters of one port over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatsCheck {
    counters: [GrowthCheck; PortStats::NAMES.len()],
    /// The counters before a reply with nothing but zeros.
    before_zeros: Option<PortStats>,
}

impl StatsCheck {
    /// Returns the basic counters, by index, that cannot be right.
    pub(super) fn check(
        &mut self,
        port: &PortSample,
        before: &PortStats,
        seconds: f64,
    ) -> Vec<(usize, ImplausibleCounter)> {
        let (old, new) = (before.values(), port.stats.values());
        let found = |at: usize, why| {
            let counter = PortStats::NAMES[at].to_owned();
            (at, ImplausibleCounter { counter, why, before: old[at], now: new[at] })
        };
        if let Some(past) = self.zeros(before, &port.stats) {
            let risen = (0..new.len()).filter(|at| past.values()[*at] > 0);
            return risen.map(|at| found(at, Implausibility::Zeros)).collect();
        }
        let limits = LinkLimits::of(port);
        // All of them go back when the app or its peer resets them.
        let all_went_back = port.stats == PortStats::default();
        let mut implausible = Vec::new();
        for (at, counter) in self.counters.iter_mut().enumerate() {
            let most = limits.per_second(PortStats::QUANTITIES[at]);
            let why = counter.check(old[at], new[at], most, seconds);
            let is_reset = all_went_back && why == Some(Implausibility::Wrapped);
            implausible.extend(why.filter(|_| !is_reset).map(|why| found(at, why)));
        }
        implausible
    }

    /// Returns the counters before a reply with nothing but zeros, if these are at least as high now: the
    /// zeros were no reset.
    fn zeros(&mut self, before: &PortStats, now: &PortStats) -> Option<PortStats> {
        if *now == PortStats::default() {
            if *before != PortStats::default() {
                self.before_zeros = Some(*before);
            }
            return None;
        }
        let past = self.before_zeros.take()?;
        now.since(&past).map(|_| past)
    }
}

impl ImplausibleCounter {
    /// Checks an extended counter; `None` if it can be right.
    pub(super) fn of(
        check: &mut GrowthCheck,
        (name, quantity): (&str, Quantity),
        (before, now): (u64, u64),
        limits: LinkLimits,
        seconds: f64,
    ) -> Option<Self> {
        let why = check.check(before, now, limits.per_second(quantity), seconds)?;
        Some(Self { counter: name.to_owned(), why, before, now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(before: u64, now: u64, most_ps: f64) -> Option<Implausibility> {
        GrowthCheck::default().check(before, now, most_ps, 0.25)
    }

    #[test]
    fn counters_that_cannot_be_are_told_from_resets() {
        use Implausibility::{BelowZero, TooFast, Wrapped};
        assert_eq!(checked(5, 1_000_005, 1e7), None);
        assert_eq!(checked(0, u64::MAX - 9, 1e7), Some(BelowZero));
        assert_eq!(checked(u64::MAX - 9, u64::MAX - 9, 1e7), None, "it stands still");
        assert_eq!(checked(u64::MAX - 9, 7, 1e7), Some(BelowZero), "and is right again");
        assert_eq!(checked((1 << 32) - 10, 500, 1e7), Some(Wrapped));
        assert_eq!(checked((1 << 36) - 10, 500, 1e7), Some(Wrapped));
        assert_eq!(checked(1_000_000, 5, 1e7), None, "a reset");
        assert_eq!(checked(0, 1 << 40, 1e7), Some(TooFast));
    }

    #[test]
    fn failed_allocations_are_not_limited_by_a_link() {
        let mut port = PortSample::default();
        port.stats.rx_nombuf = 1_000_000_000_000;
        assert_eq!(StatsCheck::default().check(&port, &PortStats::default(), 0.25), []);
        port.stats.rx_missed = 1_000_000_000_000;
        let found = StatsCheck::default().check(&port, &PortStats::default(), 0.25);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_late_counter_is_no_fault_and_a_fast_one_is_found_in_time() {
        let mut late = GrowthCheck::default();
        let mut fast = GrowthCheck::default();
        let mut found = None;
        for step in 1..=40_u64 {
            // Once in two seconds, at the speed of the link.
            let counted = |step: u64| step / 8 * 2_000_000;
            assert_eq!(late.check(counted(step - 1), counted(step), 1e6, 0.25), None);
            let counted = |step: u64| step * 1_000_000;
            let why = fast.check(counted(step - 1), counted(step), 1e6, 0.25);
            found = found.or(why.map(|why| (step, why)));
        }
        assert_eq!(found, Some((4, Implausibility::TooFast)));
    }
}
