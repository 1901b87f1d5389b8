//! The key of a conversation, and an unpredictable hash of it.

// Keys and hashes are split into parts.
#![allow(clippy::cast_possible_truncation)]

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::dissect::{IpFields, PacketLayers};
use crate::{FlowEndpoint, Tunnel};

/// Both ends, in an order that does not depend on the sender, and all other fields that identify a
/// conversation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowKey([u64; 6]);

impl FlowKey {
    /// Returns whether two keys are equal. Written out, because `==` on arrays is a function call.
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        let words = self.0.iter().zip(&other.0);
        words.fold(0, |differing, (word, others)| differing | (word ^ others)) == 0
    }

    /// Returns the key, and whether the packet comes from its first end.
    #[inline]
    pub(super) fn new(app: u16, layers: &PacketLayers, ip: &IpFields) -> (Self, bool) {
        let source = (ip.source, ip.source_port);
        let destination = (ip.destination, ip.destination_port);
        let from_first = source <= destination;
        let (first, second) =
            if from_first { (source, destination) } else { (destination, source) };
        let (kind, id) = match layers.tunnel {
            None => (0, 0),
            Some(Tunnel::Vxlan(id)) => (1, id),
            Some(Tunnel::Geneve(id)) => (2, id),
            Some(Tunnel::Gre(id)) => (3, id),
            Some(Tunnel::Erspan(id)) => (4, id),
            Some(Tunnel::Pppoe(id)) => (5, id),
            Some(Tunnel::GtpU) => (6, 0),
            Some(Tunnel::Ipip) => (7, 0),
            Some(Tunnel::Mpls) => (8, 0),
        };
        let [outer, inner] = layers.tags.ids;
        let key = Self([
            (first.0 >> 64) as u64,
            first.0 as u64,
            (second.0 >> 64) as u64,
            second.0 as u64,
            u64::from(first.1)
                | u64::from(second.1) << 16
                | u64::from(app) << 32
                | u64::from(ip.protocol) << 48
                | u64::from(ip.v6) << 56,
            u64::from(id) | u64::from(outer) << 32 | u64::from(inner) << 44 | kind << 56,
        ]);
        (key, from_first)
    }

    /// Returns the first and the second end.
    pub(super) fn ends(&self) -> [FlowEndpoint; 2] {
        let [a, b, c, d, ports, _] = self.0;
        let end = |high: u64, low: u64, port: u64| FlowEndpoint {
            addr: if self.is_v6() {
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits(low as u32))
            },
            port: port as u16,
        };
        [end(a, b, ports), end(c, d, ports >> 16)]
    }

    fn is_v6(&self) -> bool {
        self.0[4] >> 56 != 0
    }

    pub(super) fn app(&self) -> u16 {
        (self.0[4] >> 32) as u16
    }

    pub(super) fn protocol(&self) -> u8 {
        (self.0[4] >> 48) as u8
    }

    pub(super) fn vlans(&self) -> [u16; 2] {
        [32, 44].map(|shift| (self.0[5] >> shift) as u16 & 0x0fff)
    }

    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        let id = self.0[5] as u32;
        match self.0[5] >> 56 {
            1 => Some(Tunnel::Vxlan(id)),
            2 => Some(Tunnel::Geneve(id)),
            3 => Some(Tunnel::Gre(id)),
            4 => Some(Tunnel::Erspan(id)),
            5 => Some(Tunnel::Pppoe(id)),
            6 => Some(Tunnel::GtpU),
            7 => Some(Tunnel::Ipip),
            8 => Some(Tunnel::Mpls),
            _ => None,
        }
    }
}

/// Hashes keys with random numbers. Two keys, even if chosen by an attacker, have the same sum of
/// products (NH, as in UMAC) with a probability of 2^-64, as long as the numbers are secret.
#[derive(Clone, Debug)]
pub(super) struct KeyHasher {
    secrets: [u64; 8],
}

impl KeyHasher {
    /// Creates a hasher with new random numbers.
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        Self { secrets: [0, 1, 2, 3, 4, 5, 6, 7].map(|number: u64| random.hash_one(number)) }
    }

    #[inline]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        let (words, secrets) = (&key.0, &self.secrets);
        let product = |at: usize| {
            let [a, b] =
                [words[at].wrapping_add(secrets[at]), words[at + 1].wrapping_add(secrets[at + 1])];
            u128::from(a) * u128::from(b)
        };
        let sum = product(0).wrapping_add(product(2)).wrapping_add(product(4));
        let (low, high) = (sum as u64 ^ secrets[6], (sum >> 64) as u64 ^ secrets[7]);
        let mixed = u128::from(low) * u128::from(high | 1);
        (((mixed >> 64) as u64 ^ mixed as u64) >> 32) as u32
    }
}
