//! Reports as JSON.

use anyhow::Result;
use pmdscope_flows::{
    Flow, FlowEnd, FlowEndpoint, FlowPlace, FlowSnapshot, PacketCounts, ProtocolCounts,
    SenderCounts, TcpState, Tunnel, UnknownLink, UnlistedPackets, standard_error,
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

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NetstatDocument<'a> {
    #[cfg_attr(test, schemars(extend("const" = NETSTAT_SCHEMA)))]
    schema: u32,
    view: &'static str,
    #[serde(flatten)]
    packets: Option<PacketsJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Vec<ConversationJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listeners: Option<Vec<ListeningPort<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<&'a ProtocolCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Vec<QueueLoad>>,
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
    begin_ns: u64,
    now_ns: u64,
    interval_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    windows_s: Option<[f64; 3]>,
    apps: &'a [String],
    /// Current sampling interval N: one packet in N is examined; 1 means all.
    sample: u32,
    looked_at: u64,
    total: TotalJson,
    other: &'a UnlistedPackets,
    /// Packets in `other.unknown_link`, by link type.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unknown_links: &'a [UnknownLink],
    lost: u64,
    losses: &'a PacketLosses,
    /// Coverage of the sample of packets from the memory of apps; left out if there is no such app.
    #[serde(skip_serializing_if = "Option::is_none")]
    peek: Option<&'a PeekCoverage>,
    /// Apps that have ended, and have not come back.
    ended: &'a [String],
    conversations: usize,
    capacity: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TotalJson {
    #[serde(flatten)]
    counts: PacketCounts,
    /// Standard error of the number of packets.
    standard_error: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ConversationJson<'a> {
    app: &'a str,
    proto: String,
    proto_number: u8,
    vlans: Vec<u16>,
    tunnel: Option<Tunnel>,
    local: FlowEndpoint,
    remote: FlowEndpoint,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<NamesJson>,
    rx: SenderCounts,
    tx: SenderCounts,
    /// Packets of unknown direction.
    unknown: SenderCounts,
    #[serde(flatten)]
    counts: PacketCounts,
    standard_error: f64,
    pps: Option<f64>,
    bps: Option<f64>,
    /// Bits per second over the windows of `windows_s` (2, 10 and 40 s).
    #[serde(skip_serializing_if = "Option::is_none")]
    window_bps: Option<[f64; 3]>,
    state: Option<TcpState>,
    /// Bitwise OR of the TCP flags of all packets, from the local and from the remote end.
    tcp_flags: [u8; 2],
    opener: Option<FlowEnd>,
    first_ns: u64,
    last_ns: u64,
    rx_place: Option<FlowPlace>,
    tx_place: Option<FlowPlace>,
}

/// Names of both ends, `null` if unknown.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NamesJson {
    local: EndNames,
    remote: EndNames,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EndNames {
    host: Option<String>,
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
    let mut listeners = shows(ReportView::Listen).then(|| listen::all(args, snapshot));
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
        vlans: flow.vlans.iter().copied().filter(|id| *id > 0).collect(),
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

#[cfg(test)]
mod tests;
