//! IPv4 and IPv6 with their extension headers, and the fields that are used of TCP, UDP, SCTP and ICMP.

use super::{ICMP, ICMP6, NetworkLayer, SCTP, TCP, UDP, be16, be32};

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
    /// ICMP type.
    pub(crate) icmp: Option<u8>,
}

/// Parses an IPv4 packet; `None` if the header is malformed, or cut off before its 20 bytes.
#[inline]
pub(super) fn v4(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    let header = data.first_chunk::<20>()?;
    let size = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || size < 20 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Senders set a length of 0 when they pass a large segment to the NIC, which fills it in.
    let end = if total == 0 { data.len() } else { data.len().min(total) };
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
    };
    let mut payload = data.get(size..end).unwrap_or_default();
    if ip.protocol == AUTHENTICATION && fragment != FragmentKind::Later {
        payload = extensions(&mut ip, payload);
    }
    transport(&mut ip, payload);
    Some((NetworkLayer::Ip(ip), payload))
}

/// Parses an IPv6 packet; `None` if the header is malformed, or cut off before its 40 bytes.
#[inline]
pub(super) fn v6(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    let (header, rest) = data.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = if length == 0 { rest.len() } else { rest.len().min(length) };
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
    };
    let payload = extensions(&mut ip, &rest[..end]);
    transport(&mut ip, payload);
    Some((NetworkLayer::Ip(ip), payload))
}

/// Skips extension headers, and sets the protocol to that of the payload. If the extensions are cut
/// off, it is the number of the first missing one.
#[inline]
fn extensions<'a>(ip: &mut IpFields, mut data: &'a [u8]) -> &'a [u8] {
    for _ in 0..EXTENSIONS {
        let size = match (ip.protocol, data) {
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
        let Some(rest) = data.get(size..) else { return &[] };
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
        ICMP | ICMP6 => ip.icmp = data.first().copied(),
        _ => {}
    }
}

#[inline]
fn tcp(data: &[u8]) -> Option<TcpFields> {
    let (sequence, flags, window) = (be32(data, 4)?, *data.get(13)?, be16(data, 14)?);
    Some(TcpFields { flags, sequence, window })
}
