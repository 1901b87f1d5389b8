//! Tests that other programs read the blocks, and of blocks of any size.

use std::process::Command;

use pmdscope_testing::output;
use proptest::prelude::*;

use super::*;
use crate::packet::{ETHERNET, MAX_SNAPLEN};

const NS: u64 = 1_780_000_000_123_456_789;

fn sample() -> Vec<u8> {
    let mut out = Vec::new();
    let origin = SectionOrigin {
        hardware: "some CPU".into(),
        os: "Linux 6".into(),
        application: "pmdscope test".into(),
        options: Vec::new(),
    };
    write_section(&mut out, &origin);
    for name in ["rte:0", "rte:1"] {
        let interface = CaptureInterface {
            name: name.into(),
            description: "net_null0".into(),
            filter: "udp or arp".into(),
            comment: "a comment".into(),
            options: Vec::new(),
            snaplen: MAX_SNAPLEN,
            linktype: ETHERNET,
        };
        write_interface(&mut out, &interface);
    }
    let data = [0xaa; 61];
    let packet = Packet {
        interface: 0,
        ns: NS,
        data: &data,
        len: 61,
        dir: DIR_RX,
        queue: Some(3),
        lcore: None,
        weight: 1,
        dropped: 0,
        id: 0,
        comment: "",
        options: &[],
    };
    write_packet(&mut out, &packet);
    let packet = Packet {
        interface: 1,
        ns: NS + 1,
        len: 1500,
        dir: DIR_TX,
        queue: Some(0),
        lcore: None,
        weight: 1,
        dropped: 7,
        ..packet
    };
    write_packet(&mut out, &Packet { id: 1, comment: "odd", ..packet });
    for interface in [0, 1] {
        write_statistics(
            &mut out,
            &InterfaceStatistics {
                interface,
                start_ns: NS - 1_000_000_000,
                end_ns: NS + 1_000_000_000,
                received: Some(1000 + u64::from(interface)),
                dropped: Some(7),
                accepted: Some(8),
                delivered: 1,
            },
        );
    }
    out
}

/// Returns the output of a tool for the sample; `None`, after a SKIP message, if it is not installed.
fn read_with(tool: &str, args: &[&str]) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sample.pcapng");
    std::fs::write(&file, sample()).unwrap();
    let out = output(Command::new(tool).args(args).arg(&file).env("TZ", "UTC"))?;
    assert!(out.status.success(), "{tool}: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn tshark_reads_every_field_of_a_packet() {
    let fields = [
        "frame.interface_name",
        "frame.interface_queue",
        "frame.packet_flags_direction",
        "frame.drop_count",
        "frame.packet_id",
        "frame.len",
        "frame.cap_len",
        "frame.time_epoch",
    ];
    let mut args = vec!["-T", "fields"];
    args.extend(fields.iter().flat_map(|field| ["-e", field]));
    args.push("-r");
    if let Some(text) = read_with("tshark", &args) {
        let rows = text.lines().map(|l| l.split('\t').collect::<Vec<_>>()).collect::<Vec<_>>();
        assert_eq!(
            rows[0],
            ["rte:0", "3", "0x00000001", "", "0", "61", "61", "1780000000.123456789"]
        );
        assert_eq!(
            rows[1],
            ["rte:1", "0", "0x00000002", "7", "1", "1500", "61", "1780000000.123456790"]
        );
    }
}

#[test]
fn capinfos_reads_origin_interfaces_and_statistics() {
    if let Some(text) = read_with("capinfos", &[]) {
        for expected in [
            "Capture hardware:    some CPU",
            "Capture oper-sys:    Linux 6",
            "Capture application: pmdscope test",
            "Number of interfaces in file: 2",
            "Name = rte:1",
            "Description = net_null0",
            "Filter string = udp or arp",
            "Time precision = nanoseconds (9)",
            "Number of stat entries = 1",
            "Number of packets:   2",
        ] {
            assert!(text.contains(expected), "no '{expected}' in\n{text}");
        }
    }
}

#[test]
fn tcpdump_reads_the_file() {
    if let Some(text) = read_with("tcpdump", &["-tt", "--nano", "-nr"]) {
        let packets = text.lines().filter(|line| !line.starts_with(char::is_whitespace));
        assert_eq!(packets.count(), 2, "{text}");
        assert!(text.starts_with("1780000000.123456789 "), "{text}");
    }
}

#[test]
fn statistics_have_the_high_word_first() {
    let mut out = Vec::new();
    write_statistics(
        &mut out,
        &InterfaceStatistics { start_ns: 0x1_0000_0002, ..InterfaceStatistics::default() },
    );
    let option = [&2u16.to_ne_bytes()[..], &8u16.to_ne_bytes()].concat();
    assert_eq!(&out[20..24], option);
    assert_eq!(&out[24..32], [1u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat());
    assert!(!out.windows(4).any(|w| w == [&5u16.to_ne_bytes()[..], &8u16.to_ne_bytes()].concat()));
}

#[test]
fn statistics_are_not_larger_than_they_say() {
    let mut out = Vec::new();
    let all = Some(1);
    let statistics = InterfaceStatistics {
        received: all,
        dropped: all,
        accepted: all,
        ..InterfaceStatistics::default()
    };
    let counts = FileCounts { lost: 1, represented: u64::MAX, weight: u32::MAX };
    let statistics = InterfaceStatistics { delivered: 1, ..statistics };
    write_file_statistics(&mut out, &statistics, counts);
    assert_eq!(out.len(), STATISTICS_SIZE);
}

#[test]
fn packets_that_stand_for_themselves_have_no_comment() {
    let counts = |represented, weight| FileCounts { lost: 0, represented, weight };
    assert_eq!(sampling_comment(0, counts(0, 1)), "");
    assert_eq!(sampling_comment(7, counts(7, 1)), "");
    let sampled = "Sampled: a packet stands for 3.40 on average, the last one for 8.";
    assert_eq!(sampling_comment(10, counts(34, 8)), sampled);
}

#[test]
fn whole_blocks_stop_before_a_partial_one() {
    let bytes = sample();
    assert_eq!(whole(&bytes), (bytes.len(), 2));
    let (most, packets) = whole(&bytes[..bytes.len() - 1]);
    assert!(packets == 2 && bytes.len() - most <= STATISTICS_SIZE);
    assert_eq!(whole(&bytes[..5]), (0, 0));
    assert_eq!(whole(&[0; 64]), (0, 0));
}

proptest! {
    #[test]
    fn whole_blocks_of_anything_end_within_it(
        bytes in proptest::collection::vec(prop_oneof![Just(0_u8), 0..20_u8, any::<u8>()], 0..300),
    ) {
        let (size, packets) = whole(&bytes);
        prop_assert!(size <= bytes.len() && packets * 12 <= size as u64);
    }

    #[test]
    fn a_packet_fills_its_size_whatever_it_is(
        data in proptest::collection::vec(any::<u8>(), 0..200),
        comment in ".{0,40}",
        dropped: u64,
        id: u64,
        ns: u64,
        queue: Option<u16>,
        more in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..4),
    ) {
        let mut options = Vec::new();
        for (code, value) in &more {
            crate::options::append(&mut options, code | 0x100, value);
        }
        let packet = Packet {
            interface: 3, ns, data: &data, len: 1500, dir: DIR_TX, queue, lcore: None, weight: 1, dropped, id,
            comment: &comment,
            options: &options,
        };
        let mut out = vec![0xee; packet_size(&packet)];
        put_packet(&mut out, &packet);
        prop_assert_eq!(whole(&out), (out.len(), 1));
        let (rest, block) = pcap_parser::parse_enhancedpacketblock_le(&out).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert_eq!(&block.data[..data.len()], &data[..]);
        let ts = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
        prop_assert_eq!((ts, block.if_id, block.origlen), (ns, 3, 1500));
        let value = |code| {
            let option = block.options.iter().find(|option| option.code.0 == code)?;
            Some(option.value[..option.len.into()].to_vec())
        };
        prop_assert_eq!(value(1), (!comment.is_empty()).then(|| comment.clone().into_bytes()));
        prop_assert_eq!(value(4), (dropped > 0).then(|| dropped.to_le_bytes().to_vec()));
        prop_assert_eq!(value(5), Some(id.to_le_bytes().to_vec()));
        let number = queue.map(|queue| u32::from(queue).to_le_bytes().to_vec());
        prop_assert_eq!(value(6), number);
        let others = block.options.iter().filter(|option| option.code.0 & 0x100 != 0);
        let others = others.map(|option| (option.code.0, option.value[..option.len.into()].to_vec()));
        let given = more.into_iter().map(|(code, value)| (code | 0x100, value));
        prop_assert_eq!(others.collect::<Vec<_>>(), given.collect::<Vec<_>>());
    }
}
