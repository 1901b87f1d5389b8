//! Conversations and counters for tests.

use std::sync::Arc;

use pmdscope_flows::{
    Flow, FlowEnd, FlowEndpoint, FlowPlace, FlowSnapshot, PacketCounts, ProtocolCounts,
    QueueCounts, SenderCounts, TcpState, Tunnel,
};
use pmdscope_packets::{DIR_RX, DIR_TX};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::{
    AppIdentity, PortSample, PortStats, QueueDirection, QueueSample, Sample,
};
use pmdscope_telemetry::{FleetEvent, FleetState};

use super::args::Args;
use super::report_data::{AppCounters, PacketLosses, ReportData};
use crate::fixture::parse_args;

/// 2026-01-02 03:04:05 UTC.
pub(super) const BEGIN_NS: u64 = 1_767_323_045_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// The arguments of a command line.
pub(super) fn parse(words: &str) -> Result<Args, clap::Error> {
    parse_args("netstat", words).map(|mut args: Args| {
        args.find_recording();
        args
    })
}

/// The same, where they are right.
pub(super) fn args(words: &str) -> Args {
    parse(words).unwrap()
}

pub(crate) fn end(addr: &str, port: u16) -> FlowEndpoint {
    FlowEndpoint { addr: addr.parse().unwrap(), port }
}

pub(crate) fn counts(packets: u64, bytes: u64) -> PacketCounts {
    PacketCounts { packets, bytes }
}

fn place(queue: u16) -> FlowPlace {
    FlowPlace { port: 0, queue: Some(queue), lcore: Some(3), several: false }
}

/// A conversation that received and sent so many packets of 100 bytes.
pub(crate) fn flow(proto: u8, local: FlowEndpoint, remote: FlowEndpoint, rx: u64, tx: u64) -> Flow {
    let from_remote = counts(rx, rx * 100);
    let from_local = counts(tx, tx * 100);
    Flow {
        app: 0,
        proto,
        vlans: [0; 2],
        inner_vlans: [0; 2],
        icmp: None,
        icmp_errors: 0,
        tunnel_ends: None,
        tunnel: None,
        local,
        remote,
        rx: SenderCounts { from_remote, ..SenderCounts::default() },
        tx: SenderCounts { from_local, ..SenderCounts::default() },
        unknown: SenderCounts::default(),
        recent_rx: counts(rx / 4, rx * 25),
        recent_tx: counts(tx / 4, tx * 25),
        window_bps: [0.0; 3],
        variance: 0,
        state: TcpState::None,
        opener: Some(FlowEnd::Remote),
        tcp_flags: [0; 2],
        first_ns: BEGIN_NS + SECOND / 10,
        last_ns: BEGIN_NS + 3 * SECOND / 2,
        rx_place: (rx > 0).then(|| place(1)),
        tx_place: (tx > 0).then(|| place(0)),
    }
}

/// A web server, what it asks, a tunnel, and noise.
pub(super) fn snapshot() -> FlowSnapshot {
    let web = end("10.0.0.1", 443);
    let mut served = flow(6, web, end("192.0.2.7", 40_001), 8_000, 12_000);
    (served.state, served.tcp_flags) = (TcpState::Established, [0x1a, 0x1a]);
    let mut asked = flow(6, web, end("192.0.2.8", 40_002), 4, 0);
    (asked.state, asked.tcp_flags) = (TcpState::SynSent, [0, 2]);
    let mut upstream = flow(6, end("10.0.0.1", 50_123), end("198.51.100.9", 8_080), 300, 200);
    (upstream.state, upstream.opener) = (TcpState::FinWait, Some(FlowEnd::Local));
    let mut old = flow(6, end("10.0.0.1", 22), end("192.0.2.9", 51_000), 40, 44);
    (old.state, old.opener) = (TcpState::Established, None);
    let dns = flow(17, end("2001:db8::53", 53), end("2001:db8::7", 33_333), 50, 50);
    let mut tunnelled = flow(17, end("172.16.0.1", 5_000), end("172.16.0.2", 6_000), 1_000, 0);
    (tunnelled.vlans, tunnelled.tunnel) = ([7, 0], Some(Tunnel::Vxlan(5_001)));
    let ping = flow(1, end("10.0.0.1", 0), end("192.0.2.7", 0), 2, 2);
    let flows = vec![asked, dns, served, ping, tunnelled, old, upstream];
    let total = flows.iter().map(Flow::total).fold(counts(10, 600), PacketCounts::plus);
    let queue = |dir, queue, packets: u64| QueueCounts {
        app: 0,
        port: 0,
        dir,
        queue: Some(queue),
        lcore: Some(3),
        total: counts(packets, packets * 100),
        recent: counts(packets / 4, packets * 25),
    };
    let mut snapshot = FlowSnapshot {
        apps: vec!["fwd".to_owned()],
        begin_ns: BEGIN_NS,
        now_ns: BEGIN_NS + 2 * SECOND,
        interval_s: 1.0,
        looked_at: total.packets,
        total,
        flows,
        queues: vec![queue(DIR_RX, 0, 100), queue(DIR_RX, 1, 9_306), queue(DIR_TX, 0, 12_296)],
        protocols: ProtocolCounts {
            ipv4: counts(21_594, 2_159_400),
            ipv6: counts(100, 10_000),
            arp: counts(6, 360),
            tcp: counts(20_588, 2_058_800),
            tcp_syn: 5,
            udp: counts(1_100, 110_000),
            icmp: counts(4, 400),
            icmp_echo_requests: 2,
            icmp_echo_replies: 2,
            vlan_tagged: counts(1_000, 100_000),
            tunnelled: counts(1_000, 100_000),
            ..ProtocolCounts::default()
        },
        sample: 1,
        capacity: 65_536,
        ..FlowSnapshot::default()
    };
    snapshot.other.not_ip = counts(6, 360);
    snapshot.other.evicted = counts(4, 240);
    snapshot.other.evictions = 3;
    snapshot
}

/// The same, where one packet in 16 was sampled and some were lost.
pub(super) fn sampled() -> ReportData {
    let mut snapshot = snapshot();
    for flow in &mut snapshot.flows {
        flow.variance = flow.total().packets * 15;
    }
    snapshot.variance = snapshot.total.packets * 15;
    snapshot.other.evicted_variance = 60;
    (snapshot.sample, snapshot.looked_at) = (16, snapshot.total.packets / 16);
    let losses = PacketLosses {
        passed_filter: Some(snapshot.total.packets + 12),
        rings_full: 12,
        by_interface: [("fwd:0".to_owned(), 12)].into(),
        lcores: Some(1),
        ..PacketLosses::default()
    };
    ReportData { snapshot: Some(Arc::new(snapshot)), losses, ..ReportData::default() }
}

/// Every packet was counted.
pub(super) fn exact() -> ReportData {
    ReportData { snapshot: Some(Arc::new(snapshot())), ..ReportData::default() }
}

/// An app with the library and a stock one, so many seconds after the start.
pub(super) fn fleet(seconds: u64) -> FleetState {
    let mut fleet = FleetState::default();
    for (name, linked) in [("fwd", true), ("stock", false)] {
        let sample = sample(name, linked, seconds);
        let (app, findings) = (name.to_owned(), Vec::new());
        let model = Arc::new(Model {
            interval_s: None,
            restarted: false,
            ports: Vec::new(),
            queues: Vec::new(),
            heaps: Vec::new(),
            rings: Vec::new(),
            pools: Vec::new(),
            lcores: Vec::new(),
            threads: Vec::new(),
            stolen: Vec::new(),
            gaps: Vec::new(),
            ledger: Vec::new(),
            sites: Vec::new(),
            silent: None,
            restarts: None,
            sample,
        });
        fleet.apply(FleetEvent::Sampled { app, model, findings });
    }
    fleet
}

fn sample(name: &str, linked: bool, seconds: u64) -> Sample {
    let stats = PortStats {
        rx_packets: 1_000_000 + 10_000 * seconds,
        rx_bytes: 64_000_000 + 640_000 * seconds,
        tx_packets: 500_000 + 5_000 * seconds,
        tx_bytes: 32_000_000 + 320_000 * seconds,
        rx_missed: 17,
        rx_nombuf: 3,
        rx_errors: 2,
        tx_errors: 1,
    };
    let mut port = PortSample {
        id: 0,
        device: format!("net_{name}0"),
        started: true,
        link_up: Some(true),
        mtu: 1500,
        rx_queues: 2,
        tx_queues: 1,
        promiscuous: linked.then_some(true),
        stats,
        ..PortSample::default()
    };
    let queue = |queue, packets| QueueSample {
        port: 0,
        queue,
        direction: QueueDirection::Rx,
        polls: 0,
        empty: 0,
        packets,
        bytes: 0,
        depth: None,
        depth_high_water: None,
        descriptors: None,
        pool_row: None,
        bursts: Vec::new(),
        depths: Vec::new(),
    };
    let (quiet, busy) = (500_000 + 1_000 * seconds, 500_000 + 9_000 * seconds);
    let mut queues = Vec::new();
    if linked {
        queues = vec![queue(0, quiet), queue(1, busy)];
    } else {
        let xstats = [("rx_q0_packets", quiet), ("rx_q1_packets", busy), ("tx_dropped_packets", 4)];
        port.xstats.extend(xstats.map(|(name, value)| (name.to_owned(), value)));
    }
    Sample {
        monotonic_ns: (seconds + 1) * SECOND,
        app: AppIdentity { name: name.to_owned(), pid: 7, ..AppIdentity::default() },
        ports: vec![port],
        queues,
        ..Sample::default()
    }
}

/// Counters of now and of two seconds ago.
pub(super) fn counters() -> AppCounters {
    AppCounters { before: fleet(0), now: fleet(2) }
}
