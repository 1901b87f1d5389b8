use etherparse::{
    EtherType, InternetSlice, IpNumber, LinkExtSlice, PacketBuilder, SlicedPacket, TransportSlice,
    VlanId,
};
use proptest::prelude::*;

use super::*;
use crate::IcmpKind;

mod encapsulations;
mod links;
mod tunnels;

/// The fields of a valid packet.
#[derive(Clone, Debug)]
struct Plan {
    vlans: Vec<u16>,
    v6: bool,
    source: [u8; 16],
    destination: [u8; 16],
    ports: (u16, u16),
    kind: u8,
    flags: u8,
    sequence: u32,
    window: u16,
    payload: Vec<u8>,
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop::collection::vec(0_u16..4096, 0..3),
        any::<(bool, [u8; 16], [u8; 16])>(),
        any::<(u16, u16)>(),
        0_u8..4,
        any::<(u8, u32, u16)>(),
        prop::collection::vec(any::<u8>(), 0..100),
    )
        .prop_map(|(vlans, (v6, source, destination), ports, kind, tcp, payload)| Plan {
            vlans,
            v6,
            source,
            destination,
            // Random payloads must not be parsed as tunnels.
            ports: (ports.0, ports.1 & 0x0fff),
            kind,
            flags: tcp.0,
            sequence: tcp.1,
            window: tcp.2,
            payload,
        })
}

impl Plan {
    fn frame(&self) -> Vec<u8> {
        let vlan = |id: u16| VlanId::try_new(id).unwrap();
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let four = |bytes: [u8; 16]| [bytes[0], bytes[1], bytes[2], bytes[3]];
        macro_rules! ip {
            ($builder:expr) => {
                if self.v6 {
                    $builder.ipv6(self.source, self.destination, 64)
                } else {
                    $builder.ipv4(four(self.source), four(self.destination), 64)
                }
            };
        }
        let builder = match self.vlans[..] {
            [] => ip!(ethernet),
            [id] => ip!(ethernet.single_vlan(vlan(id))),
            [outer, inner, ..] => ip!(ethernet.double_vlan(vlan(outer), vlan(inner))),
        };
        let mut frame = Vec::new();
        let (payload, (source, destination)) = (&self.payload, self.ports);
        match self.kind {
            0 => {
                let mut header =
                    etherparse::TcpHeader::new(source, destination, self.sequence, self.window);
                let bit = |at: u8| self.flags & (1 << at) != 0;
                (header.fin, header.syn, header.rst, header.psh) = (bit(0), bit(1), bit(2), bit(3));
                (header.ack, header.urg, header.ece, header.cwr) = (bit(4), bit(5), bit(6), bit(7));
                builder.tcp_header(header).write(&mut frame, payload).unwrap();
            }
            1 => builder.udp(source, destination).write(&mut frame, payload).unwrap(),
            2 if self.v6 => builder.icmpv6_echo_request(1, 2).write(&mut frame, payload).unwrap(),
            2 => builder.icmpv4_echo_reply(1, 2).write(&mut frame, payload).unwrap(),
            _ => builder.write(&mut frame, IpNumber(200), payload).unwrap(),
        }
        frame
    }
}

/// Parses a packet that was captured whole.
fn dissected(linktype: u16, data: &[u8], inner: bool) -> PacketLayers {
    dissect(linktype, data, data.len(), inner)
}

/// Returns what `etherparse` finds in a frame, which may be inside of a tunnel.
fn oracle(frame: &[u8], inside: bool) -> PacketLayers {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let mut tags = VlanTags::default();
    for extension in &packet.link_exts {
        if let LinkExtSlice::Vlan(vlan) = extension {
            tags.push(vlan.vlan_identifier().value(), inside);
        }
    }
    let (v6, source, destination, protocol) = match packet.net.as_ref().unwrap() {
        InternetSlice::Ipv4(ip) => {
            let header = ip.header();
            let [source, destination] =
                [header.source_addr(), header.destination_addr()].map(|addr| addr.to_bits().into());
            (false, source, destination, ip.payload().ip_number.0)
        }
        InternetSlice::Ipv6(ip) => {
            let header = ip.header();
            let [source, destination] =
                [header.source_addr(), header.destination_addr()].map(std::net::Ipv6Addr::to_bits);
            (true, source, destination, ip.payload().ip_number.0)
        }
        InternetSlice::Arp(_) => panic!("no such plan"),
    };
    let (mut ports, mut tcp, mut icmp) = ((0, 0), None, None);
    let kind = |kind, code| Some(IcmpKind { kind, code });
    match packet.transport {
        Some(TransportSlice::Tcp(slice)) => {
            ports = (slice.source_port(), slice.destination_port());
            let (flags, sequence) = (slice.slice()[13], slice.sequence_number());
            tcp = Some(TcpFields { flags, sequence, window: slice.window_size() });
        }
        Some(TransportSlice::Udp(udp)) => ports = (udp.source_port(), udp.destination_port()),
        Some(TransportSlice::Icmpv4(slice)) => icmp = kind(slice.type_u8(), slice.code_u8()),
        Some(TransportSlice::Icmpv6(slice)) => icmp = kind(slice.type_u8(), slice.code_u8()),
        Some(TransportSlice::Igmp(_)) | None => {}
    }
    let net = NetworkLayer::Ip(IpFields {
        v6,
        source,
        destination,
        protocol,
        options: false,
        fragment: FragmentKind::Whole,
        source_port: ports.0,
        destination_port: ports.1,
        tcp,
        icmp,
        fit: LengthFit::Exact,
    });
    PacketLayers { tags, tunnel: None, net, outer: None, quoted: None }
}

fn addresses(layers: &PacketLayers) -> Option<(u128, u128)> {
    match layers.net {
        NetworkLayer::Ip(ip) => Some((ip.source, ip.destination)),
        _ => None,
    }
}

proptest! {
    #[test]
    fn it_agrees_with_etherparse(plan in plan()) {
        let frame = plan.frame();
        prop_assert_eq!(dissected(ETHERNET, &frame, true), oracle(&frame, false));
    }

    #[test]
    fn truncation_only_removes_fields(plan in plan(), kept in 0_usize..200) {
        let frame = plan.frame();
        let cut = dissect(ETHERNET, &frame[..kept.min(frame.len())], frame.len(), true);
        let whole = oracle(&frame, false);
        if let NetworkLayer::Ip(ip) = cut.net {
            let NetworkLayer::Ip(all) = whole.net else { panic!("{whole:?}") };
            prop_assert_eq!(addresses(&cut), addresses(&whole));
            prop_assert_eq!(ip.protocol, all.protocol);
            let ports = (ip.source_port, ip.destination_port);
            prop_assert!(ports == (0, 0) || ports == (all.source_port, all.destination_port));
            prop_assert!(ip.tcp.is_none() || ip.tcp == all.tcp);
        } else {
            prop_assert_eq!(cut.net, NetworkLayer::Unreadable);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        data in prop::collection::vec(any::<u8>(), 0..200),
        linktype in prop::sample::select(vec![ETHERNET, 101, 113, 276, 228, 229, 12, 147, 0, 108, 9, 50, 51, 104, 105, 127, 192]),
        missing in 0_usize..100,
        inner: bool,
    ) {
        dissect(linktype, &data, data.len() + missing, inner);
    }
}

fn ip_of(linktype: u16, data: &[u8]) -> IpFields {
    match dissected(linktype, data, true).net {
        NetworkLayer::Ip(ip) => ip,
        other => panic!("{other:?}"),
    }
}

fn udp_v4() -> Vec<u8> {
    let mut out = Vec::new();
    let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.udp(1000, 2000).write(&mut out, &[0; 8]).unwrap();
    out
}

#[test]
fn files_of_other_link_types_are_read() {
    let ip = udp_v4();
    let sll = [&[0; 14][..], &[8, 0], &ip].concat();
    let sll2 = [&[8, 0][..], &[0; 18], &ip].concat();
    let behind = |head: &[u8]| [head, &ip].concat();
    let (null, big, bsd) = (behind(&[2, 0, 0, 0]), behind(&[0, 0, 0, 2]), behind(&[0, 0, 0, 0]));
    let (ppp, framed, short) = (behind(&[0, 0x21]), behind(&[255, 3, 0, 0x21]), behind(&[0x21]));
    let (cisco, session) = (behind(&[0x0f, 0, 8, 0]), behind(&[0x11, 0, 0, 85, 0, 38, 0, 0x21]));
    let all = [
        (101, &ip),
        (228, &ip),
        (113, &sll),
        (276, &sll2),
        (0, &null),
        (0, &big),
        (108, &big),
        (9, &ppp),
        (9, &framed),
        (50, &framed),
        (50, &short),
        (50, &cisco),
        (51, &session),
        (104, &cisco),
    ];
    for (linktype, data) in all {
        assert_eq!(ip_of(linktype, data).destination_port, 2000, "{linktype}");
    }
    let tagged = [&[0x8f, 0, 0x81, 0, 0, 7, 8, 0][..], &ip].concat();
    assert_eq!(dissected(104, &tagged, true).tags.ids[0], 7);
    assert_eq!(dissected(51, &session, true).tunnel, Some(Tunnel::Pppoe(85)));
    for family in [10, 24, 28, 30] {
        let data = [&[family, 0, 0, 0][..], &extended(UDP, &[])].concat();
        assert_eq!(ip_of(0, &data).destination_port, 2000, "{family}");
    }
    // A family without IP, keepalives of PPP and Cisco HDLC, and truncated packets.
    assert_eq!(dissected(0, &bsd, true).net, NetworkLayer::Other(0));
    assert_eq!(dissected(9, &[255, 3, 0xc0, 0x21, 9], true).net, NetworkLayer::Other(0xc021));
    assert_eq!(dissected(104, &[0x8f, 0, 0x80, 0x35, 0], true).net, NetworkLayer::Other(0x8035));
    for linktype in [0, 9, 50, 51, 104, 108, 113, 276] {
        assert_eq!(dissected(linktype, &[0], true).net, NetworkLayer::Unreadable, "{linktype}");
    }
    assert_eq!(dissected(147, &ip, true).net, NetworkLayer::UnknownLink);
    assert_eq!(dissected(229, &ip, true).net, NetworkLayer::Unreadable);
}

#[test]
fn only_the_first_fragment_has_ports() {
    for (place, fragment, port) in [
        ([0x40, 0], FragmentKind::Whole, 2000),
        ([0x20, 0], FragmentKind::First, 2000),
        ([0, 100], FragmentKind::Later, 0),
    ] {
        let mut data = udp_v4();
        data[6..8].copy_from_slice(&place);
        let ip = ip_of(101, &data);
        assert_eq!((ip.fragment, ip.destination_port, ip.protocol), (fragment, port, UDP));
    }
}

/// Returns an IPv6 packet with these extension headers before UDP.
fn extended(first: u8, extensions: &[u8]) -> Vec<u8> {
    let udp = [3, 232, 7, 208, 0, 8, 0, 0];
    let mut head = [0; 40];
    head[0] = 0x60;
    head[5] = (extensions.len() + udp.len()) as u8;
    head[6] = first;
    [&head[..], extensions, &udp].concat()
}

#[test]
fn extensions_of_ipv6_are_passed_over() {
    // Hop by hop, routing, destination options, authentication.
    let mut all = vec![43, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 51, 1];
    all.extend([0; 14]);
    all.extend([UDP, 2]);
    all.extend([0; 14]);
    let ip = ip_of(101, &extended(0, &all));
    assert_eq!((ip.protocol, ip.source_port, ip.destination_port), (UDP, 1000, 2000));
    for (place, fragment, port) in [
        ([0, 0], FragmentKind::Whole, 2000),
        ([0, 1], FragmentKind::First, 2000),
        ([1, 0], FragmentKind::Later, 0),
    ] {
        let ip = ip_of(101, &extended(44, &[UDP, 0, place[0], place[1], 0, 0, 0, 9]));
        assert_eq!((ip.fragment, ip.protocol, ip.destination_port), (fragment, UDP, port));
    }
    // If the extensions are cut off, the addresses are known, and the protocol is that of the missing
    // extension.
    let ip = ip_of(101, &extended(0, &all)[..44]);
    assert_eq!((ip.protocol, ip.destination_port), (0, 0));
}

#[test]
fn labels_of_mpls_are_passed_over() {
    let ethernet = |payload: &[u8]| [&[0; 12][..], &[0x88, 0x47], payload].concat();
    let frame = ethernet(&[&[0, 1, 0x00, 64, 0, 2, 0x01, 64][..], &udp_v4()].concat());
    assert_eq!(ip_of(ETHERNET, &frame).destination_port, 2000);
    assert_eq!(dissected(ETHERNET, &frame, true).tunnel, None);
    let pseudowire = ethernet(&[0, 2, 0x01, 64, 0, 0, 0, 0, 1, 2, 3]);
    assert_eq!(dissected(ETHERNET, &pseudowire, true).net, NetworkLayer::Other(0x8847));
}

#[test]
fn padding_is_no_header() {
    let mut frame = [&[0; 12][..], &EtherType::IPV4.0.to_be_bytes(), &udp_v4()[..20]].concat();
    frame[16..18].copy_from_slice(&20_u16.to_be_bytes());
    frame.resize(60, 7);
    let NetworkLayer::Ip(ip) = dissected(ETHERNET, &frame, true).net else { panic!("no IP") };
    assert_eq!((ip.source_port, ip.destination_port), (0, 0));
}
