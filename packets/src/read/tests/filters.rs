//! Tests of filters on files of all link types, compared with tcpdump.

use super::*;
use crate::filter::{FilterCompiler, ProgramListing, list};

/// Returns a pcap file with packets of a link type, in either byte order.
fn pcap_of(linktype: u32, order: ByteOrder, packets: &[Vec<u8>]) -> Vec<u8> {
    let word = |word: u32| order.bytes_of_u32(word);
    let mut out = word(0xa1b2_c3d4).to_vec();
    out.extend([2, 4].into_iter().flat_map(|number| order.bytes_of_u16(number)));
    out.extend([0, 0, MAX_SNAPLEN, linktype].into_iter().flat_map(word));
    for packet in packets {
        let size = packet.len() as u32;
        out.extend([1_700_000_000, 0, size, size].into_iter().flat_map(word));
        out.extend(packet);
    }
    out
}

/// Returns loopback packets of each system: the number of an address family, and IPv4 or IPv6 with UDP.
fn loopback(bytes_of: impl Fn(u32) -> [u8; 4]) -> Vec<Vec<u8>> {
    let packet = |family| {
        let mut ip = vec![0; if family == 2 { 32 } else { 52 }];
        let udp = ip.len() - 12;
        ip[udp + 3] = 53;
        if family == 2 {
            (ip[0], ip[9]) = (0x45, 17);
        } else {
            (ip[0], ip[6]) = (0x60, 17);
        }
        [&bytes_of(family)[..], &ip].concat()
    };
    [2, 10, 24, 28, 30].map(packet).to_vec()
}

fn counted(bytes: Vec<u8>, filter: &str) -> u64 {
    replay(bytes, ReplaySettings { filter: filter.into(), ..settings() }).unwrap().1.captured
}

#[test]
fn filters_find_the_address_families_of_every_system() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let null = pcap_of(0, order, &loopback(|family| order.bytes_of_u32(family)));
        let network = pcap_of(108, order, &loopback(u32::to_be_bytes));
        for bytes in [null, network] {
            assert_eq!(counted(bytes.clone(), "ip"), 1, "{order:?}");
            assert_eq!(counted(bytes.clone(), "ip6"), 3, "{order:?}");
            assert_eq!(counted(bytes, "udp port 53"), 4, "{order:?}");
        }
    }
}

/// Returns the program that tcpdump compiles for a file, and ours; an empty program if the filter is
/// refused.
fn programs(file: &std::path::Path, compiler: FilterCompiler, filter: &str) -> Option<[String; 2]> {
    let mut tcpdump = Command::new("tcpdump");
    let expected = output(tcpdump.args(["-ddd", "-r"]).arg(file).arg(filter))?;
    let found = compiler.compile(filter).unwrap_or_default();
    let found =
        if found.is_empty() { String::new() } else { list(&found, ProgramListing::Decimal) };
    Some([String::from_utf8(expected.stdout).unwrap(), found])
}

#[test]
fn filters_of_all_link_types_are_those_of_tcpdump() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty");
    let mut accepted = 0;
    for linktype in 0..=300_u16 {
        let order = if linktype % 2 == 0 { ByteOrder::Big } else { ByteOrder::Little };
        std::fs::write(&path, pcap_of(linktype.into(), order, &[])).unwrap();
        let file_order = Some(order);
        let compiler = FilterCompiler { linktype, file_order, ..FilterCompiler::default() };
        // Each filter runs tcpdump once.
        let rare = (linktype % 20 < 2).then_some(["inbound", "link[-4] = 0"]);
        for filter in ["udp port 53 or ip6"].into_iter().chain(rare.into_iter().flatten()) {
            let Some([expected, found]) = programs(&path, compiler, filter) else { return };
            assert_eq!(found, expected, "{linktype} {order:?} {filter}");
            accepted += usize::from(!found.is_empty());
        }
    }
    assert!(accepted > 50, "{accepted}");
}

fn sample_packet(data: &[u8]) -> Packet<'_> {
    Packet {
        interface: 0,
        ns: NS,
        data,
        len: 43,
        dir: 0,
        queue: None,
        lcore: None,
        weight: 1,
        dropped: 0,
        id: 0,
        comment: "",
        options: &[],
    }
}

#[test]
fn a_filter_need_not_fit_a_link_type_without_packets() {
    let mut file = Vec::new();
    write_section(&mut file, &SectionOrigin::default());
    write_interface(&mut file, &interface("eth"));
    write_interface(&mut file, &CaptureInterface { linktype: 189, ..interface("usb") });
    let data = frame(53);
    let eth = sample_packet(&data);
    write_packet(&mut file, &eth);
    assert_eq!(counted(file.clone(), "udp"), 1);
    write_packet(&mut file, &Packet { interface: 1, ..eth });
    write_packet(&mut file, &eth);
    let (_, report) = replay(file, ReplaySettings { filter: "udp".into(), ..settings() }).unwrap();
    assert_eq!(report.captured, 2);
    assert!(report.failure.unwrap().to_string().contains("link-layer type"));
}

#[test]
fn a_filter_that_does_not_fit_the_first_link_type_finds_packets_of_the_second() {
    let data = frame(53);
    let packet = |interface| Packet { interface, len: 43, ..sample_packet(&data) };
    // IP addresses and ports are not known of packets of USB.
    for (first, second) in [(189, ETHERNET), (ETHERNET, 189)] {
        let mut file = Vec::new();
        write_section(&mut file, &SectionOrigin::default());
        write_interface(&mut file, &CaptureInterface { linktype: first, ..interface("one") });
        write_interface(&mut file, &CaptureInterface { linktype: second, ..interface("two") });
        let ethernet = u32::from(first != ETHERNET);
        (0..2).for_each(|interface| write_packet(&mut file, &packet(interface)));
        write_packet(&mut file, &packet(ethernet));
        let filter = "udp port 53".to_owned();
        let (notes, report) = replay(file, ReplaySettings { filter, ..settings() }).unwrap();
        assert_eq!((packets(&notes).len(), report.captured), (2, 2));
        assert!(report.failure.unwrap().to_string().contains("link-layer type"));
    }
    // Where there is nothing else, nothing is written.
    let mut file = Vec::new();
    write_section(&mut file, &SectionOrigin::default());
    write_interface(&mut file, &CaptureInterface { linktype: 189, ..interface("usb") });
    write_packet(&mut file, &packet(0));
    let alone = replay(file, ReplaySettings { filter: "udp".into(), ..settings() });
    assert!(matches!(alone, Err(ReplayError::Filter(_))));
}
