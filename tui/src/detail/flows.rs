//! Details of captured packets: of an app, of a conversation, of a queue.

use pmdscope_flows::{
    Flow, FlowEnd, FlowPlace, FlowSnapshot, PacketCounts, ProtocolCounts, QueueCounts,
    SenderCounts, standard_error,
};
use pmdscope_render::conversation::{
    TrafficRate, WINDOW_TITLES, endpoint, flags, flow_state, protocol, rx_speed, speed, tx_speed,
    window_bps, wrapping,
};
use pmdscope_render::number::{UNKNOWN, count, known, percent, seconds, si};
use pmdscope_render::{ConversationKey, Subject, Tone};

use super::DetailPage;
use crate::clock::time_of_day;
use crate::flows::{AppTraffic, CaptureAccess};
use crate::tables::flows::{other, part_of_port};

/// Conversations named as the load of a queue.
const LOADS: usize = 5;

impl DetailPage<'_> {
    /// `None` when it does not exist, or no longer.
    pub(super) fn captured(&mut self, subject: &Subject) -> Option<()> {
        let flows = self.view.flows.clone();
        let tap = flows.shown().ok()?.find(subject.app())?;
        match subject {
            Subject::Tap { .. } => self.tap(tap),
            Subject::Conversation { key, .. } => {
                let flow =
                    tap.counted.flows.iter().find(|flow| ConversationKey::of(flow) == *key)?;
                self.conversation(&tap.counted, flow);
            }
            Subject::Load { port, dir, queue, .. } => {
                let same = |q: &&QueueCounts| (q.port, q.dir, q.queue) == (*port, *dir, *queue);
                self.load(&tap.counted, tap.counted.queues.iter().find(same)?);
            }
            _ => return None,
        }
        Some(())
    }

    fn tap(&mut self, tap: &AppTraffic) {
        self.field(
            "capture",
            match &tap.access {
                CaptureAccess::Opening => "connecting to the app",
                CaptureAccess::Armed { via: None } => "armed in the app",
                CaptureAccess::Armed { via: Some(_) } => {
                    "armed, via a helper process (pmdscope-pdump)"
                }
                CaptureAccess::Offered => "P starts a helper process (pmdscope-pdump)",
                CaptureAccess::Refused { reason } => reason,
                CaptureAccess::Ended => "the app has exited",
            },
        );
        let counted = &tap.counted;
        if counted.begin_ns == 0 {
            return;
        }
        self.field("since", self.when(counted.begin_ns, counted));
        self.field(
            "sampling",
            match counted.sample {
                0 | 1 => "every packet".to_owned(),
                n => format!("1 in {n} packets"),
            },
        );
        self.field("counted", format!("{} packets", count(counted.looked_at)));
        self.counts("all", counted.total, counted.variance);
        self.field("lost", format!("{} packets, not counted", count(counted.lost)));
        let flows = count(counted.flows.len() as u64);
        self.field("conversations", format!("{flows}, at most {}", count(counted.capacity as u64)));
        self.rest(counted);
        self.protocols(&counted.protocols);
    }

    /// What is in no conversation of the list.
    fn rest(&mut self, counted: &FlowSnapshot) {
        let parts = &counted.other;
        self.heading("in no listed conversation");
        self.counts("evicted", parts.evicted, parts.evicted_variance);
        self.field("", format!("in {} conversations", count(parts.evictions)));
        self.counts("expired", parts.expired, parts.expired_variance);
        self.field("", format!("in {} conversations", count(parts.expirations)));
        self.counts("not IP", parts.not_ip, 0);
        self.counts("unreadable", parts.unreadable, 0);
        let share = other(parts).packets as f64 / counted.total.packets.max(1) as f64;
        self.field("together", percent(share));
    }

    fn protocols(&mut self, seen: &ProtocolCounts) {
        self.heading("protocols");
        let counts = [
            ("IPv4", seen.ipv4),
            ("IPv4 fragments", seen.ipv4_fragments),
            ("IPv4 options", seen.ipv4_options),
            ("IPv6", seen.ipv6),
            ("IPv6 fragments", seen.ipv6_fragments),
            ("ARP", seen.arp),
            ("other types", seen.other_ethertypes),
            ("VLAN", seen.vlan_tagged),
            ("in tunnels", seen.tunnelled),
            ("TCP", seen.tcp),
            ("UDP", seen.udp),
            ("SCTP", seen.sctp),
            ("ICMP", seen.icmp),
            ("ICMPv6", seen.icmp6),
            ("GRE", seen.gre),
            ("ESP", seen.esp),
            ("other protocols", seen.other_protocols),
        ];
        for (name, counts) in counts.into_iter().filter(|(_, counts)| counts.packets > 0) {
            self.counts(name, counts, 0);
        }
        let numbers = [
            ("TCP SYN", seen.tcp_syn),
            ("TCP SYN ACK", seen.tcp_syn_ack),
            ("TCP FIN", seen.tcp_fin),
            ("TCP RST", seen.tcp_rst),
            ("TCP window 0", seen.tcp_zero_window),
            ("echo requests", seen.icmp_echo_requests),
            ("echo replies", seen.icmp_echo_replies),
            ("unreachable", seen.icmp_unreachable),
            ("time exceeded", seen.icmp_time_exceeded),
        ];
        for (name, packets) in numbers.into_iter().filter(|(_, packets)| *packets > 0) {
            self.field(name, format!("{} packets", count(packets)));
        }
    }

    fn conversation(&mut self, counted: &FlowSnapshot, flow: &Flow) {
        self.field("protocol", format!("{} ({})", protocol(flow.proto), flow.proto));
        for (label, end) in [("local", flow.local), ("remote", flow.remote)] {
            let text = match &self.view.names {
                Some(names) => names.endpoint(flow.proto, end),
                None => endpoint(end),
            };
            self.field(label, text);
        }
        self.field(
            "opened by",
            match flow.opener {
                Some(FlowEnd::Local) => "local",
                Some(FlowEnd::Remote) => "remote",
                None => "not seen",
            },
        );
        let within = wrapping(flow);
        self.field("within", if within.is_empty() { UNKNOWN } else { &within });
        self.field("state", flow_state(flow));
        if flow.icmp_errors > 0 {
            self.field("ICMP errors", format!("{} packets", count(flow.icmp_errors)));
        }
        if flow.tcp_flags != [0; 2] {
            let [local, remote] = flow.tcp_flags.map(flags);
            self.field("flags, local", local);
            self.field("flags, remote", remote);
        }
        self.field("first packet", self.when(flow.first_ns, counted));
        self.field("last packet", self.when(flow.last_ns, counted));
        self.counts("all", flow.total(), flow.variance);
        if let Some(bps) = window_bps(counted, flow) {
            for (title, bps) in WINDOW_TITLES.into_iter().zip(bps) {
                self.field(title, si(bps));
            }
        }
        self.way("received", flow.rx, flow.rx_place, rx_speed(counted, flow));
        self.way("sent", flow.tx, flow.tx_place, tx_speed(counted, flow));
        self.way("direction unknown", flow.unknown, None, None);
    }

    /// One direction; nothing where there was nothing.
    fn way(
        &mut self,
        title: &str,
        ways: SenderCounts,
        place: Option<FlowPlace>,
        speed: Option<TrafficRate>,
    ) {
        if ways == SenderCounts::default() {
            return;
        }
        self.heading(title);
        self.counts("from local", ways.from_local, 0);
        self.counts("from remote", ways.from_remote, 0);
        if let Some(place) = place {
            self.speed(speed);
            self.field("last by", whereabouts(&place));
        }
    }

    fn load(&mut self, counted: &FlowSnapshot, queue: &QueueCounts) {
        let (part, balance) = part_of_port(counted, queue);
        self.field("share of port", known(balance.share(part as f64), percent));
        self.speed(speed(counted, queue.recent, queue.total));
        self.counts("all", queue.total, 0);
        self.field("last lcore", known(queue.lcore, |lcore| lcore.to_string()));
        self.heading("largest conversations");
        let here = |flow| Some((speed_on(counted, flow, queue)?, flow));
        let mut loads = counted.flows.iter().filter_map(here).collect::<Vec<_>>();
        loads.sort_by(|(a, _), (b, _)| b.pps.total_cmp(&a.pps));
        if loads.is_empty() {
            self.text("none of the listed conversations", Tone::Dim);
        }
        for (speed, flow) in loads.into_iter().take(LOADS) {
            let [local, remote] = [flow.local, flow.remote].map(endpoint);
            let ends = format!("{} {local} - {remote}", protocol(flow.proto));
            let many = flow.rx_place.or(flow.tx_place).is_some_and(|place| place.several);
            let note = if many { ", also by other queues" } else { "" };
            self.text(&format!("{} pps  {ends}{note}", si(speed.pps)), Tone::Plain);
        }
    }

    fn speed(&mut self, speed: Option<TrafficRate>) {
        let pps = known(speed.map(|speed| speed.pps), si);
        let bps = known(speed.map(|speed| speed.bps), si);
        self.field("now", format!("{pps} packets/s, {bps} bit/s"));
    }

    /// Packets with their standard error, and bytes.
    fn counts(&mut self, label: &str, counts: PacketCounts, variance: u64) {
        let sign = self.view.theme.plus_minus();
        let error = match variance {
            0 => String::new(),
            _ => format!(" {sign} {}", si(standard_error(variance))),
        };
        let (packets, bytes) = (count(counts.packets), count(counts.bytes));
        self.field(label, format!("{packets}{error} packets, {bytes} bytes"));
    }

    fn when(&self, then_ns: u64, counted: &FlowSnapshot) -> String {
        let age = counted.now_ns.saturating_sub(then_ns) as f64 / 1e9;
        format!("{}, {} ago", time_of_day(then_ns, &self.view.zone), seconds(age))
    }
}

/// How fast a conversation is on a queue where it was seen last.
fn speed_on(counted: &FlowSnapshot, flow: &Flow, queue: &QueueCounts) -> Option<TrafficRate> {
    let here = |place: Option<FlowPlace>| {
        place.is_some_and(|place| (place.port, place.queue) == (queue.port, queue.queue))
    };
    match queue.dir {
        pmdscope_packets::DIR_RX if here(flow.rx_place) => rx_speed(counted, flow),
        pmdscope_packets::DIR_TX if here(flow.tx_place) => tx_speed(counted, flow),
        _ => None,
    }
}

fn whereabouts(place: &FlowPlace) -> String {
    let queue = known(place.queue, |queue| queue.to_string());
    let lcore = known(place.lcore, |lcore| lcore.to_string());
    let others = if place.several { "; earlier ones by other queues as well" } else { "" };
    format!("port {}, queue {queue}, lcore {lcore}{others}", place.port)
}
