//! The report of conversations.

use std::cmp::Ordering;

use pmdscope_flows::{
    Flow, FlowEndpoint, FlowSnapshot, PacketCounts, UnknownLink, UnlistedPackets, standard_error,
};
use pmdscope_render::conversation::{self, TrafficRate, WINDOW_TITLES, window_bps};
use pmdscope_render::number::{bytes, count, known, plural, seconds, si};
use pmdscope_render::{Cell, Column, Subject, TextTable};

use super::args::{Args, ConversationSort};
use super::format;
use super::report_data::{self, ReportData, app_of, directions};
use super::report_layout::ReportLayout;

/// The conversations that are to be shown, in their order.
pub(super) fn chosen<'a>(
    args: &Args,
    data: &ReportData,
    snapshot: &'a FlowSnapshot,
) -> Vec<&'a Flow> {
    let shown = snapshot.flows.iter().filter(|flow| data.shows(args, snapshot, flow));
    let mut flows = shown.collect::<Vec<_>>();
    flows.sort_by(|a, b| {
        let order = order(args.sort, data, snapshot, a, b);
        let order = if args.reverse { order.reverse() } else { order };
        order.then_with(|| b.total().bytes.cmp(&a.total().bytes)).then_with(|| key(a).cmp(&key(b)))
    });
    flows
}

fn key(flow: &Flow) -> impl Ord + use<> {
    let vlans = [flow.vlans, flow.inner_vlans];
    (flow.proto, flow.local, flow.remote, flow.app, vlans, flow.icmp, flow.first_ns)
}

fn order(
    by: ConversationSort,
    data: &ReportData,
    snapshot: &FlowSnapshot,
    a: &Flow,
    b: &Flow,
) -> Ordering {
    let rate = |flow| data.flow_speed(snapshot, flow).map_or(0.0, |speed: TrafficRate| speed.bps);
    match by {
        ConversationSort::Bytes => b.total().bytes.cmp(&a.total().bytes),
        ConversationSort::Packets => b.total().packets.cmp(&a.total().packets),
        ConversationSort::Rx => directions(b).0.bytes.cmp(&directions(a).0.bytes),
        ConversationSort::Tx => directions(b).1.bytes.cmp(&directions(a).1.bytes),
        ConversationSort::Rate => rate(b).total_cmp(&rate(a)),
        ConversationSort::Age => a.first_ns.cmp(&b.first_ns),
        ConversationSort::Last => b.last_ns.cmp(&a.last_ns),
        ConversationSort::Local => a.local.cmp(&b.local),
        ConversationSort::Remote => a.remote.cmp(&b.remote),
        ConversationSort::Proto => a.proto.cmp(&b.proto),
        ConversationSort::State => conversation::flow_state(a).cmp(&conversation::flow_state(b)),
    }
}

/// The report.
pub(super) fn text(args: &Args, data: &ReportData, layout: &ReportLayout) -> String {
    let snapshot = data.counted();
    let flows = chosen(args, data, &snapshot);
    let shown = layout.rows(flows.len());
    let mut table = table(data, &snapshot, &flows[..shown]);
    table.notes = notes(data, &snapshot, &flows, shown);
    layout.table(&table)
}

fn table(data: &ReportData, snapshot: &FlowSnapshot, flows: &[&Flow]) -> TextTable {
    let columns = vec![
        Column::text("App").drop_at(4),
        Column::text("Proto"),
        Column::text("Local").whole(),
        Column::text("Remote").whole(),
        Column::text("VLAN/tunnel").drop_at(5),
        Column::number("RX-pkts"),
        Column::number("TX-pkts"),
        Column::number("±pkts").drop_at(3),
        Column::number("RX-bytes").drop_at(6),
        Column::number("TX-bytes").drop_at(6),
        Column::number("pps").drop_at(2),
        Column::number("bit/s").drop_at(1),
        Column::number(WINDOW_TITLES[0]).drop_at(7),
        Column::number(WINDOW_TITLES[1]).drop_at(7),
        Column::number(WINDOW_TITLES[2]).drop_at(7),
        Column::text("State").drop_at(7),
        Column::text("Queue").drop_at(8),
        Column::text("Lcore").drop_at(9),
        Column::number("First").drop_at(10),
        Column::number("Last").drop_at(11),
    ];
    let mut table = TextTable::new("Conversations", columns);
    data.look_up(flows.iter().flat_map(|flow| ends(flow)));
    for flow in flows {
        let subject = Subject::App { app: app_of(snapshot, flow.app).to_owned() };
        table.push(subject, false, cells(data, snapshot, flow));
    }
    if snapshot.windows_s.is_none() {
        for title in WINDOW_TITLES {
            table.hide_column(title);
        }
    }
    if snapshot.apps.len() < 2 {
        table.hide_column("App");
    }
    if flows.iter().all(|flow| conversation::wrapping(flow).is_empty()) {
        table.hide_column("VLAN/tunnel");
    }
    if flows.iter().all(|flow| flow.variance == 0) {
        table.hide_column("±pkts");
    }
    if flows.iter().all(|flow| flow.rx_place.is_none() && flow.tx_place.is_none()) {
        table.hide_column("Queue");
        table.hide_column("Lcore");
    }
    table
}

/// Both ends, with the protocol of their ports.
pub(super) fn ends(flow: &Flow) -> [(u8, FlowEndpoint); 2] {
    [flow.local, flow.remote].map(|end| (flow.proto, end))
}

fn cells(data: &ReportData, snapshot: &FlowSnapshot, flow: &Flow) -> Vec<Cell> {
    let (rx, tx) = directions(flow);
    let speed = data.flow_speed(snapshot, flow);
    let windows = window_bps(snapshot, flow);
    let window = |at: usize| Cell::text(known(windows, |bps| si(bps[at])));
    let ago = |ns: u64| Cell::text(seconds(snapshot.now_ns.saturating_sub(ns) as f64 / 1e9));
    vec![
        Cell::text(app_of(snapshot, flow.app)),
        Cell::text(format::protocol(flow.proto, flow.local.addr)),
        Cell::text(data.endpoint(flow.proto, flow.local)),
        Cell::text(data.endpoint(flow.proto, flow.remote)),
        Cell::text(conversation::wrapping(flow)),
        Cell::text(count(rx.packets)),
        Cell::text(count(tx.packets)),
        Cell::text(count(error(flow.variance))),
        Cell::text(bytes(rx.bytes)),
        Cell::text(bytes(tx.bytes)),
        Cell::text(known(speed, |speed| si(speed.pps))),
        Cell::text(known(speed, |speed| si(speed.bps))),
        window(0),
        window(1),
        window(2),
        Cell::text(conversation::flow_state(flow)),
        Cell::text(format::queues(flow)),
        Cell::text(format::lcores(flow)),
        ago(flow.first_ns),
        ago(flow.last_ns),
    ]
}

/// Standard error of a number of packets, in whole packets.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a square root of a u64
pub(super) fn error(variance: u64) -> u64 {
    standard_error(variance).round() as u64
}

/// Packets and bytes in words.
pub(super) fn amount(counts: PacketCounts, variance: u64) -> String {
    let packets = if variance == 0 {
        plural(counts.packets, "packet")
    } else {
        format!("{} ± {} packets", count(counts.packets), count(error(variance)))
    };
    format!("{packets}, {}", bytes(counts.bytes))
}

fn notes(data: &ReportData, snapshot: &FlowSnapshot, flows: &[&Flow], shown: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let sum = |flows: &[&Flow]| {
        let variance = flows.iter().map(|flow| flow.variance).sum();
        let counts =
            flows.iter().map(|flow| flow.total()).fold(PacketCounts::default(), PacketCounts::plus);
        amount(counts, variance)
    };
    if shown < flows.len() {
        let rest = &flows[shown..];
        let more = plural(rest.len() as u64, "more conversation");
        notes.push(format!("{more}: {} (--all shows all)", sum(rest)));
    }
    let others = snapshot.flows.len() - flows.len();
    if others > 0 {
        let others = plural(others as u64, "conversation");
        let why = if data.asked.is_some() { "that do not match" } else { "of other protocols" };
        notes.push(format!("{others} {why}: not shown"));
    }
    let errors = flows.iter().map(|flow| flow.icmp_errors).sum::<u64>();
    if errors > 0 {
        let errors = plural(errors, "ICMP error");
        notes.push(format!("{errors}: counted for the conversations that they are about"));
    }
    notes.extend(other(snapshot));
    notes.push(total(data, snapshot));
    notes.extend(data.caveats());
    if flows[..shown].iter().any(|flow| flow.unknown != pmdscope_flows::SenderCounts::default()) {
        let place = if data.peek.is_some() { "" } else { " in the file" };
        notes.push(format!(
            "no packet direction{place}: Local sent the first packet, RX is what Remote sent"
        ));
    }
    notes
}

/// Packets that are in no row.
fn other(snapshot: &FlowSnapshot) -> Option<String> {
    let UnlistedPackets {
        evicted,
        evicted_variance,
        expired,
        expired_variance,
        not_ip,
        unreadable,
        ..
    } = snapshot.other;
    let kinds = snapshot.other_ether_types.iter();
    let kinds = kinds.map(|kind| format!("{} {}", count(kind.counts.packets), kind.name));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let not_read = if kinds.is_empty() { kinds } else { format!(" ({kinds})") };
    let not_read = format!("not IP{not_read}");
    let all = [
        (evicted, evicted_variance, "of evicted conversations (--flows sets the table size)"),
        (expired, expired_variance, "of expired conversations"),
        (not_ip, 0, not_read.as_str()),
        (unreadable, 0, "unreadable"),
    ];
    let there = all.iter().filter(|(counts, ..)| counts.packets > 0);
    let parts =
        there.map(|(counts, variance, what)| format!("{} {what}", amount(*counts, *variance)));
    let links = snapshot.unknown_links.iter().map(|link| {
        let UnknownLink { link_type, name, counts } = link;
        format!("{} of link type {name} ({link_type}), which is not read", amount(*counts, 0))
    });
    let parts = parts.chain(links);
    let parts = parts.collect::<Vec<_>>().join("; ");
    (!parts.is_empty()).then(|| format!("other: {parts}"))
}

/// The last line: the total of all packets.
pub(super) fn total(data: &ReportData, snapshot: &FlowSnapshot) -> String {
    let recent = snapshot.queues.iter().map(|queue| queue.recent);
    let recent = recent.fold(PacketCounts::default(), PacketCounts::plus);
    let speed = data.speed(snapshot, snapshot.total, recent);
    let speed = speed
        .map_or(String::new(), |speed| format!(": {} pps, {} bit/s", si(speed.pps), si(speed.bps)));
    format!(
        "total: {} in {}, {}{speed}",
        amount(snapshot.total, snapshot.variance),
        plural(snapshot.flows.len() as u64, "conversation"),
        seconds(report_data::seconds(snapshot)),
    )
}

#[cfg(test)]
mod tests;
