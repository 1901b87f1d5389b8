//! Data records of a conversation: one for each direction and sender.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::template::TemplateShape;
use crate::listener::FlowEndReason;
use crate::{Flow, FlowPlace, PacketCounts, SenderCounts, Tunnel};

/// Interface numbers per app: those of the first app begin at this number.
const PORTS: u16 = 1000;

/// Type VXLAN of a layer 2 segment, in the first byte of its identifier.
const VXLAN: u64 = 1 << 56;

/// Direction of packets, as seen by the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowDirection {
    Received,
    Sent,
    Unknown,
}

/// Packets of one conversation with the same sender and direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowRecord<'a> {
    flow: &'a Flow,
    direction: FlowDirection,
    by_local: bool,
    counts: PacketCounts,
    reason: FlowEndReason,
}

/// The outer addresses of the packets of one sender, of its end first.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelOption {
    /// The flow id of the records.
    pub(super) id: u64,
    pub(super) ends: [IpAddr; 2],
}

impl TunnelOption {
    /// Appends the option in the format of [`super::template::tunnels`].
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let [source, destination] = self.ends;
        out.extend_from_slice(&self.id.to_be_bytes());
        addresses(source, destination, out);
    }
}

impl<'a> FlowRecord<'a> {
    /// Returns the records of a conversation that have packets.
    pub(super) fn all(flow: &'a Flow, reason: FlowEndReason) -> impl Iterator<Item = Self> {
        let ways = [
            (FlowDirection::Received, flow.rx),
            (FlowDirection::Sent, flow.tx),
            (FlowDirection::Unknown, flow.unknown),
        ];
        let senders = |(direction, SenderCounts { from_local, from_remote })| {
            [(direction, true, from_local), (direction, false, from_remote)]
        };
        ways.into_iter().flat_map(senders).filter(|(.., counts)| counts.packets > 0).map(
            move |(direction, by_local, counts)| Self { flow, direction, by_local, counts, reason },
        )
    }

    pub(super) fn shape(&self) -> TemplateShape {
        TemplateShape {
            ipv6: self.flow.local.addr.is_ipv6(),
            directed: self.direction != FlowDirection::Unknown,
            tunnelled: self.flow.tunnel_ends.is_some(),
        }
    }

    /// Returns the tunnel of the record, if it has ends.
    pub(super) fn tunnel(&self) -> Option<TunnelOption> {
        let [local, remote] = self.flow.tunnel_ends?;
        let ends = if self.by_local { [local, remote] } else { [remote, local] };
        Some(TunnelOption { id: self.id(), ends })
    }

    /// Returns the id of the packets of one sender of the conversation: the same in all of its records.
    fn id(&self) -> u64 {
        let Flow { app, proto, vlans, inner_vlans, icmp, tunnel, local, remote, .. } = self.flow;
        let mut hasher = DefaultHasher::new();
        (app, proto, vlans, inner_vlans, icmp).hash(&mut hasher);
        (tunnel, local, remote, self.by_local).hash(&mut hasher);
        hasher.finish()
    }

    /// Divides the counts, which the collector multiplies again; returns false if they were rounded.
    pub(super) fn divide(&mut self, by: u32) -> bool {
        let by = u64::from(by.max(1));
        let PacketCounts { packets, bytes } = self.counts;
        let nearest = |count: u64| count.saturating_add(by / 2) / by;
        self.counts = PacketCounts { packets: nearest(packets).max(1), bytes: nearest(bytes) };
        packets.is_multiple_of(by) && bytes.is_multiple_of(by)
    }

    /// Appends the record in the format of its template.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let flow = self.flow;
        let (from, to, flags) = if self.by_local {
            (flow.local, flow.remote, flow.tcp_flags[0])
        } else {
            (flow.remote, flow.local, flow.tcp_flags[1])
        };
        addresses(from.addr, to.addr, out);
        out.extend_from_slice(&from.port.to_be_bytes());
        // As other exporters do, since ICMP has no ports.
        let icmp = flow.icmp.map(|icmp| u16::from_be_bytes([icmp.kind, icmp.code]));
        out.extend_from_slice(&icmp.unwrap_or(to.port).to_be_bytes());
        out.push(flow.proto);
        out.extend_from_slice(&u16::from(flags).to_be_bytes());
        flow.outer_vlans().iter().for_each(|vlan| out.extend_from_slice(&vlan.to_be_bytes()));
        out.extend_from_slice(&segment(flow.tunnel).to_be_bytes());
        let [ingress, egress] = interfaces(flow, self.direction);
        out.extend_from_slice(&ingress.to_be_bytes());
        out.extend_from_slice(&egress.to_be_bytes());
        out.extend_from_slice(&self.counts.packets.to_be_bytes());
        out.extend_from_slice(&self.counts.bytes.to_be_bytes());
        // The clock may have been set back between the first and the last packet.
        for ns in [flow.first_ns.min(flow.last_ns), flow.first_ns.max(flow.last_ns)] {
            out.extend_from_slice(&(ns / 1_000_000).to_be_bytes());
        }
        out.push(self.reason as u8);
        match self.direction {
            FlowDirection::Received => out.push(0),
            FlowDirection::Sent => out.push(1),
            FlowDirection::Unknown => {}
        }
        if flow.tunnel_ends.is_some() {
            out.extend_from_slice(&self.id().to_be_bytes());
        }
    }
}

fn addresses(from: IpAddr, to: IpAddr, out: &mut Vec<u8>) {
    for address in [from, to] {
        match address {
            IpAddr::V4(addr) => out.extend_from_slice(&addr.octets()),
            IpAddr::V6(addr) => out.extend_from_slice(&addr.octets()),
        }
    }
}

/// Returns the layer 2 segment identifier. Only VXLAN has one that collectors know.
fn segment(tunnel: Option<Tunnel>) -> u64 {
    match tunnel {
        Some(Tunnel::Vxlan(id) | Tunnel::VxlanGpe(id)) => VXLAN | u64::from(id),
        _ => 0,
    }
}

/// Returns the numbers of the ingress and egress interfaces; 0 if there is none.
fn interfaces(flow: &Flow, direction: FlowDirection) -> [u32; 2] {
    let number = |place: Option<FlowPlace>| place.and_then(|place| interface(flow.app, place.port));
    let (rx, tx) = (number(flow.rx_place).unwrap_or(0), number(flow.tx_place).unwrap_or(0));
    match direction {
        FlowDirection::Received => [rx, 0],
        FlowDirection::Sent => [0, tx],
        FlowDirection::Unknown => [rx, tx],
    }
}

/// Returns the interface number of an app's port; `None` for ports beyond the numbers of the app.
pub(super) fn interface(app: u16, port: u16) -> Option<u32> {
    (port < PORTS).then(|| (u32::from(app) + 1) * u32::from(PORTS) + u32::from(port))
}
