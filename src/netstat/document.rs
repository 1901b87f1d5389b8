//! Reports as JSON.

use anyhow::Result;
use pmdscope_flows::{
    Flow, FlowEnd, FlowEndpoint, FlowPlace, FlowSnapshot, PacketCounts, ProtocolCounts,
    SenderCounts, TcpState, Tunnel, UnlistedPackets, standard_error,
};
use pmdscope_render::conversation;
use serde::Serialize;

use super::args::{Args, View};
use super::interfaces::Interface;
use super::listen::Listener;
use super::moment::{Losses, Moment, app_of};
use super::queues::Load;
use super::{conversations, interfaces, listen, queues};
use crate::output;

/// Version of the JSON; raised when a field changes its meaning.
const NETSTAT_SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    view: &'static str,
    #[serde(flatten)]
    packets: Option<Packets<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Vec<Conversation<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listeners: Option<Vec<Listener<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<&'a ProtocolCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Vec<Load>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interfaces: Option<Vec<Interface<'a>>>,
    /// Apps that could not be asked, or not all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trouble: Vec<String>,
}

/// What was counted, and how well.
#[derive(Debug, Serialize)]
struct Packets<'a> {
    begin_ns: u64,
    now_ns: u64,
    interval_s: f64,
    apps: &'a [String],
    /// One packet in so many is looked at now.
    sample: u32,
    looked_at: u64,
    total: Total,
    other: &'a UnlistedPackets,
    lost: u64,
    losses: &'a Losses,
    /// Apps that have ended.
    ended: &'a [String],
    conversations: usize,
    capacity: usize,
}

#[derive(Debug, Serialize)]
struct Total {
    #[serde(flatten)]
    counts: PacketCounts,
    /// Of the packets.
    standard_error: f64,
}

#[derive(Debug, Serialize)]
struct Conversation<'a> {
    app: &'a str,
    proto: String,
    proto_number: u8,
    vlans: Vec<u16>,
    tunnel: Option<Tunnel>,
    local: FlowEndpoint,
    remote: FlowEndpoint,
    rx: SenderCounts,
    tx: SenderCounts,
    /// Of unknown direction.
    unknown: SenderCounts,
    #[serde(flatten)]
    counts: PacketCounts,
    standard_error: f64,
    pps: Option<f64>,
    bps: Option<f64>,
    state: Option<TcpState>,
    /// Of the local and of the remote end.
    tcp_flags: [u8; 2],
    opener: Option<FlowEnd>,
    first_ns: u64,
    last_ns: u64,
    rx_place: Option<FlowPlace>,
    tx_place: Option<FlowPlace>,
}

/// Prints a moment as one line; false when nobody reads any more.
pub(super) fn print(args: &Args, moment: &Moment) -> Result<bool> {
    let snapshot = moment.counted();
    output::print_json(&document(args, moment, &snapshot))
}

fn document<'a>(args: &Args, moment: &'a Moment, snapshot: &'a FlowSnapshot) -> Document<'a> {
    let view = args.view();
    let shows = |wanted: View| view == wanted;
    let flows = || {
        let chosen = conversations::chosen(args, moment, snapshot);
        let flows = chosen.into_iter().take(args.rows().unwrap_or(usize::MAX));
        flows.map(|flow| conversation(moment, snapshot, flow)).collect()
    };
    let counters = moment.counters.as_ref();
    let listeners = shows(View::Listen).then(|| listen::all(args, snapshot));
    let ports = counters.filter(|_| shows(View::Interfaces) || shows(View::Statistics));
    Document {
        schema: NETSTAT_SCHEMA,
        view: name(view),
        packets: moment.snapshot.as_ref().map(|_| packets(moment, snapshot)),
        flows: shows(View::Conversations).then(flows),
        undecided: listeners.as_ref().map(|all| all.undecided.all()),
        listeners: listeners.map(|all| all.ports),
        protocols: shows(View::Statistics).then_some(&snapshot.protocols),
        queues: shows(View::Queues).then(|| queues::all(args, moment)),
        interfaces: ports.map(interfaces::all),
        trouble: counters.map(super::moment::Counters::silent).unwrap_or_default(),
    }
}

fn name(view: View) -> &'static str {
    match view {
        View::Conversations => "conversations",
        View::Interfaces => "interfaces",
        View::Statistics => "statistics",
        View::Queues => "queues",
        View::Listen => "listen",
    }
}

fn packets<'a>(moment: &'a Moment, snapshot: &'a FlowSnapshot) -> Packets<'a> {
    Packets {
        begin_ns: snapshot.begin_ns,
        now_ns: snapshot.now_ns,
        interval_s: snapshot.interval_s,
        apps: &snapshot.apps,
        sample: snapshot.sample,
        looked_at: snapshot.looked_at,
        total: Total { counts: snapshot.total, standard_error: standard_error(snapshot.variance) },
        other: &snapshot.other,
        lost: moment.lost(),
        losses: &moment.losses,
        ended: &moment.ended,
        conversations: snapshot.flows.len(),
        capacity: snapshot.capacity,
    }
}

fn conversation<'a>(moment: &Moment, snapshot: &'a FlowSnapshot, flow: &Flow) -> Conversation<'a> {
    let speed = moment.flow_speed(snapshot, flow);
    Conversation {
        app: app_of(snapshot, flow.app),
        proto: conversation::protocol(flow.proto),
        proto_number: flow.proto,
        vlans: flow.vlans.iter().copied().filter(|id| *id > 0).collect(),
        tunnel: flow.tunnel,
        local: flow.local,
        remote: flow.remote,
        rx: flow.rx,
        tx: flow.tx,
        unknown: flow.unknown,
        counts: flow.total(),
        standard_error: standard_error(flow.variance),
        pps: speed.map(|speed| speed.pps),
        bps: speed.map(|speed| speed.bps),
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
