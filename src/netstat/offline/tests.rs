use std::fs;
use std::path::Path;

use pmdscope_flows::{FlowEnd, PacketCounts, TcpState};
use tempfile::TempDir;

use super::*;
use crate::netstat::conversations;
use crate::netstat::fixture::{args, end};

const CLIENT: [u8; 4] = [10, 0, 0, 2];
const SERVER: [u8; 4] = [10, 0, 0, 1];

/// An Ethernet frame of 60 bytes with such an IPv4 packet in it.
fn frame(proto: u8, from: ([u8; 4], u16), to: ([u8; 4], u16), tcp_flags: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[17], frame[22], frame[23]) = (0x45, 40, 64, proto);
    frame[26..30].copy_from_slice(&from.0);
    frame[30..34].copy_from_slice(&to.0);
    frame[34..36].copy_from_slice(&from.1.to_be_bytes());
    frame[36..38].copy_from_slice(&to.1.to_be_bytes());
    (frame[46], frame[47]) = (0x50, tcp_flags);
    frame
}

/// A connection of five packets and one question, a second apart.
fn packets() -> Vec<Vec<u8>> {
    let (client, server) = ((CLIENT, 40_000), (SERVER, 80));
    vec![
        frame(6, client, server, 0x02),
        frame(6, server, client, 0x12),
        frame(6, client, server, 0x10),
        frame(17, client, (SERVER, 53), 0),
        frame(6, client, server, 0x18),
        frame(6, server, client, 0x10),
    ]
}

fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    pcap_of(1, packets)
}

fn pcap_of(linktype: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, linktype];
    let mut file = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    for (second, packet) in (1_700_000_000_u32..).zip(packets) {
        let len = u32::try_from(packet.len()).unwrap();
        file.extend([second, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(packet);
    }
    file
}

fn counted(path: &Path, words: &str) -> (ReportData, Option<ReplayError>) {
    let args = args(&format!("-r {} {words}", path.display()));
    count(&args, &RunControl::default(), None).unwrap()
}

fn written(bytes: &[u8]) -> (TempDir, std::path::PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("test.pcap");
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

#[test]
fn conversations_of_a_file_are_counted_exactly() {
    let (_dir, path) = written(&pcap(&packets()));
    let (data, failure) = counted(&path, "");
    let snapshot = data.counted();
    assert!(failure.is_none());
    assert_eq!(snapshot.total, PacketCounts { packets: 6, bytes: 360 });
    let flows = conversations::chosen(&args(""), &data, &snapshot);
    let tcp = flows[0];
    assert_eq!((tcp.local, tcp.remote), (end("10.0.0.2", 40_000), end("10.0.0.1", 80)));
    assert_eq!(tcp.unknown.from_local, PacketCounts { packets: 3, bytes: 180 });
    assert_eq!(tcp.unknown.from_remote, PacketCounts { packets: 2, bytes: 120 });
    assert_eq!((tcp.state, tcp.opener), (TcpState::Established, Some(FlowEnd::Local)));
    assert_eq!((tcp.last_ns - tcp.first_ns, flows.len()), (5_000_000_000, 2));
}

#[test]
fn a_filter_leaves_packets_out() {
    let (_dir, path) = written(&pcap(&packets()));
    let (data, _) = counted(&path, "udp port 53");
    assert_eq!(data.counted().total.packets, 1);
}

#[test]
fn packets_without_a_direction_are_taken_unless_asked_otherwise() {
    let (_dir, path) = written(&pcap(&packets()));
    let (data, _) = counted(&path, "--queues");
    assert_eq!((data.counted().total.packets, data.losses.undirected), (6, 0));
    let (data, _) = counted(&path, "--queues -Q in tcp");
    assert_eq!((data.counted().total.packets, data.losses.undirected), (0, 5));
    let told = data.caveats().join("\n");
    assert!(told.contains("excluded by -Q: 5 packets without a direction"), "{told}");
}

#[test]
fn what_can_be_read_of_a_broken_file_is_counted() {
    let mut bytes = pcap(&packets());
    bytes.truncate(bytes.len() - 7);
    let (_dir, path) = written(&bytes);
    let (data, failure) = counted(&path, "");
    assert_eq!(data.counted().total.packets, 5);
    assert!(matches!(failure, Some(ReplayError::Read(_))));
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let args = args("-r /nowhere/at/all.pcap");
    let error = count(&args, &RunControl::default(), None).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all.pcap"), "{error:#}");
}

#[test]
fn link_types_that_are_not_read_are_named() {
    let (_dir, path) = written(&pcap_of(189, &packets()));
    let (data, failure) = counted(&path, "");
    assert!(failure.is_none());
    let snapshot = data.counted();
    assert_eq!(snapshot.other.unknown_link, PacketCounts { packets: 6, bytes: 360 });
    assert_eq!(snapshot.other.unreadable, PacketCounts::default());
    let args = args("");
    let text = conversations::text(&args, &data, &ReportLayout::wide(&args));
    let told = "other: 6 packets, 360 B of link type USB_LINUX (189), which is not read";
    assert!(text.contains(told), "{text}");
}

#[test]
fn conversations_behind_other_link_types_are_counted() {
    // What stands in front of IP: NULL, PPP, PPP in HDLC, Cisco HDLC, LOOP, nothing, and Linux cooked.
    let (cooked, cooked2) = ([&[0; 14][..], &[8, 0]].concat(), [&[8, 0][..], &[0; 18]].concat());
    let heads: [(u32, &[u8]); 8] = [
        (0, &[2, 0, 0, 0]),
        (9, &[0, 0x21]),
        (50, &[255, 3, 0, 0x21]),
        (104, &[0x0f, 0, 8, 0]),
        (108, &[0, 0, 0, 2]),
        (101, &[]),
        (113, &cooked),
        (276, &cooked2),
    ];
    for (linktype, head) in heads {
        let packets =
            packets().iter().map(|frame| [head, &frame[14..]].concat()).collect::<Vec<_>>();
        let (_dir, path) = written(&pcap_of(linktype, &packets));
        let (data, failure) = counted(&path, "");
        assert!(failure.is_none(), "{linktype}");
        let snapshot = data.counted();
        let packets = snapshot.flows.iter().map(|flow| flow.total().packets).sum::<u64>();
        assert_eq!((snapshot.flows.len(), packets), (2, 6), "{linktype}");
    }
}
