//! Ethernet and what stands between it and IP: tags, sessions of PPP, labels of MPLS.

use super::{IPV4, IPV6, LinkHeaders, NetworkLayer, be16, ip};
use crate::Tunnel;

const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
pub(super) const MPLS_UNICAST: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;

/// Version and type of `PPPoE`.
const PPPOE_VERSION: u8 = 0x11;
/// The header of `PPPoE`.
const PPPOE_HEADER: usize = 6;

/// Address and control field of HDLC: of PPP, and the address of Cisco's.
const PPP_FRAMING: [u8; 2] = [0xff, 0x03];
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_MULTICAST: u8 = 0x8f;

/// Address families: those of IPv6 are Linux', of the BSDs and of Darwin.
const AF_INET: u32 = 2;
const AF_INET6: [u32; 4] = [10, 24, 28, 30];

/// Protocols of PPP.
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: [u16; 2] = [0x0281, 0x0283];

/// `None` where the header is not there as a whole, or that of IP behind it.
#[inline]
pub(super) fn ethernet<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    typed(be16(data, 12)?, &data[14..], headers)
}

/// What stands behind a type.
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

/// IP of either version, without a type in front.
pub(super) fn raw(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    match data.first()? >> 4 {
        4 => ip::v4(data),
        6 => ip::v6(data),
        _ => None,
    }
}

/// A session of `PPPoE` (RFC 2516), which is a tunnel if there is IP in it.
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

/// The link types NULL and LOOP: the address family of the system that captured, whose byte order is not
/// known, and a packet.
pub(super) fn loopback(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    let family = data.first_chunk::<4>()?;
    let family = u32::from_le_bytes(*family).min(u32::from_be_bytes(*family));
    match family {
        AF_INET => ip::v4(&data[4..]),
        family if AF_INET6.contains(&family) => ip::v6(&data[4..]),
        _ => Some((NetworkLayer::Other(0), data)),
    }
}

/// A frame of PPP with the framing of HDLC (RFC 1662), or without; or one of Cisco's.
pub(super) fn ppp_frame<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    match *data.first()? {
        CISCO_UNICAST | CISCO_MULTICAST => cisco_hdlc(data, headers),
        _ => ppp(data.strip_prefix(&PPP_FRAMING).unwrap_or(data), headers),
    }
}

/// A frame of Cisco's HDLC.
pub(super) fn cisco_hdlc<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    typed(be16(data, 2)?, &data[4..], headers)
}

/// A frame of PPP from its protocol on, which may be shortened to a byte (RFC 1661).
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

/// Labels do not say what they carry; where it looks neither like IP nor like Ethernet, it is none.
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

/// Ethernet behind labels, with the control word of RFC 4385 or without.
fn pseudowire<'a>(data: &'a [u8], headers: &mut LinkHeaders) -> Option<(NetworkLayer, &'a [u8])> {
    let mut inner = headers.inside(Tunnel::Mpls)?;
    // With one, a type hardly ever stands where it is without; the other way round, tags shift it there.
    let found = likely_ethernet(data, &mut inner).or_else(|| {
        let has_control_word = data.first()? >> 4 == 0;
        likely_ethernet(data.get(4..).filter(|_| has_control_word)?, &mut inner)
    })?;
    *headers = inner;
    Some(found)
}

/// IP of either version, or else a frame of Ethernet.
pub(super) fn untyped<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    raw(data).or_else(|| likely_ethernet(data, headers))
}

/// A frame of Ethernet, where nothing says that it is one but the IP in it.
fn likely_ethernet<'a>(
    data: &'a [u8],
    headers: &mut LinkHeaders,
) -> Option<(NetworkLayer, &'a [u8])> {
    let mut inner = *headers;
    let found @ (NetworkLayer::Ip(_), _) = ethernet(data, &mut inner)? else { return None };
    *headers = inner;
    Some(found)
}
