//! Reports as JSON.

use anyhow::Result;
use pmdscope_flows::{
    Flow, FlowEnd, FlowEndpoint, FlowPlace, FlowSnapshot, IcmpKind, OtherEtherType, PacketCounts,
    ProtocolCounts, SenderCounts, TcpState, Tunnel, UnknownLink, UnlistedPackets, standard_error,
};
use pmdscope_render::conversation;
use serde::Serialize;

use super::args::{Args, ReportView};
use super::interfaces::InterfaceRow;
use super::listen::ListeningPort;
use super::queues::QueueLoad;
use super::report_data::{PacketLosses, ReportData, app_of};
use super::resolver::NameResolver;
use super::{conversations, interfaces, listen, queues};
use crate::attach::peek::PeekCoverage;
use crate::output;

/// Version of the JSON; raised when a field changes its meaning.
const NETSTAT_SCHEMA: u32 = 1;

/// Output of `netstat --json`; with `-c`, one document per interval.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NetstatDocument<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = NETSTAT_SCHEMA)))]
    schema: u32,
    /// View: `conversations`, `interfaces`, `statistics`, `queues` or `listen`.
    view: &'static str,
    #[serde(flatten)]
    packets: Option<PacketsJson<'a>>,
    /// Conversations, in the order of `--sort`, limited by `-N`; only in the view `conversations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Vec<ConversationJson<'a>>>,
    /// Listening ports, those with most received packets first; only in the view `listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    listeners: Option<Vec<ListeningPort<'a>>>,
    /// Number of conversations of which nothing tells the end that listens; only in the view `listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<u64>,
    /// Packets by protocol; only in the view `statistics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<&'a ProtocolCounts>,
    /// Packets by queue; only in the view `queues`.
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Vec<QueueLoad>>,
    /// Counters of ports; only in the views `interfaces` and `statistics`, and not for capture files.
    #[serde(skip_serializing_if = "Option::is_none")]
    interfaces: Option<Vec<InterfaceRow<'a>>>,
    /// Apps that did not answer, or only in part, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trouble: Vec<String>,
}

/// Counts of packets, and how complete they are.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PacketsJson<'a> {
    /// Wall clock of the start of counting, or of the earliest packet, nanoseconds since 1970; 0 before
    /// either.
    begin_ns: u64,
    /// Wall clock of the counts, nanoseconds since 1970; for a file, of its last packet or of the statistics
    /// after it.
    now_ns: u64,
    /// Length of the last interval, seconds; with `-c`, rates cover it. 0 before there was one: rates then
    /// cover the whole time.
    interval_s: f64,
    /// Lengths of the windows of `window_bps`, seconds: 2, 10 and 40, or less until so much time has passed;
    /// only with `-c` in the view `conversations`, after the first window has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows_s: Option<[f64; 3]>,
    /// Names of the apps; for files of other tools, names of the interfaces.
    apps: &'a [String],
    /// Current sampling interval N: one packet in N is examined; 1 means all.
    sample: u32,
    /// Number of packets that were examined, without those that sampling left out.
    looked_at: u64,
    /// All packets: the sum of all conversations and `other`.
    total: TotalJson,
    /// Packets that belong to no conversation in the table.
    other: &'a UnlistedPackets,
    /// Packets in `other.unknown_link`, by link type.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unknown_links: &'a [UnknownLink],
    /// Packets in `other.not_ip`, by ethertype: the first 32 ethertypes; left out if there are none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    other_ether_types: &'a [OtherEtherType],
    /// Lost packets, which are in none of the counts.
    lost: u64,
    /// Packets that are missing from the counts, by reason.
    losses: &'a PacketLosses,
    /// Coverage of the sample of packets from the memory of apps; left out if there is no such app.
    #[serde(skip_serializing_if = "Option::is_none")]
    peek: Option<&'a PeekCoverage>,
    /// Apps that have ended, and have not come back.
    ended: &'a [String],
    /// Number of conversations in the table.
    conversations: usize,
    /// Maximum number of conversations in the table.
    capacity: usize,
}

/// Number of packets and bytes since the start of counting; estimates if packets were sampled.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TotalJson {
    #[serde(flatten)]
    counts: PacketCounts,
    /// Standard error of the number of packets.
    standard_error: f64,
}

/// A conversation, with its packets since `first_ns`; estimates if packets were sampled.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ConversationJson<'a> {
    /// Name of the app; for files of other tools, name of the interface.
    app: &'a str,
    /// Name of the protocol of the innermost header, such as `tcp`; its number if it has no known name.
    proto: String,
    /// IP protocol number of the innermost header.
    proto_number: u8,
    /// VLAN ids, outermost first, at most three; empty if there are none.
    vlans: Vec<u16>,
    /// Those of `vlans` that are inside the tunnel; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inner_vlans: Vec<u16>,
    /// Outermost tunnel of a known type; `None` if there is none.
    tunnel: Option<Tunnel>,
    /// Kind of ICMP messages; left out if it is not ICMP.
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp: Option<IcmpKind>,
    /// Number of ICMP errors about packets of the conversation, which are in its counts; left out if there
    /// are none.
    #[serde(skip_serializing_if = "is_zero")]
    icmp_errors: u64,
    /// The end on the side of the app: the receiver of the first packet if the app received it, otherwise the
    /// sender; also the sender if the direction is unknown, as in a plain pcap file.
    local: FlowEndpoint,
    /// The other end.
    remote: FlowEndpoint,
    /// Names of both ends; only with `--resolve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<NamesJson>,
    /// Packets received by the app.
    rx: SenderCounts,
    /// Packets sent by the app.
    tx: SenderCounts,
    /// Packets of unknown direction.
    unknown: SenderCounts,
    #[serde(flatten)]
    counts: PacketCounts,
    /// Standard error of the number of packets; 0 if every packet was seen.
    standard_error: f64,
    /// Packets per second in both directions, with `-c` over the last interval, otherwise over the whole
    /// time; `None` if no time has passed.
    pps: Option<f64>,
    /// Bits per second in both directions, with `-c` over the last interval, otherwise over the whole time;
    /// `None` if no time has passed.
    bps: Option<f64>,
    /// Bits per second over the windows of `windows_s` (2, 10 and 40 s).
    #[serde(skip_serializing_if = "Option::is_none")]
    window_bps: Option<[f64; 3]>,
    /// State of the TCP connection; `None` if it is not TCP, or if no packet has shown the state.
    state: Option<TcpState>,
    /// Bitwise OR of the TCP flags of all packets, from the local and from the remote end.
    tcp_flags: [u8; 2],
    /// The end that opened the conversation: for TCP, the sender of the SYN; otherwise, of the first packet.
    /// `None` if unknown.
    opener: Option<FlowEnd>,
    /// Wall clock of the first packet, nanoseconds since 1970.
    first_ns: u64,
    /// Wall clock of the last packet, nanoseconds since 1970.
    last_ns: u64,
    /// Place where packets were last received; `None` if none was received.
    rx_place: Option<FlowPlace>,
    /// Place where packets were last sent; `None` if none was sent.
    tx_place: Option<FlowPlace>,
}

/// Names of both ends, `null` if unknown.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NamesJson {
    /// Names of the local end.
    local: EndNames,
    /// Names of the remote end.
    remote: EndNames,
}

/// Names of one end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EndNames {
    /// Name of the host; `None` if unknown.
    host: Option<String>,
    /// Name of the service, by its protocol and port; `None` if unknown.
    service: Option<String>,
}

impl EndNames {
    fn of(names: &NameResolver, protocol: u8, end: FlowEndpoint) -> Self {
        Self { host: names.host(end), service: names.service(protocol, end) }
    }
}

impl NamesJson {
    fn of(names: &NameResolver, flow: &Flow) -> Self {
        let [local, remote] =
            [flow.local, flow.remote].map(|end| EndNames::of(names, flow.proto, end));
        Self { local, remote }
    }
}

/// Prints a report as one line; false when the output is closed.
pub(super) fn print(args: &Args, data: &ReportData) -> Result<bool> {
    let snapshot = data.counted();
    output::print_json(&document(args, data, &snapshot))
}

fn document<'a>(
    args: &Args,
    data: &'a ReportData,
    snapshot: &'a FlowSnapshot,
) -> NetstatDocument<'a> {
    let view = args.view();
    let shows = |wanted: ReportView| view == wanted;
    let flows = || {
        let chosen = conversations::chosen(args, data, snapshot);
        let rows = args.rows().unwrap_or(usize::MAX).min(chosen.len());
        data.look_up(chosen[..rows].iter().flat_map(|flow| conversations::ends(flow)));
        let flows = chosen[..rows].iter();
        flows.map(|flow| conversation(data, snapshot, flow)).collect()
    };
    let counters = data.counters.as_ref();
    let mut listeners = shows(ReportView::Listen).then(|| listen::all(args, data, snapshot));
    if let Some((all, rows)) = listeners.as_mut().zip(args.rows()) {
        all.ports.truncate(rows);
    }
    if let Some((all, names)) = listeners.as_mut().zip(data.names.as_ref()) {
        data.look_up(all.ports.iter().map(|listener| (listener.number, listener.local)));
        for listener in &mut all.ports {
            listener.names = Some(EndNames::of(names, listener.number, listener.local));
        }
    }
    let ports = counters.filter(|_| shows(ReportView::Interfaces) || shows(ReportView::Statistics));
    NetstatDocument {
        schema: NETSTAT_SCHEMA,
        view: name(view),
        packets: data.snapshot.as_ref().map(|_| packets(data, snapshot)),
        flows: shows(ReportView::Conversations).then(flows),
        undecided: listeners.as_ref().map(|all| all.undecided.all()),
        listeners: listeners.map(|all| all.ports),
        protocols: shows(ReportView::Statistics).then_some(&snapshot.protocols),
        queues: shows(ReportView::Queues).then(|| queues::all(args, data)),
        interfaces: ports.map(interfaces::all),
        trouble: counters.map(super::report_data::AppCounters::silent).unwrap_or_default(),
    }
}

fn name(view: ReportView) -> &'static str {
    match view {
        ReportView::Conversations => "conversations",
        ReportView::Interfaces => "interfaces",
        ReportView::Statistics => "statistics",
        ReportView::Queues => "queues",
        ReportView::Listen => "listen",
    }
}

fn packets<'a>(data: &'a ReportData, snapshot: &'a FlowSnapshot) -> PacketsJson<'a> {
    PacketsJson {
        begin_ns: snapshot.begin_ns,
        now_ns: snapshot.now_ns,
        interval_s: snapshot.interval_s,
        windows_s: snapshot.windows_s,
        apps: &snapshot.apps,
        sample: snapshot.sample,
        looked_at: snapshot.looked_at,
        total: TotalJson {
            counts: snapshot.total,
            standard_error: standard_error(snapshot.variance),
        },
        other: &snapshot.other,
        unknown_links: &snapshot.unknown_links,
        other_ether_types: &snapshot.other_ether_types,
        lost: data.lost(),
        losses: &data.losses,
        peek: data.peek.as_ref(),
        ended: &data.ended,
        conversations: snapshot.flows.len(),
        capacity: snapshot.capacity,
    }
}

fn conversation<'a>(
    data: &ReportData,
    snapshot: &'a FlowSnapshot,
    flow: &Flow,
) -> ConversationJson<'a> {
    let speed = data.flow_speed(snapshot, flow);
    ConversationJson {
        app: app_of(snapshot, flow.app),
        proto: conversation::protocol(flow.proto),
        proto_number: flow.proto,
        vlans: vlans([flow.vlans, flow.inner_vlans].as_flattened()),
        inner_vlans: vlans(&flow.inner_vlans),
        icmp: flow.icmp,
        icmp_errors: flow.icmp_errors,
        tunnel: flow.tunnel,
        local: flow.local,
        remote: flow.remote,
        names: data.names.as_ref().map(|names| NamesJson::of(names, flow)),
        rx: flow.rx,
        tx: flow.tx,
        unknown: flow.unknown,
        counts: flow.total(),
        standard_error: standard_error(flow.variance),
        pps: speed.map(|speed| speed.pps),
        bps: speed.map(|speed| speed.bps),
        window_bps: conversation::window_bps(snapshot, flow),
        state: Some(flow.state).filter(|state| *state != TcpState::None),
        tcp_flags: flow.tcp_flags,
        opener: flow.opener,
        first_ns: flow.first_ns,
        last_ns: flow.last_ns,
        rx_place: flow.rx_place,
        tx_place: flow.tx_place,
    }
}

fn vlans(ids: &[u16]) -> Vec<u16> {
    ids.iter().copied().filter(|id| *id > 0).collect()
}

/// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
