use std::process::Command;

use etherparse::{ArpOperation, ArpPacket, EtherType, IpFragOffset, IpNumber, Ipv4Header};
use etherparse::{PacketBuilder, TcpOptionElement, VlanId};
use jiff::tz::TimeZone;
use pmdscope_testing::output;
use proptest::prelude::*;

use super::*;

const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
const V4: ([u8; 4], [u8; 4]) = ([10, 0, 0, 1], [10, 0, 0, 2]);
const V6: ([u8; 16], [u8; 16]) = ([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], {
    let mut address = [0; 16];
    (address[0], address[1], address[15]) = (0x20, 0x01, 9);
    address
});
const NS: u64 = 1_780_000_000_123_456_789;
const STEP: u64 = 1_000_000_123;

macro_rules! built {
    ($builder:expr, $payload:expr) => {{
        let mut bytes = Vec::new();
        $builder.write(&mut bytes, $payload).unwrap();
        bytes
    }};
}

fn ether() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2(SOURCE, DESTINATION)
}

fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&DESTINATION[..], &SOURCE, &ether_type.to_be_bytes(), payload].concat()
}

fn ip(protocol: u8, change: impl Fn(&mut Ipv4Header), payload: &[u8]) -> Vec<u8> {
    let mut header = Ipv4Header::new(0, 64, IpNumber(protocol), V4.0, V4.1).unwrap();
    header.total_len = 20 + payload.len() as u16;
    change(&mut header);
    header.header_checksum = header.calc_header_checksum();
    frame(0x0800, &[&header.to_bytes()[..], payload].concat())
}

fn arp(operation: ArpOperation, target_mac: [u8; 6]) -> Vec<u8> {
    let sender = (SOURCE, V4.0);
    let packet = ArpPacket::new(
        etherparse::ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &sender.0,
        &sender.1,
        &target_mac,
        &V4.1,
    );
    frame(0x0806, &packet.unwrap().to_bytes())
}

fn tcp_packets() -> Vec<Vec<u8>> {
    let tcp = || ether().ipv4(V4.0, V4.1, 64).tcp(1234, 5678, 4_294_967_290, 8192);
    let options = [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(123_456, 0),
        TcpOptionElement::Noop,
        TcpOptionElement::WindowScale(7),
    ];
    let sack = [
        TcpOptionElement::Noop,
        TcpOptionElement::Noop,
        TcpOptionElement::SelectiveAcknowledgement((5, 9), [Some((20, 30)), None, None]),
    ];
    vec![
        built!(tcp().syn().options(&options).unwrap(), &[]),
        built!(tcp().syn().ack(77), &[]),
        built!(tcp().ack(78), &[]),
        built!(tcp().psh().ack(78), b"0123456789"),
        built!(tcp().fin().ack(78), &[]),
        built!(tcp().rst(), &[]),
        built!(tcp(), &[]),
        built!(tcp().urg(9).ece().cwr().ack(1), b"x"),
        built!(tcp().ack(78).options(&sack).unwrap(), &[]),
        built!(ether().ipv6(V6.0, V6.1, 47).tcp(1234, 5678, 1, 512).psh().ack(3), b"abc"),
    ]
}

fn udp_packets() -> Vec<Vec<u8>> {
    let tag = |id| VlanId::try_new(id).unwrap();
    let mut bad = built!(ether().ipv4(V4.0, V4.1, 64).udp(1234, 9999), &[1; 18]);
    bad[40..42].copy_from_slice(&[0x12, 0x34]);
    let mut unsummed = bad.clone();
    unsummed[40..42].copy_from_slice(&[0, 0]);
    let mut padded = built!(ether().ipv4(V4.0, V4.1, 64).udp(1234, 9999), &[1; 2]);
    padded.resize(60, 0);
    vec![
        built!(ether().ipv4(V4.0, V4.1, 64).udp(1234, 9999), &[1; 18]),
        bad,
        unsummed,
        padded,
        built!(ether().ipv6(V6.0, V6.1, 1).udp(1234, 9999), &[1; 200]),
        built!(ether().single_vlan(tag(5)).ipv4(V4.0, V4.1, 3).udp(1, 9999), &[]),
        built!(ether().double_vlan(tag(5), tag(4000)).ipv6(V6.0, V6.1, 3).udp(1, 9999), &[7]),
    ]
}

fn other_packets() -> Vec<Vec<u8>> {
    let fragment = |offset: u16, more: bool| {
        move |header: &mut Ipv4Header| {
            header.identification = 4711;
            header.more_fragments = more;
            header.dont_fragment = false;
            header.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        }
    };
    let udp = [&[4, 210, 0x27, 0x0f, 0, 100, 0, 0][..], &[0; 16]].concat();
    let lost = ip(17, |_| (), &udp)[14..].to_vec();
    let unreachable = |code: u8| [&[3, code, 0, 0, 0, 0, 5, 120][..], &lost].concat();
    vec![
        arp(ArpOperation::REQUEST, [0; 6]),
        arp(ArpOperation::REQUEST, [0xff; 6]),
        arp(ArpOperation::REPLY, DESTINATION),
        built!(ether().ipv4(V4.0, V4.1, 64).icmpv4_echo_request(7, 8), &[0; 56]),
        built!(ether().ipv4(V4.0, V4.1, 64).icmpv4_echo_reply(7, 9), &[]),
        built!(ether().ipv6(V6.0, V6.1, 64).icmpv6_echo_request(7, 8), &[0; 56]),
        built!(ether().ipv6(V6.0, V6.1, 64).icmpv6_echo_reply(7, 9), &[]),
        ip(17, fragment(0, true), &udp),
        ip(17, fragment(3, true), &udp),
        ip(17, fragment(185, false), &udp),
        ip(99, |_| (), &[0; 20]),
        ip(1, |_| (), &unreachable(0)),
        ip(1, |_| (), &unreachable(1)),
        ip(1, |_| (), &unreachable(3)),
        ip(1, |_| (), &unreachable(4)),
        ip(1, |_| (), &[&[11, 0, 0, 0, 0, 0, 0, 0][..], &lost].concat()),
    ]
}

fn neighbours() -> Vec<Vec<u8>> {
    let icmp6 = |message: &[u8]| {
        let size = (message.len() as u16).to_be_bytes();
        let header = [&[0x60, 0, 0, 0, size[0], size[1], 58, 255][..], &V6.0, &V6.1].concat();
        frame(0x86dd, &[&header, message].concat())
    };
    let lost = built!(PacketBuilder::ipv6(V6.1, V6.0, 64).udp(1234, 9999), &[0; 8]);
    vec![
        icmp6(&[&[135, 0, 0, 0, 0, 0, 0, 0][..], &V6.1].concat()),
        icmp6(&[&[136, 0, 0, 0, 0, 0, 0, 0][..], &V6.1].concat()),
        icmp6(&[133, 0, 0, 0, 0, 0, 0, 0]),
        icmp6(&[&[1, 4, 0, 0, 0, 0, 0, 0][..], &lost].concat()),
        icmp6(&[&[1, 3, 0, 0, 0, 0, 0, 0][..], &lost].concat()),
        icmp6(&[&[2, 0, 0, 0, 0, 0, 5, 0][..], &lost].concat()),
    ]
}

fn common() -> Vec<Vec<u8>> {
    [tcp_packets(), udp_packets(), other_packets(), neighbours()].concat()
}

/// A capture file of nanoseconds with these packets.
fn file(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let head: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, 1];
    out.extend(head.iter().flat_map(|word| word.to_ne_bytes()));
    for (packet, ns) in packets.iter().zip((NS..).step_by(STEP as usize)) {
        let len = packet.len() as u32;
        let head = [(ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32, len, len];
        out.extend(head.iter().flat_map(|word| word.to_ne_bytes()));
        out.extend(packet);
    }
    out
}

/// What tcpdump says, or nothing (told aloud) where it is not installed.
fn tcpdump(flags: &[&str], packets: &[Vec<u8>]) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.pcap");
    std::fs::write(&path, file(packets)).unwrap();
    let mut command = Command::new("tcpdump");
    command.env("TZ", "Europe/Berlin").args(["-n", "-S"]).args(flags).arg("-r").arg(path);
    let output = output(&mut command)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn ours(style: Style, stamps: &mut Stamps, packets: &[Vec<u8>]) -> String {
    let mut out = String::new();
    for (packet, ns) in packets.iter().zip((NS..).step_by(STEP as usize)) {
        stamps.write(&mut out, ns);
        describe(&mut out, packet, packet.len() as u32, style);
    }
    out
}

fn no_stamps() -> Stamps {
    Stamps::new(Clock::None, false, TimeZone::UTC)
}

fn assert_same(flags: &[&str], style: Style, packets: &[Vec<u8>]) {
    let flags = [&["-t"], flags].concat();
    let Some(theirs) = tcpdump(&flags, packets) else { return };
    let ours = ours(style, &mut no_stamps(), packets);
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "{flags:?}");
    }
    assert_eq!(ours, theirs);
}

#[test]
fn common_packets_read_as_in_tcpdump() {
    assert_same(&[], Style { checksums: true, ..Style::default() }, &common());
}

#[test]
fn the_link_header_reads_as_in_tcpdump() {
    assert_same(&["-e"], Style { link_header: true, ..Style::default() }, &common());
}

#[test]
fn quick_lines_read_as_in_tcpdump() {
    assert_same(&["-q"], Style { quick: true, ..Style::default() }, &tcp_packets());
    assert_same(&["-q"], Style { quick: true, ..Style::default() }, &udp_packets());
    let style = Style { quick: true, link_header: true, ..Style::default() };
    assert_same(&["-q", "-e"], style, &udp_packets());
}

#[test]
fn verbose_lines_read_as_in_tcpdump() {
    let style = Style { verbose: 1, checksums: true, ..Style::default() };
    assert_same(&["-v"], style, &tcp_packets());
    assert_same(&["-v"], style, &udp_packets());
    let style = Style { verbose: 2, checksums: true, ..Style::default() };
    assert_same(&["-vv"], style, &tcp_packets());
    assert_same(&["-vv"], style, &udp_packets());
    let style = Style { verbose: 1, checksums: false, ..Style::default() };
    assert_same(&["-v", "-K"], style, &udp_packets());
}

#[test]
fn bytes_are_laid_out_as_in_tcpdump() {
    let mut packets = common();
    let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\x1b[31m\tred \xc3\xa4\r";
    packets.push(built!(ether().ipv4(V4.0, V4.1, 64).udp(1234, 9999), text));
    for whole in [false, true] {
        let flag = |letter: &str| format!("-{}", letter.repeat(1 + usize::from(whole)));
        let style = |bytes| Style { bytes, ..Style::default() };
        assert_same(&[&flag("x")], style(Bytes::Hex { whole }), &packets);
        assert_same(&[&flag("X")], style(Bytes::HexAscii { whole }), &packets);
        assert_same(&[&flag("A")], style(Bytes::Ascii { whole }), &packets);
    }
}

#[test]
fn times_read_as_in_tcpdump() {
    let packets = udp_packets();
    for (count, flag) in [(0, ""), (2, "-tt"), (3, "-ttt"), (4, "-tttt"), (5, "-ttttt")] {
        for nano in [false, true] {
            let precision = if nano { "--nano" } else { "--micro" };
            let flags = [flag, precision].into_iter().filter(|flag| !flag.is_empty());
            let Some(theirs) = tcpdump(&flags.collect::<Vec<_>>(), &packets) else { return };
            let zone = TimeZone::get("Europe/Berlin").unwrap();
            let mut stamps = Stamps::new(Clock::of_count(count).unwrap(), nano, zone);
            assert_eq!(ours(Style::default(), &mut stamps, &packets), theirs, "{flag} {precision}");
        }
    }
}

#[test]
fn a_sixth_t_means_nothing() {
    assert_eq!(Clock::of_count(6), None);
}

#[test]
fn a_clock_that_goes_back_is_seen() {
    let mut stamps = Stamps::new(Clock::Delta, false, TimeZone::UTC);
    let mut out = String::new();
    stamps.write(&mut out, NS);
    stamps.write(&mut out, NS - 2_000_000_000);
    assert_eq!(out, " 00:00:00.000000 -00:00:02.000000 ");
}

#[test]
fn unknown_types_are_told_with_their_addresses() {
    let mut out = String::new();
    describe(&mut out, &frame(0x88b5, &[0; 46]), 60, Style::default());
    let expected =
        "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype Unknown (0x88b5), length 60: \n";
    assert_eq!(out, expected);
}

fn styles() -> impl Strategy<Value = Style> {
    let bytes = prop_oneof![
        Just(Bytes::None),
        any::<bool>().prop_map(|whole| Bytes::Hex { whole }),
        any::<bool>().prop_map(|whole| Bytes::HexAscii { whole }),
        any::<bool>().prop_map(|whole| Bytes::Ascii { whole }),
    ];
    (any::<bool>(), 0..4u8, any::<bool>(), any::<bool>(), bytes).prop_map(
        |(link_header, verbose, quick, checksums, bytes)| Style {
            link_header,
            verbose,
            quick,
            checksums,
            bytes,
        },
    )
}

/// Packets that were real before some of their bytes were changed or cut off.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let changes = proptest::collection::vec(change, 0..6);
    (prop::sample::select(common()), changes, any::<prop::sample::Index>()).prop_map(
        |(mut packet, changes, cut)| {
            for (at, byte) in changes {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
            packet.truncate(cut.index(packet.len() + 1));
            packet
        },
    )
}

fn check(data: &[u8], len: u32, style: Style) -> Result<(), TestCaseError> {
    let mut out = String::new();
    describe(&mut out, data, len, style);
    let is_odd = |c: char| c.is_control() && c != '\n' && c != '\t';
    prop_assert!(!out.contains(is_odd), "{:?}", out);
    prop_assert!(out.ends_with('\n'));
    if style.bytes == Bytes::None && style.verbose == 0 {
        prop_assert_eq!(out.lines().count(), 1, "{:?}", out);
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_become_text(
        data in proptest::collection::vec(any::<u8>(), 0..200), len: u32, style in styles()
    ) {
        check(&data, len, style)?;
    }

    #[test]
    fn damaged_packets_become_text(data in damaged(), len: u32, style in styles()) {
        check(&data, len, style)?;
    }
}
