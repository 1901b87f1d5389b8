//! Frames for the tests, byte by byte.

use std::net::Ipv6Addr;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const SOURCE: [u8; 4] = [192, 0, 2, 7];
pub(super) const DESTINATION: [u8; 4] = [198, 51, 100, 1];
pub(super) const SYN: u8 = 0x02;
pub(super) const ACK: u8 = 0x10;

/// Offset of the IP header.
const IP: usize = 14;

pub(super) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns a datagram with this fragment field.
pub(super) fn ipv4_fragment(protocol: u8, payload: &[u8], fragment: u16) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap();
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 1]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(SOURCE);
    header.extend(DESTINATION);
    header.extend(payload);
    let mut frame = ethernet(IPV4, &header);
    set_checksum(&mut frame);
    frame
}

pub(super) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_fragment(protocol, payload, 0)
}

/// Returns the frame with other bytes at `at` of the IPv4 header, and the correct checksum.
pub(super) fn with_ipv4(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[IP + at..IP + at + bytes.len()].copy_from_slice(bytes);
    set_checksum(&mut frame);
    frame
}

/// Returns the frame with other bytes, without any other change.
pub(super) fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn set_checksum(frame: &mut [u8]) {
    let length = usize::from(frame[IP] & 15) * 4;
    frame[IP + 10..IP + 12].fill(0);
    let end = frame.len().min(IP + length);
    let words = frame[IP..end].chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum = words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap();
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}

pub(super) fn udp(payload: usize) -> Vec<u8> {
    udp_of_length(u16::try_from(8 + payload).unwrap(), payload)
}

/// Returns a datagram with this length field.
pub(super) fn udp_of_length(length: u16, payload: usize) -> Vec<u8> {
    let mut segment = [1000u16, 53, length, 0].map(u16::to_be_bytes).concat();
    segment.resize(8 + payload, 0xab);
    segment
}

pub(super) fn tcp(flags: u8) -> Vec<u8> {
    let mut segment = [40000u16, 443].map(u16::to_be_bytes).concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment
}

pub(super) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    ipv6_from("2001:db8::7", 64, next, payload)
}

pub(super) fn ipv6_from(source: &str, hop_limit: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(length.to_be_bytes());
    header.extend([next, hop_limit]);
    header.extend(source.parse::<Ipv6Addr>().unwrap().octets());
    header.extend("2001:db8:1::1".parse::<Ipv6Addr>().unwrap().octets());
    header.extend(payload);
    ethernet(IPV6, &header)
}

/// Returns an IPv6 fragment header, followed by `rest`.
pub(super) fn ipv6_fragment(next: u8, offset_and_flags: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![next, 0];
    header.extend(offset_and_flags.to_be_bytes());
    header.extend([0, 0, 0, 9]);
    header.extend(rest);
    header
}

/// Returns an empty extension header of 8 bytes, followed by `rest`.
pub(super) fn extension(next: u8, rest: &[u8]) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0], rest].concat()
}

/// Returns a neighbour solicitation.
pub(super) fn solicitation() -> Vec<u8> {
    [&[135u8, 0, 0, 0, 0, 0, 0, 0][..], &[0xfe; 16]].concat()
}

/// Returns the frame with VLAN tags.
pub(super) fn tagged(tags: &[u16], frame: &[u8]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|tag| [tag.to_be_bytes(), [0, 5]]).flatten();
    let tags = tags.collect::<Vec<_>>();
    [&frame[..12], &tags, &frame[12..]].concat()
}
