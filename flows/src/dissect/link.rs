//! Ethernet, and the headers between it and IP: tags, MPLS labels, and tunnels without an outer IP header.

use super::ip::{self, LengthFit};
use super::wire_bytes::WireBytes;
use super::{IPV4, IPV6, LinkHeaders, NetworkLayer, ppp};
use super::{be16, be32};
use crate::Tunnel;

const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
/// Tags that name no VLAN: of VMs and port extenders (VN-Tag, 802.1BR), of redundant rings (HSR), of
/// security groups (Cisco metadata), and of `MACsec`.
const VN_TAG: u16 = 0x8926;
const E_TAG: u16 = 0x893f;
const HSR: u16 = 0x892f;
const CISCO_METADATA: u16 = 0x8909;
const MACSEC: u16 = 0x88e5;

pub(super) const MPLS_UNICAST: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;
/// Provider backbone bridges (802.1ah).
const PBB: u16 = 0x88e7;
const TRILL: u16 = 0x22f3;
pub(super) const NSH: u16 = 0x894f;

/// Largest length of a frame of IEEE 802.3, which has no ethertype.
const LENGTH_MAX: u16 = 1500;
/// LLC headers before a SNAP header, and before IP.
const LLC_SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
const LLC_IP: [u8; 3] = [0x06, 0x06, 0x03];
/// Organizations in a SNAP header after which the type is an ethertype: none, and bridged Ethernet.
const SNAP_ETHERTYPE: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];
const SNAP: usize = 8;

/// `MACsec`: bits that say that what follows is encrypted or changed, and that a channel id follows.
const MACSEC_HIDDEN: u8 = 0x0c;
const MACSEC_CHANNEL: u8 = 0x20;

/// Bytes that may be between a session of `L2TPv3` and its frame: a cookie, a sublayer, or both.
const L2TP_GAPS: [usize; 4] = [0, 4, 8, 12];

/// Address families: those of IPv6 are the values of Linux, the BSDs and Darwin.
const AF_INET: u32 = 2;
const AF_INET6: [u32; 4] = [10, 24, 28, 30];

pub(super) type Found<'a> = Option<(NetworkLayer, WireBytes<'a>)>;

/// Parses an Ethernet frame; `None` if its header is cut off, or the IP header after it is.
#[inline]
pub(super) fn ethernet<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let (ether_type, rest) = after_tags(be16(&data, 12)?, data.after(14)?, headers)?;
    if ether_type > LENGTH_MAX {
        return untagged(ether_type, rest, headers);
    }
    let found = llc(rest.up_to(ether_type.into()), headers);
    // A frame that is neither IP nor named by SNAP is known by its length.
    found.map(|(net, rest)| match net {
        NetworkLayer::Other(0) => (NetworkLayer::Other(ether_type), rest),
        net => (net, rest),
    })
}

/// Parses the data after an ethertype.
#[inline]
pub(super) fn typed<'a>(
    ether_type: u16,
    data: WireBytes<'a>,
    headers: &mut LinkHeaders,
) -> Found<'a> {
    let (ether_type, data) = after_tags(ether_type, data, headers)?;
    untagged(ether_type, data, headers)
}

/// Skips tags.
#[inline]
fn after_tags<'a>(
    mut ether_type: u16,
    mut data: WireBytes<'a>,
    headers: &mut LinkHeaders,
) -> Option<(u16, WireBytes<'a>)> {
    loop {
        let size = match ether_type {
            IPV4 | IPV6 => break,
            tag if VLAN.contains(&tag) => {
                headers.push(be16(&data, 0)? & 0x0fff);
                2
            }
            VN_TAG | HSR => 4,
            CISCO_METADATA => 2 + 4 * usize::from(*data.get(1)?),
            MACSEC if data.first()? & MACSEC_HIDDEN != 0 => break,
            MACSEC if data[0] & MACSEC_CHANNEL != 0 => 14,
            MACSEC | E_TAG => 6,
            _ => break,
        };
        (ether_type, data) = (be16(&data, size)?, data.after(size + 2)?);
    }
    Some((ether_type, data))
}

#[inline]
fn untagged<'a>(ether_type: u16, data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    match ether_type {
        IPV4 => ip::v4(data),
        IPV6 => ip::v6(data),
        MPLS_UNICAST | MPLS_MULTICAST => labelled(ether_type, data, headers),
        PPPOE_SESSION => pppoe(data, headers),
        PBB => pbb(data, headers),
        TRILL => trill(data, headers),
        NSH => nsh(data, headers),
        _ => Some((NetworkLayer::Other(ether_type), data)),
    }
}

/// Parses the data after a length or an 802.11 header: a header of LLC, mostly with SNAP.
pub(super) fn llc<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    if data.starts_with(&LLC_IP) {
        return ip::v4(data.after(LLC_IP.len())?);
    }
    let organization = data.get(3..6).filter(|_| data.starts_with(&LLC_SNAP));
    if organization.is_some_and(|found| SNAP_ETHERTYPE.iter().any(|known| known == found)) {
        return typed(be16(&data, 6)?, data.after(SNAP)?, headers);
    }
    Some((NetworkLayer::Other(0), data))
}

/// Parses what a tunnel without an outer IP header carries; it counts as a tunnel only if that is IP.
fn inside<'a>(
    tunnel: Tunnel,
    headers: &mut LinkHeaders,
    other: (NetworkLayer, WireBytes<'a>),
    parse: impl FnOnce(&mut LinkHeaders) -> Found<'a>,
) -> Found<'a> {
    let Some(mut inner) = headers.inside(tunnel) else { return Some(other) };
    match parse(&mut inner)? {
        found @ (NetworkLayer::Ip(_), _) => {
            *headers = inner;
            Some(found)
        }
        _ => Some(other),
    }
}

/// Parses a `PPPoE` session (RFC 2516).
pub(super) fn pppoe<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    const SIZE: usize = 6;
    /// Version and type, and the code of a session.
    const SESSION: [u8; 2] = [0x11, 0];
    let header = data.first_chunk::<SIZE>()?;
    let other = (NetworkLayer::Other(PPPOE_SESSION), data);
    if !header.starts_with(&SESSION) {
        return Some(other);
    }
    let session = Tunnel::Pppoe(u16::from_be_bytes([header[2], header[3]]).into());
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = data.after(SIZE)?.up_to(length);
    inside(session, headers, other, |inner| ppp::protocol(payload, inner))
}

/// Parses a frame of a provider backbone bridge after its service tag.
fn pbb<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let service = be32(&data, 0)? & 0x00ff_ffff;
    let (frame, other) = (data.after(4)?, (NetworkLayer::Other(PBB), data));
    inside(Tunnel::Pbb(service), headers, other, |inner| ethernet(frame, inner))
}

/// Parses a frame after a TRILL header (RFC 6325) of version 0.
fn trill<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let (flags, other) = (be16(&data, 0)?, (NetworkLayer::Other(TRILL), data));
    if flags >> 14 != 0 {
        return Some(other);
    }
    let frame = data.after(6 + 4 * usize::from(flags >> 6 & 0x1f))?;
    inside(Tunnel::Trill, headers, other, |inner| ethernet(frame, inner))
}

/// Parses a packet after a network service header (RFC 8300) of version 0.
fn nsh<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let &[version, length, _, next] = data.first_chunk()?;
    let other = (NetworkLayer::Other(NSH), data);
    let words = usize::from(length & 0x3f);
    if version >> 6 != 0 || words < 2 {
        return Some(other);
    }
    let payload = data.after(words * 4)?;
    inside(Tunnel::Nsh, headers, other, |inner| match next {
        1 => ip::v4(payload),
        2 => ip::v6(payload),
        3 => ethernet(payload, inner),
        4 => nsh(payload, inner),
        5 => labelled(MPLS_UNICAST, payload, inner),
        _ => Some((NetworkLayer::Other(NSH), payload)),
    })
}

/// Parses the link types NULL and LOOP: the address family of the system that captured, in unknown byte
/// order, and a packet.
pub(super) fn loopback(data: WireBytes<'_>) -> Found<'_> {
    let family = data.first_chunk::<4>()?;
    let family = u32::from_le_bytes(*family).min(u32::from_be_bytes(*family));
    match family {
        AF_INET => ip::v4(data.after(4)?),
        family if AF_INET6.contains(&family) => ip::v6(data.after(4)?),
        _ => Some((NetworkLayer::Other(0), data)),
    }
}

/// Parses a packet after MPLS labels, which do not say what they carry. If the data looks neither like
/// IP nor like Ethernet, the packet counts as MPLS.
pub(super) fn labelled<'a>(
    ether_type: u16,
    data: WireBytes<'a>,
    headers: &mut LinkHeaders,
) -> Found<'a> {
    let (labels, _) = data.as_chunks::<4>();
    let last = labels.iter().position(|label| label[2] & 1 == 1)?;
    let carried = data.after((last + 1) * 4)?;
    let other = (NetworkLayer::Other(ether_type), carried);
    let Some(mut inner) = headers.inside(Tunnel::Mpls) else {
        // Labels alone are no tunnel, so IP after them counts at any depth.
        let is_ip = ip::untyped_fit(carried).is_some();
        return Some(ip::either(carried).filter(|_| is_ip).unwrap_or(other));
    };
    Some(match likelier(carried, pseudowire(carried, &mut inner)) {
        Some(Likelier::Ip(found)) => found,
        Some(Likelier::Frame(found)) => {
            *headers = inner;
            found
        }
        None => other,
    })
}

/// Parses Ethernet after MPLS labels, with or without the control word of RFC 4385.
fn pseudowire<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let has_control_word = data.first()? >> 4 == 0;
    let gaps: &[usize] = if has_control_word { &[0, 4] } else { &[0] };
    likely_ethernet(data, gaps, headers)
}

/// Parses IP of either version, or else an Ethernet frame.
pub(super) fn untyped<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let mut inner = *headers;
    match likelier(data, likely_ethernet(data, &[0], &mut inner))? {
        Likelier::Ip(found) => Some(found),
        Likelier::Frame(found) => {
            *headers = inner;
            Some(found)
        }
    }
}

/// What data without a type before it is.
enum Likelier<'a> {
    Ip((NetworkLayer, WireBytes<'a>)),
    Frame((NetworkLayer, WireBytes<'a>)),
}

/// Decides between IP and the frame that the same bytes can be: a MAC address may begin as IP does. The
/// lengths decide; if they fit both, the checksum of IPv4 does.
fn likelier<'a>(data: WireBytes<'a>, frame: Found<'a>) -> Option<Likelier<'a>> {
    let (ip, framed) = (ip::untyped_fit(data), frame.as_ref().and_then(|(net, _)| fit_of(net)));
    let is_ip = ip > framed || ip.is_some() && ip == framed && ip::has_right_checksum(&data);
    if is_ip { ip::either(data).map(Likelier::Ip) } else { frame.map(Likelier::Frame) }
}

/// Parses an Ethernet frame that is recognized only by the IP in it, after one of these numbers of bytes:
/// where the lengths fit exactly, or else the first where they are possible.
pub(super) fn likely_ethernet<'a>(
    data: WireBytes<'a>,
    gaps: &[usize],
    headers: &mut LinkHeaders,
) -> Found<'a> {
    let mut best: Option<(LengthFit, LinkHeaders, _)> = None;
    for gap in gaps {
        let mut inner = *headers;
        let found = data.after(*gap).and_then(|frame| ethernet(frame, &mut inner));
        let fit = found.as_ref().and_then(|(net, _)| fit_of(net));
        if let Some((fit, found)) = fit.zip(found)
            && fit > LengthFit::Wrong
            && best.as_ref().is_none_or(|(known, ..)| fit > *known)
        {
            best = Some((fit, inner, found));
        }
    }
    let (_, inner, found) = best?;
    *headers = inner;
    Some(found)
}

/// Parses the frame of a session of `L2TPv3`: the ends alone know how long its cookie is.
pub(super) fn l2tp_frame<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    likely_ethernet(data, &L2TP_GAPS, headers)
}

fn fit_of(net: &NetworkLayer) -> Option<LengthFit> {
    match net {
        NetworkLayer::Ip(ip) => Some(ip.fit),
        _ => None,
    }
}
