//! Parses a packet down to the headers that identify its conversation.
//!
//! A truncated packet is parsed as far as it goes: the addresses are found even if the rest is missing.
//! The tests compare the results with those of `etherparse`, which would be most of the cost of a
//! packet.

mod icmp;
mod ip;
mod link;
mod ppp;
mod tunnel;
mod wire_bytes;
mod wireless;

#[cfg(test)]
use ip::LengthFit;
pub(super) use ip::{FragmentKind, IpFields, TcpFields};
use pmdscope_packets::ETHERNET;

use self::tunnel::TunnelPayload;
use self::wire_bytes::WireBytes;
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
const IEEE802_11: u16 = 105;
const RADIOTAP: u16 = 127;
const PPI: u16 = 192;

/// Protocol of Linux cooked captures for frames with LLC, which have no ethertype.
const SLL_LLC: u16 = 4;

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

/// VLAN ids, outermost first: at most two outside of tunnels, and as many inside that three are stored. 0 is
/// no VLAN, but a priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VlanTags {
    /// The stored ids; 0 behind them.
    pub(super) ids: [u16; Self::STORED],
    /// How many of these are outside of tunnels.
    pub(super) outside: u8,
    stored: u8,
    /// Whether there is any tag, stored or not.
    pub(super) any: bool,
}

impl VlanTags {
    pub(super) const STORED: usize = 3;
    const OUTSIDE: usize = 2;

    #[inline]
    fn push(&mut self, id: u16, inside: bool) {
        self.any = true;
        let limit = if inside { Self::STORED } else { Self::OUTSIDE };
        let at = usize::from(self.stored);
        if id > 0 && at < limit {
            self.ids[at] = id;
            self.stored += 1;
            self.outside += u8::from(!inside);
        }
    }
}

/// The headers before IP, except outer IP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkHeaders {
    tags: VlanTags,
    /// The outermost tunnel.
    tunnel: Option<Tunnel>,
    /// Number of nested tunnels without an outer IP header.
    depth: usize,
}

/// Addresses of the outermost IP header of a packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OuterEnds {
    pub(super) v6: bool,
    pub(super) source: u128,
    pub(super) destination: u128,
}

/// The parsed headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketLayers {
    pub(super) tags: VlanTags,
    /// The outermost tunnel.
    pub(super) tunnel: Option<Tunnel>,
    pub(super) net: NetworkLayer,
    /// Ends of the outermost tunnel, if it has any.
    pub(super) outer: Option<OuterEnds>,
    /// Of an ICMP error: addresses and ports of the packet that it is about, as of an answer to it.
    pub(super) quoted: Option<IpFields>,
}

impl LinkHeaders {
    #[inline]
    fn push(&mut self, id: u16) {
        self.tags.push(id, self.tunnel.is_some());
    }

    /// Returns the headers before the payload of a tunnel; `None` if the nesting is too deep.
    fn inside(self, tunnel: Tunnel) -> Option<Self> {
        let inner = Self { tunnel: self.tunnel.or(Some(tunnel)), depth: self.depth + 1, ..self };
        (inner.depth <= NESTING).then_some(inner)
    }
}

/// Parses the captured bytes of a packet of this length on the wire. With `inner`, the packet in a tunnel
/// counts if it is IP and can be read.
#[inline]
pub(super) fn dissect(linktype: u16, data: &[u8], length: usize, inner: bool) -> PacketLayers {
    let mut headers = LinkHeaders::default();
    let found = outer(linktype, WireBytes::new(data, length), &mut headers);
    let LinkHeaders { tags, tunnel, .. } = headers;
    let Some((net, payload)) = found else {
        let (net, outer) = (NetworkLayer::Unreadable, None);
        return PacketLayers { tags, tunnel: None, net, outer, quoted: None };
    };
    let layers = PacketLayers { tags, tunnel, net, outer: None, quoted: None };
    match net {
        NetworkLayer::Ip(ip) if inner && tunnel::may_be(&ip) => unwrapped(layers, ip, payload),
        NetworkLayer::Ip(ip) if ip.icmp.is_some() => {
            PacketLayers { quoted: icmp::quoted(&ip, payload), ..layers }
        }
        _ => layers,
    }
}

/// Follows tunnels as long as they carry IP.
fn unwrapped(
    mut layers: PacketLayers,
    mut ip: IpFields,
    mut payload: WireBytes<'_>,
) -> PacketLayers {
    let ends = OuterEnds { v6: ip.v6, source: ip.source, destination: ip.destination };
    for _ in 0..NESTING {
        let Some((tunnel, carried)) = tunnel::enter(&ip, payload) else { break };
        let tunnel = layers.tunnel.or(Some(tunnel));
        let mut headers = LinkHeaders { tags: layers.tags, tunnel, depth: 0 };
        let inside = match carried {
            TunnelPayload::Ethernet(frame) => link::ethernet(frame, &mut headers),
            TunnelPayload::Typed(ether_type, rest) => link::typed(ether_type, rest, &mut headers),
            TunnelPayload::Untyped(rest) => link::untyped(rest, &mut headers),
            TunnelPayload::Ppp(rest) => ppp::frame(rest, &mut headers),
            TunnelPayload::L2tpFrame(rest) => link::l2tp_frame(rest, &mut headers),
        };
        let Some((net @ NetworkLayer::Ip(found), rest)) = inside else { break };
        let LinkHeaders { tags, tunnel, .. } = headers;
        layers = PacketLayers { tags, tunnel, net, outer: Some(ends), quoted: None };
        (ip, payload) = (found, rest);
    }
    PacketLayers { quoted: icmp::quoted(&ip, payload), ..layers }
}

#[inline]
fn outer<'a>(linktype: u16, data: WireBytes<'a>, headers: &mut LinkHeaders) -> link::Found<'a> {
    match linktype {
        ETHERNET => link::ethernet(data, headers),
        RAW_IPV4 => link::typed(IPV4, data, headers),
        RAW_IPV6 => link::typed(IPV6, data, headers),
        LINUX_SLL => cooked(be16(&data, 14)?, data.after(16)?, headers),
        LINUX_SLL2 => cooked(be16(&data, 0)?, data.after(20)?, headers),
        raw if RAW.contains(&raw) => ip::either(data),
        NULL | LOOP => link::loopback(data),
        PPP | PPP_HDLC => ppp::or_cisco_hdlc(data, headers),
        PPP_ETHER => link::pppoe(data, headers),
        CISCO_HDLC => ppp::cisco_hdlc(data, headers),
        IEEE802_11 => wireless::frame(data, headers),
        RADIOTAP => wireless::radiotap(data, headers),
        PPI => wireless::ppi(data, headers),
        _ => Some((NetworkLayer::UnknownLink, data)),
    }
}

/// Parses a packet after the header of a Linux cooked capture.
fn cooked<'a>(protocol: u16, data: WireBytes<'a>, headers: &mut LinkHeaders) -> link::Found<'a> {
    match protocol {
        SLL_LLC => link::llc(data, headers),
        _ => link::typed(protocol, data, headers),
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
