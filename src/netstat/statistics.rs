//! Packets by protocol, as `netstat -s` has those of the kernel, and what ports counted.

use std::fmt::Write;

use pmdscope_flows::{PacketCounts, ProtocolCounts};
use pmdscope_render::number::{bytes, count};
use pmdscope_telemetry::sample::{PortStats, counts_bytes};

use super::conversations;
use super::report_data::{AppCounters, ReportData};
use crate::output::one_line;

/// The report. Protocols that were not seen are left out.
pub(super) fn text(data: &ReportData) -> String {
    let snapshot = data.counted();
    let mut out = String::new();
    let seen = protocols(&snapshot.protocols).into_iter();
    let seen = seen.filter(|(_, lines)| lines.iter().any(|(number, _)| *number > 0));
    for (title, lines) in seen {
        section(&mut out, title, lines);
    }
    let other = &snapshot.other;
    let links = snapshot.unknown_links.iter();
    let links =
        links.map(|link| of(link.counts.packets, &format!("packets of link type {}", link.name)));
    let mut conversations = vec![
        of(snapshot.flows.len() as u64, "listed"),
        of(other.evictions, "evicted"),
        of(other.expirations, "over and forgotten"),
        of(other.unreadable.packets, "packets unreadable"),
    ];
    conversations.extend(links);
    section(&mut out, "Conversations", conversations);
    if let Some(counters) = &data.counters {
        out.push_str(&ports(counters, data));
    }
    let notes = std::iter::once(conversations::total(data, &snapshot)).chain(data.caveats());
    for note in notes {
        let _ = writeln!(out, "{}", one_line(&note));
    }
    out
}

type CounterLines = Vec<(u64, String)>;

fn packets(counts: PacketCounts) -> (u64, String) {
    (counts.packets, format!("packets, {}", bytes(counts.bytes)))
}

fn of(number: u64, what: &str) -> (u64, String) {
    (number, what.to_owned())
}

fn protocols(seen: &ProtocolCounts) -> [(&'static str, CounterLines); 8] {
    let ProtocolCounts { ipv4, ipv6, tcp, udp, sctp, icmp, icmp6, .. } = *seen;
    [
        (
            "Link",
            vec![
                of(seen.vlan_tagged.packets, "with VLAN tags"),
                of(seen.arp.packets, "ARP"),
                of(seen.other_ethertypes.packets, "of other protocols"),
                of(seen.tunnelled.packets, "in tunnels"),
            ],
        ),
        (
            "Ip",
            vec![
                packets(ipv4),
                of(seen.ipv4_fragments.packets, "fragments"),
                of(seen.ipv4_options.packets, "with options"),
            ],
        ),
        ("Ip6", vec![packets(ipv6), of(seen.ipv6_fragments.packets, "fragments")]),
        (
            "Icmp",
            vec![
                packets(icmp),
                packets6(icmp6),
                of(seen.icmp_echo_requests, "echo requests"),
                of(seen.icmp_echo_replies, "echo replies"),
                of(seen.icmp_unreachable, "destination unreachable"),
                of(seen.icmp_time_exceeded, "time exceeded"),
            ],
        ),
        (
            "Tcp",
            vec![
                packets(tcp),
                of(seen.tcp_syn, "connection requests (SYN)"),
                of(seen.tcp_syn_ack, "accepted (SYN ACK)"),
                of(seen.tcp_fin, "ended (FIN)"),
                of(seen.tcp_rst, "reset (RST)"),
                of(seen.tcp_zero_window, "zero windows"),
            ],
        ),
        ("Udp", vec![packets(udp)]),
        ("Sctp", vec![packets(sctp)]),
        (
            "Other",
            vec![
                of(seen.gre.packets, "GRE"),
                of(seen.esp.packets, "ESP"),
                of(seen.other_protocols.packets, "of other protocols"),
            ],
        ),
    ]
}

fn packets6(counts: PacketCounts) -> (u64, String) {
    (counts.packets, format!("packets of ICMPv6, {}", bytes(counts.bytes)))
}

fn section(out: &mut String, title: &str, lines: CounterLines) {
    let _ = writeln!(out, "{}:", one_line(title));
    for (number, what) in lines {
        let _ = writeln!(out, "    {} {what}", count(number));
    }
}

/// What the ports counted in the same time, or since they did where there is nothing before.
fn ports(counters: &AppCounters, data: &ReportData) -> String {
    let mut out = String::new();
    for (app, before, now) in counters.samples() {
        for port in now.ports.iter().filter(|port| data.includes(app, port)) {
            let same = before
                .and_then(|before| before.ports.iter().find(|old| old.id == port.id))
                .filter(|old| old.device == port.device);
            let since = same.and_then(|old| port.stats.since(&old.stats));
            let when = if since.is_some() { "meanwhile" } else { "since the counters began" };
            let title = format!("Port {app}:{} ({}), {when}", port.id, port.device);
            section(&mut out, &title, counted(&since.unwrap_or(port.stats)));
        }
    }
    for line in counters.silent() {
        let _ = writeln!(out, "{}", one_line(&line));
    }
    out
}

fn counted(stats: &PortStats) -> CounterLines {
    let (rx, tx) = (stats.rx_packets, stats.tx_packets);
    vec![
        (stats.rx_packets, format!("packets received, {}", of_packets(rx, stats.rx_bytes))),
        (stats.tx_packets, format!("packets sent, {}", of_packets(tx, stats.tx_bytes))),
        of(stats.rx_missed, "missed: no free receive descriptor"),
        of(stats.rx_nombuf, "mbuf allocation failures"),
        of(stats.rx_errors, "receive errors"),
        of(stats.tx_errors, "transmit errors"),
    ]
}

/// Bytes of so many packets, where the driver counts them.
fn of_packets(packets: u64, number: u64) -> String {
    if counts_bytes(packets, number) { bytes(number) } else { "bytes not counted".to_owned() }
}

#[cfg(test)]
mod tests;
