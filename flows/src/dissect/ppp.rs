//! PPP in its framings, and Cisco HDLC.

use super::link::{self, Found};
use super::wire_bytes::WireBytes;
use super::{LinkHeaders, NetworkLayer, be16, ip};

/// Address and control field of PPP in HDLC framing, and the addresses of Cisco HDLC.
const FRAMING: [u8; 2] = [0xff, 0x03];
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_MULTICAST: u8 = 0x8f;

/// PPP protocols.
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;
const MPLS: [u16; 2] = [0x0281, 0x0283];

/// Parses a PPP frame with or without HDLC framing (RFC 1662), or a Cisco HDLC frame.
pub(super) fn or_cisco_hdlc<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    match *data.first()? {
        CISCO_UNICAST | CISCO_MULTICAST => cisco_hdlc(data, headers),
        _ => frame(data, headers),
    }
}

/// Parses a Cisco HDLC frame.
pub(super) fn cisco_hdlc<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    link::typed(be16(&data, 2)?, data.after(4)?, headers)
}

/// Parses a PPP frame with or without HDLC framing.
pub(super) fn frame<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let framing = if data.starts_with(&FRAMING) { FRAMING.len() } else { 0 };
    protocol(data.after(framing)?, headers)
}

/// Parses a PPP frame from its protocol field on, which may be compressed to one byte (RFC 1661).
pub(super) fn protocol<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let first = *data.first()?;
    let (protocol, data) = if first & 1 == 1 {
        (first.into(), data.after(1)?)
    } else {
        (be16(&data, 0)?, data.after(2)?)
    };
    match protocol {
        IPV4 => ip::v4(data),
        IPV6 => ip::v6(data),
        _ if MPLS.contains(&protocol) => link::labelled(link::MPLS_UNICAST, data, headers),
        _ => Some((NetworkLayer::Other(protocol), data)),
    }
}
