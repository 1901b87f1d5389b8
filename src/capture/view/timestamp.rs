//! Times before packets, as tcpdump's `-t` to `-ttttt`.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECOND: u64 = 1_000_000_000;

/// Which time to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Clock {
    /// Time of day, without `-t`.
    #[default]
    Day,
    /// None, `-t`.
    None,
    /// Seconds since 1970, `-tt`.
    Epoch,
    /// Since the packet before, `-ttt`.
    Delta,
    /// Date and time of day, `-tttt`.
    Date,
    /// Since the first packet, `-ttttt`.
    Elapsed,
}

impl Clock {
    /// The clock of so many `-t`.
    pub(super) fn of_count(count: u8) -> Option<Self> {
        let all = [Self::Day, Self::None, Self::Epoch, Self::Delta, Self::Date, Self::Elapsed];
        all.get(usize::from(count)).copied()
    }
}

/// Writes times before packets.
#[derive(Debug)]
pub(super) struct Stamps {
    clock: Clock,
    nano: bool,
    zone: TimeZone,
    /// What `Delta` and `Elapsed` count from.
    reference: Option<u64>,
    /// The last second as it was written: the packets of a second have the same text.
    second: (u64, String),
}

impl Stamps {
    /// Times in a time zone, in nanoseconds or microseconds.
    pub(super) fn new(clock: Clock, nano: bool, zone: TimeZone) -> Self {
        Self { clock, nano, zone, reference: None, second: (u64::MAX, String::new()) }
    }

    /// Appends the time and a space, for a packet of this time since 1970 in nanoseconds.
    pub(super) fn write(&mut self, out: &mut String, ns: u64) {
        match self.clock {
            Clock::None => return,
            Clock::Epoch => {
                // Writing to a string cannot fail.
                let _ = write!(out, "{}", ns / SECOND);
                self.fraction(out, ns);
            }
            Clock::Day => self.civil(out, ns, "%H:%M:%S"),
            Clock::Date => self.civil(out, ns, "%Y-%m-%d %H:%M:%S"),
            Clock::Delta => {
                let before = self.reference.replace(ns).unwrap_or(ns);
                self.span(out, before, ns);
            }
            Clock::Elapsed => {
                let first = *self.reference.get_or_insert(ns);
                self.span(out, first, ns);
            }
        }
        out.push(' ');
    }

    fn civil(&mut self, out: &mut String, ns: u64, format: &str) {
        let (second, text) = &mut self.second;
        if *second != ns / SECOND {
            *second = ns / SECOND;
            text.clear();
            let stamp = Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
            let civil = self.zone.to_datetime(stamp);
            let _ = write!(text, "{}", civil.strftime(format));
        }
        out.push_str(text);
        self.fraction(out, ns);
    }

    fn span(&self, out: &mut String, from: u64, to: u64) {
        out.push(if to < from { '-' } else { ' ' });
        let span =
            if self.nano { from.abs_diff(to) } else { (from / 1000).abs_diff(to / 1000) * 1000 };
        let seconds = span / SECOND;
        let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        self.fraction(out, span);
    }

    fn fraction(&self, out: &mut String, ns: u64) {
        let _ = if self.nano {
            write!(out, ".{:09}", ns % SECOND)
        } else {
            write!(out, ".{:06}", ns % SECOND / 1000)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sixth_t_means_nothing() {
        assert_eq!(Clock::of_count(6), None);
    }

    #[test]
    fn a_clock_that_goes_back_is_seen() {
        let mut stamps = Stamps::new(Clock::Delta, false, TimeZone::UTC);
        let mut out = String::new();
        stamps.write(&mut out, 1_780_000_000_123_456_789);
        stamps.write(&mut out, 1_779_999_998_123_456_789);
        assert_eq!(out, " 00:00:00.000000 -00:00:02.000000 ");
    }
}
