//! Ethernet, and the headers between it and IP: VLAN tags, PPP sessions, MPLS labels.

use super::{IPV4, IPV6, LinkHeaders, NetworkLayer, be16, ip};
use crate::Tunnel;

const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
pub(super) const MPLS_UNICAST: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;

/// `PPPoE` version and type.
const PPPOE_VERSION: u8 = 0x11;
/// Length of the `PPPoE` header.
const PPPOE_HEADER: usize = 6;

/// Address and control field of PPP in HDLC framing, and the addresses of Cisco HDLC.
const PPP_FRAMING: [u8; 2] = [0xff, 0x03];
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_MULTICAST: u8 = 0x8f;

/// Address families: those of IPv6 are the values of Linux, the BSDs and Darwin.
const AF_INET: u32 = 2;
const AF_INET6: [u32; 4] = [10, 24, 28, 30];

/// PPP protocols.
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: [u16; 2] = [0x0281, 0x0283];

/// Parses an Ethernet frame; `None` if its header is cut off, or the IP header after it is.
#[inline]
pub(super) fn ethernet<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    typed(be16(data, 12)?, &data[14..], headers)
}

/// Parses the data after an ethertype.
#[inline]
pub(super) fn typed<'a>(
    mut ether_type: u16,
    mut data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    while VLAN.contains(&ether_type) {
        headers.tags.push(be16(data, 0)? & 0x0fff);
        (ether_type, data) = (be16(data, 2)?, &data[4..]);
    }
    match ether_type {
        IPV4 => ip::v4(data),
        IPV6 => ip::v6(data),
        MPLS_UNICAST | MPLS_MULTICAST => labelled(ether_type, data, headers),
        PPPOE_SESSION => pppoe(data, headers),
        _ => Some((NetworkLayer::Other(ether_type), data)),
    }
}

/// Parses IP of either version, without an ethertype before it.
pub(super) fn raw(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    match data.first()? >> 4 {
        4 => ip::v4(data),
        6 => ip::v6(data),
        _ => None,
    }
}

/// Parses a `PPPoE` session (RFC 2516); it counts as a tunnel if it carries IP.
pub(super) fn pppoe<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    let header = data.first_chunk::<PPPOE_HEADER>()?;
    let other = Some((NetworkLayer::Other(PPPOE_SESSION), data));
    if header[0] != PPPOE_VERSION || header[1] != 0 {
        return other;
    }
    let session = Tunnel::Pppoe(u16::from_be_bytes([header[2], header[3]]).into());
    let end = PPPOE_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let Some(mut inner) = headers.inside(session) else { return other };
    match ppp(&data[PPPOE_HEADER..end.min(data.len())], &mut inner)? {
        found @ (NetworkLayer::Ip(_), _) => {
            *headers = inner;
            Some(found)
        }
        _ => other,
    }
}

/// Parses the link types NULL and LOOP: the address family of the system that captured, in unknown byte
/// order, and a packet.
pub(super) fn loopback(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    let family = data.first_chunk::<4>()?;
    let family = u32::from_le_bytes(*family).min(u32::from_be_bytes(*family));
    match family {
        AF_INET => ip::v4(&data[4..]),
        family if AF_INET6.contains(&family) => ip::v6(&data[4..]),
        _ => Some((NetworkLayer::Other(0), data)),
    }
}

/// Parses a PPP frame with or without HDLC framing (RFC 1662), or a Cisco HDLC frame.
pub(super) fn ppp_frame<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    match *data.first()? {
        CISCO_UNICAST | CISCO_MULTICAST => cisco_hdlc(data, headers),
        _ => ppp(data.strip_prefix(&PPP_FRAMING).unwrap_or(data), headers),
    }
}

/// Parses a Cisco HDLC frame.
pub(super) fn cisco_hdlc<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    typed(be16(data, 2)?, &data[4..], headers)
}

/// Parses a PPP frame from its protocol field on, which may be compressed to one byte (RFC 1661).
pub(super) fn ppp<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    let first = *data.first()?;
    let (protocol, data) =
        if first & 1 == 1 { (first.into(), &data[1..]) } else { (be16(data, 0)?, &data[2..]) };
    match protocol {
        PPP_IPV4 => ip::v4(data),
        PPP_IPV6 => ip::v6(data),
        _ if PPP_MPLS.contains(&protocol) => labelled(MPLS_UNICAST, data, headers),
        _ => Some((NetworkLayer::Other(protocol), data)),
    }
}

/// Parses a packet after MPLS labels, which do not say what they carry. If the data looks neither like
/// IP nor like Ethernet, the packet counts as MPLS.
fn labelled<'a>(
    ether_type: u16,
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    let (labels, _) = data.as_chunks::<4>();
    let last = labels.iter().position(|label| label[2] & 1 == 1)?;
    let carried = &data[(last + 1) * 4..];
    let other = (NetworkLayer::Other(ether_type), carried);
    Some(raw(carried).or_else(|| pseudowire(carried, headers)).unwrap_or(other))
}

/// Parses Ethernet after MPLS labels, with or without the control word of RFC 4385.
fn pseudowire<'a>(data: &'a [u8], headers: &mut LinkHeaders) -> Option<(NetworkLayer, &'a [u8])> {
    let mut inner = headers.inside(Tunnel::Mpls)?;
    // Without the control word first: a frame with one rarely has a valid ethertype at the offset of a
    // frame without. In the other order, a VLAN tag would shift the ethertype to the offset that is read.
    let found = likely_ethernet(data, &mut inner).or_else(|| {
        let has_control_word = data.first()? >> 4 == 0;
        likely_ethernet(data.get(4..).filter(|_| has_control_word)?, &mut inner)
    })?;
    *headers = inner;
    Some(found)
}

/// Parses IP of either version, or else an Ethernet frame.
pub(super) fn untyped<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    raw(data).or_else(|| likely_ethernet(data, headers))
}

/// Parses an Ethernet frame that is recognized only by the IP in it.
fn likely_ethernet<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    let mut inner = *headers;
    let found @ (NetworkLayer::Ip(_), _) = ethernet(data, &mut inner)? else { return None };
    *headers = inner;
    Some(found)
}
