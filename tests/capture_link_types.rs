//! `pmdscope capture` on files with several link types, with tcpdump as the oracle.

#![allow(clippy::unwrap_used)] // a test fails by panicking
#![allow(clippy::cast_possible_truncation)] // numbers are cut into words

use std::fs;
use std::process::{Command, Output, Stdio};

use pmdscope_testing::output;
use tempfile::TempDir;

const ETHERNET: u16 = 1;
const RAW_IP: u16 = 101;
const LOOPBACK: u16 = 0;
/// tcpdump reads no file of it.
const UNKNOWN: u16 = 14;

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let size = u32::try_from(body.len() + padding.len() + 12).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &size, body, &padding, &size].concat()
}

/// A pcapng file with interfaces of these link types, and a packet of an interface for each number.
fn pcapng(linktypes: &[u16], packets: &[u16]) -> Vec<u8> {
    let mut file = block(
        0x0a0d_0d0a,
        &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    );
    for linktype in linktypes {
        file.extend(block(1, &[&linktype.to_le_bytes()[..], &[0, 0, 0, 0, 4, 0]].concat()));
    }
    for (port, interface) in (1000..).zip(packets) {
        let data = packet(linktypes[usize::from(*interface)], port);
        let size = u32::try_from(data.len()).unwrap();
        let micros = 1_700_000_000_000_000 + u64::from(port);
        let words = [u32::from(*interface), (micros >> 32) as u32, micros as u32, size, size];
        let words = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        file.extend(block(6, &[words, data].concat()));
    }
    file
}

/// UDP from a port to port 9999, as link types have it.
fn packet(linktype: u16, port: u16) -> Vec<u8> {
    let link = match linktype {
        ETHERNET => vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0],
        LOOPBACK => vec![2, 0, 0, 0],
        _ => Vec::new(),
    };
    let ip = [0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&link[..], &ip, &port.to_be_bytes(), &[0x27, 0x0f, 0, 12, 0, 0], b"text"].concat()
}

fn run(dir: &TempDir, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.arg("capture").args(line.split_whitespace()).current_dir(dir.path());
    output(command.stdin(Stdio::null())).unwrap()
}

fn tcpdump(dir: &TempDir, line: &str) -> Option<Output> {
    let mut command = Command::new("tcpdump");
    command.args(line.split_whitespace()).current_dir(dir.path());
    output(command.stdin(Stdio::null()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory with a file of these link types and packets.
fn scratch(linktypes: &[u16], packets: &[u16]) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("in.pcapng"), pcapng(linktypes, packets)).unwrap();
    dir
}

#[test]
fn packets_of_several_link_types_are_shown_in_their_order() {
    let packets = (0..60).map(|number| number * 7 % 3).collect::<Vec<_>>();
    let dir = scratch(&[ETHERNET, RAW_IP, LOOPBACK], &packets);
    for options in ["-nt", "-ntv", "-ntX"] {
        // tcpdump prints one link type at a time.
        let mut expected = Vec::new();
        for (number, interface) in packets.iter().enumerate() {
            let linktype = [ETHERNET, RAW_IP, LOOPBACK][usize::from(*interface)];
            let (port, micros) = (1000 + number as u16, 1000 + number as u32);
            let data = packet(linktype, port);
            let size = u32::try_from(data.len()).unwrap();
            let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, linktype.into()];
            let words = words.into_iter().chain([1_700_000_000, micros, size, size]);
            let file = words.flat_map(u32::to_le_bytes).chain(data).collect::<Vec<_>>();
            fs::write(dir.path().join("one.pcap"), file).unwrap();
            let Some(one) = tcpdump(&dir, &format!("{options} -r one.pcap")) else { return };
            expected.extend(one.stdout);
        }
        let found = run(&dir, &format!("{options} -r in.pcapng"));
        assert!(found.status.success(), "{options}: {found:?}");
        assert_eq!(text(&found.stdout), text(&expected), "{options}");
        let says = "link-types EN10MB (Ethernet), RAW (Raw IP), NULL (BSD loopback), snapshot length 262144";
        assert!(text(&found.stderr).contains(says), "{found:?}");
    }
}

#[test]
fn a_link_type_without_packets_does_no_harm() {
    for (linktypes, packets) in
        [([ETHERNET, RAW_IP], [0, 0]), ([RAW_IP, ETHERNET], [1, 1]), ([ETHERNET, UNKNOWN], [0, 0])]
    {
        let dir = scratch(&linktypes, &packets);
        let found = run(&dir, "-ntr in.pcapng");
        assert!(found.status.success(), "{linktypes:?}: {found:?}");
        let line = |port| format!("IP 10.0.0.1.{port} > 10.0.0.2.9999: UDP, length 4\n");
        assert_eq!(text(&found.stdout), line(1000) + &line(1001), "{found:?}");
    }
}

#[test]
fn what_tcpdump_prints_is_shown_and_the_rest_is_an_error() {
    for linktypes in [[UNKNOWN, ETHERNET], [ETHERNET, UNKNOWN]] {
        let dir = scratch(&linktypes, &[0, 1, 0, 1, 1, 0]);
        let found = run(&dir, "-ntr in.pcapng");
        assert_eq!(found.status.code(), Some(1), "{found:?}");
        assert_eq!(text(&found.stdout).lines().count(), 3, "{found:?}");
        assert!(text(&found.stderr).contains("unknown data link type 14"), "{found:?}");
    }
    let dir = scratch(&[UNKNOWN], &[0, 0]);
    let found = run(&dir, "-ntr in.pcapng");
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(text(&found.stderr).contains("unknown data link type 14"), "{found:?}");
}

#[test]
fn more_link_types_than_processes_are_shown_in_their_order() {
    let linktypes = [101, 228, 12, 1, 0, 108, 229, 113, 105, 9, 104, 50];
    let packets = (0..36).map(|number| number % 12).collect::<Vec<_>>();
    let dir = scratch(&linktypes, &packets);
    let found = run(&dir, "-nt -# -r in.pcapng");
    assert!(found.status.success(), "{found:?}");
    let lines = text(&found.stdout);
    let first = lines.lines().filter(|line| line.starts_with("   "));
    let numbers = first.map(|line| line.split_whitespace().next().unwrap().parse::<u32>().unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=36).collect::<Vec<_>>(), "{lines}");
}

#[test]
fn a_pcap_file_has_the_packets_of_one_link_type() {
    let dir = scratch(&[RAW_IP, ETHERNET], &[1, 1]);
    let found = run(&dir, "--pcap -r in.pcapng -w out.pcap");
    assert!(found.status.success(), "{found:?}");
    assert_eq!(text(&run(&dir, "--count -r out.pcap udp").stdout), "2 packets\n");

    let dir = scratch(&[ETHERNET, RAW_IP], &[0, 1, 0, 1, 1]);
    let found = run(&dir, "--pcap -r in.pcapng -w out.pcap");
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    let says = "out.pcap is without the packets of other link types than 1 (3): a pcap file has one; write \
                pcapng (--pcapng)";
    assert!(text(&found.stderr).contains(says), "{found:?}");
    assert_eq!(text(&run(&dir, "--count -r out.pcap udp").stdout), "2 packets\n");
}

/// A section with an interface of this name, and a packet of it in this direction.
fn section(name: &str, direction: u8, port: u16) -> Vec<u8> {
    let origin = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
    let name = [&[2, 0, name.len() as u8, 0], name.as_bytes(), &[0; 4]].concat();
    let interface = [&[1, 0, 0, 0, 0, 0, 4, 0][..], &name].concat();
    let data = packet(ETHERNET, port);
    let size = u32::try_from(data.len()).unwrap();
    let words = [0, 0, u32::from(port), size, size].map(u32::to_le_bytes).concat();
    let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
    let flags = [2, 0, 4, 0, direction, 0, 0, 0, 0, 0, 0, 0];
    let packet = [&words[..], &data, &padding, &flags].concat();
    [block(0x0a0d_0d0a, &origin), block(1, &interface), block(6, &packet)].concat()
}

#[test]
fn lines_of_several_sections_have_interface_and_direction() {
    let dir = TempDir::new().unwrap();
    let (one, other) = (section("eth0", 1, 1000), section("eth1", 2, 1001));
    fs::write(dir.path().join("both.pcapng"), [&one[..], &other].concat()).unwrap();
    fs::write(dir.path().join("one.pcapng"), &one).unwrap();
    fs::write(dir.path().join("other.pcapng"), &other).unwrap();
    let line = |name, port| format!("{name}IP 10.0.0.1.{port} > 10.0.0.2.9999: UDP, length 4\n");
    let named = line("eth0  In  ", 1000) + &line("eth1  Out ", 1001);
    fs::write(dir.path().join("list"), "one.pcapng\nother.pcapng\n").unwrap();
    for files in ["-ntr both.pcapng", "-ntV list"] {
        let found = run(&dir, files);
        assert_eq!(text(&found.stdout), named, "{files}: {found:?}");
    }
    assert_eq!(text(&run(&dir, "-ntr one.pcapng").stdout), line("", 1000));
    // From a pipe, it is known when the second interface comes.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.args(["capture", "-ntr", "-"]).current_dir(dir.path());
    command.stdin(fs::File::open(dir.path().join("both.pcapng")).unwrap());
    let found = output(&mut command).unwrap();
    assert_eq!(text(&found.stdout), line("", 1000) + &line("eth1  Out ", 1001), "{found:?}");
}
