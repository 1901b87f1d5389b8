//! Tests of conversations of ICMP, and of errors about other conversations.

use etherparse::IpNumber;

use super::*;
use crate::{FlowEnd, IcmpKind};

/// Returns a message with this type and code before these bytes.
fn icmp(from: u8, to: u8, [kind, code]: [u8; 2], rest: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ip(from), ip(to), 64);
    let message = [&[kind, code, 0, 0, 0, 0, 0, 0][..], rest].concat();
    builder.write(&mut frame, IpNumber(1), &message).unwrap();
    frame
}

fn counted(frames: &[Vec<u8>]) -> FlowSnapshot {
    let (mut table, latest) = table(FlowTableSettings::default());
    frames.iter().zip(0..).for_each(|(frame, ns)| put(&mut table, frame, ns));
    table.finish().unwrap();
    let snapshot = (*latest.get()).clone();
    assert_eq!(listed(&snapshot).0, snapshot.total);
    snapshot
}

#[test]
fn requests_and_answers_are_one_conversation_by_type_and_code() {
    let snapshot = counted(&[
        icmp(9, 1, [8, 0], &[0; 8]),
        icmp(1, 9, [0, 0], &[0; 8]),
        icmp(9, 1, [13, 0], &[0; 12]),
        icmp(1, 9, [14, 0], &[0; 12]),
        // Of no packet that it could be about.
        icmp(1, 9, [3, 1], &[0; 28]),
        icmp(1, 9, [3, 3], &[0; 28]),
    ]);
    let kinds = snapshot.flows.iter().map(|flow| {
        let IcmpKind { kind, code } = flow.icmp.unwrap();
        assert_eq!((flow.proto, flow.local.port, flow.remote.port), (1, 0, 0));
        (kind, code, flow.total().packets, flow.icmp_errors)
    });
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [(8, 0, 2, 0), (13, 0, 2, 0), (3, 1, 1, 0), (3, 3, 1, 0)]
    );
    assert_eq!(snapshot.protocols.icmp_unreachable, 2);
}

#[test]
fn an_error_belongs_to_the_conversation_that_it_is_about() {
    let request = udp((1, 5000), (9, 53), 30);
    // From the host that was asked and from a router before it; eight bytes of the payload are enough.
    let refused = icmp(9, 1, [3, 3], &request[14..14 + 28]);
    let lost = icmp(77, 1, [11, 0], &request[14..]);
    for frames in [[&request, &refused, &lost], [&refused, &lost, &request]] {
        let (mut table, latest) = table(FlowTableSettings::default());
        for (frame, ns) in frames.into_iter().zip(0..) {
            let dir = if frame == &request { DIR_TX } else { DIR_RX };
            table.packet(&Packet { dir, ..packet(frame, ns) }).unwrap();
        }
        table.finish().unwrap();
        let snapshot = latest.get();
        let [flow] = &snapshot.flows[..] else { panic!("{snapshot:?}") };
        assert_eq!((flow.local, flow.remote), (end(1, 5000), end(9, 53)));
        assert_eq!((flow.icmp_errors, flow.icmp, flow.opener), (2, None, Some(FlowEnd::Local)));
        assert_eq!((flow.tx.from_local.packets, flow.rx.from_remote.packets), (1, 2));
        assert_eq!((snapshot.protocols.icmp.packets, snapshot.protocols.udp.packets), (2, 1));
        assert_eq!(listed(&snapshot).0, snapshot.total);
    }
}

#[test]
fn an_error_says_nothing_about_the_state_of_tcp() {
    let syn = tcp((1, 5000), (9, 80), "S", 7);
    let filtered = icmp(9, 1, [3, 13], &syn[14..]);
    let snapshot = counted(&[syn, filtered]);
    let [flow] = &snapshot.flows[..] else { panic!("{snapshot:?}") };
    assert_eq!((flow.state, flow.tcp_flags, flow.icmp_errors), (TcpState::SynSent, [0, 2], 1));
}

/// An error goes to the sender of the packet that it quotes; others quote anything.
#[test]
fn an_error_that_quotes_a_packet_of_others_stays_icmp() {
    let request = udp((2, 5000), (9, 53), 30);
    let snapshot =
        counted(&[icmp(9, 1, [3, 3], &request[14..]), icmp(9, 2, [8, 0], &request[14..])]);
    assert_eq!(snapshot.flows.iter().filter(|flow| flow.icmp.is_some()).count(), 2);
}
