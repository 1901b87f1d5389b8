//! GRE, VXLAN and GENEVE.

use super::ip::{FragmentKind, IpFields};
use super::{GRE, UDP, be16, be32};
use crate::Tunnel;

/// Of the standard, and of Linux before it.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const GENEVE_PORT: u16 = 6081;
const UDP_HEADER: usize = 8;

const TRANSPARENT_ETHERNET: u16 = 0x6558;

/// What is in a tunnel.
pub(super) enum TunnelPayload<'a> {
    Ethernet(&'a [u8]),
    /// With its ethertype.
    Typed(u16, &'a [u8]),
}

/// A quick look, without that at its header.
#[inline]
pub(super) fn may_be(ip: &IpFields) -> bool {
    let port = ip.destination_port;
    ip.protocol == GRE
        || (ip.protocol == UDP && (port == GENEVE_PORT || VXLAN_PORTS.contains(&port)))
}

/// Looks into the payload of IP. A packet in fragments cannot be looked into.
pub(super) fn enter<'a>(ip: &IpFields, data: &'a [u8]) -> Option<(Tunnel, TunnelPayload<'a>)> {
    if ip.fragment != FragmentKind::Whole {
        return None;
    }
    match (ip.protocol, ip.destination_port) {
        (GRE, _) => gre(data),
        (UDP, GENEVE_PORT) => geneve(data.get(UDP_HEADER..)?),
        (UDP, port) if VXLAN_PORTS.contains(&port) => vxlan(data.get(UDP_HEADER..)?),
        _ => None,
    }
}

fn carried(ether_type: u16, data: &[u8]) -> TunnelPayload<'_> {
    match ether_type {
        TRANSPARENT_ETHERNET => TunnelPayload::Ethernet(data),
        _ => TunnelPayload::Typed(ether_type, data),
    }
}

/// Of version 0, with or without checksum, key and sequence number; NVGRE is one with a key.
fn gre(data: &[u8]) -> Option<(Tunnel, TunnelPayload<'_>)> {
    let flags = be16(data, 0)?;
    let (checksum, routing, key) = (flags & 0x8000 != 0, flags & 0x4000 != 0, flags & 0x2000 != 0);
    if flags & 7 != 0 || routing {
        return None;
    }
    let at_key = 4 + 4 * usize::from(checksum);
    let id = if key { be32(data, at_key)? } else { 0 };
    let size = at_key + 4 * (usize::from(key) + usize::from(flags & 0x1000 != 0));
    Some((Tunnel::Gre(id), carried(be16(data, 2)?, data.get(size..)?)))
}

fn vxlan(data: &[u8]) -> Option<(Tunnel, TunnelPayload<'_>)> {
    let has_id = data.first()? & 0x08 != 0;
    let frame = TunnelPayload::Ethernet(data.get(8..)?);
    has_id.then_some((Tunnel::Vxlan(be32(data, 4)? >> 8), frame))
}

fn geneve(data: &[u8]) -> Option<(Tunnel, TunnelPayload<'_>)> {
    let first = *data.first()?;
    let size = 8 + usize::from(first & 0x3f) * 4;
    let inside = carried(be16(data, 2)?, data.get(size..)?);
    (first >> 6 == 0).then_some((Tunnel::Geneve(be32(data, 4)? >> 8), inside))
}
