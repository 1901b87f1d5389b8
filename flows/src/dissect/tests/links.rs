//! Tests of tags, of frames without an ethertype, and of what may be mistaken for IP.

use super::*;

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &ether_type.to_be_bytes(), payload].concat()
}

/// Returns a datagram after these bytes.
fn behind(head: &[u8]) -> Vec<u8> {
    [head, &udp_v4()].concat()
}

#[test]
fn tags_of_other_kinds_are_passed_over() {
    let tags: [(u16, &[u8]); 7] = [
        (0x8926, &[0, 1, 0, 2, 8, 0]),
        (0x893f, &[0, 1, 0, 2, 0, 0, 8, 0]),
        (0x892f, &[0, 60, 0, 9, 8, 0]),
        (0x8909, &[1, 1, 0, 1, 0, 42, 8, 0]),
        // MACsec without encryption, with and without a channel.
        (0x88e5, &[0, 0, 0, 0, 0, 1, 8, 0]),
        (0x88e5, &[0x20, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 0]),
        // Several, and a VLAN among them.
        (0x8926, &[0, 1, 0, 2, 0x81, 0, 0, 7, 0x89, 9, 1, 1, 0, 1, 0, 42, 8, 0]),
    ];
    for (ether_type, head) in tags {
        let frame = ethernet(ether_type, &behind(head));
        assert_eq!(ip_of(ETHERNET, &frame).destination_port, 2000, "{ether_type:#x}");
        for kept in 0..frame.len() - 28 {
            let cut = dissect(ETHERNET, &frame[..kept], frame.len(), true).net;
            assert_eq!(cut, NetworkLayer::Unreadable, "{ether_type:#x} {kept}");
        }
    }
    let encrypted = ethernet(0x88e5, &behind(&[0x0c, 0, 0, 0, 0, 1, 8, 0]));
    assert_eq!(dissected(ETHERNET, &encrypted, true).net, NetworkLayer::Other(0x88e5));
}

#[test]
fn frames_with_a_length_are_read_if_they_name_a_type() {
    let snap = |organization: [u8; 3], ether_type: u16| {
        let head = [&[0xaa, 0xaa, 3][..], &organization, &ether_type.to_be_bytes()].concat();
        let payload = behind(&head);
        // With padding, which is no part of the packet.
        [&ethernet(payload.len() as u16, &payload)[..], &[7; 9]].concat()
    };
    assert_eq!(ip_of(ETHERNET, &snap([0; 3], 0x0800)).destination_port, 2000);
    assert_eq!(ip_of(ETHERNET, &snap([0, 0, 0xf8], 0x0800)).destination_port, 2000);
    assert_eq!(ip_of(ETHERNET, &ethernet(39, &behind(&[6, 6, 3]))).destination_port, 2000);
    let arp = dissected(ETHERNET, &snap([0; 3], 0x0806), true).net;
    assert_eq!(arp, NetworkLayer::Other(0x0806));
    // Cisco's discovery protocol, and spanning trees.
    let other = snap([0, 0, 0x0c], 0x2000);
    assert_eq!(dissected(ETHERNET, &other, true).net, NetworkLayer::Other(44));
    let tree = ethernet(38, &[&[0x42, 0x42, 3][..], &[0; 43]].concat());
    assert_eq!(dissected(ETHERNET, &tree, true).net, NetworkLayer::Other(38));
    // The number of GRE payload is no length.
    let gre = [&[0, 0, 0, 36][..], &behind(&[6, 6, 3])].concat();
    let mut outer = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64);
    builder.write(&mut outer, IpNumber(GRE), &gre).unwrap();
    assert_eq!(ip_of(ETHERNET, &outer).protocol, GRE);
}

#[test]
fn wireless_frames_are_read_unless_encrypted() {
    let snap = behind(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    let frame =
        |kind: u8, flags: u8, rest: &[u8]| [&[kind, flags, 0, 0][..], &[0; 20], rest].concat();
    let plain = frame(0x08, 1, &snap);
    let relayed = frame(0x08, 3, &[&[0; 6][..], &snap].concat());
    let qos = frame(0x88, 2, &[&[0, 0][..], &snap].concat());
    let ordered = frame(0x88, 0x82, &[&[0; 6][..], &snap].concat());
    let aggregate = frame(0x88, 2, &[&[0x80, 0][..], &[0; 12], &[0, 44], &snap].concat());
    for frame in [&plain, &relayed, &qos, &ordered, &aggregate] {
        assert_eq!(ip_of(105, frame).destination_port, 2000, "{frame:?}");
    }
    // Encrypted, without data, of management, and a fragment.
    let mut fragment = plain.clone();
    fragment[22] = 1;
    for frame in [frame(0x08, 0x41, &snap), frame(0x48, 1, &[]), frame(0x80, 0, &snap), fragment] {
        assert_eq!(dissected(105, &frame, true).net, NetworkLayer::Other(0));
    }
    let short = [&[0, 0, 8, 0, 0, 0, 0, 0][..], &plain].concat();
    // With a time, an FCS, and padding after 26 bytes of header.
    let mut long = vec![0, 0, 25, 0, 3, 0, 0, 0];
    long.extend([0; 8]);
    long.extend([0x30, 0, 0, 0, 0, 0, 0, 0, 0]);
    long.extend(frame(0x88, 2, &[&[0; 4][..], &snap, &[9; 4]].concat()));
    let ppi = [&[0, 0, 8, 0, 105, 0, 0, 0][..], &plain].concat();
    for (linktype, data) in [(127, short), (127, long), (192, ppi)] {
        let ip = ip_of(linktype, &data);
        assert_eq!((ip.destination_port, ip.fit), (2000, LengthFit::Exact), "{linktype}");
    }
}

/// Returns a frame from and to these MAC addresses, in a pseudowire without a control word.
fn in_pseudowire(destination: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let inner = [&[0, 2, 1, 64][..], &destination, &[2; 6], payload].concat();
    ethernet(0x8847, &inner)
}

proptest! {
    #[test]
    fn no_mac_address_is_taken_for_ip(
        first in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x40, 0x60, 0x6f]),
        rest: [u8; 5],
        arp: bool,
    ) {
        let destination = [first, rest[0], rest[1], rest[2], rest[3], rest[4]];
        let payload = if arp { [&[8, 6][..], &[1; 28]].concat() } else { behind(&[8, 0]) };
        let frame = in_pseudowire(destination, &payload);
        // An address with the length of the frame where IP has it can be IP.
        let length = |at: usize| usize::from(u16::from_be_bytes([rest[at], rest[at + 1]]));
        let (carried, v6) = (frame.len() - 18, length(3) + 40);
        prop_assume!(length(1) != carried && (v6 > carried || v6 + 8 < carried));
        let layers = dissected(ETHERNET, &frame, true);
        if arp {
            // Nothing but IP is recognized after labels.
            prop_assert!(addresses(&layers).is_none(), "{:?}", layers);
        } else {
            prop_assert_eq!(addresses(&layers), Some((0x0a00_0001, 0x0a00_0002)));
            prop_assert_eq!(layers.tunnel, Some(Tunnel::Mpls));
        }
    }
}

#[test]
fn lengths_that_fit_both_are_decided_by_the_checksum() {
    let datagram = behind(&[8, 0]);
    let size = (datagram.len() + 12) as u8;
    let frame = in_pseudowire([0x45, 0, 0, size, 1, 2], &datagram);
    assert_eq!(dissected(ETHERNET, &frame, true).tunnel, Some(Tunnel::Mpls));
    // IP after labels is read with padding, too.
    let padded = [&ethernet(0x8847, &behind(&[0, 2, 1, 64]))[..], &[0; 6]].concat();
    assert_eq!(ip_of(ETHERNET, &padded).destination_port, 2000);
}

#[test]
fn tags_outside_and_inside_are_told_apart() {
    let tagged = |outside: &[u16], inside: &[u16]| {
        let tags = |ids: &[u16]| {
            ids.iter().flat_map(|id| [0x81, 0, (id >> 8) as u8, *id as u8]).collect::<Vec<_>>()
        };
        let inner = [&[0; 12][..], &tags(inside), &[8, 0], &udp_v4()].concat();
        let mut outer = Vec::new();
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64);
        let vxlan = [&[8, 0, 0, 0, 0, 0, 77, 0][..], &inner].concat();
        builder.udp(40_000, 4789).write(&mut outer, &vxlan).unwrap();
        let frame = [&outer[..12], &tags(outside), &outer[12..]].concat();
        let layers = dissected(ETHERNET, &frame, true);
        let NetworkLayer::Ip(ip) = layers.net else { panic!("{layers:?}") };
        let (key, _) = crate::key::FlowKey::new(3, &layers, &ip);
        assert_eq!((key.app(), key.protocol()), (3, UDP));
        assert_eq!(key.ends().map(|end| end.port), [1000, 2000]);
        assert_eq!(key.tunnel(), Some(Tunnel::Vxlan(77)));
        key.vlans()
    };
    assert_eq!(tagged(&[5], &[7]), [[5, 0], [7, 0]]);
    assert_eq!(tagged(&[], &[7]), [[0, 0], [7, 0]]);
    assert_eq!(tagged(&[7], &[]), [[7, 0], [0, 0]]);
    assert_eq!(tagged(&[], &[4095, 7]), [[0, 0], [4095, 7]]);
    assert_eq!(tagged(&[5], &[7, 4095]), [[5, 0], [7, 4095]]);
    // No more than three are stored, and one of them inside; priorities are no VLAN.
    assert_eq!(tagged(&[1, 2, 3], &[4094, 9]), [[1, 2], [4094, 0]]);
    assert_eq!(tagged(&[0, 5], &[0, 7]), [[5, 0], [7, 0]]);
}
