use insta::assert_snapshot;

use super::*;
use crate::netstat::fixture::{args, counts, end, exact, flow};

#[test]
fn ports_that_answer_are_listed_and_those_that_ask_are_not() {
    let args = args("-l");
    assert_snapshot!(text(&args, &exact(), &Paper::wide(&args)));
}

#[test]
fn tcp_counts_when_it_answers() {
    let mut tcp = flow(TCP, end("10.0.0.1", 80), end("10.0.0.2", 4_000), 2, 1);
    tcp.tcp_flags = [0, SYN];
    assert_eq!(receiver(&tcp), None);
    tcp.tcp_flags = [SYN | 0x10, SYN];
    assert_eq!(receiver(&tcp), Some(End::Local));
    tcp.opener = None;
    assert_eq!(receiver(&tcp), None);
}

#[test]
fn without_directions_the_end_that_was_asked_listens() {
    let mut udp = flow(UDP, end("10.0.0.2", 4_000), end("10.0.0.1", 53), 0, 0);
    udp.opener = Some(End::Local);
    udp.unknown = Ways { from_local: counts(3, 300), from_remote: counts(2, 200) };
    let snapshot = Snapshot { flows: vec![udp], ..Snapshot::default() };
    let all = all(&args("-l"), &snapshot);
    let found = (all[0].local, all[0].rx.packets, all[0].tx.packets, all[0].remotes);
    assert_eq!(found, (end("10.0.0.1", 53), 3, 2, 1));
}

#[test]
fn what_is_forwarded_counts_once() {
    let mut udp = flow(UDP, end("10.0.0.1", 53), end("10.0.0.2", 4_000), 5, 0);
    udp.tx = udp.rx;
    assert_eq!(ends(&udp), [counts(0, 0), counts(5, 500)]);
}
