//! IPv4 and IPv6 with their extension headers, and the fields that are used of TCP, UDP, SCTP and ICMP.

use std::cmp::Ordering;

use super::wire_bytes::WireBytes;
use super::{ICMP, ICMP6, NetworkLayer, SCTP, TCP, UDP, be16, be32};
use crate::IcmpKind;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;
/// Most extension headers that are followed; legitimate senders have fewer.
const EXTENSIONS: usize = 12;
/// Most bytes after an IPv6 packet in a frame: padding of the shortest frames, and an FCS.
const PADDING: usize = 8;

/// Whether an IP packet is a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FragmentKind {
    /// Not a fragment.
    #[default]
    Whole,
    /// The first fragment, which has the ports.
    First,
    /// A later fragment, without ports.
    Later,
}

/// Fields of a TCP header that was captured at least up to its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpFields {
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) window: u16,
}

/// Whether the length in an IP header fits what follows it on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LengthFit {
    /// The packet would be longer than what there is.
    Wrong,
    /// More follows, such as padding, or the header leaves the length open.
    Shorter,
    /// Nothing follows.
    Exact,
}

/// Fields of an IP header, and of the transport header after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpFields {
    pub(crate) v6: bool,
    /// Addresses; those of IPv4 in the low bits.
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// Protocol of the payload, after extension headers.
    pub(crate) protocol: u8,
    pub(crate) options: bool,
    pub(crate) fragment: FragmentKind,
    /// 0 without a port, or if it was cut off.
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) tcp: Option<TcpFields>,
    pub(crate) icmp: Option<IcmpKind>,
    pub(crate) fit: LengthFit,
}

impl LengthFit {
    #[inline]
    fn of(stated: usize, data: WireBytes<'_>) -> Self {
        match stated.cmp(&data.wire_length()) {
            Ordering::Greater => Self::Wrong,
            Ordering::Less => Self::Shorter,
            Ordering::Equal => Self::Exact,
        }
    }
}

/// Parses an IPv4 packet; `None` if the header is malformed, or cut off before its 20 bytes.
#[inline]
pub(super) fn v4(data: WireBytes<'_>) -> Option<(NetworkLayer, WireBytes<'_>)> {
    let header = data.first_chunk::<20>()?;
    let size = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || size < 20 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Senders set a length of 0 when they pass a large segment to the NIC, which fills it in.
    let packet = if total == 0 { data } else { data.up_to(total) };
    let place = u16::from_be_bytes([header[6], header[7]]);
    let fragment = match (place & 0x1fff, place & 0x2000) {
        (0, 0) => FragmentKind::Whole,
        (0, _) => FragmentKind::First,
        _ => FragmentKind::Later,
    };
    let mut ip = IpFields {
        v6: false,
        source: u32::from_be_bytes([header[12], header[13], header[14], header[15]]).into(),
        destination: u32::from_be_bytes([header[16], header[17], header[18], header[19]]).into(),
        protocol: header[9],
        options: size > 20,
        fragment,
        source_port: 0,
        destination_port: 0,
        tcp: None,
        icmp: None,
        fit: LengthFit::of(total, data),
    };
    let mut payload = packet.after(size).unwrap_or_default();
    if ip.protocol == AUTHENTICATION && fragment != FragmentKind::Later {
        payload = extensions(&mut ip, payload);
    }
    transport(&mut ip, payload.captured());
    Some((NetworkLayer::Ip(ip), payload))
}

/// Parses an IPv6 packet; `None` if the header is malformed, or cut off before its 40 bytes.
#[inline]
pub(super) fn v6(data: WireBytes<'_>) -> Option<(NetworkLayer, WireBytes<'_>)> {
    let header = data.first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = if length == 0 { data } else { data.up_to(40 + length) };
    let mut ip = IpFields {
        v6: true,
        source: u128::from_be_bytes(*header[8..].first_chunk()?),
        destination: u128::from_be_bytes(*header[24..].first_chunk()?),
        protocol: header[6],
        options: false,
        fragment: FragmentKind::Whole,
        source_port: 0,
        destination_port: 0,
        tcp: None,
        icmp: None,
        fit: LengthFit::of(40 + length, data),
    };
    let payload = extensions(&mut ip, packet.after(40)?);
    transport(&mut ip, payload.captured());
    Some((NetworkLayer::Ip(ip), payload))
}

/// Skips extension headers, and sets the protocol to that of the payload. If the extensions are cut
/// off, it is the number of the first missing one.
#[inline]
fn extensions<'a>(ip: &mut IpFields, mut data: WireBytes<'a>) -> WireBytes<'a> {
    for _ in 0..EXTENSIONS {
        let size = match (ip.protocol, data.captured()) {
            (HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HIP | SHIM6, [_, size, ..]) => {
                (usize::from(*size) + 1) * 8
            }
            (AUTHENTICATION, [_, size, ..]) => (usize::from(*size) + 2) * 4,
            (FRAGMENT, [_, _, high, low, ..]) => {
                ip.fragment = match (u16::from_be_bytes([*high, *low]) >> 3, low & 1) {
                    // An atomic fragment (RFC 6946) is the whole packet.
                    (0, 0) => ip.fragment,
                    (0, _) => FragmentKind::First,
                    _ => FragmentKind::Later,
                };
                8
            }
            _ => break,
        };
        let Some(rest) = data.after(size) else { return WireBytes::default() };
        (ip.protocol, data) = (data[0], rest);
        if ip.fragment == FragmentKind::Later {
            break;
        }
    }
    data
}

#[inline]
fn transport(ip: &mut IpFields, data: &[u8]) {
    if ip.fragment == FragmentKind::Later {
        return;
    }
    match ip.protocol {
        TCP | UDP | SCTP => {
            let Some(ports) = be32(data, 0) else { return };
            (ip.source_port, ip.destination_port) = ((ports >> 16) as u16, (ports & 0xffff) as u16);
            if ip.protocol == TCP {
                ip.tcp = tcp(data);
            }
        }
        ICMP | ICMP6 => {
            ip.icmp = data.first_chunk().map(|&[kind, code]| IcmpKind { kind, code });
        }
        _ => {}
    }
}

#[inline]
fn tcp(data: &[u8]) -> Option<TcpFields> {
    let (sequence, flags, window) = (be32(data, 4)?, *data.get(13)?, be16(data, 14)?);
    Some(TcpFields { flags, sequence, window })
}

/// Returns whether data without a type before it can be an IP packet, by its version and length: if more
/// follows than the packet, the checksum of an IPv4 header must be right, and after IPv6 it may be only a
/// few bytes of padding. A MAC address is seldom that much like IP.
pub(super) fn untyped_fit(data: WireBytes<'_>) -> Option<LengthFit> {
    let (NetworkLayer::Ip(ip), _) = either(data)? else { return None };
    let likely = match ip.fit {
        LengthFit::Wrong => false,
        LengthFit::Shorter if ip.v6 => data.wire_length() - v6_length(&data)? <= PADDING,
        LengthFit::Shorter => has_right_checksum(&data),
        LengthFit::Exact => true,
    };
    likely.then_some(ip.fit)
}

/// Parses IP of either version.
pub(super) fn either(data: WireBytes<'_>) -> Option<(NetworkLayer, WireBytes<'_>)> {
    match data.first()? >> 4 {
        4 => v4(data),
        6 => v6(data),
        _ => None,
    }
}

/// Returns the length of an IPv6 packet that its header states.
fn v6_length(data: &[u8]) -> Option<usize> {
    Some(40 + usize::from(be16(data, 4)?))
}

/// Returns whether data is an IPv4 header with a right checksum.
pub(super) fn has_right_checksum(data: &[u8]) -> bool {
    let size = data.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let Some(header) = data.get(..size).filter(|_| data[0] >> 4 == 4 && size >= 20) else {
        return false;
    };
    let (words, _) = header.as_chunks::<2>();
    let sum = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16) == 0xffff
}
