use std::process::Command;

use pmdscope_testing::output;
use proptest::prelude::*;

use super::*;

fn compile(expression: &str) -> Result<Vec<BpfInsn>, PacketFilterError> {
    FilterCompiler::default().compile_for_app(expression)
}

#[test]
fn an_expression_becomes_the_program_of_tcpdump() {
    let expected = [(40, 0, 0, 12), (21, 0, 1, 2048), (6, 0, 0, 262_144), (6, 0, 0, 0)];
    let found = compile("ip").unwrap();
    assert_eq!(found.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect::<Vec<_>>(), expected);
}

#[test]
fn no_expression_is_no_program() {
    assert_eq!(compile(" "), Ok(vec![]));
}

#[test]
fn an_error_has_the_expression_and_the_reason_of_libpcap() {
    let error = compile("udp prot 53").unwrap_err().to_string();
    assert_eq!(error, "filter expression 'udp prot 53': syntax error");
}

#[test]
fn direction_words_point_to_the_option() {
    for expression in ["inbound", "outbound and udp"] {
        let error = compile(expression).unwrap_err().to_string();
        assert!(error.contains("use -Q in or -Q out"), "{error}");
    }
}

#[test]
fn loads_of_kernel_data_are_recognised() {
    let load = |code, k| is_ancillary(BpfInsn { code, jt: 0, jf: 0, k });
    assert!(load(0x28, 0xffff_f004) && load(0x30, 0xffff_f000) && load(0xb1, 0xffff_f000));
    assert!(!load(0x28, 12) && !load(0x15, 0xffff_ffff) && !load(0x06, 0xffff_ffff));
}

#[test]
fn a_program_beyond_the_limit_is_refused() {
    let ports = (1..400).map(|p| format!("port {}", p * 7)).collect::<Vec<_>>().join(" or ");
    assert!(matches!(compile(&ports), Err(PacketFilterError::TooLong { .. })));
}

/// Returns an Ethernet frame with IPv4 and UDP from port 1000 to port 53.
fn dns() -> Vec<u8> {
    let mut frame = vec![0; 42];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[23]) = (0x45, 17);
    frame[34..38].copy_from_slice(&[3, 232, 0, 53]);
    frame
}

#[test]
fn captured_packets_are_matched() {
    let matches =
        |expression, data: &[u8], len| OfflineFilter::new(expression).unwrap().matches(data, len);
    let frame = dns();
    assert!(matches("udp port 53", &frame, 42) && !matches("tcp", &frame, 42));
    assert!(matches("", &frame, 42) && matches("", &[], 0));
    assert!(matches("len >= 1500", &frame, 1500) && !matches("len >= 1500", &frame, 1499));
    assert!(!matches("udp port 53", &frame[..35], 42), "the port was not kept");
    assert!(OfflineFilter::new("udp prot 53").is_err());
}

#[test]
fn programs_are_listed_as_by_tcpdump() {
    let expressions = [
        "",
        "ip",
        "tcp[tcpflags] & tcp-syn != 0",
        "net 10.0.0.0/8 and not arp",
        "vlan 5 and udp port 53",
        "ip6 proto 17 or len > 1000",
    ];
    let listings = [
        (ProgramListing::Readable, "-d"),
        (ProgramListing::C, "-dd"),
        (ProgramListing::Decimal, "-ddd"),
    ];
    for (expression, snaplen, optimize) in
        expressions.iter().flat_map(|e| [(e, 96, true), (e, MAX_SNAPLEN, false)])
    {
        let compiler = FilterCompiler { snaplen, optimize, ..FilterCompiler::default() };
        let program = compiler.compile(expression).unwrap();
        for (listing, option) in listings {
            let mut tcpdump = Command::new("tcpdump");
            tcpdump.args(["-y", "EN10MB", "-s", &snaplen.to_string(), option]);
            tcpdump.args((!optimize).then_some("-O")).arg("--").arg(expression);
            let Some(out) = output(&mut tcpdump) else { return };
            let expected = String::from_utf8(out.stdout).unwrap();
            assert_eq!(list(&program, listing), expected, "{tcpdump:?}");
        }
    }
}

#[test]
fn a_link_type_changes_the_program() {
    let of = |linktype| {
        let compiler = FilterCompiler { linktype, ..FilterCompiler::default() };
        OfflineFilter::compiled("udp port 53", &compiler)
    };
    let (frame, raw_ip) = (dns(), 101);
    assert!(of(raw_ip).unwrap().matches(&frame[14..], 28));
    assert!(!of(raw_ip).unwrap().matches(&frame, 42));
    assert!(of(0x7fff).unwrap_err().to_string().contains("data link type"));
}

proptest! {
    #[test]
    fn any_text_is_a_filter_or_an_error(text in "[a-z0-9 ()&|!<>=.:\\[\\]-]{0,40}") {
        if let Err(error) = compile(&text) {
            prop_assert!(error.to_string().contains(&text));
        }
    }
}
