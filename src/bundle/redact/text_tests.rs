//! Tests of the redaction of text.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

struct Redaction {
    text: TextRedactor,
    pseudonyms: Pseudonyms,
}

impl Redaction {
    fn new(hosts: &[&str]) -> Self {
        let pseudonyms = Pseudonyms::new().unwrap();
        let hosts: Vec<_> = hosts.iter().map(|name| (*name).to_owned()).collect();
        Self { text: TextRedactor::new(&hosts).unwrap(), pseudonyms }
    }

    fn of(&mut self, text: &str) -> String {
        self.text.redact(text, &mut self.pseudonyms).into_owned()
    }

    fn ip(&mut self, address: &str) -> String {
        let address: IpAddr = address.parse().unwrap();
        self.pseudonyms.ip(address).to_string()
    }
}

#[test]
fn addresses_are_replaced_wherever_they_stand() {
    let mut redaction = Redaction::new(&[]);
    let [a, b] = ["198.18.0.1", "198.19.0.2"].map(|address| redaction.ip(address));
    let [c, d] = ["2001:db8::1", "fe80::5054:ff:fe12:3456"].map(|address| redaction.ip(address));
    for (text, expected) in [
        ("udp 198.18.0.1:7 <-> 198.19.0.2:49152", format!("udp {a}:7 <-> {b}:49152")),
        ("198.18.0.1.80 > 198.19.0.2.49152: UDP", format!("{a}.80 > {b}.49152: UDP")),
        (r#"{"src":"198.18.0.1"}"#, format!(r#"{{"src":"{a}"}}"#)),
        ("at 198.18.0.1.", format!("at {a}.")),
        ("x198.18.0.1/24", format!("x{a}/24")),
        ("[2001:db8::1]:443", format!("[{c}]:443")),
        ("2001:db8::1.443", format!("{c}.443")),
        ("from fe80::5054:ff:fe12:3456%eth0,", format!("from {d}%eth0,")),
        ("198.018.000.001", a.clone()),
    ] {
        assert_eq!(redaction.of(text), expected, "{text}");
    }
}

#[test]
fn mac_addresses_are_replaced_in_every_notation() {
    let mut redaction = Redaction::new(&[]);
    let mac = mac_text(redaction.pseudonyms.mac([2, 0, 0, 0xab, 0xcd, 1]), ":");
    assert_eq!(redaction.of("02:00:00:ab:cd:01"), mac);
    assert_eq!(redaction.of("mac 02:00:00:AB:CD:01:"), format!("mac {mac}:"));
    assert_eq!(redaction.of("02-00-00-ab-cd-01"), mac.replace(':', "-"));
    assert_eq!(redaction.of("enx020000abcd01:"), format!("enx{}:", mac.replace(':', "")));
}

#[test]
fn mac_addresses_of_switches_and_boot_options_are_replaced() {
    let mut redaction = Redaction::new(&[]);
    let mac = mac_text(redaction.pseudonyms.mac([2, 0, 0, 0xab, 0xcd, 1]), "");
    let groups = [&mac[..4], &mac[4..8], &mac[8..]].join(".");
    assert_eq!(
        redaction.of("mac:0200.00ab.cd01, 0200.00AB.CD01"),
        format!("mac:{groups}, {groups}")
    );
    let octets = [0, 2, 4, 6, 8, 10].map(|at| &mac[at..at + 2]).join("-");
    assert_eq!(redaction.of("BOOTIF=01-02-00-00-ab-cd-01"), format!("BOOTIF=01-{octets}"));
}

#[test]
fn hexadecimal_addresses_that_the_bundle_has_are_replaced() {
    let mut redaction = Redaction::new(&[]);
    let number = "flow 0xc6120001 or 0x020000001122 or C6120001 or 010012c6";
    assert_eq!(redaction.of(number), number, "not known yet");
    let ip: Ipv4Addr = redaction.ip("198.18.0.1").parse().unwrap();
    let mac = mac_text(redaction.pseudonyms.mac([2, 0, 0, 0, 0x11, 0x22]), "");
    let (big, little) = (ip.to_bits(), ip.to_bits().swap_bytes());
    let expected = format!("flow 0x{big:08x} or 0x{mac} or {big:08x} or {little:08x}");
    assert_eq!(redaction.of(number), expected);
    let v6: Ipv6Addr = redaction.ip("2001:db8::1").parse().unwrap();
    let text = redaction.of("20010db8000000000000000000000001 01 40 00 80 eth0");
    assert_eq!(text, format!("{:032x} 01 40 00 80 eth0", v6.to_bits()));
    // Others of the same network and vendor are taken for addresses as well.
    let near = redaction.of("0xc612ff07, c612ff07, 0x020000abcdef");
    let ip: Ipv4Addr = redaction.ip("198.18.255.7").parse().unwrap();
    let mac = mac_text(redaction.pseudonyms.mac([2, 0, 0, 0xab, 0xcd, 0xef]), "");
    assert_eq!(near, format!("0x{0:08x}, {0:08x}, 0x{mac}", ip.to_bits()));
    // Small numbers with leading zeros look like addresses of small networks, in one order or the other.
    redaction.ip("10.0.0.1");
    redaction.ip("0.0.0.5");
    redaction.pseudonyms.mac([0, 0, 0, 0, 0, 1]);
    for kept in ["0x0000000a", "0x0001000a", "0x0000ffff", "0x000000007fff"] {
        assert_eq!(redaction.of(kept), kept);
    }
    // Decimal digits alone may be a count, and a part of a longer number is no address.
    redaction.ip("18.52.86.120");
    for kept in ["12345678", "020000001122", "0xc612000100", "ffc6120001"] {
        assert_eq!(redaction.of(kept), kept);
    }
}

#[test]
fn decimal_addresses_that_the_bundle_has_are_replaced_behind_a_word_for_an_address() {
    let mut redaction = Redaction::new(&[]);
    let text = r#"host: 3323068417, {"ip":3323068417,"addr": "16782022"} gw=3323068417 to,
        {"peers":[3323068417, 16782022],"args":["--vtep","--server","3323068417"]} next-hop 16782022"#;
    assert_eq!(redaction.of(text), text, "not known yet");
    let ip: Ipv4Addr = redaction.ip("198.18.0.1").parse().unwrap();
    let (big, little) = (ip.to_bits().to_string(), ip.to_bits().swap_bytes().to_string());
    let expected = text.replace("3323068417", &big).replace("16782022", &little);
    assert_eq!(redaction.of(text), expected);
    for kept in ["host 33230684170", "host: 3323068418", "ip 23068417", "peers: [3323068418]"] {
        assert_eq!(redaction.of(kept), kept);
    }
}

#[test]
fn decimal_addresses_that_the_bundle_has_are_replaced_where_a_port_or_length_follows() {
    let mut redaction = Redaction::new(&[]);
    let text = "3323068417/24 3323068417:443/6 3323068417 -> 3323068418, 3323068417:443,";
    assert_eq!(redaction.of(text), text, "not known yet");
    let [one, two] = ["198.18.0.1", "198.18.0.2"]
        .map(|address| redaction.ip(address).parse::<Ipv4Addr>().unwrap().to_bits().to_string());
    let expected = text.replace("3323068417", &one).replace("3323068418", &two);
    assert_eq!(redaction.of(text), expected);
}

#[test]
fn numbers_that_can_only_be_addresses_are_replaced() {
    let mut redaction = Redaction::new(&[]);
    let text = r#"net 0x0a000001 or src host 167772161 {"filter":["host","167772161"]} ip host 0x0a000001
        {"src_ip":167772161,"peerAddress":"0x0a000001","remote_addrs":[167772161, 167772161]}
        --dst-ip=167772161 saddr 167772161 ip.src_host ipv4_addr: 167772161"#;
    let redacted = redaction.of(text);
    let ip: Ipv4Addr = redaction.ip("10.0.0.1").parse().unwrap();
    let expected = text.replace("167772161", &ip.to_bits().to_string());
    assert_eq!(redacted, expected.replace("0x0a000001", &format!("0x{:08x}", ip.to_bits())));
    for kept in ["host 12345678", "src_ip: 127.0.0.1", "host 2130706433", "src_ip 16777215"] {
        assert_eq!(redaction.of(kept), kept);
    }
}

#[test]
fn networks_of_filters_are_replaced() {
    let mut redaction = Redaction::new(&[]);
    let pseudonym = redaction.ip("198.18.7.0");
    let octets: Vec<_> = pseudonym.split('.').collect();
    for (count, text) in [
        (1, "net 198"),
        (2, "src net 198.18/16"),
        (3, "not net 198.18.7 and"),
        (4, "net 198.18.7.0/24"),
    ] {
        let (before, after) = text.split_once("198").unwrap();
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let expected = format!("{before}{}{after}", octets[..count].join("."));
        assert_eq!(redaction.of(text), expected);
    }
    let redacted = redaction.of(r#"["net","198.18"] 198.18.7.0 = ip.src"#);
    assert!(!redacted.contains("198.18"), "{redacted}");
    for kept in
        ["net 127", "net 0.0.0.0/0", "net 300", "subnet 198", "netns 198.18", "net_null0 10"]
    {
        assert_eq!(redaction.of(kept), kept);
    }
}

#[test]
fn counters_times_and_sizes_that_equal_an_address_stay() {
    let mut redaction = Redaction::new(&[]);
    for address in ["198.18.0.1", "1.18.0.198", "10.0.0.1", "192.168.1.10", "100.64.0.1"] {
        redaction.ip(address);
    }
    for number in ["3323068417", "17956038", "16782022", "167772161", "3232235786", "1681915905"] {
        for text in [
            format!(r#"{{"rx_packets":{number},"bytes":[{number},{number}]}}"#),
            format!("imissed: {number}, {number} packets of {number} bytes"),
            format!(r#"dpdk_port_rx_packets_total{{app="fwd",port="0"}} {number}"#),
            format!(r#"{{"realtime_ns":{number}000,"uptime_s":{number}.5,"pid":{number}}}"#),
            format!(
                "{number}.123456 IP, {number} kB, +{number}, -{number}, {number}/s, ({number})"
            ),
            format!("Ip: 1 64 {number}"),
            format!("chip {number}, tip: {number}"),
            number.to_owned(),
        ] {
            assert_eq!(redaction.of(&text), text);
        }
    }
}

#[test]
fn what_filters_compare_with_addresses_is_replaced() {
    let mut redaction = Redaction::new(&[]);
    let filters =
        "ip[12:4] = 0xc6120001 or (ip[16:4]&0xffffff00)!=3323068416 and arp[14:4]==0xc6120001";
    let redacted = redaction.of(filters);
    let ip: Ipv4Addr = redaction.ip("198.18.0.1").parse().unwrap();
    let net: Ipv4Addr = redaction.ip("198.18.0.0").parse().unwrap();
    let (ip, net) = (ip.to_bits(), net.to_bits());
    let expected = "ip[12:4] = 0xIP or (ip[16:4]&0xffffff00)!=NET and arp[14:4]==0xIP";
    let expected = expected.replace("IP", &format!("{ip:08x}")).replace("NET", &net.to_string());
    assert_eq!(redacted, expected);
    for part in ["ether[0:4] = 0x02000001", "ether[10:2]=7", "ip[12] == 198", "ip6[8:4]=0x20010db8"]
    {
        let (left, _) = part.split_once('=').unwrap();
        let redacted = redaction.of(part);
        assert!(redacted.starts_with(left) && redacted.ends_with("(removed)"), "{redacted}");
    }
    for kept in
        ["ip[9] = 17", "ether[12:2] = 0x0800", "tcp[0:2] = 443", "ip[0:4] = 5", "zip[12:4]=7"]
    {
        assert_eq!(redaction.of(kept), kept);
    }
    // What is compared with other bytes may be an address as well.
    assert_eq!(redaction.of("ip[24:4] = 0xc6120001"), format!("ip[24:4] = 0x{ip:08x}"));
}

#[test]
fn what_stands_left_of_a_comparison_is_replaced() {
    let mut redaction = Redaction::new(&[]);
    let redacted = redaction.of(
        "0xc6120001 = ip[12:4] or 3323068416 != (ip[16:4] & 0xffffff00) or (0xc6120001==arp[14:4])",
    );
    let [ip, net] = ["198.18.0.1", "198.18.0.0"]
        .map(|address| redaction.ip(address).parse::<Ipv4Addr>().unwrap().to_bits());
    let expected = "0xIP = ip[12:4] or NET != (ip[16:4] & 0xffffff00) or (0xIP==arp[14:4])";
    let expected = expected.replace("IP", &format!("{ip:08x}")).replace("NET", &net.to_string());
    assert_eq!(redacted, expected);
    for part in ["0x02000001 = ether[0:4]", "198 == ip[12]", "50706 = ip[12:4] >> 16"] {
        let (_, right) = part.split_once(' ').unwrap();
        assert_eq!(redaction.of(part), format!("(removed) {right}"));
    }
    assert_eq!(redaction.of("ip[12:4] >> 16 = 50706"), "ip[12:4] >> 16 = (removed)");
    for kept in ["17 = ip[9]", "0x0800 = ether[12:2]", "443 = tcp[0:2]", "4 = zip[12:4]"] {
        assert_eq!(redaction.of(kept), kept);
    }
    // Addresses of the usual notation are replaced on both sides, as anywhere.
    assert!(!redaction.of("198.18.0.1 == ip.src && ip.dst == 198.18.0.1").contains("198.18"));
}

#[test]
fn addresses_behind_other_headers_are_replaced_in_filters() {
    let mut redaction = Redaction::new(&[]);
    let bits =
        |redaction: &mut Redaction| redaction.ip("10.0.0.1").parse::<Ipv4Addr>().unwrap().to_bits();
    for filter in ["ether[26:4]", "ether[34:4]", "udp[42:4]", "ip[40:4]", "ip6[60:4]", "icmp[20:4]"]
    {
        for comparison in [format!("{filter} = 0x0a000001"), format!("0x0a000001 = {filter}")] {
            let redacted = redaction.of(&comparison);
            let expected = format!("0x{:08x}", bits(&mut redaction));
            assert_eq!(redacted, comparison.replace("0x0a000001", &expected));
        }
    }
    for kept in ["udp[8:4] = 0x0b000001", "ip[20:2] = 4789", "udp[20:4] = 17", "ether[36:2] = 53"] {
        assert_eq!(redaction.of(kept), kept);
    }
}

#[test]
fn names_of_a_domain_are_replaced() {
    let mut redaction = Redaction::new(&[".example.org", "peer3"]);
    let text = redaction.of("to gw2.dc1.Example.org:4789, peer3, example.org, gw2.example.com");
    assert!(!text.contains("gw2.dc1") && !text.contains("peer3"), "{text}");
    assert!(text.ends_with(", example.org, gw2.example.com"), "{text}");
    assert_eq!(redaction.of("PEER3"), redaction.of("peer3"));
}

#[test]
fn what_is_no_address_stays() {
    let mut redaction = Redaction::new(&["gateway7"]);
    for text in [
        "2026-11-22T08:56:00Z 08:56:00.123456",
        "0000:03:00.0 Ethernet",
        "DPDK 22.11.11, kernel 6.1.0-37-amd64",
        "realtime_ns 1780000000123456789, 0x140000880, 12.5 %",
        "c0ffee1234 deadbeef",
        "127.0.0.1:9177 and 0.0.0.0/0",
        r#"{"gateway7":1}"#,
    ] {
        assert_eq!(redaction.of(text), text);
    }
}

#[test]
fn names_of_this_machine_are_replaced() {
    let mut redaction = Redaction::new(&["gateway7.example.org", "gateway7"]);
    let text = redaction.of(r#"{"host":"gateway7"} Gateway7.example.org gateway77"#);
    assert!(!text.to_lowercase().contains("gateway7."), "{text}");
    assert!(text.starts_with(r#"{"host":"host-"#) && text.ends_with(" gateway77"), "{text}");
}

/// An address as text, with what may stand before and after it.
fn addresses() -> impl Strategy<Value = String> {
    let v4 = any::<[u8; 4]>().prop_map(|octets| Ipv4Addr::from(octets).to_string());
    let v6 = any::<[u16; 8]>().prop_map(|groups| Ipv6Addr::from(groups).to_string());
    let short = any::<(u16, u16)>().prop_map(|(a, b)| format!("{a:x}::{b:x}"));
    let mac = any::<[u8; 6]>().prop_map(|octets| mac_text(octets, ":"));
    prop_oneof![v4, v6, short, mac]
}

/// Addresses that are not replaced.
fn is_kept(address: &str) -> bool {
    let kept_ip = address.parse::<IpAddr>().is_ok_and(|address| {
        let mut pseudonyms = Pseudonyms::new().unwrap();
        let mut again = Pseudonyms::new().unwrap();
        pseudonyms.ip(address) == address && again.ip(address) == address
    });
    kept_ip || ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"].contains(&address)
}

/// Every address that a reader could see in a text.
fn seen(text: &str) -> Vec<String> {
    text.split(|c: char| !(c.is_ascii_hexdigit() || ":.".contains(c))).map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_address_of_a_text_is_left(
        parts in prop::collection::vec((addresses(), r#"[ \["',;=/%()<>xz\t-]{1,3}"#), 1..6),
    ) {
        let text = parts.iter().map(|(a, between)| [between, a, between].map(String::as_str).concat());
        let text = text.collect::<Vec<_>>().concat();
        let mut redaction = Redaction::new(&[]);
        let redacted = redaction.of(&text);
        let left = seen(&redacted);
        for (address, _) in parts.iter().filter(|(address, _)| !is_kept(address)) {
            prop_assert!(!left.contains(address), "{address} is left of {text:?}: {redacted:?}");
        }
    }

    #[test]
    fn any_text_is_redacted_without_a_panic(text: String) {
        Redaction::new(&["host"]).of(&text);
    }

    #[test]
    fn runs_of_digits_and_colons_are_redacted_without_a_panic(text in "[0-9a-f:.]{0,60}") {
        Redaction::new(&[]).of(&text);
    }
}
