//! Replaces addresses by others, the same address always by the same within one bundle.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, anyhow};
use ring::hmac;
use ring::rand::SystemRandom;

/// Octets of a MAC address.
pub(super) type Mac = [u8; 6];

/// Maps addresses with a random key that is never stored. Of IP addresses, prefixes are preserved (as in
/// Crypto-PAn): two addresses that share their first bits share as many of them afterwards.
#[derive(Debug)]
pub(super) struct Pseudonyms {
    key: hmac::Key,
    ip: HashMap<IpAddr, IpAddr>,
    mac: HashMap<Mac, Mac>,
    /// The first two octets of IPv4 addresses, and vendors of MAC addresses, that were seen as such.
    networks: HashSet<[u8; 2]>,
    vendors: HashSet<[u8; 3]>,
}

impl Pseudonyms {
    /// With a new key.
    pub(super) fn new() -> Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| anyhow!("the system has no random numbers for --redact"))?;
        Ok(Self {
            key,
            ip: HashMap::new(),
            mac: HashMap::new(),
            networks: HashSet::new(),
            vendors: HashSet::new(),
        })
    }

    /// The pseudonym of an IP address. Addresses that name no host stay as they are.
    pub(super) fn ip(&mut self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => self.ipv4(v4).into(),
            IpAddr::V6(v6) => self.ipv6(v6).into(),
        }
    }

    /// The same for IPv4.
    pub(super) fn ipv4(&mut self, address: Ipv4Addr) -> Ipv4Addr {
        if names_no_host(address) {
            return address;
        }
        if let Some(IpAddr::V4(known)) = self.ip.get(&address.into()) {
            return *known;
        }
        let bits = u128::from(address.to_bits()) << 96;
        let mapped = Ipv4Addr::from((self.permuted(4, bits, 32) >> 96) as u32);
        self.ip.insert(address.into(), mapped.into());
        let [first, second, ..] = address.octets();
        self.networks.insert([first, second]);
        mapped
    }

    /// The same for IPv6; an IPv4-mapped address stays one.
    pub(super) fn ipv6(&mut self, address: Ipv6Addr) -> Ipv6Addr {
        if address.is_unspecified() || address.is_loopback() {
            return address;
        }
        if let Some(v4) = address.to_ipv4_mapped() {
            return self.ipv4(v4).to_ipv6_mapped();
        }
        if let Some(IpAddr::V6(known)) = self.ip.get(&address.into()) {
            return *known;
        }
        let mapped = Ipv6Addr::from(self.permuted(6, address.to_bits(), 128));
        self.ip.insert(address.into(), mapped.into());
        mapped
    }

    /// The pseudonym of a MAC address: locally administered, a group address if it was one.
    pub(super) fn mac(&mut self, address: Mac) -> Mac {
        if address == [0; 6] || address == [0xff; 6] {
            return address;
        }
        if let Some(known) = self.mac.get(&address) {
            return *known;
        }
        let tag = hmac::sign(&self.key, &[b"mac", &address[..]].concat());
        let mut mapped: Mac = tag.as_ref().first_chunk().copied().unwrap_or_default();
        mapped[0] = (mapped[0] & !0x01) | 0x02 | (address[0] & 0x01);
        self.mac.insert(address, mapped);
        self.vendors.insert(vendor(address));
        mapped
    }

    /// The pseudonym of an IPv4 address that has one.
    pub(super) fn known_ipv4(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        match self.ip.get(&address.into()) {
            Some(IpAddr::V4(known)) => Some(*known),
            _ => None,
        }
    }

    /// The pseudonym of an IPv4 address if another one of the same /16 has one. Not below `1.0.0.0`: small
    /// numbers with leading zeros are no addresses.
    pub(super) fn ipv4_near_known(&mut self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let [first, second, ..] = address.octets();
        let is_near = first > 0 && self.networks.contains(&[first, second]);
        is_near.then(|| self.ipv4(address)).or_else(|| self.known_ipv4(address))
    }

    /// The pseudonym of a MAC address if another one of the same vendor has one. Zeros are no vendor.
    pub(super) fn mac_near_known(&mut self, address: Mac) -> Option<Mac> {
        let vendor = vendor(address);
        let is_near = vendor != [0; 3] && self.vendors.contains(&vendor);
        is_near.then(|| self.mac(address)).or_else(|| self.mac.get(&address).copied())
    }

    /// A short name in place of another one.
    pub(super) fn name(&self, kind: &str, name: &str) -> String {
        let tag = hmac::sign(&self.key, format!("name {name}").as_bytes());
        let number = tag.as_ref().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        format!("{kind}-{number:08x}")
    }

    /// Flips each of the first bits by a function of the bits before it.
    fn permuted(&self, version: u8, bits: u128, width: u8) -> u128 {
        let mut out = bits;
        for at in 0..width {
            let before = if at == 0 { 0 } else { bits >> (128 - at) << (128 - at) };
            let mut message = [0; 18];
            (message[0], message[1]) = (version, at);
            message[2..].copy_from_slice(&before.to_be_bytes());
            let tag = hmac::sign(&self.key, &message);
            if tag.as_ref().first().is_some_and(|byte| byte & 1 == 1) {
                out ^= 1 << (127 - at);
            }
        }
        out
    }
}

/// The octets that a vendor has been given.
fn vendor(address: Mac) -> [u8; 3] {
    [address[0], address[1], address[2]]
}

/// `0.0.0.0`, loopback, and netmasks including the broadcast address.
fn names_no_host(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let is_mask = bits.leading_ones() + bits.trailing_zeros() >= 32 && bits.leading_ones() >= 8;
    address.is_unspecified() || address.is_loopback() || is_mask
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shared_bits(one: u128, other: u128) -> u32 {
        (one ^ other).leading_zeros()
    }

    #[test]
    fn addresses_that_name_no_host_stay() {
        let mut pseudonyms = Pseudonyms::new().unwrap();
        for kept in ["0.0.0.0", "127.0.0.1", "255.255.255.0", "255.255.255.255", "::", "::1"] {
            let kept: IpAddr = kept.parse().unwrap();
            assert_eq!(pseudonyms.ip(kept), kept);
        }
        assert_eq!(pseudonyms.mac([0xff; 6]), [0xff; 6]);
        let group = pseudonyms.mac([0x01, 0, 0x5e, 1, 2, 3]);
        assert_eq!(group[0] & 3, 3, "{group:x?}");
    }

    #[test]
    fn another_bundle_has_other_pseudonyms() {
        let address: Ipv4Addr = "198.18.0.1".parse().unwrap();
        let of_bundle = |_| Pseudonyms::new().unwrap().ipv4(address);
        let different: std::collections::HashSet<_> = (0..4).map(of_bundle).collect();
        assert!(different.len() > 1, "{different:?}");
    }

    #[test]
    fn a_mapped_address_is_that_of_ipv4() {
        let mut pseudonyms = Pseudonyms::new().unwrap();
        let v4: Ipv4Addr = "198.18.0.1".parse().unwrap();
        let mapped = pseudonyms.ipv6(v4.to_ipv6_mapped());
        assert_eq!(mapped.to_ipv4_mapped(), Some(pseudonyms.ipv4(v4)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn prefixes_are_preserved(one: u128, other: u128, shared in 0..128_u32) {
            let mut pseudonyms = Pseudonyms::new().unwrap();
            let keep = u128::MAX.checked_shl(128 - shared).unwrap_or(0);
            let other = one & keep | other & !keep;
            prop_assume!(![one, other].contains(&0) && ![one, other].contains(&1));
            let is_mapped = |bits: u128| Ipv6Addr::from(bits).to_ipv4_mapped().is_some();
            prop_assume!(!is_mapped(one) && !is_mapped(other));
            let (a, b) = (pseudonyms.ipv6(one.into()), pseudonyms.ipv6(other.into()));
            prop_assert_eq!(shared_bits(a.to_bits(), b.to_bits()), shared_bits(one, other));
            prop_assert_eq!(pseudonyms.ipv6(one.into()), a);
        }

        #[test]
        fn ipv4_addresses_stay_different(one: u32, other: u32) {
            let mut pseudonyms = Pseudonyms::new().unwrap();
            let (one, other) = (Ipv4Addr::from(one), Ipv4Addr::from(other));
            prop_assume!(!names_no_host(one) && !names_no_host(other));
            prop_assert_eq!(pseudonyms.ipv4(one) == pseudonyms.ipv4(other), one == other);
        }
    }
}
