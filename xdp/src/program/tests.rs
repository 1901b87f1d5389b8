//! Tests that run the BPF program in the kernel on frames, without an interface.

use std::net::IpAddr;
use std::time::Instant;

use etherparse::{PacketBuilder, VlanId};
use libbpf_rs::{MapHandle, Object, ProgramInput};
use pmdscope_testing::{current_test, skip};
use proptest::prelude::*;

use super::load;
use super::test_frames::*;
use crate::prefix::PrefixAction;
use crate::settings::Settings;
use crate::tables::Tables;
use crate::verdict::verdicts;
use crate::{Prefix, XdpError};

const DROP: u32 = 1;
const PASS: u32 = 2;

/// A loaded program that is not attached.
struct Loaded {
    object: Object,
    tables: Tables,
}

impl Loaded {
    /// Loads the program; `None`, after a message, if BPF is not permitted.
    fn new(settings: &Settings) -> Option<Self> {
        let object = match load() {
            Ok(object) => object,
            Err(error @ XdpError::NotPermitted(_)) => {
                skip(&current_test(), error);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let maps = object.maps().map(|map| MapHandle::try_from(&map).unwrap()).collect::<Vec<_>>();
        let tables = Tables::new(maps.into_iter()).expect("maps as `MAPS` has them");
        tables.change(settings).unwrap();
        Some(Self { object, tables })
    }

    /// Runs the program `repeat` times on a frame; returns whether it passed the last time.
    fn run(&self, frame: &[u8], repeat: u32) -> bool {
        let program = self.object.progs_mut().next().unwrap();
        let input = ProgramInput { data_in: Some(frame), repeat, ..ProgramInput::default() };
        let verdict = program.test_run(input).unwrap().return_value;
        assert!(verdict == PASS || verdict == DROP, "{verdict}");
        verdict == PASS
    }

    /// Returns the reason under which a frame is counted. Checks that it is counted once, with its
    /// bytes.
    fn reason(&self, frame: &[u8]) -> String {
        let before = verdicts(&self.tables.counters().unwrap());
        let passed = self.run(frame, 1);
        let after = verdicts(&self.tables.counters().unwrap());
        let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
        let [(before, after)] = changed.collect::<Vec<_>>()[..] else {
            panic!("not one verdict: {before:?}, {after:?}");
        };
        assert_eq!(after.packets, before.packets + 1);
        assert_eq!(after.bytes, before.bytes + frame.len() as u64);
        assert_eq!(after.dropped, !passed, "{after:?}");
        after.reason.clone()
    }

    fn packets(&self, reason: &str) -> u64 {
        let verdicts = verdicts(&self.tables.counters().unwrap());
        verdicts.iter().find(|verdict| verdict.reason == reason).unwrap().packets
    }
}

fn check(settings: &Settings, cases: &[(&str, &str, Vec<u8>)]) {
    let Some(loaded) = Loaded::new(settings) else { return };
    for (reason, what, frame) in cases {
        assert_eq!(loaded.reason(frame), *reason, "{what}");
    }
}

#[test]
fn what_a_network_needs_passes() {
    let mut lldp = ethernet(0x88cc, &[0; 46]);
    lldp[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0x0e]);
    let options = with_ipv4(ipv4(UDP, &[&[1; 4], &udp(18)[..]].concat()), 0, &[0x46]);
    let dhcp = with_ipv4(with(ipv4(UDP, &udp(240)), 36, &[0, 67]), 12, &[0; 4]);
    let cases = [
        ("passed", "UDP", ipv4(UDP, &udp(18))),
        ("passed", "padded to 60 bytes", [&ipv4(UDP, &udp(1))[..], &[0; 17]].concat()),
        ("passed", "UDP without payload", ipv4(UDP, &udp(0))),
        ("passed", "IP options", options),
        ("passed", "DHCP discovery from 0.0.0.0", dhcp),
        ("passed", "SYN", ipv4(TCP, &tcp(SYN))),
        ("passed", "data", ipv4(TCP, &tcp(ACK))),
        ("passed", "RST", ipv4(TCP, &tcp(4))),
        ("passed", "ESP", ipv4(50, &[7; 40])),
        ("passed", "echo", ipv4(1, &[8, 0, 0, 0, 0, 1, 0, 1])),
        ("passed", "ARP", ethernet(0x0806, &[0; 46])),
        ("passed", "LLDP to a link control address", lldp),
        ("passed", "VLAN", tagged(&[0x8100], &ipv4(UDP, &udp(18)))),
        ("passed", "two VLAN tags", tagged(&[0x88a8, 0x8100], &ipv6(UDP, &udp(18)))),
        ("passed", "UDP over IPv6", ipv6(UDP, &udp(18))),
        ("passed", "SYN over IPv6", ipv6(TCP, &tcp(SYN))),
        ("passed", "hop-by-hop options", ipv6(0, &extension(60, &extension(UDP, &udp(4))))),
        ("passed", "no next header", ipv6(59, &[])),
        ("passed", "neighbour solicitation", ipv6_from("fe80::1", 255, 58, &solicitation())),
        ("passed", "detection of a duplicate", ipv6_from("::", 255, 58, &solicitation())),
    ];
    check(&Settings::default(), &cases);
}

#[test]
fn malformed_packets_are_dropped() {
    let good = || ipv4(UDP, &udp(18));
    let syn_fin = SYN | 1;
    let cases = [
        ("malformed", "no IP header", ethernet(IPV4, &[])),
        ("malformed", "a part of one", ethernet(IPV4, &good()[14..26])),
        ("malformed", "version 6 in IPv4", with_ipv4(good(), 0, &[0x65])),
        ("malformed", "header of 16 bytes", with_ipv4(good(), 0, &[0x44])),
        ("malformed", "header longer than the frame", with_ipv4(ipv4(59, &[]), 0, &[0x4f])),
        ("malformed", "longer than the frame", with_ipv4(good(), 2, &[5, 220])),
        ("malformed", "shorter than its header", with_ipv4(good(), 2, &[0, 19])),
        ("malformed", "checksum", with(good(), 24, &[0xde, 0xad])),
        ("malformed", "TTL 0", with_ipv4(good(), 8, &[0])),
        ("malformed", "reserved flag", ipv4_fragment(UDP, &udp(18), 0x8000)),
        ("malformed", "from 127.0.0.1", with_ipv4(good(), 12, &[127, 0, 0, 1])),
        ("malformed", "to 127.0.0.1", with_ipv4(good(), 16, &[127, 0, 0, 1])),
        ("malformed", "from a group", with_ipv4(good(), 12, &[224, 0, 0, 1])),
        ("malformed", "from everybody", with_ipv4(good(), 12, &[255; 4])),
        ("malformed", "from 0.0.0.0", with_ipv4(good(), 12, &[0; 4])),
        ("malformed", "to its sender", with_ipv4(good(), 16, &SOURCE)),
        ("malformed", "UDP header cut off", ipv4(UDP, &udp(0)[..4])),
        ("malformed", "UDP length too long", ipv4(UDP, &udp_of_length(27, 18))),
        ("malformed", "UDP length too short", ipv4(UDP, &udp_of_length(7, 18))),
        ("malformed", "UDP to port 0", with(good(), 36, &[0, 0])),
        ("malformed", "TCP header cut off", ipv4(TCP, &tcp(SYN)[..16])),
        ("malformed", "TCP header of 16 bytes", with(ipv4(TCP, &tcp(SYN)), 46, &[0x40])),
        ("malformed", "TCP options cut off", with(ipv4(TCP, &tcp(SYN)), 46, &[0x60])),
        ("malformed", "no TCP flags", ipv4(TCP, &tcp(0))),
        ("malformed", "FIN alone", ipv4(TCP, &tcp(1))),
        ("malformed", "SYN and FIN", ipv4(TCP, &tcp(syn_fin))),
        ("malformed", "SYN and RST", ipv4(TCP, &tcp(SYN | 4))),
        ("malformed", "Christmas tree", ipv4(TCP, &tcp(0x29))),
        ("malformed", "ICMP cut off", ipv4(1, &[8, 0, 0, 0])),
        ("malformed", "VLAN tag cut off", ethernet(0x8100, &[0, 5])),
        ("malformed", "IPv6 header cut off", ethernet(IPV6, &[0x60; 39])),
        ("malformed", "version 4 in IPv6", with(ipv6(UDP, &udp(18)), 14, &[0x40])),
        ("malformed", "IPv6 longer than the frame", with(ipv6(UDP, &udp(18)), 18, &[5, 0])),
        ("malformed", "hop limit 0", ipv6_from("2001:db8::7", 0, UDP, &udp(18))),
        ("malformed", "from ::1", ipv6_from("::1", 64, UDP, &udp(18))),
        ("malformed", "from a group of IPv6", ipv6_from("ff02::1", 64, UDP, &udp(18))),
        ("malformed", "a mapped address", ipv6_from("::ffff:192.0.2.7", 64, UDP, &udp(18))),
        ("malformed", "IPv6 to its sender", ipv6_from("2001:db8:1::1", 64, UDP, &udp(18))),
        ("malformed", "hop-by-hop not first", ipv6(60, &extension(0, &extension(UDP, &udp(4))))),
        ("malformed", "extension cut off", ipv6(60, &[UDP, 9, 1, 4, 0, 0, 0, 0])),
        ("malformed", "routing header type 0", ipv6(43, &[UDP, 0, 0, 1, 0, 0, 0, 0])),
        ("malformed", "a chain without end", ipv6(60, &extension(60, &[]).repeat(9))),
        ("malformed", "UDP cut off in IPv6", ipv6(UDP, &udp(0)[..4])),
    ];
    check(&Settings::default(), &cases);
}

#[test]
fn fragments_pass_and_tricks_do_not() {
    const MORE: u16 = 0x2000;
    let first = |protocol, rest: &[u8]| ipv6(44, &ipv6_fragment(protocol, 1, rest));
    let at = |offset: u16| offset << 3;
    let cases = [
        ("passed", "first fragment", ipv4_fragment(UDP, &udp_of_length(3000, 1472), MORE)),
        ("passed", "middle fragment", ipv4_fragment(UDP, &[1; 1480], MORE | 0xb9)),
        ("passed", "last fragment", ipv4_fragment(UDP, &[1; 48], 370)),
        (
            "passed",
            "first TCP fragment",
            ipv4_fragment(TCP, &[tcp(ACK), vec![0; 4]].concat(), MORE),
        ),
        ("fragment", "tiny TCP fragment", ipv4_fragment(TCP, &tcp(SYN)[..8], MORE)),
        ("fragment", "flags of TCP left out", ipv4_fragment(TCP, &tcp(SYN)[..16], MORE)),
        ("fragment", "TCP header overwritten", ipv4_fragment(TCP, &tcp(SYN)[8..], 1)),
        ("fragment", "end of TCP header overwritten", ipv4_fragment(TCP, &[0; 24], MORE | 2)),
        ("fragment", "empty fragment", ipv4_fragment(UDP, &[], 185)),
        ("fragment", "not of 8 bytes", ipv4_fragment(UDP, &[1; 1001], MORE | 0xb9)),
        ("fragment", "beyond 64 KiB", ipv4_fragment(1, &[1; 1000], 8191)),
        ("passed", "first IPv6 fragment", first(UDP, &udp_of_length(3000, 1232))),
        ("passed", "last IPv6 fragment", ipv6(44, &ipv6_fragment(UDP, at(154), &[1; 100]))),
        ("passed", "fragment that is whole", ipv6(44, &ipv6_fragment(UDP, 0, &udp(18)))),
        ("fragment", "header cut off", first(TCP, &tcp(SYN)[..16])),
        ("fragment", "chain of headers cut off", first(60, &extension(UDP, &[]))),
        ("fragment", "overwritten in IPv6", ipv6(44, &ipv6_fragment(TCP, at(1), &[0; 24]))),
        ("fragment", "IPv6, not of 8 bytes", first(UDP, &udp_of_length(3000, 1001))),
        ("fragment", "IPv6, beyond 64 KiB", ipv6(44, &ipv6_fragment(58, at(8191), &[1; 99]))),
        ("fragment", "IPv6, empty", ipv6(44, &ipv6_fragment(UDP, at(100), &[]))),
        ("fragment", "two fragment headers", first(44, &ipv6_fragment(UDP, at(9) | 1, &[1; 16]))),
        (
            "fragment",
            "fragmented neighbour discovery",
            ipv6_from("fe80::1", 255, 44, &ipv6_fragment(58, 1, &solicitation())),
        ),
    ];
    check(&Settings::default(), &cases);
    let all = Settings { drop_fragments: true, ..Settings::default() };
    let of_ten = |case: &&(&'static str, &'static str, Vec<u8>)| case.1 != "fragment that is whole";
    let dropped =
        cases.iter().filter(of_ten).map(|(_, what, frame)| ("fragment", *what, frame.clone()));
    check(&all, &dropped.collect::<Vec<_>>());
}

#[test]
fn other_protocols_are_dropped_unless_told_otherwise() {
    let pppoe = || ethernet(0x8864, &[0; 46]);
    let llc = || ethernet(46, &[0x42; 46]);
    let deep = || tagged(&[0x8100; 3], &ipv4(UDP, &udp(18)));
    let dropped =
        [("not_ip", "PPPoE", pppoe()), ("not_ip", "LLC", llc()), ("not_ip", "tags", deep())];
    check(&Settings::default(), &dropped);
    let passed = dropped.map(|(_, what, frame)| ("passed", what, frame));
    check(&Settings { pass_non_ip: true, ..Settings::default() }, &passed);
}

#[test]
fn the_longest_prefix_decides_at_once() {
    let Some(loaded) = Loaded::new(&Settings::default()) else { return };
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let from = |source: [u8; 4]| with_ipv4(ipv4(UDP, &udp(18)), 12, &source);
    let list = |text, action| loaded.tables.list(prefix(text), action).unwrap();
    assert_eq!(loaded.reason(&from([192, 0, 2, 7])), "passed");
    list("192.0.2.0/24", PrefixAction::Deny);
    list("2001:db8::/32", PrefixAction::Deny);
    assert_eq!(loaded.reason(&from([192, 0, 2, 7])), "denied");
    assert_eq!(loaded.reason(&from([192, 0, 3, 7])), "passed");
    assert_eq!(loaded.reason(&ipv6(UDP, &udp(18))), "denied");
    let solicitation = ipv6_from("2001:db8::7", 255, 58, &solicitation());
    assert_eq!(loaded.reason(&solicitation), "passed");
    list("192.0.2.7", PrefixAction::Allow);
    assert_eq!(loaded.reason(&from([192, 0, 2, 7])), "passed");
    assert_eq!(loaded.reason(&from([192, 0, 2, 8])), "denied");
    assert_eq!(
        loaded.tables.prefixes().unwrap(),
        [
            (prefix("192.0.2.0/24"), PrefixAction::Deny),
            (prefix("192.0.2.7"), PrefixAction::Allow),
            (prefix("2001:db8::/32"), PrefixAction::Deny),
        ]
    );
    assert!(loaded.tables.unlist(prefix("192.0.2.0/24")).unwrap());
    assert!(!loaded.tables.unlist(prefix("192.0.2.0/24")).unwrap());
    assert_eq!(loaded.reason(&from([192, 0, 2, 8])), "passed");
    list("0.0.0.0/0", PrefixAction::Deny);
    assert_eq!(loaded.reason(&from([203, 0, 113, 1])), "denied");
    let other = ipv6_from("2001:db9::1", 64, UDP, &udp(18));
    assert_eq!(loaded.reason(&other), "passed");
}

/// Checks how many packets passed at a limit: those of the bucket, and one for each interval since
/// `started`.
fn assert_limited(passed: u64, limit: u64, started: Instant) {
    let refilled = started.elapsed().as_secs_f64() * limit as f64;
    let most = limit as f64 + refilled + 1.0;
    assert!(passed >= limit && passed as f64 <= most, "{passed} of {limit} to {most}");
}

#[test]
fn a_source_over_its_rate_is_limited_alone() {
    let settings = Settings { rate_limit: Some(50), ..Settings::default() };
    let Some(loaded) = Loaded::new(&settings) else { return };
    let from = |last| with_ipv4(ipv4(UDP, &udp(18)), 12, &[192, 0, 2, last]);
    let started = Instant::now();
    loaded.run(&from(1), 20_000);
    assert_limited(loaded.packets("passed"), 50, started);
    assert_eq!(loaded.packets("passed") + loaded.packets("rate_limit"), 20_000);
    assert_eq!(loaded.reason(&from(2)), "passed", "another source");
    loaded.tables.list("192.0.2.1".parse().unwrap(), PrefixAction::Allow).unwrap();
    assert_eq!(loaded.reason(&from(1)), "passed", "an allowed source");
    loaded.tables.change(&Settings::default()).unwrap();
    let before = loaded.packets("passed");
    loaded.run(&from(3), 1000);
    assert_eq!(loaded.packets("passed"), before + 1000, "without a limit");
}

#[test]
fn hosts_of_an_ipv6_network_share_a_rate() {
    let settings = Settings { rate_limit: Some(10), ..Settings::default() };
    let Some(loaded) = Loaded::new(&settings) else { return };
    let started = Instant::now();
    for host in 1..=200 {
        loaded.run(&ipv6_from(&format!("2001:db8::{host:x}"), 64, UDP, &udp(18)), 1);
    }
    assert_limited(loaded.packets("passed"), 10, started);
}

#[test]
fn a_syn_flood_leaves_open_connections_alone() {
    let settings = Settings { syn_limit: Some(20), ..Settings::default() };
    let Some(loaded) = Loaded::new(&settings) else { return };
    let started = Instant::now();
    for source in 0..=255 {
        loaded.run(&with_ipv4(ipv4(TCP, &tcp(SYN)), 12, &[203, 0, 113, source]), 8);
    }
    assert_limited(loaded.packets("passed"), 20, started);
    assert_eq!(loaded.packets("passed") + loaded.packets("syn_flood"), 256 * 8);
    let before = loaded.packets("passed");
    loaded.run(&ipv4(TCP, &tcp(ACK)), 1000);
    loaded.run(&ipv4(TCP, &tcp(SYN | ACK)), 1000);
    loaded.run(&with(ipv4(TCP, &tcp(SYN)), 36, &[0, 22]), 10);
    assert_eq!(loaded.packets("passed"), before + 2010, "data, answers, another port");
}

#[test]
fn sources_of_dropped_packets_are_listed() {
    let Some(loaded) = Loaded::new(&Settings::default()) else { return };
    let from = |source: [u8; 4]| with(with_ipv4(ipv4(UDP, &udp(18)), 12, &source), 24, &[0, 0]);
    loaded.run(&from([192, 0, 2, 1]), 300);
    loaded.run(&from([192, 0, 2, 2]), 200);
    loaded.run(&ipv6_from("2001:db8::7", 0, UDP, &udp(18)), 100);
    loaded.run(&ethernet(0x8864, &[0; 46]), 50);
    let (sources, uncounted) = loaded.tables.top_sources().unwrap();
    let sources = sources.iter().map(|s| (s.address.to_string(), s.packets)).collect::<Vec<_>>();
    let expected = [("192.0.2.1", 300), ("192.0.2.2", 200), ("2001:db8::7", 100)];
    assert_eq!(sources, expected.map(|(address, packets)| (address.to_owned(), packets)));
    assert_eq!(uncounted, 0);
}

#[test]
fn more_sources_than_the_table_holds_are_told() {
    let Some(loaded) = Loaded::new(&Settings::default()) else { return };
    let from = |source: [u8; 4]| with(with_ipv4(ipv4(UDP, &udp(18)), 12, &source), 24, &[0, 0]);
    let steady = from([192, 0, 2, 1]);
    let sent = 10_000u32;
    for number in 0..sent {
        let [_, a, b, c] = number.to_be_bytes();
        loaded.run(&from([10, a, b, c]), 1);
        if number % 100 == 0 {
            loaded.run(&steady, 100);
        }
    }
    let (sources, uncounted) = loaded.tables.top_sources().unwrap();
    let first = sources.first().unwrap();
    assert_eq!(first.address, IpAddr::from([192, 0, 2, 1]), "{sources:?}");
    assert_eq!(first.packets, u64::from(sent), "the one that sends most is never evicted");
    assert!(sources.len() == 10 && uncounted > 0 && uncounted <= u64::from(sent), "{uncounted}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_add_up_to_the_packets_run(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 14..200), 1..40),
        ethertype in prop_oneof![Just(IPV4), Just(IPV6), Just(0x8100)],
    ) {
        let settings =
            Settings { rate_limit: Some(1000), syn_limit: Some(10), ..Settings::default() };
        let Some(loaded) = Loaded::new(&settings) else { return Ok(()) };
        let mut bytes = 0;
        for frame in &frames {
            let frame = with(frame.clone(), 12, &ethertype.to_be_bytes());
            loaded.reason(&frame);
            bytes += frame.len() as u64;
        }
        let verdicts = verdicts(&loaded.tables.counters().unwrap());
        prop_assert_eq!(verdicts.iter().map(|v| v.packets).sum::<u64>(), frames.len() as u64);
        prop_assert_eq!(verdicts.iter().map(|v| v.bytes).sum::<u64>(), bytes);
    }

    #[test]
    fn changed_packets_are_judged(
        base in 0..3usize,
        changes in proptest::collection::vec((14..60usize, any::<u8>()), 0..6),
    ) {
        let Some(loaded) = Loaded::new(&Settings::default()) else { return Ok(()) };
        let bases =
            [ipv4(UDP, &udp(40)), ipv6(0, &extension(44, &ipv6_fragment(UDP, 1, &udp(40)))), ipv4(TCP, &[tcp(ACK), vec![0; 20]].concat())];
        let mut frame = bases[base].clone();
        for (at, byte) in changes {
            frame[at] = byte;
        }
        if base != 1 {
            frame = with_ipv4(frame, 0, &[]);
        }
        loaded.reason(&frame);
    }

    #[test]
    fn packets_that_others_build_pass(
        source in 1u32.., port in 1u16.., length in 0..1400usize, kind in 0..4, vlan in 0u16..4096,
    ) {
        let Some(loaded) = Loaded::new(&Settings::default()) else { return Ok(()) };
        let [_, b, c, d] = source.to_be_bytes();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(VlanId::try_new(vlan).unwrap());
        let v6 = |host| { let mut a = [0; 16]; a[0] = 0x20; a[15] = host; a };
        let payload = vec![0; length];
        let mut frame = Vec::new();
        match kind {
            0 => builder.ipv4([11, b, c, d], [12, 0, 0, 1], 9).udp(port, port).write(&mut frame, &payload),
            1 => builder.ipv4([11, b, c, d], [12, 0, 0, 1], 9).tcp(port, port, 1, 1).ack(1).write(&mut frame, &payload),
            2 => builder.ipv6(v6(b), v6(1 | !b), 9).udp(port, port).write(&mut frame, &payload),
            _ => builder.ipv6(v6(b), v6(1 | !b), 9).tcp(port, port, 1, 1).syn().write(&mut frame, &payload),
        }.unwrap();
        prop_assert_eq!(loaded.reason(&frame), "passed");
    }
}
