//! The key of a conversation, and an unpredictable hash of it.

// Keys and hashes are split into parts.
#![allow(clippy::cast_possible_truncation)]

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::dissect::{IpFields, PacketLayers, SCTP, TCP, UDP, VlanTags};
use crate::{FlowEndpoint, IcmpKind, Tunnel};

/// What the 32 bits of ports in a key are: ports of these protocols, or else the protocol and the kind of
/// ICMP.
const CLASS_OTHER: u64 = 0;
const CLASS_TCP: u64 = 1;
const CLASS_UDP: u64 = 2;
const CLASS_SCTP: u64 = 3;

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
        // Protocols without ports have their number, and the kind of ICMP, in place of ports.
        let (class, ports) = match ip.protocol {
            TCP => (CLASS_TCP, (ip.source_port, ip.destination_port)),
            UDP => (CLASS_UDP, (ip.source_port, ip.destination_port)),
            SCTP => (CLASS_SCTP, (ip.source_port, ip.destination_port)),
            _ => (CLASS_OTHER, (0, 0)),
        };
        let (source, destination) = ((ip.source, ports.0), (ip.destination, ports.1));
        let from_first = source <= destination;
        let (first, second) =
            if from_first { (source, destination) } else { (destination, source) };
        let ports = if class == CLASS_OTHER {
            let kind = ip.icmp.map(IcmpKind::of_request).unwrap_or_default();
            u32::from_be_bytes([kind.kind, kind.code, u8::from(ip.icmp.is_some()), ip.protocol])
        } else {
            u32::from(first.1) | u32::from(second.1) << 16
        };
        let (kind, id) = layers.tunnel.map_or((0, 0), packed);
        let VlanTags { ids: [first_id, second_id, third_id], outside, .. } = layers.tags;
        let key = Self([
            (first.0 >> 64) as u64,
            first.0 as u64,
            (second.0 >> 64) as u64,
            second.0 as u64,
            u64::from(ports)
                | u64::from(app) << 32
                | class << 48
                | u64::from(ip.v6) << 50
                | kind << 51
                | u64::from(outside) << 56
                | u64::from(third_id >> 8 & 0x0f) << 58,
            u64::from(id)
                | u64::from(first_id & 0x0fff) << 32
                | u64::from(second_id & 0x0fff) << 44
                | u64::from(third_id & 0x00ff) << 56,
        ]);
        (key, from_first)
    }

    /// Returns the first and the second end.
    pub(super) fn ends(&self) -> [FlowEndpoint; 2] {
        let [a, b, c, d, ports, _] = self.0;
        let ports = if self.class() == CLASS_OTHER { 0 } else { ports };
        let end = |high: u64, low: u64, port: u64| FlowEndpoint {
            addr: ip_address(self.is_v6(), u128::from(high) << 64 | u128::from(low)),
            port: port as u16,
        };
        [end(a, b, ports), end(c, d, ports >> 16)]
    }

    fn class(&self) -> u64 {
        self.0[4] >> 48 & 3
    }

    fn is_v6(&self) -> bool {
        self.0[4] >> 50 & 1 != 0
    }

    pub(super) fn app(&self) -> u16 {
        (self.0[4] >> 32) as u16
    }

    pub(super) fn protocol(&self) -> u8 {
        match self.class() {
            CLASS_TCP => TCP,
            CLASS_UDP => UDP,
            CLASS_SCTP => SCTP,
            _ => self.0[4] as u8,
        }
    }

    /// Returns the kind of ICMP messages: that of requests, if the other end answers them.
    pub(super) fn icmp(&self) -> Option<IcmpKind> {
        let [kind, code, is_icmp, _] = (self.0[4] as u32).to_be_bytes();
        (self.class() == CLASS_OTHER && is_icmp != 0).then_some(IcmpKind { kind, code })
    }

    /// Returns the VLAN ids outside of tunnels, and those inside; 0 where there is none.
    pub(super) fn vlans(&self) -> [[u16; 2]; 2] {
        let [first, second] = [32, 44].map(|shift| (self.0[5] >> shift) as u16 & 0x0fff);
        let third = (self.0[5] >> 56 | (self.0[4] >> 58 & 0x0f) << 8) as u16;
        match self.0[4] >> 56 & 3 {
            0 => [[0, 0], [first, second]],
            1 => [[first, 0], [second, third]],
            _ => [[first, second], [third, 0]],
        }
    }

    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        let id = self.0[5] as u32;
        Some(match self.0[4] >> 51 & 0x1f {
            1 => Tunnel::Vxlan(id),
            2 => Tunnel::Geneve(id),
            3 => Tunnel::Gre(id),
            4 => Tunnel::Erspan(id),
            5 => Tunnel::Pppoe(id),
            6 => Tunnel::GtpU,
            7 => Tunnel::Ipip,
            8 => Tunnel::Mpls,
            9 => Tunnel::VxlanGpe(id),
            10 => Tunnel::Nsh,
            11 => Tunnel::Teredo,
            12 => Tunnel::EtherIp,
            13 => Tunnel::L2tp,
            14 => Tunnel::Pptp,
            15 => Tunnel::Gue,
            16 => Tunnel::Trill,
            17 => Tunnel::Pbb(id),
            _ => return None,
        })
    }
}

/// Returns an address of which IPv4 has the low bits.
pub(super) fn ip_address(v6: bool, address: u128) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from_bits(address))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(address as u32))
    }
}

/// Returns a tunnel as a number below 32, and its id.
fn packed(tunnel: Tunnel) -> (u64, u32) {
    match tunnel {
        Tunnel::Vxlan(id) => (1, id),
        Tunnel::Geneve(id) => (2, id),
        Tunnel::Gre(id) => (3, id),
        Tunnel::Erspan(id) => (4, id),
        Tunnel::Pppoe(id) => (5, id),
        Tunnel::GtpU => (6, 0),
        Tunnel::Ipip => (7, 0),
        Tunnel::Mpls => (8, 0),
        Tunnel::VxlanGpe(id) => (9, id),
        Tunnel::Nsh => (10, 0),
        Tunnel::Teredo => (11, 0),
        Tunnel::EtherIp => (12, 0),
        Tunnel::L2tp => (13, 0),
        Tunnel::Pptp => (14, 0),
        Tunnel::Gue => (15, 0),
        Tunnel::Trill => (16, 0),
        Tunnel::Pbb(id) => (17, id),
    }
}

impl IcmpKind {
    /// Returns the kind of the request that a message answers; of any other message, its own.
    fn of_request(self) -> Self {
        match self.kind {
            0 => Self { kind: 8, code: 0 },
            14 | 16 | 18 | 43 | 129 | 134 | 136 | 140 | 161 => {
                Self { kind: self.kind - 1, code: 0 }
            }
            _ => self,
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
