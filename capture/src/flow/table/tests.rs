use std::collections::HashMap;
use std::net::IpAddr;

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::super::{Endpoint, TcpState};
use super::*;
use crate::layout::{DIR_RX, DIR_TX};
use crate::packet::ETHERNET;

const BEGIN: u64 = 1_780_000_000 * SECOND;

/// Addresses of two hosts, by number.
fn ip(number: u8) -> [u8; 4] {
    [10, 0, 0, number]
}

fn udp(from: (u8, u16), to: (u8, u16), size: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ip(from.0), ip(to.0), 64);
    builder.udp(from.1, to.1).write(&mut frame, &vec![0; size]).unwrap();
    frame
}

/// Flags as tcpdump writes them.
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

fn interface(name: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        description: String::new(),
        filter: String::new(),
        comment: String::new(),
        snaplen: 262_144,
        linktype: ETHERNET,
    }
}

fn table(settings: Settings) -> (Table, Latest) {
    let (mut table, latest) = Table::new(settings);
    table.section(&Origin::default()).unwrap();
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
    }
}

fn put(table: &mut Table, data: &[u8], ns: u64) {
    table.packet(&packet(data, ns)).unwrap();
}

/// The sum of all that is listed.
fn listed(snapshot: &Snapshot) -> (Counts, u64) {
    let Other { evicted, expired, not_ip, unreadable, .. } = snapshot.other;
    let flows = snapshot.flows.iter().map(Flow::total);
    let counts = flows.chain([evicted, expired, not_ip, unreadable]).reduce(Counts::plus).unwrap();
    let variance = snapshot.flows.iter().map(|flow| flow.variance).sum::<u64>();
    (counts, variance + snapshot.other.evicted_variance + snapshot.other.expired_variance)
}

fn end(number: u8, port: u16) -> Endpoint {
    Endpoint { addr: IpAddr::from(ip(number)), port }
}

#[test]
fn both_directions_are_one_conversation_of_the_app_on_all_its_ports() {
    let (mut table, latest) = table(Settings::default());
    let (request, answer) = (udp((9, 5000), (1, 53), 30), udp((1, 53), (9, 5000), 300));
    put(&mut table, &request, 0);
    table.packet(&Packet { dir: DIR_TX, interface: 1, ..packet(&answer, 5) }).unwrap();
    table.counters(&[]);
    let snapshot = latest.get();
    assert_eq!(snapshot.apps, ["app"]);
    let [flow] = &snapshot.flows[..] else { panic!("{snapshot:?}") };
    assert_eq!((flow.local, flow.remote), (end(1, 53), end(9, 5000)));
    assert_eq!(flow.rx.from_remote, Counts { packets: 1, bytes: request.len() as u64 });
    assert_eq!(flow.tx.from_local, Counts { packets: 1, bytes: answer.len() as u64 });
    assert_eq!((flow.first_ns, flow.last_ns), (BEGIN, BEGIN + 5));
    assert_eq!(flow.opener, Some(super::super::End::Remote));
    assert_eq!((flow.rx_place.unwrap().port, flow.tx_place.unwrap().port), (0, 1));
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
    ) {
        let idle = idle.map(Duration::from_secs);
        let (mut table, latest) = table(Settings { capacity, idle, ..Settings::default() });
        let (mut ns, mut sum, mut variance) = (0, Counts::default(), 0);
        let mut protocols = HashMap::<u8, u64>::new();
        for (number, step) in steps.iter().enumerate() {
            ns += step.pause;
            let frame = step.frame(number as u32);
            let (dir, weight) = (step.dir, step.weight);
            table.packet(&Packet { dir, weight, ..packet(&frame, ns) }).unwrap();
            let packets = u64::from(weight);
            sum = sum.plus(Counts { packets, bytes: packets * frame.len() as u64 });
            variance += packets * (packets - 1);
            if step.kind > 1 {
                *protocols.entry(frame[23]).or_default() += packets;
            }
            if step.pause > 1 {
                table.counters(&[]);
                prop_assert_eq!(listed(&latest.get()).0, sum);
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
    let (mut table, latest) = table(Settings::default());
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
    assert!(flows.iter().all(|flow| flow.opener == Some(super::super::End::Remote)));
}
