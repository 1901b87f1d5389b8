use insta::assert_snapshot;

use super::*;
use crate::netstat::fixture::{args, counts, end, exact, flow};

#[test]
fn ports_that_answer_are_listed_and_those_that_ask_are_not() {
    let args = args("-l");
    assert_snapshot!(text(&args, &exact(), &ReportLayout::wide(&args)));
}

#[test]
fn tcp_counts_when_it_answers() {
    let mut tcp = flow(TCP, end("10.0.0.1", 80), end("10.0.0.2", 4_000), 2, 1);
    tcp.tcp_flags = [0, SYN];
    assert_eq!(verdict(&tcp), OpenerVerdict::Asks);
    tcp.tcp_flags = [SYN | ACK, SYN];
    assert_eq!(verdict(&tcp), OpenerVerdict::Receives(FlowEnd::Local));
    tcp.opener = None;
    assert_eq!(verdict(&tcp), OpenerVerdict::Undecided);
}

#[test]
fn an_answer_may_have_been_left_out_by_sampling() {
    let mut tcp = flow(TCP, end("10.0.0.1", 80), end("10.0.0.2", 4_000), 32, 16);
    tcp.variance = 720;
    for (answer, expected) in [
        (0, OpenerVerdict::Undecided),
        (ACK, OpenerVerdict::Receives(FlowEnd::Local)),
        (RST | ACK, OpenerVerdict::Asks),
    ] {
        tcp.tcp_flags = [answer, SYN];
        assert_eq!(verdict(&tcp), expected, "{answer:x}");
    }
}

#[test]
fn ports_tell_which_end_of_udp_serves_whoever_was_seen_first() {
    let (local, remote) = (FlowEnd::Local, FlowEnd::Remote);
    for (ports, expected) in [
        ((53, 40_000), OpenerVerdict::Receives(local)),
        ((8_125, 32_768), OpenerVerdict::Receives(local)),
        ((53, 5_353), OpenerVerdict::Receives(local)),
        ((123, 123), OpenerVerdict::Receives(local)),
        ((40_000, 53), OpenerVerdict::Asks),
        ((40_000, 32_767), OpenerVerdict::Asks),
        ((40_000, 50_000), OpenerVerdict::Undecided),
        ((40_000, 40_000), OpenerVerdict::Undecided),
        ((5_000, 6_000), OpenerVerdict::Undecided),
        ((7, 9), OpenerVerdict::Undecided),
    ] {
        for (proto, opener) in [(UDP, Some(remote)), (UDP, Some(local)), (SCTP, None)] {
            let ends = (end("10.0.0.1", ports.0), end("10.0.0.2", ports.1));
            let flow = Flow { opener, ..flow(proto, ends.0, ends.1, 5, 5) };
            assert_eq!(verdict(&flow), expected, "{ports:?} {opener:?}");
        }
    }
}

#[test]
fn a_client_of_udp_has_no_listeners_when_an_answer_is_seen_first() {
    let asks = (40_000..40_003).map(|own| {
        let asked = flow(UDP, end("10.0.0.1", own), end("192.0.2.1", 53), 1, 1);
        Flow { opener: Some(FlowEnd::Remote), ..asked }
    });
    assert_eq!(listed(asks.collect()), (vec![], 0));
}

/// A conversation of UDP with sampled packets: the opener is unknown.
fn sampled(local: (&str, u16), remote: (&str, u16)) -> Flow {
    let udp = flow(UDP, end(local.0, local.1), end(remote.0, remote.1), 16, 16);
    Flow { opener: None, variance: 480, ..udp }
}

fn listed(flows: Vec<Flow>) -> (Vec<(FlowEndpoint, u64)>, u64) {
    let snapshot = FlowSnapshot { flows, variance: 1, sample: 16, ..FlowSnapshot::default() };
    let ListeningPorts { ports, undecided } = all(&args("-l"), &ReportData::default(), &snapshot);
    assert!(ports.iter().all(|port| port.inferred));
    let ports = ports.iter().map(|port| (port.local, port.conversations)).collect();
    (ports, undecided.others)
}

#[test]
fn a_sampled_client_has_no_listeners() {
    let servers = ["192.0.2.1", "192.0.2.2"];
    let own_ports = (40_000..40_071).map(|own| sampled(("10.0.0.1", own), (servers[0], 50_053)));
    assert_eq!(listed(own_ports.collect()), (vec![], 71));
    // One port of its own for several servers, and few for several services.
    let one = servers.map(|server| sampled(("10.0.0.1", 40_000), (server, 50_053)));
    assert_eq!(listed(one.to_vec()), (vec![], 2));
    let few = (40_000..40_003).flat_map(|own| {
        [50_053, 50_123].map(|service| sampled(("10.0.0.1", own), (servers[0], service)))
    });
    assert_eq!(listed(few.collect()), (vec![], 6));
}

#[test]
fn a_sampled_server_is_known_by_its_remotes() {
    let clients = (40_000..40_003).map(|other| sampled(("10.0.0.1", 50_053), ("192.0.2.1", other)));
    assert_eq!(listed(clients.collect()), (vec![(end("10.0.0.1", 50_053), 3)], 0));
}

#[test]
fn without_directions_the_end_of_many_serves() {
    let asks = (1_024..1_028).map(|own| {
        let mut asked = flow(UDP, end("10.0.0.1", own), end("10.0.0.2", 9_999), 0, 0);
        asked.unknown.from_local = counts(2, 200);
        asked
    });
    assert_eq!(listed(asks.collect()), (vec![(end("10.0.0.2", 9_999), 4)], 0));
}

#[test]
fn what_nothing_decides_is_told() {
    let flows = vec![sampled(("10.0.0.1", 40_000), ("192.0.2.1", 50_053))];
    let snapshot = FlowSnapshot { flows, variance: 480, sample: 16, ..FlowSnapshot::default() };
    let data =
        ReportData { snapshot: Some(std::sync::Arc::new(snapshot)), ..ReportData::default() };
    let args = args("-l");
    let text = text(&args, &data, &ReportLayout::wide(&args));
    assert!(text.contains("1 UDP or SCTP conversation undecided: neither the ports"), "{text}");
}

#[test]
fn without_directions_the_end_that_was_asked_listens() {
    let mut udp = flow(UDP, end("10.0.0.2", 4_000), end("10.0.0.1", 53), 0, 0);
    udp.opener = Some(FlowEnd::Local);
    udp.unknown = SenderCounts { from_local: counts(3, 300), from_remote: counts(2, 200) };
    let snapshot = FlowSnapshot { flows: vec![udp], ..FlowSnapshot::default() };
    let all = all(&args("-l"), &ReportData::default(), &snapshot).ports;
    let found = (all[0].local, all[0].rx.packets, all[0].tx.packets, all[0].remotes);
    assert_eq!(found, (end("10.0.0.1", 53), 3, 2, 1));
}

#[test]
fn what_is_forwarded_counts_once() {
    let mut udp = flow(UDP, end("10.0.0.1", 53), end("10.0.0.2", 4_000), 5, 0);
    udp.tx = udp.rx;
    assert_eq!(ends(&udp), [counts(0, 0), counts(5, 500)]);
}
