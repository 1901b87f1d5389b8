use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use etherparse::PacketBuilder;
use pmdscope_packets::{DIR_RX, DIR_TX, ETHERNET};
use proptest::prelude::*;

use super::*;
use crate::rate_windows::ByteHistory;
use crate::{Flow, FlowEndpoint, TcpState};

mod icmp;
mod listener;
mod windows;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_780_000_000 * SECOND;

/// Returns the address of a host.
fn ip(number: u8) -> [u8; 4] {
    [10, 0, 0, number]
}

fn udp(from: (u8, u16), to: (u8, u16), size: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ip(from.0), ip(to.0), 64);
    builder.udp(from.1, to.1).write(&mut frame, &vec![0; size]).unwrap();
    frame
}

/// Returns a TCP frame; flags are written as by tcpdump.
fn tcp(from: (u8, u16), to: (u8, u16), flags: &str, sequence: u32) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ip(from.0), ip(to.0), 64);
    let mut builder = builder.tcp(from.1, to.1, sequence, 1000);
    for flag in flags.chars() {
        builder = match flag {
            'S' => builder.syn(),
            'F' => builder.fin(),
            'R' => builder.rst(),
            _ => builder.ack(1),
        };
    }
    let mut frame = Vec::new();
    builder.write(&mut frame, &[]).unwrap();
    frame
}

fn interface(name: &str) -> CaptureInterface {
    CaptureInterface {
        name: name.to_owned(),
        description: String::new(),
        filter: String::new(),
        comment: String::new(),
        options: Vec::new(),
        snaplen: 262_144,
        linktype: ETHERNET,
    }
}

fn table(settings: FlowTableSettings) -> (FlowTable, LatestSnapshot) {
    let (mut table, latest) = FlowTable::new(settings);
    table.section(&SectionOrigin::default()).unwrap();
    table.interface(&interface("app:0")).unwrap();
    table.interface(&interface("app:1")).unwrap();
    (table, latest)
}

fn packet(data: &[u8], ns: u64) -> Packet<'_> {
    Packet {
        interface: 0,
        ns: BEGIN + ns,
        data,
        len: data.len() as u32,
        dir: DIR_RX,
        queue: Some(0),
        lcore: Some(1),
        weight: 1,
        dropped: 0,
        id: 0,
        comment: "",
        options: &[],
    }
}

fn put(table: &mut FlowTable, data: &[u8], ns: u64) {
    table.packet(&packet(data, ns)).unwrap();
}

/// Returns the sum of all listed conversations and of `other`.
fn listed(snapshot: &FlowSnapshot) -> (PacketCounts, u64) {
    let UnlistedPackets { evicted, expired, not_ip, unreadable, unknown_link, .. } = snapshot.other;
    let flows = snapshot.flows.iter().map(Flow::total);
    let counts = flows
        .chain([evicted, expired, not_ip, unreadable, unknown_link])
        .reduce(PacketCounts::plus)
        .unwrap();
    let variance = snapshot.flows.iter().map(|flow| flow.variance).sum::<u64>();
    (counts, variance + snapshot.other.evicted_variance + snapshot.other.expired_variance)
}

fn end(number: u8, port: u16) -> FlowEndpoint {
    FlowEndpoint { addr: IpAddr::from(ip(number)), port }
}

#[test]
fn both_directions_are_one_conversation_of_the_app_on_all_its_ports() {
    let (mut table, latest) = table(FlowTableSettings::default());
    let (request, answer) = (udp((9, 5000), (1, 53), 30), udp((1, 53), (9, 5000), 300));
    put(&mut table, &request, 0);
    table.packet(&Packet { dir: DIR_TX, interface: 1, ..packet(&answer, 5) }).unwrap();
    table.counters(&[]);
    let snapshot = latest.get();
    assert_eq!(snapshot.apps, ["app"]);
    let [flow] = &snapshot.flows[..] else { panic!("{snapshot:?}") };
    assert_eq!((flow.local, flow.remote), (end(1, 53), end(9, 5000)));
    assert_eq!(flow.rx.from_remote, PacketCounts { packets: 1, bytes: request.len() as u64 });
    assert_eq!(flow.tx.from_local, PacketCounts { packets: 1, bytes: answer.len() as u64 });
    assert_eq!((flow.first_ns, flow.last_ns), (BEGIN, BEGIN + 5));
    assert_eq!(flow.opener, Some(super::super::FlowEnd::Remote));
    assert_eq!((flow.rx_place.unwrap().port, flow.tx_place.unwrap().port), (0, 1));
}

#[test]
fn interfaces_without_names_are_told_apart_by_number() {
    let (mut table, latest) = FlowTable::new(FlowTableSettings::default());
    let frame = udp((9, 5000), (1, 53), 30);
    // Files of two sections, or two files.
    for section in 0..2 {
        table.section(&SectionOrigin::default()).unwrap();
        (0..2).for_each(|_| table.interface(&interface("")).unwrap());
        for interface in [0, 1, 1] {
            table.packet(&Packet { interface, ..packet(&frame, section) }).unwrap();
        }
    }
    table.finish().unwrap();
    let snapshot = latest.get();
    assert_eq!(snapshot.apps, ["interface 0", "interface 1"]);
    let packets = snapshot.flows.iter().map(|flow| (flow.app, flow.total().packets));
    assert_eq!(packets.collect::<Vec<_>>(), [(0, 2), (1, 4)]);
}

/// A step of the property test.
#[derive(Clone, Debug)]
struct Step {
    hosts: (u8, u8),
    ports: (u16, u16),
    flags: Option<&'static str>,
    dir: u8,
    weight: u32,
    pause: u64,
    kind: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::option::of(prop::sample::select(vec!["S", "SA", "A", "FA", "R"]));
    (
        (0_u8..12, 0_u8..12),
        (0_u16..3, 0_u16..3),
        flags,
        0_u8..3,
        prop::sample::select(vec![1_u32, 1, 64, 1000]),
        prop::sample::select(vec![0_u64, 1, SECOND / 3, 3 * SECOND]),
        0_u8..20,
    )
        .prop_map(|(hosts, ports, flags, dir, weight, pause, kind)| Step {
            hosts,
            ports,
            flags,
            dir,
            weight,
            pause,
            kind,
        })
}

impl Step {
    fn frame(&self, number: u32) -> Vec<u8> {
        let (from, to) = ((self.hosts.0, self.ports.0), (self.hosts.1, self.ports.1));
        let mut frame = match self.flags {
            Some(flags) => tcp(from, to, flags, number % 3),
            None => udp(from, to, 10),
        };
        match self.kind {
            0 => frame[12..14].copy_from_slice(&[8, 6]),
            1 => frame.truncate(30),
            _ => {}
        }
        frame
    }
}

proptest! {
    #[test]
    fn nothing_is_counted_twice_or_lost(
        steps in prop::collection::vec(step(), 0..300),
        capacity in 1_usize..40,
        idle in prop::option::of(1_u64..5),
        at_once in prop::sample::select(vec![usize::MAX, 0, 5]),
    ) {
        let idle = idle.map(Duration::from_secs);
        let (mut table, latest) = table(FlowTableSettings { capacity, idle, ..FlowTableSettings::default() });
        table.copied = CopyLimits { at_once, by_flush: 3, by_batch: 1 };
        let (mut ns, mut sum, mut variance) = (0, PacketCounts::default(), 0);
        let mut protocols = HashMap::<u8, u64>::new();
        for (number, step) in steps.iter().enumerate() {
            ns += step.pause;
            let frame = step.frame(number as u32);
            let (dir, weight) = (step.dir, step.weight);
            table.packet(&Packet { dir, weight, ..packet(&frame, ns) }).unwrap();
            let packets = u64::from(weight);
            sum = sum.plus(PacketCounts { packets, bytes: packets * frame.len() as u64 });
            variance += packets * (packets - 1);
            if step.kind > 1 {
                *protocols.entry(frame[23]).or_default() += packets;
            }
            if step.pause > 1 {
                table.counters(&[]);
                let snapshot = latest.get();
                prop_assert_eq!(listed(&snapshot).0, snapshot.total);
                prop_assert!(at_once < usize::MAX || snapshot.total == sum);
            }
            if step.kind == 19 {
                table.flush().unwrap();
            }
        }
        table.finish().unwrap();
        let snapshot = latest.get();
        prop_assert_eq!(snapshot.total, sum);
        prop_assert_eq!(listed(&snapshot).0, sum);
        prop_assert_eq!(snapshot.variance, variance);
        prop_assert!(listed(&snapshot).1 <= variance);
        prop_assert!(snapshot.flows.len() <= capacity);
        prop_assert_eq!(snapshot.protocols.tcp.packets, protocols.get(&6).copied().unwrap_or(0));
        prop_assert_eq!(snapshot.protocols.udp.packets, protocols.get(&17).copied().unwrap_or(0));
        prop_assert_eq!(snapshot.queues.iter().map(|queue| queue.total.packets).sum::<u64>(), sum.packets);
    }
}

#[test]
fn a_new_connection_between_the_same_ports_is_another_conversation() {
    let (mut table, latest) = table(FlowTableSettings::default());
    let (client, server) = ((9, 5000), (1, 80));
    let steps = [
        (client, server, "S", 100),
        (client, server, "S", 100),
        (server, client, "SA", 700),
        (client, server, "A", 101),
        (client, server, "FA", 101),
        (server, client, "FA", 701),
        (client, server, "A", 102),
        (client, server, "S", 5000),
        (server, client, "RA", 0),
    ];
    for (at, (from, to, flags, sequence)) in steps.into_iter().enumerate() {
        let dir = if from == client { DIR_RX } else { DIR_TX };
        let frame = tcp(from, to, flags, sequence);
        table.packet(&Packet { dir, ..packet(&frame, at as u64) }).unwrap();
    }
    table.counters(&[]);
    let mut flows = latest.get().flows.clone();
    flows.sort_by_key(|flow| flow.first_ns);
    let seen = flows.iter().map(|flow| (flow.state, flow.total().packets)).collect::<Vec<_>>();
    assert_eq!(seen, [(TcpState::Closed, 7), (TcpState::Reset, 2)]);
    assert!(flows.iter().all(|flow| flow.opener == Some(super::super::FlowEnd::Remote)));
}

#[test]
fn a_sampled_packet_tells_who_opened_only_by_a_handshake() {
    use super::super::FlowEnd::{Local, Remote};
    let (client, server) = ((9, 5000), (1, 80));
    let frames =
        [(udp(server, client, 9), Some(Local)), (tcp(server, client, "SA", 7), Some(Remote))];
    for (frame, opener) in frames {
        for weight in [1, 64] {
            let (mut table, latest) = table(FlowTableSettings::default());
            let first = packet(&frame, 0);
            table.packet(&Packet { dir: DIR_TX, weight, ..first }).unwrap();
            // Later packets do not change the opener.
            table.packet(&Packet { dir: DIR_TX, ..first }).unwrap();
            table.counters(&[]);
            let known = weight == 1 || opener == Some(Remote);
            assert_eq!(latest.get().flows[0].opener, opener.filter(|_| known), "{weight}");
        }
    }
}

/// Advances the time without packets.
fn tick(table: &mut FlowTable, second: u64) {
    table.counters(&[InterfaceStatistics {
        end_ns: BEGIN + second * SECOND,
        ..InterfaceStatistics::default()
    }]);
}

#[test]
fn a_flood_does_not_evict_large_conversations() {
    let capacity = 1024;
    let (mut table, latest) = table(FlowTableSettings { capacity, ..FlowTableSettings::default() });
    let heavy = |number: u16| udp((9, number), (1, 53), 30);
    let mut flood = udp((9, 1), (2, 53), 30);
    let mut forged = 0_u32;
    let mut flood = |table: &mut FlowTable| {
        forged += 1;
        // Uses another source address each time.
        flood[26..30].copy_from_slice(&(0xc000_0000 + forged).to_be_bytes());
        put(table, &flood, forged.into());
    };
    for round in 0..400 {
        (0..100).for_each(|number| put(&mut table, &heavy(number), round));
    }
    // Ten more begin in the middle of the flood; each sends one packet per two hundred forged ones.
    for round in 0..200_u64 {
        for number in 0..10 {
            (0..20).for_each(|_| flood(&mut table));
            put(&mut table, &heavy(1000 + number), round);
        }
    }
    table.counters(&[]);
    let snapshot = latest.get();
    assert_eq!(snapshot.flows.len(), capacity);
    let kept = |from: u16, packets: u64| {
        let heavy = snapshot.flows.iter().filter(|flow| {
            flow.remote.port >= from && flow.remote.port < from + 100 && flow.local.port == 53
        });
        heavy.filter(|flow| flow.total().packets >= packets).count()
    };
    assert_eq!(kept(0, 400), 100);
    assert_eq!(kept(1000, 150), 10);
    assert_eq!(listed(&snapshot).0, snapshot.total);
}

#[test]
fn what_is_recent_is_of_the_interval() {
    let (mut table, latest) = table(FlowTableSettings::default());
    let frame = udp((9, 5000), (1, 53), 30);
    let recent = || {
        let snapshot = latest.get();
        let flow = snapshot.flows[0].recent_rx.packets;
        assert_eq!(snapshot.queues[0].recent.packets, flow);
        (snapshot.interval_s, flow)
    };
    put(&mut table, &frame, 0);
    tick(&mut table, 0);
    assert_eq!(recent(), (0.0, 0));
    (0..3).for_each(|_| put(&mut table, &frame, SECOND));
    tick(&mut table, 1);
    assert_eq!(recent(), (1.0, 3));
    put(&mut table, &frame, 2 * SECOND);
    tick(&mut table, 2);
    assert_eq!(recent(), (1.0, 1));
    // Too soon after the previous snapshot for a new interval.
    put(&mut table, &frame, 2 * SECOND + SECOND / 4);
    table.counters(&[]);
    assert_eq!(recent(), (1.25, 2));
}

#[test]
fn counting_begins_with_the_earliest_packet() {
    let frame = udp((9, 5000), (1, 53), 30);
    for times in [[3, 1, 2].map(|second| BEGIN + second * SECOND), [0, 0, 0xffff_ffff * SECOND]] {
        let (mut table, latest) = table(FlowTableSettings::default());
        for ns in times {
            table.packet(&Packet { ns, ..packet(&frame, 0) }).unwrap();
        }
        table.finish().unwrap();
        let snapshot = latest.get();
        let bounds = (times.into_iter().min().unwrap(), times.into_iter().max().unwrap());
        assert_eq!((snapshot.begin_ns, snapshot.now_ns), bounds);
        assert_eq!((snapshot.flows[0].first_ns, snapshot.flows[0].last_ns), bounds);
    }
}

#[test]
fn a_snapshot_in_parts_is_of_the_moment_it_began() {
    let (mut table, latest) = table(FlowTableSettings::default());
    let from = |number: u16| udp((9, number), (1, 53), 30);
    let send = |table: &mut FlowTable, numbers: std::ops::Range<u16>, ns| {
        numbers.for_each(|number| put(table, &from(number), ns));
    };
    send(&mut table, 0..100, 0);
    tick(&mut table, 0);
    table.copied = CopyLimits { at_once: 40, by_flush: 20, by_batch: 1 };
    send(&mut table, 0..100, SECOND);
    tick(&mut table, 1);
    // 64 known conversations and 16 new ones are counted in five batches, some before they were copied.
    send(&mut table, 30..94, SECOND);
    send(&mut table, 200..216, SECOND);
    (0..2).for_each(|_| table.flush().unwrap());
    assert_eq!(latest.get().total.packets, 100);
    table.flush().unwrap();
    let snapshot = latest.get();
    assert_eq!((snapshot.flows.len(), snapshot.total.packets), (100, 200));
    let counts = |flow: &Flow| (flow.total().packets, flow.recent_rx.packets);
    assert!(snapshot.flows.iter().all(|flow| counts(flow) == (2, 1)));
    tick(&mut table, 2);
    (0..5).for_each(|_| table.flush().unwrap());
    let snapshot = latest.get();
    assert_eq!((snapshot.flows.len(), snapshot.total.packets), (116, 280));
    let recent = snapshot.flows.iter().map(|flow| flow.recent_rx.packets);
    assert_eq!(recent.sum::<u64>(), 80);
}

#[test]
fn losses_are_told_by_gaps_or_counters_but_once() {
    let (mut table, latest) = table(FlowTableSettings::default());
    let frame = udp((9, 5000), (1, 53), 30);
    table.packet(&Packet { dropped: 5, ..packet(&frame, 0) }).unwrap();
    let counted =
        |dropped| InterfaceStatistics { dropped: Some(dropped), ..InterfaceStatistics::default() };
    for (dropped, lost) in [(5, 5), (9, 9), (2, 11)] {
        table.counters(&[counted(dropped)]);
        assert_eq!(latest.get().lost, lost);
    }
}

#[test]
fn no_snapshots_are_made_without_a_reader() {
    let (mut table, latest) = table(FlowTableSettings::default());
    drop(latest);
    put(&mut table, &udp((9, 5000), (1, 53), 30), 0);
    table.counters(&[]);
    assert_eq!(table.latest.get().looked_at, 0);
}

#[test]
fn a_conversation_takes_the_memory_that_is_documented() {
    assert_eq!((size_of::<FlowEntry>(), align_of::<FlowEntry>()), (192, 64));
    assert_eq!((size_of::<FlowDetails>(), size_of::<ReportedCounts>()), (88, 152));
    assert_eq!((size_of::<Flow>(), size_of::<ByteHistory>()), (296, 88));
}
