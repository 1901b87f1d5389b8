//! Tunnels with an outer IP header: VXLAN, GENEVE, GRE, ERSPAN, GTP-U, MPLS and IP in IP.

use super::ip::{FragmentKind, IpFields};
use super::link::MPLS_UNICAST;
use super::{GRE, IPV4, IPV6, UDP, be16, be32};
use crate::Tunnel;

/// IP protocol numbers.
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const MPLS_IN_IP: u8 = 137;

/// The port of the standard, and the earlier one of Linux.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const GENEVE_PORT: u16 = 6081;
const GTP_U_PORT: u16 = 2152;
const GRE_IN_UDP_PORT: u16 = 4754;
const MPLS_IN_UDP_PORT: u16 = 6635;
const UDP_HEADER: usize = 8;

const TRANSPARENT_ETHERNET: u16 = 0x6558;
/// ERSPAN of types I and II, and of type III.
const ERSPAN: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;

/// GTP-U message type of a user's packet.
const G_PDU: u8 = 255;
/// Most GTP-U extension headers that are followed; legitimate senders have fewer.
const GTP_EXTENSIONS: usize = 8;

/// The payload of a tunnel.
pub(super) enum TunnelPayload<'a> {
    Ethernet(&'a [u8]),
    /// A packet with its ethertype.
    Typed(u16, &'a [u8]),
    /// IP of either version, or Ethernet.
    Untyped(&'a [u8]),
}

type Entered<'a> = Option<(Tunnel, TunnelPayload<'a>)>;

/// Returns whether a packet may be a tunnel: a quick check that does not read the tunnel header.
#[inline]
pub(super) fn may_be(ip: &IpFields) -> bool {
    match ip.protocol {
        UDP => is_tunnel_port(ip.destination_port),
        GRE | IPV4_IN_IP | IPV6_IN_IP | MPLS_IN_IP => true,
        _ => false,
    }
}

#[inline]
fn is_tunnel_port(port: u16) -> bool {
    matches!(port, GENEVE_PORT | GTP_U_PORT | GRE_IN_UDP_PORT | MPLS_IN_UDP_PORT)
        || VXLAN_PORTS.contains(&port)
}

/// Returns the tunnel and its payload. Fragments are not parsed.
pub(super) fn enter<'a>(ip: &IpFields, data: &'a [u8]) -> Entered<'a> {
    if ip.fragment != FragmentKind::Whole {
        return None;
    }
    match ip.protocol {
        GRE => gre(data),
        IPV4_IN_IP => Some((Tunnel::Ipip, TunnelPayload::Typed(IPV4, data))),
        IPV6_IN_IP => Some((Tunnel::Ipip, TunnelPayload::Typed(IPV6, data))),
        MPLS_IN_IP => Some(mpls(data)),
        UDP => in_udp(ip.destination_port, data.get(UDP_HEADER..)?),
        _ => None,
    }
}

fn in_udp(port: u16, data: &[u8]) -> Entered<'_> {
    match port {
        GENEVE_PORT => geneve(data),
        GTP_U_PORT => gtp_u(data),
        GRE_IN_UDP_PORT => gre(data),
        MPLS_IN_UDP_PORT => Some(mpls(data)),
        port if VXLAN_PORTS.contains(&port) => vxlan(data),
        _ => None,
    }
}

fn carried(ether_type: u16, data: &[u8]) -> TunnelPayload<'_> {
    match ether_type {
        TRANSPARENT_ETHERNET => TunnelPayload::Ethernet(data),
        _ => TunnelPayload::Typed(ether_type, data),
    }
}

fn mpls(data: &[u8]) -> (Tunnel, TunnelPayload<'_>) {
    (Tunnel::Mpls, TunnelPayload::Typed(MPLS_UNICAST, data))
}

/// Parses GRE version 0, with or without checksum, key and sequence number; NVGRE is GRE with a key.
fn gre(data: &[u8]) -> Entered<'_> {
    let (flags, ether_type) = (be16(data, 0)?, be16(data, 2)?);
    let (checksum, routing, key) = (flags & 0x8000 != 0, flags & 0x4000 != 0, flags & 0x2000 != 0);
    let sequence = flags & 0x1000 != 0;
    if flags & 7 != 0 || routing {
        return None;
    }
    let at_key = 4 + 4 * usize::from(checksum);
    let id = if key { be32(data, at_key)? } else { 0 };
    let inside = data.get(at_key + 4 * (usize::from(key) + usize::from(sequence))..)?;
    match ether_type {
        // ERSPAN type I has no sequence number and no header; the other types have both.
        ERSPAN if !sequence => Some((Tunnel::Erspan(0), TunnelPayload::Ethernet(inside))),
        ERSPAN | ERSPAN_III => erspan(inside),
        _ => Some((Tunnel::Gre(id), carried(ether_type, inside))),
    }
}

/// Parses the header of ERSPAN type II (version 1) or III (version 2).
fn erspan(data: &[u8]) -> Entered<'_> {
    let session = u32::from(be16(data, 2)? & 0x03ff);
    let size = match data.first()? >> 4 {
        1 => 8,
        // With or without the platform specific subheader.
        2 => 12 + 8 * usize::from(data.get(11)? & 1),
        _ => return None,
    };
    Some((Tunnel::Erspan(session), TunnelPayload::Ethernet(data.get(size..)?)))
}

fn vxlan(data: &[u8]) -> Entered<'_> {
    let has_id = data.first()? & 0x08 != 0;
    let frame = TunnelPayload::Ethernet(data.get(8..)?);
    has_id.then_some((Tunnel::Vxlan(be32(data, 4)? >> 8), frame))
}

fn geneve(data: &[u8]) -> Entered<'_> {
    let first = *data.first()?;
    let size = 8 + usize::from(first & 0x3f) * 4;
    let inside = carried(be16(data, 2)?, data.get(size..)?);
    (first >> 6 == 0).then_some((Tunnel::Geneve(be32(data, 4)? >> 8), inside))
}

/// Parses a GTP-U message of version 1 that carries a user's packet (3GPP TS 29.281).
fn gtp_u(data: &[u8]) -> Entered<'_> {
    let header = data.first_chunk::<8>()?;
    // Version 1, and not GTP'.
    if header[0] & 0xf0 != 0x30 || header[1] != G_PDU {
        return None;
    }
    let end = 8 + usize::from(u16::from_be_bytes([header[2], header[3]]));
    let data = data.get(..end.min(data.len()))?;
    let mut at = 8;
    // If any flag is set, four optional bytes follow; the last one is the type of the first extension.
    if header[0] & 0x07 != 0 {
        at = 12;
        let mut next = if header[0] & 0x04 == 0 { 0 } else { *data.get(11)? };
        for _ in 0..GTP_EXTENSIONS {
            if next == 0 {
                break;
            }
            let size = 4 * usize::from(*data.get(at)?);
            next = *data.get(at + size.checked_sub(1)?)?;
            at += size;
        }
        if next != 0 {
            return None;
        }
    }
    Some((Tunnel::GtpU, TunnelPayload::Untyped(data.get(at..)?)))
}
