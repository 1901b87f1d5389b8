//! Counts by protocol and by queue.

use std::collections::HashMap;

use pmdscope_packets::{Packet, link_type_name};

use crate::dissect::{
    ARP, ESP, FragmentKind, GRE, ICMP, ICMP6, IpFields, NetworkLayer, PacketLayers, SCTP, TCP,
    TcpFields, UDP,
};
use crate::tcp::{ACK, FIN, RST, SYN};
use crate::{PacketCounts, ProtocolCounts, QueueCounts, UnknownLink};

#[inline]
fn add(sum: &mut PacketCounts, counts: PacketCounts) {
    *sum = sum.plus(counts);
}

impl ProtocolCounts {
    #[inline]
    pub(super) fn count(&mut self, layers: &PacketLayers, counts: PacketCounts) {
        if layers.tags.any {
            add(&mut self.vlan_tagged, counts);
        }
        if layers.tunnel.is_some() {
            add(&mut self.tunnelled, counts);
        }
        match &layers.net {
            NetworkLayer::Ip(ip) => self.count_ip(ip, counts),
            NetworkLayer::Other(ARP) => add(&mut self.arp, counts),
            NetworkLayer::Other(_) => add(&mut self.other_ethertypes, counts),
            NetworkLayer::Unreadable | NetworkLayer::UnknownLink => {}
        }
    }

    #[inline]
    fn count_ip(&mut self, ip: &IpFields, counts: PacketCounts) {
        let fragment = ip.fragment != FragmentKind::Whole;
        if ip.v6 {
            add(&mut self.ipv6, counts);
            if fragment {
                add(&mut self.ipv6_fragments, counts);
            }
        } else {
            add(&mut self.ipv4, counts);
            if fragment {
                add(&mut self.ipv4_fragments, counts);
            }
            if ip.options {
                add(&mut self.ipv4_options, counts);
            }
        }
        let protocol = match ip.protocol {
            TCP => &mut self.tcp,
            UDP => &mut self.udp,
            SCTP => &mut self.sctp,
            ICMP => &mut self.icmp,
            ICMP6 => &mut self.icmp6,
            GRE => &mut self.gre,
            ESP => &mut self.esp,
            _ => &mut self.other_protocols,
        };
        add(protocol, counts);
        if let Some(tcp) = ip.tcp {
            self.count_tcp(tcp, counts.packets);
        }
        if let Some(icmp) = ip.icmp {
            self.count_icmp(ip.protocol, icmp.kind, counts.packets);
        }
    }

    #[inline]
    fn count_tcp(&mut self, tcp: TcpFields, packets: u64) {
        let TcpFields { flags, window, .. } = tcp;
        if flags & (SYN | FIN | RST) == 0 {
            self.tcp_zero_window += if window == 0 { packets } else { 0 };
            return;
        }
        match flags & (SYN | ACK) {
            SYN => self.tcp_syn += packets,
            both if both & SYN != 0 => self.tcp_syn_ack += packets,
            _ => {}
        }
        self.tcp_fin += if flags & FIN != 0 { packets } else { 0 };
        self.tcp_rst += if flags & RST != 0 { packets } else { 0 };
    }

    fn count_icmp(&mut self, protocol: u8, kind: u8, packets: u64) {
        match (protocol, kind) {
            (ICMP, 8) | (ICMP6, 128) => self.icmp_echo_requests += packets,
            (ICMP, 0) | (ICMP6, 129) => self.icmp_echo_replies += packets,
            (ICMP, 3) | (ICMP6, 1) => self.icmp_unreachable += packets,
            (ICMP, 11) | (ICMP6, 3) => self.icmp_time_exceeded += packets,
            _ => {}
        }
    }
}

/// Adds a packet to the counts of its link type.
pub(super) fn count_unknown_link(
    links: &mut Vec<UnknownLink>,
    link_type: u16,
    counts: PacketCounts,
) {
    if let Some(link) = links.iter_mut().find(|link| link.link_type == link_type) {
        add(&mut link.counts, counts);
    } else {
        links.push(UnknownLink { link_type, name: link_type_name(link_type), counts });
    }
}

/// Most queues that are counted separately; packets of further queues count for their port alone.
const MAX_QUEUES: usize = 4096;

/// Queues of all ports, in the order of their first packet.
#[derive(Debug, Default)]
pub(super) struct QueueTable {
    all: Vec<QueueCounts>,
    places: HashMap<QueueId, usize>,
    /// Counts at the start of the previous interval, and of the current one.
    marks: Vec<[PacketCounts; 2]>,
    /// The queue of the previous packet: packets come in bursts.
    last: Option<(QueueId, usize)>,
}

/// App, port, direction and queue.
type QueueId = (u16, u16, u8, Option<u16>);

impl QueueTable {
    #[inline]
    pub(super) fn count(&mut self, app: u16, port: u16, packet: &Packet<'_>, counts: PacketCounts) {
        let wanted = (app, port, packet.dir, packet.queue);
        let at = match self.last {
            Some((id, at)) if id == wanted => at,
            _ => self.find(wanted),
        };
        self.last = Some((wanted, at));
        let queue = &mut self.all[at];
        queue.lcore = packet.lcore;
        queue.total = queue.total.plus(counts);
    }

    fn find(&mut self, wanted: QueueId) -> usize {
        let (app, port, dir, _) = wanted;
        let full = self.all.len() >= MAX_QUEUES && !self.places.contains_key(&wanted);
        let id = if full { (app, port, dir, None) } else { wanted };
        let next = self.all.len();
        let at = *self.places.entry(id).or_insert(next);
        if at == next {
            let (total, recent) = Default::default();
            self.all.push(QueueCounts { app, port, dir, queue: id.3, lcore: None, total, recent });
            self.marks.push(Default::default());
        }
        at
    }

    pub(super) fn mark(&mut self) {
        for (marks, queue) in self.marks.iter_mut().zip(&self.all) {
            *marks = [marks[1], queue.total];
        }
    }

    /// Returns the counts of all queues for a snapshot.
    pub(super) fn snapshot(&self) -> Vec<QueueCounts> {
        let queues = self.all.iter().zip(&self.marks);
        let recent = |(queue, [older, _]): (&QueueCounts, &[PacketCounts; 2])| QueueCounts {
            recent: queue.total.minus(*older),
            ..*queue
        };
        queues.map(recent).collect()
    }
}
