//! Local ports that receive.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use pmdscope_flows::{
    Flow, FlowEnd, FlowEndpoint, FlowSnapshot, PacketCounts, SenderCounts, Tunnel,
};
use pmdscope_render::conversation;
use pmdscope_render::number::{bytes, count, plural, seconds};
use pmdscope_render::{Cell, Column, Subject, TextTable};
use serde::Serialize;

use super::args::Args;
use super::conversations;
use super::document::EndNames;
use super::format::{self, SCTP, TCP, UDP};
use super::report_data::{ReportData, app_of};
use super::report_layout::ReportLayout;

/// Flags of a TCP segment: it opens or accepts a connection, breaks it off, acknowledges.
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Remote ends, and ports of theirs, by which a port is taken for a listener where the ports do not tell.
const SEVERAL: usize = 2;
/// Ports of services that IANA calls system ports are below.
const SYSTEM_PORTS: u16 = 1024;
/// Ports that clients get from Linux begin here, those that IANA suggests are above: `ip_local_port_range`.
const EPHEMERAL_PORTS: u16 = 32_768;

/// A local port to which remote ends send.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ListeningPort<'a> {
    /// Name of the app; for files of other tools, name of the interface.
    app: &'a str,
    /// Name of the protocol: `tcp`, `udp` or `sctp`.
    proto: String,
    /// The end that listens: its address and port.
    pub(super) local: FlowEndpoint,
    /// Names of the local end; only with `--resolve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) names: Option<EndNames>,
    /// VLANs and tunnel, as text; empty if there are none.
    wrapping: String,
    /// Number of addresses of remote ends.
    remotes: usize,
    /// Number of conversations with the port.
    conversations: u64,
    /// Whether the port is listed only because of its many remote ends: the ports of its conversations do not
    /// tell which end serves.
    inferred: bool,
    /// Packets from remote ends.
    rx: PacketCounts,
    /// Packets to remote ends.
    tx: PacketCounts,
    /// Wall clock of the last packet, nanoseconds since 1970.
    last_ns: u64,
    #[serde(skip)]
    pub(super) number: u8,
    #[serde(skip)]
    addresses: BTreeSet<IpAddr>,
}

/// All ports that receive, those with most packets first.
#[derive(Debug)]
pub(super) struct ListeningPorts<'a> {
    pub(super) ports: Vec<ListeningPort<'a>>,
    pub(super) undecided: UndecidedCounts,
}

/// Conversations of which nothing tells the end that listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UndecidedCounts {
    tcp: u64,
    /// UDP and SCTP.
    others: u64,
}

impl UndecidedCounts {
    pub(super) fn all(self) -> u64 {
        self.tcp + self.others
    }
}

/// The end of a conversation that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenerVerdict {
    /// This end.
    Receives(FlowEnd),
    /// None of ours.
    Asks,
    /// Unknown: nothing that was seen decides it.
    Undecided,
}

fn verdict(flow: &Flow) -> OpenerVerdict {
    match flow.proto {
        TCP => of_handshake(flow),
        UDP | SCTP => of_ports(flow),
        _ => OpenerVerdict::Asks,
    }
}

/// TCP tells the end that was asked by its flags.
fn of_handshake(flow: &Flow) -> OpenerVerdict {
    let Some(opener) = flow.opener else { return OpenerVerdict::Undecided };
    let end = asked(flow, opener);
    let OpenerVerdict::Receives(end) = end else { return end };
    let [local, remote] = flow.tcp_flags;
    let answer = if end == FlowEnd::Local { local } else { remote };
    if answer & SYN != 0 {
        return OpenerVerdict::Receives(end);
    }
    // Sampling may have left out the one packet that accepts.
    match flow.variance > 0 {
        true if answer == 0 => OpenerVerdict::Undecided,
        true if answer & (ACK | RST) == ACK => OpenerVerdict::Receives(end),
        _ => OpenerVerdict::Asks,
    }
}

/// UDP does not tell who began, and the first packet that is seen is rarely the first one: most
/// conversations go on when a capture begins. But servers have ports of services, and clients get others.
fn of_ports(flow: &Flow) -> OpenerVerdict {
    let (local, remote) = (flow.local.port, flow.remote.port);
    let class = |port| match port {
        ..SYSTEM_PORTS => 0,
        SYSTEM_PORTS..EPHEMERAL_PORTS => 1,
        EPHEMERAL_PORTS.. => 2,
    };
    match class(local).cmp(&class(remote)) {
        Ordering::Less => asked(flow, FlowEnd::Remote),
        Ordering::Greater => asked(flow, FlowEnd::Local),
        // Both ends of such protocols listen, as those of NTP and BFD do.
        Ordering::Equal if local == remote && local < EPHEMERAL_PORTS => {
            asked(flow, FlowEnd::Remote)
        }
        Ordering::Equal => OpenerVerdict::Undecided,
    }
}

/// What the end is that the other one asks.
fn asked(flow: &Flow, asking: FlowEnd) -> OpenerVerdict {
    match asking {
        FlowEnd::Remote => OpenerVerdict::Receives(FlowEnd::Local),
        // In a file without directions either end may be ours.
        FlowEnd::Local if is_undirected(flow) => OpenerVerdict::Receives(FlowEnd::Remote),
        FlowEnd::Local => OpenerVerdict::Asks,
    }
}

fn is_undirected(flow: &Flow) -> bool {
    flow.rx == SenderCounts::default() && flow.tx == SenderCounts::default()
}

/// What one line is of: app, protocol, local end, VLANs, tunnel.
type ListeningKey = (u16, u8, FlowEndpoint, [[u16; 2]; 2], Option<Tunnel>);

fn key(flow: &Flow, local: FlowEndpoint) -> ListeningKey {
    (flow.app, flow.proto, local, [flow.vlans, flow.inner_vlans], flow.tunnel)
}

/// All ports that receive.
pub(super) fn all<'a>(
    args: &Args,
    data: &ReportData,
    snapshot: &'a FlowSnapshot,
) -> ListeningPorts<'a> {
    let mut found = BTreeMap::new();
    let mut open = Vec::new();
    for flow in snapshot.flows.iter().filter(|flow| data.shows(args, snapshot, flow)) {
        match verdict(flow) {
            OpenerVerdict::Receives(end) => add(&mut found, snapshot, flow, end, false),
            OpenerVerdict::Asks => {}
            OpenerVerdict::Undecided => open.push(flow),
        }
    }
    let mut undecided = UndecidedCounts::default();
    let popular = popular(&open);
    for flow in open {
        let serves = candidates(flow).find(|(_, end, _)| {
            let key = key(flow, *end);
            found.contains_key(&key) || popular.contains(&key)
        });
        match serves {
            _ if flow.proto == TCP => undecided.tcp += 1,
            Some((end, ..)) => add(&mut found, snapshot, flow, end, true),
            None => undecided.others += 1,
        }
    }
    let mut ports = found.into_values().collect::<Vec<_>>();
    ports.sort_by_key(|listener| std::cmp::Reverse(listener.rx.packets));
    ListeningPorts { ports, undecided }
}

/// The ends of a conversation that may be ours, each with the other one.
fn candidates(flow: &Flow) -> impl Iterator<Item = (FlowEnd, FlowEndpoint, FlowEndpoint)> + use<> {
    let remote = is_undirected(flow).then_some((FlowEnd::Remote, flow.remote, flow.local));
    std::iter::once((FlowEnd::Local, flow.local, flow.remote)).chain(remote)
}

/// Local ports that received from several remote ends with several ports, of which none talks to as
/// many local ports. Those who ask have it the other way round: many ports of theirs, one of the other.
fn popular(flows: &[&Flow]) -> BTreeSet<ListeningKey> {
    let mut locals = BTreeMap::<ListeningKey, BTreeSet<FlowEndpoint>>::new();
    let mut remotes = BTreeMap::<ListeningKey, BTreeSet<FlowEndpoint>>::new();
    for flow in flows.iter().filter(|flow| flow.proto != TCP) {
        for (end, ours, other) in candidates(flow) {
            locals.entry(key(flow, other)).or_default().insert(ours);
            let received = match end {
                FlowEnd::Local => flow.rx.from_remote.plus(flow.unknown.from_remote),
                FlowEnd::Remote => flow.unknown.from_local,
            };
            if received.packets > 0 {
                remotes.entry(key(flow, ours)).or_default().insert(other);
            }
        }
    }
    remotes.retain(|&(app, proto, _, vlans, tunnel), ends| {
        let ports = ends.iter().map(|end| end.port).collect::<BTreeSet<_>>();
        let talks_to = |end: &FlowEndpoint| locals[&(app, proto, *end, vlans, tunnel)].len();
        ports.len() >= SEVERAL && ends.iter().all(|end| talks_to(end) < ends.len())
    });
    remotes.into_keys().collect()
}

/// Counts a conversation for the port that received.
fn add<'a>(
    found: &mut BTreeMap<ListeningKey, ListeningPort<'a>>,
    snapshot: &'a FlowSnapshot,
    flow: &Flow,
    end: FlowEnd,
    inferred: bool,
) {
    let swapped = end == FlowEnd::Remote;
    let (local, remote) =
        if swapped { (flow.remote, flow.local) } else { (flow.local, flow.remote) };
    let listener = found.entry(key(flow, local)).or_insert_with(|| ListeningPort {
        app: app_of(snapshot, flow.app),
        proto: conversation::protocol(flow.proto),
        local,
        names: None,
        wrapping: conversation::wrapping(flow),
        remotes: 0,
        conversations: 0,
        inferred,
        rx: PacketCounts::default(),
        tx: PacketCounts::default(),
        last_ns: 0,
        number: flow.proto,
        addresses: BTreeSet::new(),
    });
    let [mut from_local, mut from_remote] = ends(flow);
    if swapped {
        std::mem::swap(&mut from_local, &mut from_remote);
    }
    listener.conversations += 1;
    listener.addresses.insert(remote.addr);
    listener.remotes = listener.addresses.len();
    listener.rx = listener.rx.plus(from_remote);
    listener.tx = listener.tx.plus(from_local);
    listener.last_ns = listener.last_ns.max(flow.last_ns);
}

/// From the local and from the remote end. What an app forwards is received and sent: it counts once.
fn ends(flow: &Flow) -> [PacketCounts; 2] {
    let larger = |a: PacketCounts, b: PacketCounts| if a.packets >= b.packets { a } else { b };
    let of = |way: fn(&SenderCounts) -> PacketCounts| {
        larger(way(&flow.rx), way(&flow.tx)).plus(way(&flow.unknown))
    };
    [of(|ways| ways.from_local), of(|ways| ways.from_remote)]
}

/// The report.
pub(super) fn text(args: &Args, data: &ReportData, layout: &ReportLayout) -> String {
    let columns = vec![
        Column::text("App").drop_at(2),
        Column::text("Proto"),
        Column::text("Local").whole(),
        Column::text("VLAN/tunnel").drop_at(3),
        Column::number("Remotes"),
        Column::number("Conversations").drop_at(4),
        Column::number("RX-pkts"),
        Column::number("TX-pkts"),
        Column::number("RX-bytes").drop_at(5),
        Column::number("TX-bytes").drop_at(5),
        Column::number("Last").drop_at(6),
    ];
    let mut table = TextTable::new("Listeners", columns);
    let snapshot = data.counted();
    let ListeningPorts { ports, undecided } = all(args, data, &snapshot);
    let shown = layout.rows(ports.len());
    data.look_up(ports[..shown].iter().map(|listener| (listener.number, listener.local)));
    for listener in &ports[..shown] {
        let subject = Subject::App { app: listener.app.to_owned() };
        table.push(subject, false, listener.cells(data, &snapshot));
    }
    if snapshot.apps.len() < 2 {
        table.hide_column("App");
    }
    if ports.iter().all(|listener| listener.wrapping.is_empty()) {
        table.hide_column("VLAN/tunnel");
    }
    if shown < ports.len() {
        let more = plural((ports.len() - shown) as u64, "more port");
        table.notes.push(format!("{more} (--all shows all)"));
    }
    let inferred = ports.iter().filter(|listener| listener.inferred).count() as u64;
    table.notes.extend(inference(inferred));
    table.notes.extend(undecided.notes(snapshot.variance > 0));
    table.notes.push(conversations::total(data, &snapshot));
    table.notes.extend(data.caveats());
    layout.table(&table)
}

impl ListeningPort<'_> {
    fn cells(&self, data: &ReportData, snapshot: &FlowSnapshot) -> Vec<Cell> {
        let ago = snapshot.now_ns.saturating_sub(self.last_ns) as f64 / 1e9;
        vec![
            Cell::text(self.app),
            Cell::text(format::protocol(self.number, self.local.addr)),
            Cell::text(data.endpoint(self.number, self.local)),
            Cell::text(&self.wrapping),
            Cell::text(count(self.remotes as u64)),
            Cell::text(count(self.conversations)),
            Cell::text(count(self.rx.packets)),
            Cell::text(count(self.tx.packets)),
            Cell::text(bytes(self.rx.bytes)),
            Cell::text(bytes(self.tx.bytes)),
            Cell::text(seconds(ago)),
        ]
    }
}

/// A note about ports that are listed because of an inference.
fn inference(ports: u64) -> Option<String> {
    let ports = (ports > 0).then(|| plural(ports, "port"))?;
    Some(format!(
        "{ports} listed because of several remote ends: the ports do not tell which end serves"
    ))
}

impl UndecidedCounts {
    fn notes(self, sampled: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if self.tcp > 0 {
            let (why, cure) = if sampled {
                (" or was sampled", "use --sample 1 or a longer --for")
            } else {
                ("", "use a longer --for")
            };
            let running = plural(self.tcp, "TCP conversation");
            notes.push(format!("{running} started earlier{why}: listening end unknown; {cure}"));
        }
        if self.others > 0 {
            let others = plural(self.others, "UDP or SCTP conversation");
            notes.push(format!(
                "{others} undecided: neither the ports nor the number of remote ends tell which end serves"
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests;
