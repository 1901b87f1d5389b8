//! Tests of filters of conversations.

use proptest::prelude::*;

use super::*;
use crate::{FlowEndpoint, FlowPlace, SenderCounts, TcpState, Tunnel};

fn end(addr: &str, port: u16) -> FlowEndpoint {
    FlowEndpoint { addr: addr.parse().unwrap(), port }
}

fn conversation(proto: u8, local: FlowEndpoint, remote: FlowEndpoint) -> Flow {
    let place = FlowPlace { port: 1, queue: Some(3), lcore: Some(4), several: false };
    Flow {
        app: 0,
        proto,
        vlans: [0; 2],
        inner_vlans: [0; 2],
        icmp: None,
        icmp_errors: 0,
        tunnel: None,
        tunnel_ends: None,
        local,
        remote,
        rx: SenderCounts::default(),
        tx: SenderCounts::default(),
        unknown: SenderCounts::default(),
        recent_rx: crate::PacketCounts::default(),
        recent_tx: crate::PacketCounts::default(),
        window_bps: [0.0; 3],
        variance: 0,
        state: TcpState::None,
        opener: None,
        tcp_flags: [0; 2],
        first_ns: 0,
        last_ns: 0,
        rx_place: Some(place),
        tx_place: None,
    }
}

/// A server of the web, one of names in a tunnel, and a ping.
fn conversations() -> [Flow; 3] {
    let mut web = conversation(6, end("10.0.0.1", 443), end("192.0.2.7", 40_001));
    web.state = TcpState::Established;
    let mut names = conversation(17, end("2001:db8::53", 53), end("2001:db8:1::7", 33_333));
    (names.vlans, names.inner_vlans) = ([7, 0], [42, 0]);
    (names.tunnel, names.rx_place) = (Some(Tunnel::Vxlan(5_001)), None);
    [web, names, conversation(1, end("10.0.0.1", 0), end("192.0.2.7", 0))]
}

/// Letters of the conversations that a filter takes: `w`, `n`, `p`.
fn taken(filter: &str) -> String {
    let filter = FlowFilter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let all = conversations();
    let of = all.iter().zip("wnp".chars()).filter(|(flow, _)| filter.matches("fwd", flow));
    of.map(|(_, letter)| letter).collect()
}

fn refused(filter: &str) -> String {
    FlowFilter::parse(filter).unwrap_err().to_string()
}

#[test]
fn addresses_and_ports_are_of_the_local_and_the_remote_end() {
    for (filter, expected) in [
        ("sport = :443", "w"),
        ("sport=443", "w"),
        ("sport :443", "w"),
        ("sport 443", "w"),
        ("sport:443", "w"),
        ("dport 443", ""),
        ("port 443", "w"),
        ("port 40001", "w"),
        ("sport != 443", "np"),
        ("port ne 443", "np"),
        ("sport < 100", "n"),
        ("sport >= :53 and sport le 443", "wn"),
        ("dport gt 33333", "w"),
        ("src 10.0.0.1", "wp"),
        ("src = 10.0.0.0/8", "wp"),
        ("src 10/8", "wp"),
        ("src 10.0.1/16", "wp"),
        ("dst 10/8", ""),
        ("host 10/8", "wp"),
        ("host 192.0.2.0/24", "wp"),
        ("src != 10/8", "n"),
        ("src 10/8:443", "w"),
        ("src 10.0.0.1:443", "w"),
        ("src :443", "w"),
        ("src *:443", "w"),
        ("src *", "wnp"),
        ("src 0.0.0.0/0", "wp"),
        ("src [::]/0", "n"),
        ("dst [2001:db8::/32]:33333", "n"),
        ("dst [2001:db8::]/32:33333", "n"),
        ("dst [2001:db8::/48]", ""),
        ("dst 2001:db8:1::7", "n"),
        ("dst 2001:db8::/32", "n"),
        ("dst [2001:db8:1::7]:53", ""),
    ] {
        assert_eq!(taken(filter), expected, "{filter}");
    }
}

#[test]
fn services_are_ports() {
    if services::port("domain") != Some(53) {
        return pmdscope_testing::skip_without("services_are_ports", services::FILE);
    }
    assert_eq!(taken("sport :domain"), "n");
    assert_eq!(taken("sport = domain or src 10.0.0.1:https"), "wn");
}

#[test]
fn tests_of_everything_else() {
    for (filter, expected) in [
        ("", "wnp"),
        ("  ", "wnp"),
        ("state established", "w"),
        ("state ESTAB", "w"),
        ("state connected", "w"),
        ("state = established", "w"),
        ("state != established", "np"),
        ("state syn_sent", ""),
        ("state closed state established", "w"),
        ("exclude established", "np"),
        ("exclude none exclude closed", "w"),
        ("state none", "np"),
        ("state all", "wnp"),
        ("tcp", "w"),
        ("proto udp", "n"),
        ("proto != 17", "wp"),
        ("icmp", "p"),
        ("ip6", "n"),
        ("ip", "wp"),
        ("app fwd", "wnp"),
        ("app != fwd", ""),
        ("dev fwd:1", "wp"),
        ("dev fwd:1:3", "wp"),
        ("dev 1:2", ""),
        ("dev 1", "wp"),
        ("dev fwd", "wp"),
        ("dev != 1", "n"),
        ("dev other:1", ""),
        ("vlan", "n"),
        ("vlan 42", "n"),
        ("vlan 7 and vlan 42", "n"),
        ("vlan != 7", "wp"),
        ("vlan > 42", ""),
        ("vni 5001", "n"),
        ("vni >= 5000", "n"),
        ("vni 5002", ""),
        ("tunnel", "n"),
        ("tunnel vxlan", "n"),
        ("tunnel gtp-u", ""),
        ("tunnel != vxlan", "wp"),
        ("tunnel udp", "n"),
    ] {
        assert_eq!(taken(filter), expected, "{filter}");
    }
}

#[test]
fn operators_bind_as_in_ss() {
    for (filter, expected) in [
        ("tcp or udp and sport 1", "w"),
        ("(tcp or udp) and sport 53", "n"),
        ("( tcp | udp ) & ! sport 53", "w"),
        ("tcp||udp", "wn"),
        ("not tcp", "np"),
        ("!tcp", "np"),
        ("not(tcp or udp)", "p"),
        ("not not tcp", "w"),
        ("src 10/8 tcp", "w"),
        ("state established ( sport = :443 or dport = :443 ) dst 192.0.2/24", "w"),
        ("tcp or\n\tudp", "wn"),
        ("((((tcp))))", "w"),
    ] {
        assert_eq!(taken(filter), expected, "{filter}");
    }
}

#[test]
fn mistakes_say_where_and_what_is_expected() {
    for (filter, place, said) in [
        ("sprt = :7", "at character 1:", "expected src, dst"),
        ("tcp and", "at character 8, the end:", "expected src, dst"),
        ("tcp und udp", "at character 5:", "expected src, dst"),
        ("sport", "at character 6, the end:", "expected a port"),
        ("sport = ", "at character 9, the end:", "expected a port"),
        ("sport = :70000", "at character 9:", "no port 70000"),
        ("sport = :no-such", "at character 9:", "no service 'no-such' in /etc/services"),
        ("sport ~ 7", "at character 7:", "no service '~'"),
        ("tcp and src example.org", "at character 13:", "no address 'example.org'"),
        ("src 10.0.0.0/33", "at character 5:", "no address"),
        ("src 10.1", "at character 5:", "no address"),
        ("src [::1", "at character 5:", "no address"),
        ("src [10.0.0.1]5", "at character 5:", "no address"),
        ("src > 10.0.0.1", "at character 5:", "expected = or !="),
        ("state time-wait", "at character 7:", "no state 'time-wait': established, "),
        ("proto none", "at character 7:", "no protocol 'none'"),
        ("vlan 5000", "at character 6:", "0 to 4095"),
        ("vni x", "at character 5:", "expected the number"),
        ("dev fwd:70000", "at character 5:", "no port"),
        ("tunnel = ipsec", "at character 10:", "expected one of vxlan, "),
        ("(tcp", "at character 5, the end:", "the ) of an open ("),
        ("tcp)", "at character 4:", "no ( is open"),
        ("()", "at character 2:", "expected src, dst"),
        ("app fwd:0 é", "at character 11:", "expected src, dst"),
    ] {
        let error = refused(filter);
        assert!(error.starts_with(place) && error.contains(said), "{filter}: {error}");
    }
}

#[test]
fn length_and_nesting_are_bounded() {
    let nested = |levels| format!("{}tcp{}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(taken(&nested(31)), "w");
    assert!(refused(&nested(32)).starts_with("at character 33: at most 32 "));
    assert!(refused(&"!".repeat(1000)).starts_with("at character 33: at most 32 "));
    let long = format!("tcp{}", " or tcp".repeat(145));
    assert_eq!((long.len(), taken(&long).as_str()), (1018, "w"));
    assert!(refused(&format!("{long} or tcp")).contains("at character 1025: a filter has at most"));
}

#[test]
fn filters_of_ss_are_told_from_those_of_tcpdump() {
    for filter in [
        "sport = :7",
        "udp and (dport 53)",
        "!sport=:7",
        "state established",
        "exclude closed tcp",
        "tcp and state SYN-SENT",
    ] {
        assert!(FlowFilter::is_of_ss(filter), "{filter}");
    }
    for filter in [
        "",
        "udp port 53",
        "src 10.0.0.0/8",
        "host state",
        "host sport.example.org",
        "dst port 7",
        "tcp[tcpflags] & tcp-syn != 0",
    ] {
        assert!(!FlowFilter::is_of_ss(filter), "{filter}");
    }
}

fn tests() -> impl Strategy<Value = String> {
    let operator = prop::sample::select(vec!["", " =", " !=", "=="]);
    let compared = prop::sample::select(vec!["", " <", ">=", " gt ", " ne "]);
    let value = |word: &'static [&'static str]| prop::sample::select(word);
    prop_oneof![
        (value(&["src", "dst", "host"]), operator.clone(), any::<std::net::IpAddr>(), 0..=32_u8)
            .prop_map(|(word, operator, addr, prefix)| format!("{word}{operator} {addr}/{prefix}")),
        (value(&["sport", "dport", "port"]), compared.clone(), any::<u16>())
            .prop_map(|(word, compared, port)| format!("{word}{compared} :{port}")),
        (value(&["state", "exclude"]), value(&["estab", "connected", "all", "syn_recv", "none"]))
            .prop_map(|(word, state)| format!("{word} {state}")),
        (value(&["vlan", "vni"]), compared, 0..=4095_u16)
            .prop_map(|(word, compared, id)| format!("{word}{compared} {id}")),
        (value(&["app", "dev"]), operator, "[a-z_]{4,8}", "(:[0-9]{1,4}){0,3}")
            .prop_map(|(word, operator, app, port)| format!("{word}{operator} {app}{port}")),
        value(&["tcp", "proto = 200", "ip6", "tunnel", "tunnel != gue", "vlan"])
            .prop_map(ToOwned::to_owned),
    ]
}

fn filters() -> impl Strategy<Value = String> {
    tests().prop_recursive(4, 16, 3, |inner| {
        let joined = |sign: &'static str| {
            prop::collection::vec(inner.clone(), 2..4).prop_map(move |parts| parts.join(sign))
        };
        prop_oneof![
            joined(" and "),
            joined(" || "),
            joined(" "),
            inner.clone().prop_map(|part| format!("not ({part})")),
            inner.clone().prop_map(|part| format!("({part})")),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_means_the_same(filter in filters()) {
        let parsed = FlowFilter::parse(&filter).map_err(|error| {
            TestCaseError::fail(format!("{filter}: {error}"))
        })?;
        let printed = parsed.to_string();
        // It may be longer than what was typed, and too long.
        prop_assume!(printed.len() <= 1024);
        prop_assert_eq!(FlowFilter::parse(&printed), Ok(parsed), "{} as {}", filter, printed);
    }

    #[test]
    fn no_text_panics(
        text in "(src|dport|state|vlan|tunnel|dev|not|and|or|[ ()!=<>:/\\[\\]|&.a-z0-9é]){0,40}|.{0,60}"
    ) {
        let _ = FlowFilter::is_of_ss(&text);
        if let Ok(filter) = FlowFilter::parse(&text) {
            for flow in &conversations() {
                filter.matches("fwd", flow);
            }
            let printed = filter.to_string();
            if printed.len() <= 1024 {
                prop_assert_eq!(FlowFilter::parse(&printed), Ok(filter));
            }
        }
    }
}
