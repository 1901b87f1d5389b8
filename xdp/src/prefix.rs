//! Address prefixes, and the action for their packets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Addresses with the same leading bits; displayed as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Action for packets from a prefix. The longest matching prefix decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PrefixAction {
    /// Packets are dropped, and counted as `denied`.
    Deny,
    /// Packets pass regardless of the limits; malformed packets are still dropped.
    Allow,
}

/// Why text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Neither an address nor a prefix.
    #[error("expected an address or a prefix, such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")]
    Syntax,
    /// The length exceeds that of the address.
    #[error("the length of a prefix is 0 to {0} bits")]
    Length(u8),
    /// Bits after the prefix are set.
    #[error("bits are set behind the first {length}: did you mean {meant}?")]
    HostBits {
        /// The given length.
        length: u8,
        /// The prefix that contains the address.
        meant: Prefix,
    },
}

impl Prefix {
    /// Returns the prefix of the first `length` bits of an address; the other bits are cleared. `None`
    /// if the address has fewer bits.
    pub(crate) fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) => {
                let unused = 32u32.checked_sub(length.into())?;
                let mask = u32::MAX.checked_shl(unused).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let unused = 128u32.checked_sub(length.into())?;
                let mask = u128::MAX.checked_shl(unused).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Some(Self { address, length })
    }

    /// Returns the first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns the key in the trie of the address family.
    pub(crate) fn key(self) -> Vec<u8> {
        let mut key = u32::from(self.length).to_ne_bytes().to_vec();
        match self.address {
            IpAddr::V4(address) => key.extend(address.octets()),
            IpAddr::V6(address) => key.extend(address.octets()),
        }
        key
    }

    /// Parses a key; `None` if it is not valid.
    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        let (length, address) = key.split_first_chunk::<4>()?;
        let address = match address.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
        };
        Self::new(address, u8::try_from(u32::from_ne_bytes(*length)).ok()?)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address = address.parse::<IpAddr>().map_err(|_| PrefixError::Syntax)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let digits = |length: &str| length.bytes().all(|byte| byte.is_ascii_digit());
        let length = match length {
            None => bits,
            Some(length) if length.is_empty() || !digits(length) => {
                return Err(PrefixError::Syntax);
            }
            Some(length) => length.parse::<u8>().map_err(|_| PrefixError::Length(bits))?,
        };
        let prefix = Self::new(address, length).ok_or(PrefixError::Length(bits))?;
        if prefix.address != address {
            return Err(PrefixError::HostBits { length, meant: prefix });
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for PrefixAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        })
    }
}

impl PrefixAction {
    /// Returns the value in the tries; as in `enum prefix_action` in `filter.h`.
    pub(crate) fn value(self) -> [u8; 4] {
        match self {
            Self::Deny => 1u32,
            Self::Allow => 2,
        }
        .to_ne_bytes()
    }

    pub(crate) fn of_value(value: &[u8]) -> Option<Self> {
        [Self::Deny, Self::Allow].into_iter().find(|action| action.value() == value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Prefix>().unwrap_err().to_string()
    }

    #[test]
    fn an_address_is_a_prefix_of_all_its_bits() {
        assert_eq!("192.0.2.7".parse::<Prefix>().unwrap().to_string(), "192.0.2.7/32");
        assert_eq!("2001:db8::1".parse::<Prefix>().unwrap().to_string(), "2001:db8::1/128");
        assert_eq!("0.0.0.0/0".parse::<Prefix>().unwrap().length(), 0);
        assert_eq!("::/0".parse::<Prefix>().unwrap().length(), 0);
    }

    #[test]
    fn wrong_prefixes_are_refused_with_advice() {
        assert!(error("10.0.0.1/8").contains("10.0.0.0/8"));
        assert!(error("10.0.0.0/33").contains("0 to 32"));
        assert!(error("2001:db8::/129").contains("0 to 128"));
        for text in ["", "10.0.0", "10.0.0.0/", "10.0.0.0/+8", "example.org", "10.0.0.0/8/8"] {
            assert!(error(text).contains("expected"), "{text}");
        }
        assert!(error("10.0.0.0/999").contains("0 to 32"));
    }

    proptest! {
        #[test]
        fn keys_are_read_as_written(bits: u128, length in 0u8..=128, v4: bool) {
            let address = if v4 {
                IpAddr::from(bits.to_be_bytes().first_chunk::<4>().copied().unwrap())
            } else {
                IpAddr::from(bits.to_be_bytes())
            };
            let prefix = Prefix::new(address, if v4 { length % 33 } else { length }).unwrap();
            prop_assert_eq!(Prefix::of_key(&prefix.key()), Some(prefix));
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }

        #[test]
        fn any_text_is_a_prefix_or_refused(text in ".*") {
            let _ = text.parse::<Prefix>();
        }

        #[test]
        fn any_bytes_are_a_key_or_none(key: Vec<u8>) {
            let _ = Prefix::of_key(&key);
        }
    }
}
