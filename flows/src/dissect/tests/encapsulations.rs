//! Packets in tunnels of all kinds.

use super::*;

/// Number of tunnel kinds for [`wrapped`]; kinds from the second constant on have no outer IP header.
pub(super) const KINDS: usize = 33;
pub(super) const FIRST_OF_LINKS: usize = 27;
/// Kinds from here on, up to the second constant, carry only IP.
const FIRST_OF_IP: usize = 15;
const LAST_OF_IP: usize = 28;

/// Returns whether the tunnel carries only IP.
pub(super) fn carries_ip(kind: usize) -> bool {
    (FIRST_OF_IP..=LAST_OF_IP).contains(&kind)
}

/// Returns a frame in a tunnel, and that tunnel. Tunnels that carry only IP take the packet out of its
/// frame; a frame without IP is wrapped in VXLAN or in a pseudowire.
pub(super) fn wrapped(kind: usize, frame: &[u8]) -> (Vec<u8>, Tunnel) {
    if !carries_ip(kind) {
        return with_headers(kind, 0, frame);
    }
    let mut at = 12;
    while be16(frame, at) == Some(0x8100) || be16(frame, at) == Some(0x88a8) {
        at += 4;
    }
    match be16(frame, at) {
        Some(ether_type @ (IPV4 | IPV6)) => with_headers(kind, ether_type, &frame[at + 2..]),
        _ if kind < FIRST_OF_LINKS => with_headers(0, 0, frame),
        _ => with_headers(KINDS - 1, 0, frame),
    }
}

/// What is around the header of a tunnel.
enum Outer {
    Udp(u16),
    Ip(u8),
    Link(u16),
}

pub(super) fn with_headers(kind: usize, ether_type: u16, carried: &[u8]) -> (Vec<u8>, Tunnel) {
    let (outer, head, tunnel) = header(kind, ether_type == IPV6, carried.len() as u16);
    let payload = [&head[..], carried].concat();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let mut out = Vec::new();
    match outer {
        Outer::Link(ether_type) => {
            out = [&[4; 12], &ether_type.to_be_bytes()[..], &payload].concat();
        }
        Outer::Udp(port) => builder.udp(40_000, port).write(&mut out, &payload).unwrap(),
        Outer::Ip(protocol) => builder.write(&mut out, IpNumber(protocol), &payload).unwrap(),
    }
    (out, tunnel)
}

/// Returns the header of a tunnel that carries so many bytes, and what is around it.
fn header(kind: usize, v6: bool, size: u16) -> (Outer, Vec<u8>, Tunnel) {
    use Outer::{Ip, Link, Udp};
    let length = |more: u16| (size + more).to_be_bytes();
    let ppp = if v6 { 0x57 } else { 0x21 };
    let version = if v6 { 2 } else { 1 };
    match kind {
        0 => (Udp(4789), vec![8, 0, 0, 0, 0, 0, 77, 0], Tunnel::Vxlan(77)),
        // With options.
        1 => (Udp(6081), vec![1, 0, 0x65, 0x58, 0, 0, 78, 0, 1, 2, 3, 4], Tunnel::Geneve(78)),
        // With a checksum, a key and a sequence number.
        2 => {
            let head = vec![0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 79, 0, 0, 0, 1];
            (Ip(GRE), head, Tunnel::Gre(79))
        }
        3 => (Ip(GRE), vec![0, 0, 0x65, 0x58], Tunnel::Gre(0)),
        4 => (Udp(4754), vec![0x20, 0, 0x65, 0x58, 0, 0, 0, 80], Tunnel::Gre(80)),
        // ERSPAN types I, II and III, the last with and without the platform specific subheader.
        5 => (Ip(GRE), vec![0, 0, 0x88, 0xbe], Tunnel::Erspan(0)),
        6 => {
            let head = vec![0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 7, 0xfc, 81, 0, 0, 0, 9];
            (Ip(GRE), head, Tunnel::Erspan(81))
        }
        7 | 8 => {
            let mut head = vec![0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 7, 0, 82];
            head.extend([0, 0, 0, 0, 0, 0, 0, u8::from(kind == 8)]);
            head.extend(&[9; 8][..8 * usize::from(kind == 8)]);
            (Ip(GRE), head, Tunnel::Erspan(82))
        }
        9 => (Udp(4790), vec![0x0c, 0, 0, 3, 0, 0, 86, 0], Tunnel::VxlanGpe(86)),
        10 => (Ip(97), vec![0x30, 0], Tunnel::EtherIp),
        11 => (Ip(143), vec![], Tunnel::EtherIp),
        // Ethernet after a network service header in GRE.
        12 => {
            let head = [&[0, 0, 0x89, 0x4f][..], &service_header(3)].concat();
            (Ip(GRE), head, Tunnel::Gre(0))
        }
        // A cookie and a sublayer, which nothing announces.
        13 => (Ip(115), vec![0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0], Tunnel::L2tp),
        14 => (Udp(6080), vec![1, 97, 0, 0, 1, 2, 3, 4, 0x30, 0], Tunnel::Gue),
        15 => {
            let [h, l] = length(0);
            (Udp(2152), vec![0x30, 255, h, l, 0, 0, 0, 83], Tunnel::GtpU)
        }
        // A PDU session container, as in 5G, and another extension after it.
        16 => {
            let [h, l] = length(16);
            let mut head = vec![0x34, 255, h, l, 0, 0, 0, 84, 0, 0, 0, 0x85];
            head.extend([1, 0x10, 9, 0xc0, 2, 0, 0, 0, 0, 0, 0, 0]);
            (Udp(2152), head, Tunnel::GtpU)
        }
        17 => (Ip(if v6 { 41 } else { 4 }), vec![], Tunnel::Ipip),
        18 => (Udp(6635), vec![0, 1, 0, 64, 0, 2, 1, 64], Tunnel::Mpls),
        19 => (Ip(137), vec![0, 2, 1, 64], Tunnel::Mpls),
        20 => (Udp(4790), vec![0x0c, 0, 0, version, 0, 0, 87, 0], Tunnel::VxlanGpe(87)),
        21 => {
            let head = [&[0x0c, 0, 0, 4, 0, 0, 88, 0][..], &service_header(version)].concat();
            (Udp(4790), head, Tunnel::VxlanGpe(88))
        }
        // With an authentication and an origin; Teredo carries nothing but IPv6.
        22 if v6 => {
            let mut head = vec![0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0];
            head.extend([0, 0, 1, 2, 3, 4, 5, 6]);
            (Udp(3544), head, Tunnel::Teredo)
        }
        // With a length, sequence numbers, an offset and the framing of PPP.
        22 | 23 => {
            let [h, l] = length(20);
            let mut head = vec![0x4a, 2, h, l, 0, 1, 0, 2, 0, 0, 0, 0, 0, 2, 9, 9];
            head.extend([0xff, 3, 0, ppp]);
            (Udp(1701), head, Tunnel::L2tp)
        }
        24 => {
            let [h, l] = length(2);
            let mut head = vec![0x30, 0x81, 0x88, 0x0b, h, l, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1];
            head.extend([0, ppp]);
            (Ip(GRE), head, Tunnel::Pptp)
        }
        25 => (Udp(6080), vec![], Tunnel::Gue),
        26 => (Udp(6080), vec![0, if v6 { 41 } else { 4 }, 0, 0], Tunnel::Gue),
        27 => {
            let [h, l] = length(2);
            (Link(0x8864), vec![0x11, 0, 0, 85, h, l, 0, ppp], Tunnel::Pppoe(85))
        }
        28 => (Link(0x894f), service_header(version), Tunnel::Nsh),
        29 => (Link(0x8847), vec![0, 1, 0, 64, 0, 2, 1, 64, 0, 0, 0, 0], Tunnel::Mpls),
        // With an option.
        30 => (Link(0x22f3), vec![0, 0x7f, 0, 1, 0, 2, 0, 0, 0, 0], Tunnel::Trill),
        31 => (Link(0x88e7), vec![0, 0, 1, 0], Tunnel::Pbb(256)),
        // Without a control word.
        _ => (Link(0x8847), vec![0, 2, 1, 64], Tunnel::Mpls),
    }
}

/// Returns a network service header with metadata of fixed length.
fn service_header(next: u8) -> Vec<u8> {
    [&[0x0f, 0xc6, 1, next, 0, 0, 5, 0xff][..], &[0; 16]].concat()
}
