//! Addresses and ranges of addresses that cannot wrap.
//!
//! A core file, an ELF file, DWARF or the memory of an app may state any number: a segment may end at the
//! last address, a length may be 2^64 - 1. A sum that wraps is a small address, where loops begin anew and
//! ranges contain everything. So all arithmetic with such numbers is done here, where it has no result
//! rather than a wrong one, and clippy rejects other arithmetic in this crate (see `lib.rs`).

use std::fmt;
use std::ops::Range;

use pmdscope_telemetry::host::maps::Mapping;

use crate::error::XrayError;

/// An address in an app or in a file: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// This many bytes later; `None` beyond the last address.
    pub fn plus(self, bytes: u64) -> Option<u64> {
        self.0.checked_add(bytes)
    }

    /// This many bytes earlier; `None` before the first address.
    pub fn minus(self, bytes: u64) -> Option<u64> {
        self.0.checked_sub(bytes)
    }

    /// The element with this number of an array that begins here.
    pub fn element(self, number: u64, bytes_each: u64) -> Option<u64> {
        self.plus(number.checked_mul(bytes_each)?)
    }

    /// The member of a structure that begins here.
    ///
    /// # Errors
    /// [`XrayError::NotMapped`] beyond the last address.
    pub fn member(self, offset: u64) -> Result<u64, XrayError> {
        self.plus(offset).ok_or_else(|| self.not_mapped())
    }

    /// As [`Address::member`], of the element with this number of an array that begins here.
    ///
    /// # Errors
    /// [`XrayError::NotMapped`] beyond the last address.
    pub fn member_of(self, number: u64, bytes_each: u64, offset: u64) -> Result<u64, XrayError> {
        let element = self.element(number, bytes_each).ok_or_else(|| self.not_mapped())?;
        Self(element).member(offset)
    }

    /// The address in a process of one in its file, or the reverse: files may be mapped below the addresses
    /// that they state, so this alone wraps.
    pub fn moved(self, bias: u64) -> u64 {
        self.0.wrapping_add(bias)
    }

    fn not_mapped(self) -> XrayError {
        XrayError::NotMapped { address: self.0, bytes: 0 }
    }
}

/// Addresses from the first to before the end, which is never below it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    start: u64,
    end: u64,
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

impl AddressRange {
    /// `None` if it would end before it begins.
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start <= end).then_some(Self { start, end })
    }

    /// `None` if it would end beyond the last address.
    pub fn of_length(start: u64, bytes: u64) -> Option<Self> {
        Some(Self { start, end: start.checked_add(bytes)? })
    }

    /// An array; `None` if it would end beyond the last address.
    pub fn of_elements(start: u64, elements: u64, bytes_each: u64) -> Option<Self> {
        Self::of_length(start, elements.checked_mul(bytes_each)?)
    }

    /// From `start` on, at most to the last address.
    pub fn up_to_length(start: u64, most_bytes: u64) -> Self {
        Self { start, end: start.saturating_add(most_bytes) }
    }

    /// Its first address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The address after its last.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has no address.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether it has this address.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether it has all addresses of another.
    pub fn contains_all(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether both have some address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Bytes from its start to an address in it.
    pub fn offset(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.start).filter(|offset| *offset < self.bytes())
    }

    /// The addresses that both have; empty if there are none.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }

    /// The part before an address, and the rest; one of them is empty if it is not inside.
    pub fn split_at(&self, address: u64) -> (Self, Self) {
        let middle = address.clamp(self.start, self.end);
        (Self { end: middle, ..*self }, Self { start: middle, ..*self })
    }

    /// Two halves, of which the second begins at a multiple of `unit`. The first is never empty unless the
    /// range is.
    pub fn halves(&self, unit: u64) -> (Self, Self) {
        let half = (self.bytes() / 2).checked_next_multiple_of(unit.max(1)).unwrap_or(u64::MAX);
        self.split_at(self.start.saturating_add(half.max(1)))
    }

    /// Consecutive parts of at most `bytes` each.
    pub fn chunks(&self, bytes: u64) -> impl Iterator<Item = Self> + use<> {
        let mut rest = *self;
        std::iter::from_fn(move || {
            let (chunk, behind) = rest.split_at(rest.start.saturating_add(bytes.max(1)));
            rest = behind;
            (!chunk.is_empty()).then_some(chunk)
        })
    }

    /// The part with whole multiples of `unit`; empty if there are none.
    #[must_use]
    pub fn whole(&self, unit: u64) -> Self {
        let unit = unit.max(1);
        let end = self.end.saturating_sub(self.end.checked_rem(unit).unwrap_or_default());
        let start = self.start.checked_next_multiple_of(unit).unwrap_or(end).min(end);
        Self { start, end }
    }

    /// The same length at another place: what begins at `from` begins at `to` then. `None` if it begins before
    /// `from`, or would end beyond the last address.
    pub fn moved(&self, from: u64, to: u64) -> Option<Self> {
        let start = to.checked_add(self.start.checked_sub(from)?)?;
        Self::of_length(start, self.bytes())
    }

    /// Extends it to the end of another that begins in it or where it ends; false if that does not.
    pub fn join(&mut self, next: &Self) -> bool {
        let joins = (self.start..=self.end).contains(&next.start);
        if joins {
            self.end = self.end.max(next.end);
        }
        joins
    }
}

impl From<&Mapping> for AddressRange {
    fn from(mapping: &Mapping) -> Self {
        Self { start: mapping.start, end: mapping.end.max(mapping.start) }
    }
}

impl From<Range<u64>> for AddressRange {
    fn from(range: Range<u64>) -> Self {
        Self { start: range.start, end: range.end.max(range.start) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any number, often one near the first or the last.
    fn any_address() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0..0x3000_u64, u64::MAX - 0x3000..=u64::MAX]
    }

    fn any_range() -> impl Strategy<Value = AddressRange> {
        (any_address(), any_address()).prop_map(|(a, b)| AddressRange::from(a.min(b)..a.max(b)))
    }

    proptest! {
        #[test]
        fn sums_are_right_or_none(base in any_address(), number in any_address(), each in any_address()) {
            let wide = |sum: u128| u64::try_from(sum).ok();
            let (base128, number128, each128) = (u128::from(base), u128::from(number), u128::from(each));
            prop_assert_eq!(Address(base).plus(number), wide(base128 + number128));
            prop_assert_eq!(Address(base).element(number, each), wide(base128 + number128 * each128));
            prop_assert_eq!(Address(base).member(number).ok(), wide(base128 + number128));
            let range = AddressRange::of_length(base, number);
            prop_assert_eq!(range.map(|range| (range.start(), range.bytes())),
                wide(base128 + number128).map(|_| (base, number)));
        }

        #[test]
        fn chunks_follow_each_other_and_end(range in any_range(), bytes in any_address()) {
            // Not more than some hundred.
            let bytes = bytes.max(range.bytes() / 100);
            let mut at = range.start();
            for chunk in range.chunks(bytes) {
                prop_assert_eq!(chunk.start(), at);
                prop_assert!(!chunk.is_empty() && chunk.bytes() <= bytes.max(1));
                at = chunk.end();
            }
            prop_assert_eq!(at, range.end());
        }

        #[test]
        fn parts_are_inside(one in any_range(), other in any_range(), at in any_address(), unit in 1..9000_u64) {
            let both = one.intersection(&other);
            prop_assert_eq!(both.contains(at), one.contains(at) && other.contains(at));
            prop_assert_eq!(!both.is_empty(), one.overlaps(&other) && !one.is_empty() && !other.is_empty());
            let (before, behind) = one.split_at(at);
            prop_assert_eq!(before.bytes() + behind.bytes(), one.bytes());
            let (first, second) = one.halves(unit);
            prop_assert_eq!((first.start(), first.end(), second.end()), (one.start(), second.start(), one.end()));
            prop_assert_eq!(first.is_empty(), one.is_empty());
            let whole = one.whole(unit);
            prop_assert!(whole.is_empty() || one.contains_all(&whole));
            prop_assert!(whole.is_empty() || whole.start() % unit == 0 && whole.end() % unit == 0);
            prop_assert!(one.bytes() - whole.bytes() < 2 * unit);
        }
    }

    #[test]
    fn neighbours_join() {
        let mut range = AddressRange::from(10..20);
        assert!(range.join(&AddressRange::from(20..30)) && range.join(&AddressRange::from(12..15)));
        assert!(!range.join(&AddressRange::from(31..40)));
        assert_eq!(range, AddressRange::from(10..30));
    }
}
