//! Tests that a parser of others reads the messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netflow_parser::variable_versions::field_value::DurationValue;
use netflow_parser::variable_versions::ipfix::FlowSetBody;
use netflow_parser::{DataNumber, FieldValue, NetflowPacket, NetflowParser};
use pmdscope_testing::{current_test, skip};
use proptest::prelude::*;

use super::counters::ExportCounters;
use super::encoder::{Datagram, FlowEncoder, RecordCounts};
use super::sender::SendQueue;
use super::{ExportStatus, IpfixExporter, IpfixSettings, MESSAGE, SMALLEST, start};
use crate::listener::{FlowEndReason, FlowListener};
use crate::{Flow, FlowEndpoint, FlowPlace, PacketCounts, SenderCounts, TcpState, Tunnel};

mod exporter;

const DOMAIN: u32 = 7;
const NOW: u32 = 1_700_000_000;

fn counts(packets: u64, bytes: u64) -> PacketCounts {
    PacketCounts { packets, bytes }
}

/// Returns a conversation without packets.
fn flow(local: &str, remote: &str) -> Flow {
    let end = |text: &str| {
        let (addr, port) = text.rsplit_once(' ').unwrap();
        FlowEndpoint { addr: addr.parse().unwrap(), port: port.parse().unwrap() }
    };
    Flow {
        app: 0,
        proto: 6,
        vlans: [0, 0],
        inner_vlans: [0, 0],
        icmp: None,
        icmp_errors: 0,
        tunnel_ends: None,
        tunnel: None,
        local: end(local),
        remote: end(remote),
        rx: SenderCounts::default(),
        tx: SenderCounts::default(),
        unknown: SenderCounts::default(),
        recent_rx: PacketCounts::default(),
        recent_tx: PacketCounts::default(),
        window_bps: [0.0; 3],
        variance: 0,
        state: TcpState::None,
        opener: None,
        tcp_flags: [0x12, 0x02],
        first_ns: 1_699_999_999_001_999_999,
        last_ns: 1_699_999_999_502_000_000,
        rx_place: Some(FlowPlace { port: 1, queue: None, lcore: None, several: false }),
        tx_place: Some(FlowPlace { port: 2, queue: None, lcore: None, several: false }),
    }
}

fn apps() -> Vec<String> {
    vec!["fw".to_owned(), "switch".to_owned()]
}

fn encoder(sample: u32, limit: usize) -> FlowEncoder {
    FlowEncoder::new(DOMAIN, sample, limit, || NOW)
}

/// Encodes conversations; returns the messages and the record counts.
fn sent(encoder: &mut FlowEncoder, flows: &[Flow]) -> (Vec<Datagram>, Vec<RecordCounts>) {
    let mut messages = Vec::new();
    let mut send = |datagram| messages.push(datagram);
    let tell = |flow| encoder.flow(flow, &apps(), FlowEndReason::Active, &mut send);
    let became = flows.iter().map(tell).collect();
    encoder.flush(&mut send);
    (messages, became)
}

type Values = BTreeMap<String, String>;

/// What a collector reads.
#[derive(Debug, Default)]
struct Collected {
    templates: usize,
    options_templates: usize,
    options: Vec<Values>,
    records: Vec<Values>,
}

fn value(value: &FieldValue) -> String {
    match value {
        FieldValue::Ip4Addr(addr) => addr.to_string(),
        FieldValue::Ip6Addr(addr) => addr.to_string(),
        FieldValue::Duration(DurationValue::Millis { value, .. }) => value.to_string(),
        FieldValue::ProtocolType(protocol) => u8::from(*protocol).to_string(),
        FieldValue::TcpControlBits(bits, 2) => u16::from(*bits).to_string(),
        FieldValue::FlowEndReason(reason) => u8::from(*reason).to_string(),
        FieldValue::String(text) => text.value.trim_end_matches('\0').to_owned(),
        FieldValue::DataNumber(DataNumber::U8(number)) => number.to_string(),
        FieldValue::DataNumber(DataNumber::U16(number)) => number.to_string(),
        FieldValue::DataNumber(DataNumber::U32(number)) => number.to_string(),
        FieldValue::DataNumber(DataNumber::U64(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Parses messages, each of which must be complete and have the expected sequence number.
fn collect(messages: &[Datagram]) -> Collected {
    let mut parser = NetflowParser::default();
    let mut collected = Collected::default();
    let mut sequence = 0;
    for message in messages {
        let result = parser.parse_bytes(&message.bytes);
        assert!(result.error.is_none(), "{:?}", result.error);
        let [NetflowPacket::IPFix(packet)] = &result.packets[..] else { panic!("{result:?}") };
        let head = packet.header;
        assert_eq!(usize::from(head.length), message.bytes.len());
        let expected = (NOW, sequence, DOMAIN);
        assert_eq!((head.export_time, head.sequence_number, head.observation_domain_id), expected);
        let before = collected.records.len();
        for set in &packet.flowsets {
            sequence += take(&set.body, &mut collected);
        }
        assert_eq!(collected.records.len() - before, message.records as usize);
    }
    collected
}

/// Stores the contents of a set; returns the number of its data records.
fn take(set: &FlowSetBody, collected: &mut Collected) -> u32 {
    let (records, into) = match set {
        FlowSetBody::Data(data) => (&data.fields, &mut collected.records),
        FlowSetBody::OptionsData(data) => (&data.fields, &mut collected.options),
        FlowSetBody::Template(_) => {
            collected.templates += 1;
            return 0;
        }
        FlowSetBody::Templates(templates) => {
            collected.templates += templates.len();
            return 0;
        }
        FlowSetBody::OptionsTemplate(_) => {
            collected.options_templates += 1;
            return 0;
        }
        other => panic!("{other:?}"),
    };
    for record in records {
        let named = |(field, found): &(_, _)| (format!("{field:?}"), value(found));
        into.push(record.iter().map(named).collect());
    }
    u32::try_from(records.len()).unwrap()
}

fn get<'a>(record: &'a Values, element: &str) -> &'a str {
    record.get(&format!("IANA({element})")).map_or("", String::as_str)
}

fn fields<const N: usize>(record: &Values, elements: [&str; N]) -> [String; N] {
    elements.map(|element| get(record, element).to_owned())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[test]
fn the_bytes_are_those_of_the_standard() {
    let mut one = flow("10.0.0.1 443", "192.0.2.9 50000");
    one.rx.from_remote = counts(192, 11_520);
    one.vlans = [100, 0];
    let (messages, _) = sent(&mut encoder(64, MESSAGE), &[one]);
    let [announcement, data] = &messages[..] else { panic!("{messages:?}") };
    let ipv4 = "00080004 000c0004";
    let ipv6 = "001b0010 001c0010";
    let common = "00070002 000b0002 00040001 00060002 003a0002 00f50002 015f0008 000a0004 000e0004 \
                  00020008 00010008 00980008 00990008 00880001";
    let name = |number, text: &str| format!("00000007 {number} {:0<128}", hex(text.as_bytes()));
    let expected = [
        // Version, length, time, number of previous data records, domain.
        "000a 0348 6553f100 00000000 00000007",
        "0002 0244",
        &format!("0100 0011 {ipv4} {common} 003d0001"),
        &format!("0101 0011 {ipv6} {common} 003d0001"),
        &format!("0102 0010 {ipv4} {common}"),
        &format!("0103 0010 {ipv6} {common}"),
        // With a flow id, of tunnels.
        &format!("0106 0012 {ipv4} {common} 003d0001 00940008"),
        &format!("0107 0012 {ipv6} {common} 003d0001 00940008"),
        &format!("0108 0011 {ipv4} {common} 00940008"),
        &format!("0109 0011 {ipv6} {common} 00940008"),
        // Options templates of the sampling, of names and of tunnels, with one scope field each.
        "0003 0012 0104 0002 0001 00950004 00220004",
        "0003 0016 0105 0003 0001 00950004 000a0004 00530040",
        &format!("0003 0016 010a 0003 0001 00940008 {ipv4}"),
        &format!("0003 0016 010b 0003 0001 00940008 {ipv6}"),
        "0104 000c 00000007 00000040",
        "0105 0094",
        &name("000003e9", "fw:1"),
        &name("000003ea", "fw:2"),
    ];
    assert_eq!(hex(&announcement.bytes), expected.concat().replace(' ', ""));
    let expected = [
        "000a 0059 6553f100 00000003 00000007",
        "0100 0049 c0000209 0a000001 c350 01bb 06 0002 0064 0000 0000000000000000",
        "000003e9 00000000 0000000000000003 00000000000000b4",
        "0000018bcfe56419 0000018bcfe5660e 02 00",
    ];
    assert_eq!(hex(&data.bytes), expected.concat().replace(' ', ""));
}

#[test]
fn each_way_of_each_sender_is_a_record() {
    let mut one = flow("10.0.0.1 443", "192.0.2.9 50000");
    one.app = 1;
    one.rx = SenderCounts { from_local: counts(1, 60), from_remote: counts(2, 120) };
    one.tx = SenderCounts { from_local: counts(3, 180), from_remote: counts(4, 240) };
    one.unknown = SenderCounts { from_local: counts(5, 300), from_remote: PacketCounts::default() };
    let (messages, encoded) = sent(&mut encoder(1, MESSAGE), &[one]);
    assert_eq!(encoded, [RecordCounts { records: 5, rounded: 0 }]);
    let collected = collect(&messages);
    let rows = collected.records.iter().map(|record| {
        let what = ["SourceTransportPort", "FlowDirection", "IngressInterface", "EgressInterface"];
        let counts = ["PacketDeltaCount", "OctetDeltaCount", "TcpControlBits"];
        [fields(record, what).join(" "), fields(record, counts).join(" ")].join(" ")
    });
    let expected = [
        "443 0 2001 0 1 60 18",
        "50000 0 2001 0 2 120 2",
        "443 1 0 2002 3 180 18",
        "50000 1 0 2002 4 240 2",
        "443  2001 2002 5 300 18",
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    let names = collected.options[1..].iter();
    let names = names.map(|name| fields(name, ["IngressInterface", "InterfaceDescription"]));
    let expected = [["2001", "switch:1"], ["2002", "switch:2"]];
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

#[test]
fn ipv6_tags_and_segments_are_exported() {
    let mut one = flow("2001:db8::1 53", "2001:db8::2 4096");
    one.unknown.from_remote = counts(1, 99);
    (one.proto, one.vlans) = (17, [100, 200]);
    one.tunnel = Some(Tunnel::Vxlan(5000));
    let (messages, _) = sent(&mut encoder(1, MESSAGE), &[one]);
    let record = &collect(&messages).records[0];
    let ends = ["SourceIpv6address", "DestinationIpv6address", "ProtocolIdentifier"];
    assert_eq!(fields(record, ends), ["2001:db8::2", "2001:db8::1", "17"]);
    let tags = ["VlanId", "Dot1qCustomerVlanId", "Layer2segmentId"];
    assert_eq!(fields(record, tags), ["100", "200", &((1_u64 << 56) + 5000).to_string()]);
}

#[test]
fn the_ends_of_a_tunnel_are_options_of_its_records() {
    let mut one = flow("2001:db8::1 53", "2001:db8::2 4096");
    one.unknown = SenderCounts { from_local: counts(1, 99), from_remote: counts(2, 99) };
    one.tunnel = Some(Tunnel::VxlanGpe(5000));
    one.tunnel_ends = Some(["10.9.0.1", "10.9.0.2"].map(|addr| addr.parse().unwrap()));
    let mut other = one.clone();
    other.tunnel_ends = Some(["10.9.0.1", "10.9.0.3"].map(|addr| addr.parse().unwrap()));
    let mut encoder = encoder(1, MESSAGE);
    // Again only after a change, and with the templates.
    let (mut messages, _) = sent(&mut encoder, &[one.clone(), one.clone(), other.clone()]);
    encoder.announce();
    messages.extend(sent(&mut encoder, &[other]).0);
    let collected = collect(&messages);
    let ends = ["FlowId", "SourceIpv4address", "DestinationIpv4address"];
    let options = collected.options.iter().filter(|option| !get(option, "FlowId").is_empty());
    let options = options.map(|option| fields(option, ends)).collect::<Vec<_>>();
    let ids = collected.records.iter().map(|record| get(record, "FlowId")).collect::<Vec<_>>();
    let [local, remote] = [ids[0], ids[1]];
    assert_ne!(local, remote);
    assert_eq!(ids, [local, remote].repeat(4));
    // The ends are in the order of the sender.
    let options = options.iter().map(|option| option.each_ref().map(String::as_str));
    let expected = [
        [local, "10.9.0.1", "10.9.0.2"],
        [remote, "10.9.0.2", "10.9.0.1"],
        [local, "10.9.0.1", "10.9.0.3"],
        [remote, "10.9.0.3", "10.9.0.1"],
    ];
    assert_eq!(options.collect::<Vec<_>>(), [&expected[..], &expected[2..]].concat());
    let inner = fields(&collected.records[0], ["SourceIpv6address", "Layer2segmentId"]);
    assert_eq!(inner, ["2001:db8::1", &((1_u64 << 56) + 5000).to_string()]);
}

#[test]
fn icmp_has_its_type_and_code_where_others_have_a_port() {
    let mut one = flow("10.0.0.1 0", "10.0.0.2 0");
    (one.rx.from_remote, one.proto) = (counts(1, 60), 1);
    one.icmp = Some(crate::IcmpKind { kind: 3, code: 4 });
    let (messages, _) = sent(&mut encoder(1, MESSAGE), &[one]);
    let record = &collect(&messages).records[0];
    let ports = fields(record, ["SourceTransportPort", "DestinationTransportPort"]);
    assert_eq!(ports, ["0", "772"]);
}

#[test]
fn counts_are_divided_by_the_sampling_and_odd_ones_are_told() {
    let mut even = flow("10.0.0.1 1", "10.0.0.2 2");
    even.rx.from_remote = counts(640, 6400);
    let mut odd = even.clone();
    odd.rx.from_remote = counts(1, 60);
    let (messages, encoded) = sent(&mut encoder(64, MESSAGE), &[even, odd]);
    assert_eq!(encoded.iter().map(|encoded| encoded.rounded).collect::<Vec<_>>(), [0, 1]);
    let collected = collect(&messages);
    assert_eq!(get(&collected.options[0], "SamplingInterval"), "64");
    let counts = ["PacketDeltaCount", "OctetDeltaCount"];
    let rows = collected.records.iter().map(|record| fields(record, counts));
    assert_eq!(rows.collect::<Vec<_>>(), [["10", "100"], ["1", "1"]]);
}

#[test]
fn a_clock_that_was_set_back_ends_no_flow_before_it_starts() {
    let mut one = flow("10.0.0.1 1", "10.0.0.2 2");
    one.rx.from_remote = counts(1, 60);
    (one.first_ns, one.last_ns) = (5_000_000_000, 4_000_000_000);
    let (messages, _) = sent(&mut encoder(1, MESSAGE), &[one]);
    let times = ["FlowStartMilliseconds", "FlowEndMilliseconds"];
    assert_eq!(fields(&collect(&messages).records[0], times), ["4000", "5000"]);
}

#[test]
fn templates_come_first_and_again_when_wanted() {
    let mut one = flow("10.0.0.1 1", "10.0.0.2 2");
    one.rx.from_remote = counts(1, 60);
    let mut encoder = encoder(1, MESSAGE);
    let (mut messages, _) = sent(&mut encoder, &[]);
    assert_eq!(messages.len(), 1);
    messages.extend(sent(&mut encoder, std::slice::from_ref(&one)).0);
    messages.extend(sent(&mut encoder, std::slice::from_ref(&one)).0);
    assert_eq!(sent(&mut encoder, &[]).0, []);
    encoder.announce();
    messages.extend(sent(&mut encoder, &[]).0);
    let collected = collect(&messages);
    // At first, with the names of two interfaces, and when requested.
    assert_eq!((collected.templates, collected.options_templates), (3 * 8, 3 * 4));
    assert_eq!((collected.options.len(), collected.records.len()), (1 + 3 + 3, 2));
}

#[test]
fn long_names_are_cut_between_letters() {
    let mut one = flow("10.0.0.1 1", "10.0.0.2 2");
    one.rx.from_remote = counts(1, 60);
    let mut messages = Vec::new();
    let mut encoder = encoder(1, SMALLEST);
    let mut send = |datagram| messages.push(datagram);
    encoder.flow(&one, &["é".repeat(40)], FlowEndReason::End, &mut send);
    encoder.flush(&mut send);
    let names = collect(&messages).options;
    assert_eq!(get(&names[1], "InterfaceDescription"), "é".repeat(31));
}

fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        any::<u128>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
    ];
    let counts = || (0..4_u64, any::<u32>());
    let ways = move || {
        (counts(), counts()).prop_map(|(local, remote)| SenderCounts {
            from_local: PacketCounts { packets: local.0, bytes: local.1.into() },
            from_remote: PacketCounts { packets: remote.0, bytes: remote.1.into() },
        })
    };
    let ends = (address, any::<[u16; 2]>(), any::<u8>(), any::<[u16; 2]>());
    let rest = ([ways(), ways(), ways()], any::<[u64; 2]>(), 0..3_u16, any::<[u16; 2]>());
    let tunnel = prop::option::of(prop_oneof![
        any::<[u32; 2]>().prop_map(|ends| ends.map(|bits| IpAddr::from(bits.to_be_bytes()))),
        any::<[u128; 2]>().prop_map(|ends| ends.map(|bits| IpAddr::from(bits.to_be_bytes()))),
    ]);
    let one = (ends, rest, tunnel).prop_map(|(ends, rest, tunnel_ends)| {
        let ((addr, ports, proto, vlans), (ways, times, app, places)) = (ends, rest);
        let mut flow = flow("10.0.0.1 1", "10.0.0.2 2");
        flow.local = FlowEndpoint { addr, port: ports[0] };
        flow.remote = FlowEndpoint { addr, port: ports[1] };
        (flow.proto, flow.vlans, flow.app) = (proto, vlans, app);
        flow.tunnel_ends = tunnel_ends;
        [flow.rx, flow.tx, flow.unknown] = ways;
        [flow.first_ns, flow.last_ns] = times;
        let place = |port| Some(FlowPlace { port, queue: None, lcore: None, several: false });
        (flow.rx_place, flow.tx_place) = (place(places[0]), place(places[1] % 4));
        flow
    });
    proptest::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn every_exported_record_is_collected(flows in flows(), limit in SMALLEST..2000) {
        let (messages, encoded) = sent(&mut encoder(1, limit), &flows);
        prop_assert!(messages.iter().all(|message| message.bytes.len() <= limit));
        let collected = collect(&messages);
        let records = encoded.iter().map(|encoded| encoded.records).sum::<u64>();
        prop_assert_eq!(collected.records.len() as u64, records);
        let sum = |element: &str| {
            let count = |record| get(record, element).parse::<u64>().unwrap();
            collected.records.iter().map(count).sum::<u64>()
        };
        let ways = flows.iter().flat_map(|flow| [flow.rx, flow.tx, flow.unknown]);
        let told = ways.flat_map(|ways| [ways.from_local, ways.from_remote]);
        let told = told.filter(|told| told.packets > 0).fold(PacketCounts::default(), PacketCounts::plus);
        let found = counts(sum("PacketDeltaCount"), sum("OctetDeltaCount"));
        prop_assert_eq!(found, told);
    }
}
