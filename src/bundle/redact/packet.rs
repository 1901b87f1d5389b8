//! Cuts packets behind their headers, and replaces the addresses in these.

use std::net::{Ipv4Addr, Ipv6Addr};

use pmdscope_packets::ETHERNET;

use super::pseudonym::{Mac, Pseudonyms};

const ETHERNET_HEADER: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// The bits of the field of flags and offset.
const FRAGMENT_OFFSET: u16 = 0x1fff;
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
const SCTP: u8 = 132;

/// Type, code and checksum of ICMP; what follows may be an address or a part of another packet.
const ICMP_KEPT: usize = 4;
/// What is left of a packet: the headers up to that of the transport layer, with pseudonyms in place of
/// addresses. Inner packets of tunnels are payload. Checksums, which depend on what was removed, are 0.
pub(super) fn redact(linktype: u16, packet: &[u8], pseudonyms: &mut Pseudonyms) -> Vec<u8> {
    if linktype != ETHERNET {
        return Vec::new();
    }
    let mut out = packet.to_vec();
    let kept = ethernet(&mut out, pseudonyms);
    out.truncate(kept);
    out
}

/// Redacts an Ethernet frame in place; returns how many bytes of it to keep. As of all functions below,
/// what is behind those may be anything.
fn ethernet(frame: &mut [u8], pseudonyms: &mut Pseudonyms) -> usize {
    if frame.len() < ETHERNET_HEADER {
        return 0;
    }
    replace_mac(frame, 0, pseudonyms);
    replace_mac(frame, 6, pseudonyms);
    let mut at = ETHERNET_HEADER;
    let mut ether_type = u16_at(frame, 12);
    while VLAN_TAGS.contains(&ether_type) && frame.len() >= at + 4 {
        ether_type = u16_at(frame, at + 2);
        at += 4;
    }
    let Some(rest) = frame.get_mut(at..) else { return 0 };
    match ether_type {
        IPV4 => at + ipv4(rest, pseudonyms),
        IPV6 => at + ipv6(rest, pseudonyms),
        ARP => at + arp(rest, pseudonyms),
        // This may be no Ethernet header at all: of an mbuf whose first bytes the app has removed.
        _ => 12,
    }
}

fn ipv4(packet: &mut [u8], pseudonyms: &mut Pseudonyms) -> usize {
    let Some(first) = packet.first() else { return 0 };
    let header = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header < 20 || packet.len() < header {
        return 0;
    }
    for at in [12, 16] {
        let address = Ipv4Addr::from(packet[at..at + 4].first_chunk().copied().unwrap_or([0; 4]));
        packet[at..at + 4].copy_from_slice(&pseudonyms.ipv4(address).octets());
    }
    // Source routes and recorded routes are lists of addresses: no-operations instead.
    packet[20..header].fill(1);
    packet[10..12].fill(0);
    let checksum = internet_checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let is_first_fragment = u16_at(packet, 6) & FRAGMENT_OFFSET == 0;
    let protocol = packet[9];
    if !is_first_fragment {
        return header;
    }
    header + transport(protocol, &mut packet[header..])
}

fn ipv6(packet: &mut [u8], pseudonyms: &mut Pseudonyms) -> usize {
    const HEADER: usize = 40;
    if packet.len() < HEADER || packet[0] >> 4 != 6 {
        return 0;
    }
    for at in [8, 24] {
        let address: [u8; 16] = packet[at..at + 16].first_chunk().copied().unwrap_or([0; 16]);
        let pseudonym = pseudonyms.ipv6(Ipv6Addr::from(address));
        packet[at..at + 16].copy_from_slice(&pseudonym.octets());
    }
    if packet[6] == FRAGMENT && packet.len() >= HEADER + 8 {
        let is_first_fragment = u16_at(packet, HEADER + 2) >> 3 == 0;
        let protocol = packet[HEADER];
        let rest =
            if is_first_fragment { transport(protocol, &mut packet[HEADER + 8..]) } else { 0 };
        return HEADER + 8 + rest;
    }
    // Other extension headers may contain addresses.
    HEADER + transport(packet[6], &mut packet[HEADER..])
}

fn transport(protocol: u8, segment: &mut [u8]) -> usize {
    let (kept, checksum) = match protocol {
        UDP => (8, 6),
        TCP => (tcp(segment), 16),
        SCTP => (12, 8),
        ICMP | ICMPV6 => (ICMP_KEPT, 2),
        _ => return 0,
    };
    if segment.len() < kept {
        return 0;
    }
    let end = if protocol == SCTP { 12 } else { checksum + 2 };
    if let Some(checksum) = segment.get_mut(checksum..end) {
        checksum.fill(0);
    }
    kept
}

/// Clears options of TCP that may contain addresses, such as those of MPTCP; returns the length of the
/// header, 0 if there is none.
fn tcp(segment: &mut [u8]) -> usize {
    let header = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    if header < 20 || segment.len() < header {
        return 0;
    }
    let mut at = 20;
    while at < header {
        let kind = segment[at];
        let size = match (kind, segment.get(at + 1)) {
            (0 | 1, _) => 1,
            (_, Some(size)) if at + 1 < header => usize::from(*size),
            _ => 0,
        };
        if kind == 0 || size == 0 || at + size > header || !is_sound(kind, size) {
            // What follows the end of the options, and options that are damaged or unknown.
            let end = if kind == 0 || size < 2 || at + size > header { header } else { at + size };
            segment[at..end].fill(1);
            at = end;
        } else {
            at += size;
        }
    }
    header
}

/// An option that contains no address: no-operation, MSS, window scale, SACK, time stamps. Of another
/// length it may be anything.
fn is_sound(kind: u8, size: usize) -> bool {
    match kind {
        1 => size == 1,
        2 => size == 4,
        3 => size == 3,
        4 => size == 2,
        5 => [10, 18, 26, 34].contains(&size),
        8 => size == 10,
        _ => false,
    }
}

fn arp(packet: &mut [u8], pseudonyms: &mut Pseudonyms) -> usize {
    const SIZE: usize = 28;
    // Ethernet and IPv4, with lengths 6 and 4.
    if packet.len() < SIZE || packet[..6] != [0, 1, 8, 0, 6, 4] {
        return 0;
    }
    for (mac, ip) in [(8, 14), (18, 24)] {
        replace_mac(packet, mac, pseudonyms);
        let address = Ipv4Addr::from(packet[ip..ip + 4].first_chunk().copied().unwrap_or([0; 4]));
        packet[ip..ip + 4].copy_from_slice(&pseudonyms.ipv4(address).octets());
    }
    SIZE
}

fn replace_mac(frame: &mut [u8], at: usize, pseudonyms: &mut Pseudonyms) {
    let address: Mac = frame[at..at + 6].first_chunk().copied().unwrap_or_default();
    frame[at..at + 6].copy_from_slice(&pseudonyms.mac(address));
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]))
}

fn internet_checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|two| u32::from(u16_at(two, 0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
