//! Tests of the redaction of packets.

use proptest::prelude::*;

use super::*;

/// Octets of payloads. Pseudonyms may have it as well.
const SECRET: u8 = 0xa7;

fn ethernet_frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x02, 0x66, 0x77, 0x88, 0x99, 0xaa];
    frame.extend_from_slice(&ether_type.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn ipv4_packet(protocol: u8, fragment: u16, segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol, 0xde, 0xad];
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet.extend_from_slice(&[198, 18, 0, 1, 198, 19, 0, 2]);
    packet.extend_from_slice(segment);
    packet
}

fn ipv6_packet(next: u8, segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    for last in [1, 2] {
        let address: Ipv6Addr = format!("2001:db8:5:6::{last}").parse().unwrap();
        packet.extend_from_slice(&address.octets());
    }
    packet.extend_from_slice(segment);
    packet
}

fn udp(payload: &[u8]) -> Vec<u8> {
    [&[0xc0, 0, 0, 53, 0, 20, 0xbe, 0xef], payload].concat()
}

fn redacted(frame: &[u8]) -> Vec<u8> {
    redact(ETHERNET, frame, &mut Pseudonyms::new().unwrap())
}

/// None of the addresses of the frames above is left.
fn has_address(bytes: &[u8]) -> bool {
    let v6: Ipv6Addr = "2001:db8:5:6::".parse().unwrap();
    let addresses: [&[u8]; 5] = [
        &[0x02, 0x11, 0x22, 0x33, 0x44, 0x55],
        &[0x02, 0x66, 0x77, 0x88, 0x99, 0xaa],
        &[198, 18, 0, 1],
        &[198, 19, 0, 2],
        &v6.octets()[..8],
    ];
    addresses.iter().any(|address| bytes.windows(address.len()).any(|part| part == *address))
}

#[test]
fn udp_keeps_its_header_and_no_payload() {
    let frame = ethernet_frame(IPV4, &ipv4_packet(UDP, 0, &udp(&[SECRET; 100])));
    let out = redacted(&frame);
    assert_eq!(out.len(), 14 + 20 + 8);
    assert_eq!(
        out[34..],
        [0xc0, 0, 0, 53, 0, 20, 0, 0],
        "ports and length stay, the checksum goes"
    );
    assert_eq!(internet_checksum(&out[14..34]), 0, "the checksum of the IP header is right");
    assert!(!has_address(&out), "{out:x?}");
}

#[test]
fn tags_are_kept_and_what_is_below_is_redacted() {
    let inner = ipv6_packet(UDP, &udp(&[SECRET; 9]));
    let tagged = [&[0x00, 0x64, 0x86, 0xdd][..], &inner].concat();
    let out = redacted(&ethernet_frame(0x8100, &tagged));
    assert_eq!(out.len(), 14 + 4 + 40 + 8);
    assert_eq!(out[12..18], [0x81, 0, 0, 0x64, 0x86, 0xdd]);
    assert!(!has_address(&out), "{out:x?}");
}

#[test]
fn inner_packets_of_tunnels_and_errors_are_payload() {
    let inner = ipv4_packet(UDP, 0, &udp(&[]));
    for (protocol, kept) in [(4, 0), (47, 0), (ICMP, 4), (UDP, 8)] {
        let segment = [&[0; 8], &inner[..]].concat();
        let out = redacted(&ethernet_frame(IPV4, &ipv4_packet(protocol, 0, &segment)));
        assert_eq!(out.len(), 14 + 20 + kept, "protocol {protocol}");
        assert!(!has_address(&out), "protocol {protocol}: {out:x?}");
    }
    // A neighbour solicitation has an address behind its first eight bytes.
    let solicitation = [&[135, 0, 0xbe, 0xef, 0, 0, 0, 0][..], &[SECRET; 16]].concat();
    let out = redacted(&ethernet_frame(IPV6, &ipv6_packet(ICMPV6, &solicitation)));
    assert_eq!(out[54..], [135, 0, 0, 0]);
    // A routing header is a list of addresses.
    let out = redacted(&ethernet_frame(IPV6, &ipv6_packet(43, &[SECRET; 24])));
    assert_eq!(out.len(), 14 + 40);
}

#[test]
fn later_fragments_are_payload() {
    let data = ipv4_packet(UDP, 185, &[SECRET; 40]);
    let out = redacted(&ethernet_frame(IPV4, &data));
    assert_eq!(out.len(), 14 + 20);
    let first = [&[UDP, 0, 0, 1, 0, 0, 0, 9], &udp(&[SECRET; 9])[..]].concat();
    let out = redacted(&ethernet_frame(IPV6, &ipv6_packet(FRAGMENT, &first)));
    assert_eq!(out.len(), 14 + 40 + 8 + 8);
}

#[test]
fn options_of_ip_and_unknown_ones_of_tcp_are_cleared() {
    let mut packet = ipv4_packet(TCP, 0, &[]);
    packet[0] = 0x47;
    packet.extend_from_slice(&[7, 7, 8, SECRET, SECRET, SECRET, SECRET, 0]);
    let mut segment = vec![0; 20];
    segment[12] = 0xa0;
    segment[16] = 0xbe;
    segment.extend_from_slice(&[2, 4, 5, 0xb4, 30, 10, SECRET, SECRET, SECRET, SECRET]);
    segment.extend_from_slice(&[SECRET; 4]);
    segment.extend_from_slice(&[1, 1, 3, 3, 7, 0]);
    packet.extend_from_slice(&segment);
    packet.extend_from_slice(&[SECRET; 50]);
    let out = redacted(&ethernet_frame(IPV4, &packet));
    assert_eq!(out.len(), 14 + 28 + 40);
    assert!(!out[14 + 20..].contains(&SECRET), "{out:x?}");
    assert_eq!(out[14 + 28 + 20..14 + 28 + 24], [2, 4, 5, 0xb4], "the MSS stays");
    assert_eq!(out[14 + 28 + 16..14 + 28 + 18], [0, 0]);
}

#[test]
fn arp_has_pseudonyms_and_no_padding() {
    let mut packet =
        vec![0, 1, 8, 0, 6, 4, 0, 1, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 198, 18, 0, 1];
    packet.extend_from_slice(&[0, 0, 0, 0, 0, 0, 198, 19, 0, 2]);
    packet.extend_from_slice(&[SECRET; 18]);
    let mut pseudonyms = Pseudonyms::new().unwrap();
    let out = redact(ETHERNET, &ethernet_frame(ARP, &packet), &mut pseudonyms);
    assert_eq!(out.len(), 14 + 28);
    assert!(!has_address(&out), "{out:x?}");
    assert_eq!(out[28..32], pseudonyms.ipv4([198, 18, 0, 1].into()).octets());
    assert_eq!(out[22..28], pseudonyms.mac([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]));
}

#[test]
fn what_is_not_understood_is_cut() {
    assert_eq!(redacted(&ethernet_frame(0x88cc, &[SECRET; 50])).len(), 12);
    assert_eq!(redacted(&[SECRET; 13]), [0; 0]);
    assert_eq!(redacted(&ethernet_frame(IPV4, &[SECRET; 30])).len(), 14);
    assert_eq!(redact(101, &[SECRET; 60], &mut Pseudonyms::new().unwrap()), [0; 0]);
}

proptest! {
    #[test]
    fn any_bytes_are_redacted_without_a_panic(
        ether_type in prop::sample::select(vec![IPV4, IPV6, ARP, 0x8100, 0x1234]),
        payload: Vec<u8>,
    ) {
        let frame = ethernet_frame(ether_type, &payload);
        prop_assert!(redacted(&frame).len() <= frame.len());
        redacted(&payload);
    }

    #[test]
    fn no_byte_of_a_payload_is_kept(size in 0..200_usize, protocol in prop::sample::select(vec![UDP, TCP, SCTP])) {
        let mut segment = vec![0; 20];
        segment[12] = 0x50;
        segment.extend(vec![SECRET; size]);
        let out = redacted(&ethernet_frame(IPV4, &ipv4_packet(protocol, 0, &segment)));
        prop_assert!(!out[34..].contains(&SECRET));
        prop_assert!(out.len() <= 14 + 20 + 20);
    }
}
