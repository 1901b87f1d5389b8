//! Parses a packet down to the headers that identify its conversation.
//!
//! A truncated packet is parsed as far as it goes: the addresses are found even if the rest is missing.
//! The tests compare the results with those of `etherparse`, which would be most of the cost of a
//! packet.

mod ip;
mod link;
mod tunnel;

pub(super) use ip::{FragmentKind, IpFields, TcpFields};
use pmdscope_packets::ETHERNET;

use self::tunnel::TunnelPayload;
use crate::Tunnel;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const GRE: u8 = 47;
pub(super) const ESP: u8 = 50;
pub(super) const ICMP6: u8 = 58;
pub(super) const SCTP: u8 = 132;

/// Link types of files, besides [`ETHERNET`].
const NULL: u16 = 0;
const LOOP: u16 = 108;
const PPP: u16 = 9;
const PPP_HDLC: u16 = 50;
const PPP_ETHER: u16 = 51;
const CISCO_HDLC: u16 = 104;
const RAW: [u16; 3] = [101, 12, 14];
const RAW_IPV4: u16 = 228;
const RAW_IPV6: u16 = 229;
const LINUX_SLL: u16 = 113;
const LINUX_SLL2: u16 = 276;

/// Most nested tunnels that are followed.
const NESTING: usize = 4;

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkLayer {
    /// The innermost IP header that counts.
    Ip(IpFields),
    /// Another protocol: its ethertype, or the length of a frame without one.
    Other(u16),
    /// Truncated or malformed before the addresses.
    Unreadable,
    /// The link type is not supported.
    UnknownLink,
}

/// The outermost VLAN ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VlanTags {
    pub(super) ids: [u16; 2],
    /// Number of all tags, also of those that are not in `ids`.
    pub(super) count: u8,
}

impl VlanTags {
    fn push(&mut self, id: u16) {
        if let Some(place) = self.ids.get_mut(usize::from(self.count)) {
            *place = id;
        }
        self.count = self.count.saturating_add(1);
    }
}

/// The headers before IP, except outer IP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkHeaders {
    tags: VlanTags,
    /// The outermost tunnel.
    tunnel: Option<Tunnel>,
    /// Number of nested PPP sessions and pseudowires.
    depth: usize,
}

/// The parsed headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketLayers {
    pub(super) tags: VlanTags,
    /// The outermost tunnel.
    pub(super) tunnel: Option<Tunnel>,
    pub(super) net: NetworkLayer,
}

impl LinkHeaders {
    /// Returns the headers before the payload of a tunnel; `None` if the nesting is too deep.
    fn inside(self, tunnel: Tunnel) -> Option<Self> {
        let inner = Self { tunnel: self.tunnel.or(Some(tunnel)), depth: self.depth + 1, ..self };
        (inner.depth <= NESTING).then_some(inner)
    }
}

/// Parses the captured bytes of a packet. With `inner`, the packet in a tunnel counts if it is IP and
/// can be read.
#[inline]
pub(super) fn dissect(linktype: u16, data: &[u8], inner: bool) -> PacketLayers {
    let mut headers = LinkHeaders::default();
    let found = outer(linktype, data, &mut headers);
    let LinkHeaders { tags, tunnel, .. } = headers;
    let Some((net, payload)) = found else {
        return PacketLayers { tags, tunnel: None, net: NetworkLayer::Unreadable };
    };
    let layers = PacketLayers { tags, tunnel, net };
    match net {
        NetworkLayer::Ip(ip) if inner && tunnel::may_be(&ip) => unwrapped(layers, ip, payload),
        _ => layers,
    }
}

/// Follows tunnels as long as they carry IP.
fn unwrapped(mut layers: PacketLayers, mut ip: IpFields, mut payload: &[u8]) -> PacketLayers {
    for _ in 0..NESTING {
        let Some((tunnel, carried)) = tunnel::enter(&ip, payload) else { break };
        let tunnel = layers.tunnel.or(Some(tunnel));
        let mut headers = LinkHeaders { tags: layers.tags, tunnel, depth: 0 };
        let inside = match carried {
            TunnelPayload::Ethernet(frame) => link::ethernet(frame, &mut headers),
            TunnelPayload::Typed(ether_type, rest) => link::typed(ether_type, rest, &mut headers),
            TunnelPayload::Untyped(rest) => link::untyped(rest, &mut headers),
        };
        let Some((NetworkLayer::Ip(found), rest)) = inside else { break };
        let LinkHeaders { tags, tunnel, .. } = headers;
        layers = PacketLayers { tags, tunnel, net: NetworkLayer::Ip(found) };
        (ip, payload) = (found, rest);
    }
    layers
}

#[inline]
fn outer<'a>(
    linktype: u16,
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    match linktype {
        ETHERNET => link::ethernet(data, headers),
        RAW_IPV4 => link::typed(IPV4, data, headers),
        RAW_IPV6 => link::typed(IPV6, data, headers),
        LINUX_SLL => link::typed(be16(data, 14)?, data.get(16..)?, headers),
        LINUX_SLL2 => link::typed(be16(data, 0)?, data.get(20..)?, headers),
        raw if RAW.contains(&raw) => link::raw(data),
        NULL | LOOP => link::loopback(data),
        PPP | PPP_HDLC => link::ppp_frame(data, headers),
        PPP_ETHER => link::pppoe(data, headers),
        CISCO_HDLC => link::cisco_hdlc(data, headers),
        _ => Some((NetworkLayer::UnknownLink, data)),
    }
}

#[inline]
fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline]
fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
