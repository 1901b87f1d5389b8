//! Tunnels with an outer IP header: VXLAN, GENEVE, GRE, ERSPAN, GTP-U, L2TP, Teredo, MPLS, Ethernet and IP
//! in IP, and others.

use super::ip::{FragmentKind, IpFields};
use super::link::{MPLS_UNICAST, NSH};
use super::wire_bytes::WireBytes;
use super::{GRE, IPV4, IPV6, UDP, be16, be32};
use crate::Tunnel;

/// IP protocol numbers.
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const ETHER_IP: u8 = 97;
const L2TP: u8 = 115;
const MPLS_IN_IP: u8 = 137;
/// Ethernet after an `SRv6` header (RFC 8986).
const ETHERNET_IN_IP: u8 = 143;

/// The port of the standard, and the earlier one of Linux.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const VXLAN_GPE_PORT: u16 = 4790;
const GENEVE_PORT: u16 = 6081;
const GTP_U_PORT: u16 = 2152;
const GRE_IN_UDP_PORT: u16 = 4754;
const GUE_PORT: u16 = 6080;
const MPLS_IN_UDP_PORT: u16 = 6635;
/// Ports of servers, whose answers come from them.
const L2TP_PORT: u16 = 1701;
const TEREDO_PORT: u16 = 3544;
const UDP_HEADER: usize = 8;

const TRANSPARENT_ETHERNET: u16 = 0x6558;
/// ERSPAN of types I and II, and of type III.
const ERSPAN: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;
/// PPP in GRE version 1 (RFC 2637).
const PPTP: u16 = 0x880b;

/// GTP-U message type of a user's packet.
const G_PDU: u8 = 255;
/// Most GTP-U extension headers that are followed; legitimate senders have fewer.
const GTP_EXTENSIONS: usize = 8;

/// The payload of a tunnel.
pub(super) enum TunnelPayload<'a> {
    Ethernet(WireBytes<'a>),
    /// A packet with its ethertype.
    Typed(u16, WireBytes<'a>),
    /// IP of either version, or Ethernet.
    Untyped(WireBytes<'a>),
    /// A PPP frame.
    Ppp(WireBytes<'a>),
    /// Ethernet after a header of unknown length, as in `L2TPv3`.
    L2tpFrame(WireBytes<'a>),
}

type Entered<'a> = Option<(Tunnel, TunnelPayload<'a>)>;

/// Returns whether a packet may be a tunnel: a quick check that does not read the tunnel header.
#[inline]
pub(super) fn may_be(ip: &IpFields) -> bool {
    match ip.protocol {
        UDP => is_tunnel_port(ip.destination_port) || is_server_port(ip.source_port),
        GRE | IPV4_IN_IP | IPV6_IN_IP | ETHER_IP | L2TP | MPLS_IN_IP | ETHERNET_IN_IP => true,
        _ => false,
    }
}

#[inline]
fn is_tunnel_port(port: u16) -> bool {
    matches!(
        port,
        VXLAN_GPE_PORT | GENEVE_PORT | GTP_U_PORT | GRE_IN_UDP_PORT | GUE_PORT | MPLS_IN_UDP_PORT
    ) || VXLAN_PORTS.contains(&port)
        || is_server_port(port)
}

#[inline]
fn is_server_port(port: u16) -> bool {
    matches!(port, L2TP_PORT | TEREDO_PORT)
}

/// Returns the tunnel and its payload. Fragments are not parsed.
pub(super) fn enter<'a>(ip: &IpFields, data: WireBytes<'a>) -> Entered<'a> {
    if ip.fragment != FragmentKind::Whole {
        return None;
    }
    match ip.protocol {
        UDP => {
            // Senders of large segments leave the length to the NIC.
            let length = Some(be16(&data, 4)?).filter(|length| *length > 0);
            let datagram = length.map_or(data, |length| data.up_to(length.into()));
            let payload = datagram.after(UDP_HEADER)?;
            let port = ip.destination_port;
            let port = if is_tunnel_port(port) { port } else { ip.source_port };
            in_udp(port, payload)
        }
        protocol => in_ip(protocol, data),
    }
}

fn in_ip(protocol: u8, data: WireBytes<'_>) -> Entered<'_> {
    match protocol {
        GRE => gre(data),
        IPV4_IN_IP => Some((Tunnel::Ipip, TunnelPayload::Typed(IPV4, data))),
        IPV6_IN_IP => Some((Tunnel::Ipip, TunnelPayload::Typed(IPV6, data))),
        ETHER_IP => ether_ip(data),
        ETHERNET_IN_IP => Some((Tunnel::EtherIp, TunnelPayload::Ethernet(data))),
        L2TP => l2tp_session(data),
        MPLS_IN_IP => Some(mpls(data)),
        _ => None,
    }
}

fn in_udp(port: u16, data: WireBytes<'_>) -> Entered<'_> {
    match port {
        VXLAN_GPE_PORT => vxlan_gpe(data),
        GENEVE_PORT => geneve(data),
        GTP_U_PORT => gtp_u(data),
        GRE_IN_UDP_PORT => gre(data),
        GUE_PORT => gue(data),
        MPLS_IN_UDP_PORT => Some(mpls(data)),
        L2TP_PORT => l2tp(data),
        TEREDO_PORT => teredo(data),
        port if VXLAN_PORTS.contains(&port) => vxlan(data),
        _ => None,
    }
}

fn carried(ether_type: u16, data: WireBytes<'_>) -> TunnelPayload<'_> {
    match ether_type {
        TRANSPARENT_ETHERNET => TunnelPayload::Ethernet(data),
        _ => TunnelPayload::Typed(ether_type, data),
    }
}

fn mpls(data: WireBytes<'_>) -> (Tunnel, TunnelPayload<'_>) {
    (Tunnel::Mpls, TunnelPayload::Typed(MPLS_UNICAST, data))
}

/// Parses GRE version 0, with or without checksum, key and sequence number; NVGRE is GRE with a key.
/// Version 1 is PPTP.
fn gre(data: WireBytes<'_>) -> Entered<'_> {
    let (flags, ether_type) = (be16(&data, 0)?, be16(&data, 2)?);
    let (checksum, routing, key) = (flags & 0x8000 != 0, flags & 0x4000 != 0, flags & 0x2000 != 0);
    let sequence = flags & 0x1000 != 0;
    if flags & 7 == 1 && ether_type == PPTP && sequence {
        let acknowledged = flags & 0x0080 != 0;
        let frame = data.after(12 + 4 * usize::from(acknowledged))?;
        return Some((Tunnel::Pptp, TunnelPayload::Ppp(frame.up_to(be16(&data, 4)?.into()))));
    }
    if flags & 7 != 0 || routing {
        return None;
    }
    let at_key = 4 + 4 * usize::from(checksum);
    let id = if key { be32(&data, at_key)? } else { 0 };
    let inside = data.after(at_key + 4 * (usize::from(key) + usize::from(sequence)))?;
    match ether_type {
        // ERSPAN type I has no sequence number and no header; the other types have both.
        ERSPAN if !sequence => Some((Tunnel::Erspan(0), TunnelPayload::Ethernet(inside))),
        ERSPAN | ERSPAN_III => erspan(inside),
        _ => Some((Tunnel::Gre(id), carried(ether_type, inside))),
    }
}

/// Parses the header of ERSPAN type II (version 1) or III (version 2).
fn erspan(data: WireBytes<'_>) -> Entered<'_> {
    let session = u32::from(be16(&data, 2)? & 0x03ff);
    let size = match data.first()? >> 4 {
        1 => 8,
        // With or without the platform specific subheader.
        2 => 12 + 8 * usize::from(data.get(11)? & 1),
        _ => return None,
    };
    Some((Tunnel::Erspan(session), TunnelPayload::Ethernet(data.after(size)?)))
}

fn vxlan(data: WireBytes<'_>) -> Entered<'_> {
    let has_id = data.first()? & 0x08 != 0;
    let frame = TunnelPayload::Ethernet(data.after(8)?);
    has_id.then_some((Tunnel::Vxlan(be32(&data, 4)? >> 8), frame))
}

/// Parses VXLAN with the generic protocol extension, of version 0.
fn vxlan_gpe(data: WireBytes<'_>) -> Entered<'_> {
    let &[flags, _, _, next] = data.first_chunk()?;
    let (payload, tunnel) = (data.after(8)?, Tunnel::VxlanGpe(be32(&data, 4)? >> 8));
    let [version, has_id, has_next, is_oam] =
        [0x30, 0x08, 0x04, 0x01].map(|flag| flags & flag != 0);
    if version || is_oam || !has_id {
        return None;
    }
    let payload = match next {
        1 if has_next => TunnelPayload::Typed(IPV4, payload),
        2 if has_next => TunnelPayload::Typed(IPV6, payload),
        4 if has_next => TunnelPayload::Typed(NSH, payload),
        5 if has_next => TunnelPayload::Typed(MPLS_UNICAST, payload),
        3 => TunnelPayload::Ethernet(payload),
        _ if !has_next => TunnelPayload::Ethernet(payload),
        _ => return None,
    };
    Some((tunnel, payload))
}

fn geneve(data: WireBytes<'_>) -> Entered<'_> {
    let first = *data.first()?;
    let size = 8 + usize::from(first & 0x3f) * 4;
    let inside = carried(be16(&data, 2)?, data.after(size)?);
    (first >> 6 == 0).then_some((Tunnel::Geneve(be32(&data, 4)? >> 8), inside))
}

/// Parses `EtherIP` of version 3 (RFC 3378).
fn ether_ip(data: WireBytes<'_>) -> Entered<'_> {
    let frame = TunnelPayload::Ethernet(data.after(2)?);
    (data[0] >> 4 == 3).then_some((Tunnel::EtherIp, frame))
}

/// Parses generic UDP encapsulation: variant 0 names an IP protocol, variant 1 is IP itself.
fn gue(data: WireBytes<'_>) -> Entered<'_> {
    /// A message between the ends.
    const CONTROL: u8 = 0x20;
    let &[first, protocol] = data.first_chunk()?;
    let payload = match first >> 4 {
        4 => TunnelPayload::Typed(IPV4, data),
        6 => TunnelPayload::Typed(IPV6, data),
        0..=3 if first & CONTROL == 0 => {
            in_ip(protocol, data.after(4 + 4 * usize::from(first & 0x1f))?)?.1
        }
        _ => return None,
    };
    Some((Tunnel::Gue, payload))
}

/// Parses L2TP over UDP: PPP in version 2 (RFC 2661), Ethernet in version 3 (RFC 3931).
fn l2tp(data: WireBytes<'_>) -> Entered<'_> {
    const CONTROL: u16 = 0x8000;
    const LENGTH: u16 = 0x4000;
    const SEQUENCE: u16 = 0x0800;
    const OFFSET: u16 = 0x0200;
    let flags = be16(&data, 0)?;
    match flags & 0x000f {
        _ if flags & CONTROL != 0 => None,
        3 => l2tp_session(data.after(4)?),
        2 => {
            let length = if flags & LENGTH == 0 { None } else { Some(be16(&data, 2)?) };
            let data = length.map_or(data, |length| data.up_to(length.into()));
            let mut at = if length.is_some() { 8 } else { 6 };
            if flags & SEQUENCE != 0 {
                at += 4;
            }
            if flags & OFFSET != 0 {
                at += 2 + usize::from(be16(&data, at)?);
            }
            Some((Tunnel::L2tp, TunnelPayload::Ppp(data.after(at)?)))
        }
        _ => None,
    }
}

/// Parses a packet of `L2TPv3` from its session on, which is 0 for control messages.
fn l2tp_session(data: WireBytes<'_>) -> Entered<'_> {
    let frame = TunnelPayload::L2tpFrame(data.after(4)?);
    (be32(&data, 0)? != 0).then_some((Tunnel::L2tp, frame))
}

/// Parses Teredo (RFC 4380): IPv6 after an authentication and an origin, each of which may be missing.
fn teredo(mut data: WireBytes<'_>) -> Entered<'_> {
    if data.starts_with(&[0, 1]) {
        let &[_, _, client, key] = data.first_chunk()?;
        // The nonce and the confirmation follow.
        data = data.after(4 + usize::from(client) + usize::from(key) + 9)?;
    }
    if data.starts_with(&[0, 0]) {
        data = data.after(8)?;
    }
    let length = 40 + usize::from(be16(&data, 4)?);
    let is_ipv6 = data[0] >> 4 == 6 && length <= data.wire_length();
    is_ipv6.then_some((Tunnel::Teredo, TunnelPayload::Typed(IPV6, data)))
}

/// Parses a GTP-U message of version 1 that carries a user's packet (3GPP TS 29.281).
fn gtp_u(data: WireBytes<'_>) -> Entered<'_> {
    let header = data.first_chunk::<8>()?;
    // Version 1, and not GTP'.
    if header[0] & 0xf0 != 0x30 || header[1] != G_PDU {
        return None;
    }
    let data = data.up_to(8 + usize::from(u16::from_be_bytes([header[2], header[3]])));
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
    Some((Tunnel::GtpU, TunnelPayload::Untyped(data.after(at)?)))
}
