//! Limits and switches of a filter.

use serde::Serialize;

/// Highest limit, in packets per second.
pub const MAX_LIMIT: u32 = 100_000_000;

const SECOND: u64 = 1_000_000_000;

/// Size of `struct settings` in `filter.h`.
pub(crate) const SETTINGS_SIZE: u32 = 40;

/// Limits and switches of a filter, which can change while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Limit of packets per second from one source (an IPv4 address, an IPv6 /64), 1 to 100,000,000; the
    /// packets of a second may come at once. `None` if there is no limit.
    pub rate_limit: Option<u32>,
    /// Limit of new connections (TCP SYN) per second to one destination address and port, 1 to 100,000,000;
    /// the connections of a second may come at once. `None` if there is no limit.
    pub syn_limit: Option<u32>,
    /// Whether packets that are neither IP nor ARP pass.
    pub pass_non_ip: bool,
    /// Whether all fragments are dropped, and not only evasive ones.
    pub drop_fragments: bool,
}

impl Settings {
    /// Encodes `struct settings`.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let [rate, syn] = [self.rate_limit, self.syn_limit].map(bucket);
        let numbers = [rate, syn].concat();
        let switches = [self.pass_non_ip, self.drop_fragments].map(u32::from);
        let numbers = numbers.into_iter().flat_map(u64::to_ne_bytes);
        numbers.chain(switches.into_iter().flat_map(u32::to_ne_bytes)).collect()
    }

    /// Parses `struct settings`; `None` if it is not valid.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ SETTINGS_SIZE as usize }>()?;
        let (numbers, switches) = bytes.split_at(32);
        let numbers = numbers.chunks_exact(8).filter_map(|n| n.try_into().ok());
        let numbers = numbers.map(u64::from_ne_bytes).collect::<Vec<_>>();
        let limit = |bucket: &[u64]| u32::try_from(bucket[1].checked_div(bucket[0])?).ok();
        let is_on = |switch: &[u8]| switch.iter().any(|byte| *byte != 0);
        Some(Self {
            rate_limit: limit(&numbers[..2]),
            syn_limit: limit(&numbers[2..]),
            pass_non_ip: is_on(&switches[..4]),
            drop_fragments: is_on(&switches[4..]),
        })
    }
}

/// Returns the time between two packets at the limit, and the time in which a full bucket is used up at
/// that rate, nanoseconds.
fn bucket(limit: Option<u32>) -> [u64; 2] {
    let limit = u64::from(limit.unwrap_or(0).min(MAX_LIMIT));
    let interval = SECOND.checked_div(limit).unwrap_or(0);
    [interval, interval * limit]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn settings_are_read_as_written(
            rate_limit in proptest::option::of(1..=MAX_LIMIT),
            syn_limit in proptest::option::of(1..=MAX_LIMIT),
            pass_non_ip: bool,
            drop_fragments: bool,
        ) {
            let settings = Settings { rate_limit, syn_limit, pass_non_ip, drop_fragments };
            prop_assert_eq!(settings.to_bytes().len(), SETTINGS_SIZE as usize);
            prop_assert_eq!(Settings::of_bytes(&settings.to_bytes()), Some(settings));
        }

        #[test]
        fn any_bytes_are_settings_or_none(bytes: Vec<u8>) {
            let _ = Settings::of_bytes(&bytes);
        }
    }
}
