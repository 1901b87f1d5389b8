//! Tests of packets in nested tunnels.

use std::process::Command;

use pmdscope_testing::output;

use super::encapsulations::*;
use super::*;

proptest! {
    #[test]
    fn a_damaged_tunnel_is_taken_as_it_comes(
        plan in plan(),
        kind in 0..KINDS,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut frame = wrapped(kind, &wrapped(kind, &plan.frame()).0).0;
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        let layers = dissected(ETHERNET, &frame, true);
        prop_assert!(!matches!(layers.net, NetworkLayer::Ip(ip) if ip.tcp.is_some() && ip.protocol != TCP));
    }

    #[test]
    fn a_tunnel_that_is_cut_off_has_the_ends_of_one_or_none(plan in plan(), kind in 0..KINDS, kept in 0_usize..300) {
        let frame = wrapped(kind, &plan.frame()).0;
        let (whole, outer) = (dissected(ETHERNET, &frame, true), dissected(ETHERNET, &frame, false));
        let cut = dissect(ETHERNET, &frame[..kept.min(frame.len())], frame.len(), true);
        let ends = addresses(&cut);
        prop_assert!(ends.is_none() || ends == addresses(&whole) || ends == addresses(&outer));
        prop_assert!(cut.tunnel.is_none() || cut.tunnel == whole.tunnel);
    }

    #[test]
    fn what_is_in_tunnels_counts_if_that_is_wanted(plan in plan(), kinds in prop::collection::vec(0..KINDS, 1..4)) {
        let inside = plan.frame();
        let (mut frame, mut tunnel) = (inside.clone(), None);
        for kind in &kinds {
            let (outer, outermost) = wrapped(*kind, &frame);
            (frame, tunnel) = (outer, Some(outermost));
        }
        let has_ends = kinds.iter().any(|kind| *kind < FIRST_OF_LINKS);
        let ends = OuterEnds { v6: false, source: 0x0a00_0001, destination: 0x0a00_0002 };
        let outer = has_ends.then_some(ends);
        let expected = PacketLayers { tunnel, outer, ..oracle(&inside, true) };
        // VLAN tags are before IP: tunnels that carry only IP lose them.
        let tags = if carries_ip(kinds[0]) { VlanTags::default() } else { expected.tags };
        prop_assert_eq!(dissected(ETHERNET, &frame, true), PacketLayers { tags, ..expected });
    }

    #[test]
    fn without_the_inner_headers_the_outermost_of_ip_counts(plan in plan(), kind in 0..FIRST_OF_LINKS) {
        let outer = dissected(ETHERNET, &wrapped(kind, &plan.frame()).0, false);
        prop_assert_eq!(outer.tunnel, None);
        prop_assert_eq!(addresses(&outer), Some((0x0a00_0001, 0x0a00_0002)));
    }

    #[test]
    fn sessions_and_pseudowires_within_each_other_end_somewhere(
        plan in plan(),
        kinds in prop::collection::vec(FIRST_OF_LINKS..KINDS, 0..300),
    ) {
        let frame = kinds.iter().fold(plan.frame(), |frame, kind| wrapped(*kind, &frame).0);
        let layers = dissected(ETHERNET, &frame, true);
        let followed = kinds.len() <= NESTING;
        prop_assert_eq!(matches!(layers.net, NetworkLayer::Ip(_)), followed);
        prop_assert_eq!(layers.tunnel.is_some(), followed && !kinds.is_empty());
    }
}

#[test]
fn a_session_of_pppoe_without_ip_is_no_tunnel() {
    let echo = [0xc0, 0x21, 9, 1, 0, 8, 1, 2, 3, 4];
    for (code, body) in [(0, &echo[..]), (0xa7, &[])] {
        let head = [0x88, 0x64, 0x11, code, 0, 85, 0, body.len() as u8];
        let layers = dissected(ETHERNET, &[&[4; 12], &head[..], body].concat(), true);
        assert_eq!((layers.tunnel, layers.net), (None, NetworkLayer::Other(0x8864)));
    }
    // Discovery.
    let padi = [&[4; 12], &[0x88, 0x63, 0x11, 9, 0, 0, 0, 0][..]].concat();
    assert_eq!(dissected(ETHERNET, &padi, true).net, NetworkLayer::Other(0x8863));
}

#[test]
fn gtp_without_a_packet_of_a_user_counts_for_its_ends() {
    // An echo request, G-PDUs that are too long or have an extension without length, GTP' and version 2.
    let messages: [&[u8]; 5] = [
        &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0],
        &[0x34, 255, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0x85],
        &[0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 0, 0, 0, 0],
        &[0x20, 255, 0, 20, 0, 0, 0, 1, 0x45],
        &[0x50, 255, 0, 20, 0, 0, 0, 1, 0x45],
    ];
    for message in messages {
        let mut frame = Vec::new();
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        builder.udp(2152, 2152).write(&mut frame, message).unwrap();
        let layers = dissected(ETHERNET, &frame, true);
        assert_eq!(layers.tunnel, None, "{message:?}");
        assert_eq!(addresses(&layers), Some((0x0a00_0001, 0x0a00_0002)));
    }
}

#[test]
fn gtp_carries_sessions_of_ethernet_as_well() {
    let inner = [&[4; 12], &[8, 0][..], &udp_v4()].concat();
    let (frame, tunnel) = with_headers(15, 0, &inner);
    let layers = dissected(ETHERNET, &frame, true);
    assert_eq!((layers.tunnel, ip_of(ETHERNET, &frame).destination_port), (Some(tunnel), 2000));
}

/// Returns a datagram in a frame; the source port depends on the kind.
fn inner(kind: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let builder = PacketBuilder::ethernet2([0x12; 6], [0x14; 6]);
    let builder = builder.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    builder.udp(50_000 + kind as u16, 50_001).write(&mut out, &[0; 8]).unwrap();
    out
}

/// Without kinds that tshark 4.0 does not decode, or not without an option: `L2TPv3` with a cookie, generic UDP
/// encapsulation, and labels that carry Ethernet without a control word.
#[test]
fn what_is_in_tunnels_is_what_tshark_finds_there() {
    let kinds = (0..KINDS).filter(|kind| ![13, 14, 25, 26, KINDS - 1].contains(kind));
    let frames = kinds.map(|kind| wrapped(kind, &inner(kind)).0).collect::<Vec<_>>();
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let mut file = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for frame in &frames {
        let len = frame.len() as u32;
        file.extend([1_700_000_000, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(frame);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tunnels.pcap");
    std::fs::write(&path, file).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "occurrence=l", "-e", "ip.src", "-e", "udp.srcport"]);
    let Some(out) = output(tshark.arg("-r").arg(&path)) else { return };
    let theirs = String::from_utf8(out.stdout).unwrap();
    let ours = frames.iter().map(|frame| ip_of(ETHERNET, frame).source_port);
    let ours = ours.map(|port| format!("192.0.2.1\t{port}")).collect::<Vec<_>>();
    assert_eq!(theirs.lines().collect::<Vec<_>>(), ours);
}

/// Both directions of a user's conversation have their own tunnel endpoint ids.
#[test]
fn directions_of_gtp_are_one_conversation() {
    let [up, down] = [(50_000, 443, 1), (443, 50_000, 2)].map(|(from, to, teid)| {
        let (mut frame, user, host) = (Vec::new(), [10, 45, 0, 2], [192, 0, 2, 1]);
        let (source, destination) = if teid == 1 { (user, host) } else { (host, user) };
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64);
        builder.udp(from, to).write(&mut frame, &[0; 8]).unwrap();
        let (mut outer, _) = wrapped(15, &frame);
        outer[49] = teid;
        let layers = dissected(ETHERNET, &outer, true);
        let NetworkLayer::Ip(ip) = layers.net else { panic!("{layers:?}") };
        crate::key::FlowKey::new(0, &layers, &ip).0
    });
    assert!(up.is(&down));
    assert_eq!(up.tunnel(), Some(Tunnel::GtpU));
}

#[test]
fn a_key_keeps_every_kind_of_tunnel() {
    for kind in 0..KINDS {
        let (frame, tunnel) = wrapped(kind, &inner(kind));
        let layers = dissected(ETHERNET, &frame, true);
        let NetworkLayer::Ip(ip) = layers.net else { panic!("{layers:?}") };
        assert_eq!(crate::key::FlowKey::new(0, &layers, &ip).0.tunnel(), Some(tunnel));
    }
}

/// An app that chooses the length of each packet must send all of what may be a tunnel.
#[test]
fn apps_know_the_ports_of_all_tunnels() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../lib/src/capture/header_length.h");
    let header = std::fs::read_to_string(path).unwrap();
    for kind in 0..FIRST_OF_LINKS {
        let frame = wrapped(kind, &inner(kind)).0;
        let (protocol, port) = (frame[23], be16(&frame, 36).unwrap());
        let known = header.contains(&format!("case {port}: /*"));
        assert_eq!(known, protocol == UDP, "{kind}: {protocol} {port}");
    }
}
