//! Compares the conversations of whole files with those of tshark.
//!
//! tshark prints 10,000 bytes and more in kilobytes, so conversations are kept shorter than that, and
//! sums over pairs of addresses are compared as printed. Its reassembly of fragments is disabled,
//! because the table counts each packet on its own.

// Numbers are small, and a panic fails the test.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use etherparse::{PacketBuilder, VlanId};
use pmdscope_flows::{
    Flow, FlowEndpoint, FlowSnapshot, FlowTable, FlowTableSettings, PacketCounts, UnlistedPackets,
    standard_error,
};
use pmdscope_packets::read::FileReplay;
use pmdscope_packets::{
    CaptureInterface, DIR_RX, DIR_TX, ETHERNET, MAX_SNAPLEN, Packet, PacketSink, RunControl,
    SectionOrigin, read,
};
use pmdscope_testing::output;

const BEGIN: u64 = 1_780_000_000_000_000_000;

/// Pseudorandom numbers, the same in each run (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % end
    }
}

#[derive(Clone, Copy)]
struct Pair {
    client: (u8, u16),
    server: (u8, u16),
    v6: bool,
    vlans: u8,
}

impl Pair {
    fn back(self) -> Self {
        Self { client: self.server, server: self.client, ..self }
    }
}

/// Builds the link and IP headers of a frame.
macro_rules! builder {
    ($pair:expr) => {{
        let Pair { client: (from, _), server: (to, _), v6, vlans } = $pair;
        let id = VlanId::try_new(u16::from(from.min(to)) + 100).unwrap();
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, from], [2, 0, 0, 0, 0, to]);
        let six = |host| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, host];
        let (a, b, c, d) = ([10, 0, 1, from], [10, 0, 1, to], six(from), six(to));
        match (vlans, v6) {
            (0, false) => ethernet.ipv4(a, b, 64),
            (0, true) => ethernet.ipv6(c, d, 64),
            (1, false) => ethernet.single_vlan(id).ipv4(a, b, 64),
            (1, true) => ethernet.single_vlan(id).ipv6(c, d, 64),
            (_, false) => ethernet.double_vlan(id, id).ipv4(a, b, 64),
            (_, true) => ethernet.double_vlan(id, id).ipv6(c, d, 64),
        }
    }};
}

fn tcp(pair: Pair, flags: &str, sequence: u32, size: usize) -> Vec<u8> {
    let mut builder = builder!(pair).tcp(pair.client.1, pair.server.1, sequence, 8000);
    for flag in flags.chars() {
        builder = match flag {
            'S' => builder.syn(),
            'F' => builder.fin(),
            'R' => builder.rst(),
            _ => builder.ack(1),
        };
    }
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![1; size]).unwrap();
    frame
}

fn udp(pair: Pair, size: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    builder!(pair).udp(pair.client.1, pair.server.1).write(&mut frame, &vec![1; size]).unwrap();
    frame
}

fn sctp(pair: Pair, size: u16) -> Vec<u8> {
    let [ports, to] = [pair.client.1, pair.server.1].map(u16::to_be_bytes);
    let length = (16 + size).to_be_bytes();
    // A DATA chunk with a verification tag, without a valid checksum.
    let head = [&ports[..], &to, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 3], &length, &[0; 12]].concat();
    let payload = [head, vec![1; size.into()]].concat();
    let mut frame = Vec::new();
    builder!(pair).write(&mut frame, etherparse::IpNumber::SCTP, &payload).unwrap();
    frame
}

/// Returns the packets of one connection, some with retransmissions, without a beginning, or without an
/// end.
fn connection(numbers: &mut Numbers, pair: Pair, initial: u32) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let server = initial.wrapping_mul(7);
    if numbers.below(5) > 0 {
        frames.push(tcp(pair, "S", initial, 0));
        if numbers.below(4) == 0 {
            frames.push(tcp(pair, "S", initial, 0));
        }
        frames.push(tcp(pair.back(), "SA", server, 0));
        frames.push(tcp(pair, "A", initial.wrapping_add(1), 0));
    }
    for at in 0..numbers.below(12) as u32 {
        let size = numbers.below(300) as usize;
        let (pair, initial) =
            if numbers.below(2) == 0 { (pair, initial) } else { (pair.back(), server) };
        frames.push(tcp(pair, "A", initial.wrapping_add(1 + at * 300), size));
    }
    let (next, answer) = (initial.wrapping_add(5000), server.wrapping_add(5000));
    match numbers.below(3) {
        0 => frames.push(tcp(pair, "RA", next, 0)),
        1 => {
            frames.push(tcp(pair, "FA", next, 0));
            frames.push(tcp(pair.back(), "FA", answer, 0));
            frames.push(tcp(pair, "A", next + 1, 0));
        }
        _ => frames.push(tcp(pair, "A", next, 10)),
    }
    frames
}

fn pair(numbers: &mut Numbers, number: u16) -> Pair {
    let (client, server) = (numbers.below(20) as u8 + 1, numbers.below(20) as u8 + 30);
    let vlans = (client + server) % 4;
    Pair {
        client: (client, 10_000 + number),
        server: (server, 80 + number % 3),
        v6: numbers.below(3) == 0,
        vlans: vlans % 3,
    }
}

/// Interleaves the frames of several sequences in random order; returns them with their times.
fn interleaved(numbers: &mut Numbers, sequences: Vec<Vec<Vec<u8>>>) -> Vec<(u64, Vec<u8>)> {
    let mut waiting = sequences.into_iter().map(Vec::into_iter).collect::<Vec<_>>();
    let (mut frames, mut ns) = (Vec::new(), BEGIN);
    while !waiting.is_empty() {
        let at = numbers.below(waiting.len() as u64) as usize;
        match waiting[at].next() {
            Some(frame) => {
                ns += numbers.below(30_000_000) + 1;
                frames.push((ns, frame));
            }
            None => drop(waiting.swap_remove(at)),
        }
    }
    frames
}

fn write_pcap(path: &Path, frames: &[(u64, Vec<u8>)]) {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut bytes = words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, MAX_SNAPLEN, ETHERNET.into()]);
    for (ns, frame) in frames {
        let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let len = frame.len() as u32;
        bytes.extend(words(&[seconds as u32, rest as u32, len, len]));
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

fn counted(path: &Path) -> FlowSnapshot {
    let (mut table, latest) = FlowTable::new(FlowTableSettings::default());
    let settings = read::ReplaySettings {
        filter: String::new(),
        optimize: true,
        dirs: DIR_RX | DIR_TX,
        snaplen: 128,
        skip: 0,
        count: None,
    };
    let replay = FileReplay::open([path.to_owned()], settings, &RunControl::default()).unwrap();
    let report = replay.run(&mut table, &mut |_| {});
    assert!(report.failure.is_none(), "{report:?}");
    (*latest.get()).clone()
}

/// A line of tshark: both ends in order, packets and bytes of each, start and duration in nanoseconds.
type Row = ((String, String), [(u64, String); 2], u64, u64);

/// Formats a number of bytes as tshark does.
fn size(bytes: u64) -> String {
    if bytes < 10_000 { format!("{bytes} bytes") } else { format!("{} kB", bytes / 1000) }
}

fn nanos(seconds: &str) -> u64 {
    (seconds.parse::<f64>().unwrap() * 1e9).round() as u64
}

/// Returns the conversations that tshark finds; `None` without tshark.
fn tshark(path: &Path) -> Option<BTreeMap<String, Vec<Row>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-n", "-q"]);
    command.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    for kind in ["tcp", "udp", "sctp", "ip", "ipv6"] {
        command.args(["-z", &format!("conv,{kind}")]);
    }
    let output = output(&mut command)?;
    assert!(output.status.success(), "{output:?}");
    let mut tables = BTreeMap::<String, Vec<Row>>::new();
    let mut kind = String::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(name) = line.strip_suffix(" Conversations") {
            name.clone_into(&mut kind);
        }
        let words = line.split_whitespace().collect::<Vec<_>>();
        if let [a, "<->", b, n, o, p, q, r, s, _, _, _, start, length] = words[..] {
            let side = |packets: &str, bytes, unit| {
                (packets.parse::<u64>().unwrap(), format!("{bytes} {unit}"))
            };
            let [back, forth] = [side(n, o, p), side(q, r, s)];
            let row = ordered(a.to_owned(), b.to_owned(), forth, back, nanos(start), nanos(length));
            tables.entry(kind.clone()).or_default().push(row);
        }
    }
    for rows in tables.values_mut() {
        rows.sort();
    }
    Some(tables)
}

fn ordered(
    a: String,
    b: String,
    forth: (u64, String),
    back: (u64, String),
    start: u64,
    length: u64,
) -> Row {
    if a <= b {
        ((a, b), [forth, back], start, length)
    } else {
        ((b, a), [back, forth], start, length)
    }
}

fn name(end: FlowEndpoint, ports: bool) -> String {
    if ports { format!("{}:{}", end.addr, end.port) } else { end.addr.to_string() }
}

/// Returns our conversations as tshark prints them: one by one for TCP, otherwise summed up by their
/// ends.
fn rows(snapshot: &FlowSnapshot, kind: &str) -> Vec<Row> {
    let ports = !kind.starts_with("IP");
    let wanted = |flow: &&Flow| match kind {
        "TCP" => flow.proto == 6,
        // tshark does not count later fragments, which have no ports, as UDP.
        "UDP" => flow.proto == 17 && flow.local.port != 0,
        "SCTP" => flow.proto == 132,
        "IPv6" => flow.local.addr.is_ipv6(),
        _ => flow.local.addr.is_ipv4(),
    };
    let mut sums = BTreeMap::<_, ([PacketCounts; 2], u64, u64)>::new();
    for (number, flow) in snapshot.flows.iter().filter(wanted).enumerate() {
        let mut ends = [
            (name(flow.local, ports), flow.unknown.from_local),
            (name(flow.remote, ports), flow.unknown.from_remote),
        ];
        ends.sort_by(|a, b| a.0.cmp(&b.0));
        let [(a, forth), (b, back)] = ends;
        let key = (a, b, if kind == "TCP" { number } else { 0 });
        let sum = sums.entry(key).or_insert((Default::default(), u64::MAX, 0));
        sum.0 = [sum.0[0].plus(forth), sum.0[1].plus(back)];
        (sum.1, sum.2) = (sum.1.min(flow.first_ns), sum.2.max(flow.last_ns));
    }
    let rows = sums.into_iter().map(|((a, b, _), (counts, first, last))| {
        let sides = counts.map(|counts| (counts.packets, size(counts.bytes)));
        ((a, b), sides, first - snapshot.begin_ns, last - first)
    });
    let mut rows = rows.collect::<Vec<_>>();
    rows.sort();
    rows
}

/// Checks that our conversations are those in the tables of tshark.
fn agree(frames: &[(u64, Vec<u8>)], kinds: &[&str]) -> FlowSnapshot {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flows.pcap");
    write_pcap(&path, frames);
    let snapshot = counted(&path);
    assert_eq!(snapshot.total.packets, frames.len() as u64);
    assert_eq!(snapshot.other, UnlistedPackets::default());
    let Some(mut tables) = tshark(&path) else { return snapshot };
    for kind in ["TCP", "UDP", "SCTP", "IPv4", "IPv6"] {
        let (theirs, ours) = (tables.remove(kind).unwrap_or_default(), rows(&snapshot, kind));
        assert_eq!(!ours.is_empty(), kinds.contains(&kind), "{kind}");
        assert_eq!(ours.len(), theirs.len(), "{kind}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!((&ours.0, &ours.1), (&theirs.0, &theirs.1), "{kind} {ours:?} {theirs:?}");
            // The start has nine decimal digits, the duration has four.
            assert!(ours.2.abs_diff(theirs.2) <= 1, "{kind} {ours:?} {theirs:?}");
            assert!(ours.3.abs_diff(theirs.3) <= 50_001, "{kind} {ours:?} {theirs:?}");
        }
    }
    snapshot
}

#[test]
fn connections_of_tcp_are_those_of_tshark() {
    let mut numbers = Numbers(1);
    let mut sequences = Vec::new();
    for number in 0..120 {
        let pair = pair(&mut numbers, number);
        // Ports are reused, however the previous connection ended.
        let again = 1 + numbers.below(3);
        let frames = (0..again).flat_map(|_| {
            let initial = numbers.below(1 << 32) as u32;
            connection(&mut numbers, pair, initial)
        });
        sequences.push(frames.collect());
    }
    agree(&interleaved(&mut numbers, sequences), &["TCP", "IPv4", "IPv6"]);
}

/// A SYN with the sequence number of the previous connection is a retransmission, even after a reset.
#[test]
fn a_repeated_syn_after_a_reset_begins_no_connection_as_with_tshark() {
    // By the sender: true is the client, whose sequence numbers begin at 100.
    let (syn, syn_ack, ack) = ((true, "S", 100), (false, "SA", 700), (true, "A", 101));
    let (reset, refused) = ((true, "R", 101), (false, "RA", 0));
    let retried = vec![syn, syn_ack, ack, reset, syn, syn_ack, ack];
    let never = vec![syn, syn, refused, syn, refused, syn];
    // Another number begins a connection, and so does the first number after that.
    let other = vec![syn, refused, (true, "S", 200), refused, syn, syn_ack];
    for (steps, flows) in [(retried, 1), (never, 1), (other, 3)] {
        let pair = Pair { client: (1, 5000), server: (2, 80), v6: false, vlans: 0 };
        let frames =
            (BEGIN..).step_by(1_000_000).zip(steps).map(|(ns, (forth, flags, sequence))| {
                (ns, tcp(if forth { pair } else { pair.back() }, flags, sequence, 0))
            });
        let snapshot = agree(&frames.collect::<Vec<_>>(), &["TCP", "IPv4"]);
        assert_eq!(snapshot.flows.len(), flows);
    }
}

fn datagrams(numbers: &mut Numbers, number: u16) -> Vec<Vec<u8>> {
    let pair = pair(numbers, number);
    let frames = (0..=numbers.below(12)).map(|_| {
        let pair = if numbers.below(2) == 0 { pair } else { pair.back() };
        udp(pair, numbers.below(500) as usize + 20)
    });
    frames.collect()
}

#[test]
fn conversations_of_udp_are_those_of_tshark() {
    let mut numbers = Numbers(2);
    let sequences = (0..150).map(|number| datagrams(&mut numbers, number)).collect();
    agree(&interleaved(&mut numbers, sequences), &["UDP", "IPv4", "IPv6"]);
}

#[test]
fn conversations_of_sctp_are_those_of_tshark() {
    let mut numbers = Numbers(3);
    let sequences = (0..40).map(|number| {
        let pair = pair(&mut numbers, number);
        (0..6).map(|at| sctp(if at % 2 == 0 { pair } else { pair.back() }, 4 * at)).collect()
    });
    let sequences = sequences.collect();
    agree(&interleaved(&mut numbers, sequences), &["SCTP", "IPv4", "IPv6"]);
}

/// Returns the first fragment of a datagram, and a later one.
fn fragments(pair: Pair) -> [Vec<u8>; 2] {
    let pair = Pair { v6: false, vlans: 0, ..pair };
    let (mut first, mut later) = (udp(pair, 400), udp(pair, 200));
    first[20..22].copy_from_slice(&0x2000_u16.to_be_bytes());
    later[20..22].copy_from_slice(&51_u16.to_be_bytes());
    [first, later]
}

/// Returns an echo request, or an error that contains the beginning of a packet of others: one about a packet
/// of its receiver counts for the conversation of that packet, which tshark does not do.
fn icmp(pair: Pair, error: bool) -> Vec<u8> {
    let pair = Pair { vlans: 0, v6: false, ..pair };
    let mut frame = Vec::new();
    let kind = etherparse::Icmpv4Type::DestinationUnreachable(
        etherparse::icmpv4::DestUnreachableHeader::Port,
    );
    let inside = &udp(pair, 20)[14..];
    if error {
        builder!(pair).icmpv4(kind).write(&mut frame, inside).unwrap();
    } else {
        builder!(pair).icmpv4_echo_request(7, 1).write(&mut frame, &[0; 48]).unwrap();
    }
    frame
}

#[test]
fn fragments_and_icmp_count_for_their_addresses_as_with_tshark() {
    let mut numbers = Numbers(4);
    let sequences = (0..60).map(|number| {
        let pair = pair(&mut numbers, number);
        let [first, later] = fragments(pair);
        vec![first, later, icmp(pair, false), icmp(pair, true), icmp(pair.back(), false)]
    });
    let sequences = sequences.collect();
    agree(&interleaved(&mut numbers, sequences), &["UDP", "IPv4"]);
}

fn packet(frame: &[u8], ns: u64, weight: u32) -> Packet<'_> {
    Packet {
        interface: 0,
        ns,
        data: frame,
        len: frame.len() as u32,
        dir: DIR_RX,
        queue: None,
        lcore: None,
        weight,
        dropped: 0,
        id: 0,
        comment: "",
        options: &[],
    }
}

fn table() -> (FlowTable, pmdscope_flows::LatestSnapshot) {
    let (mut table, latest) = FlowTable::new(FlowTableSettings::default());
    table.section(&SectionOrigin::default()).unwrap();
    let (description, filter, comment, options) = Default::default();
    let name = "app:0".to_owned();
    let (snaplen, linktype) = (128, ETHERNET);
    let interface =
        CaptureInterface { name, description, filter, comment, options, snaplen, linktype };
    table.interface(&interface).unwrap();
    (table, latest)
}

#[test]
fn samples_are_within_four_standard_errors() {
    const SAMPLE: u32 = 16;
    let mut numbers = Numbers(5);
    let pairs = (0..40).map(|number| pair(&mut numbers, number)).collect::<Vec<_>>();
    let (mut table, latest) = table();
    let mut truth = BTreeMap::<u16, u64>::new();
    let total = 60_000;
    for at in 0..total {
        // Some send a hundred times as much as others.
        let pair = pairs[(numbers.below(40) * numbers.below(40) / 40) as usize];
        *truth.entry(pair.client.1).or_default() += 1;
        if at % u64::from(SAMPLE) == 3 {
            table.packet(&packet(&udp(pair, 20), BEGIN + at, SAMPLE)).unwrap();
        }
    }
    table.finish().unwrap();
    let snapshot = latest.get();
    let near = |estimate: u64, variance, truth: u64| {
        (estimate as f64 - truth as f64).abs() <= 4.0 * standard_error(variance)
    };
    assert!(near(snapshot.total.packets, snapshot.variance, total));
    assert!(snapshot.flows.len() >= 35, "{}", snapshot.flows.len());
    for flow in &snapshot.flows {
        let truth = truth[&flow.remote.port];
        assert!(near(flow.total().packets, flow.variance, truth), "{flow:?} {truth}");
        assert!(matches!(flow.remote.addr, IpAddr::V4(_) | IpAddr::V6(_)));
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_flood_of_forged_conversations_takes_no_more_memory() {
    let (mut table, latest) = table();
    let pair = Pair { client: (1, 1), server: (2, 2), v6: false, vlans: 0 };
    let mut frame = udp(pair, 20);
    let mut flood = |table: &mut FlowTable, from: u32, to: u32| {
        for number in from..to {
            frame[26..30].copy_from_slice(&number.to_be_bytes());
            table.packet(&packet(&frame, BEGIN + u64::from(number), 1)).unwrap();
        }
        table.counters(&[]);
        table.counters(&[]);
        resident_bytes()
    };
    let full = flood(&mut table, 0, 200_000);
    let later = flood(&mut table, 200_000, 1_200_000);
    // Other tests run at the same time; a million conversations would take 300 MB.
    assert!(later < full + (32 << 20), "{full} {later}");
    let snapshot = latest.get();
    assert_eq!(snapshot.flows.len(), snapshot.capacity);
    assert_eq!(snapshot.other.evictions, 1_200_000 - snapshot.capacity as u64);
}
