//! Conversations as text: endpoints, protocols, states, flags, queues and rates.

use pmdscope_flows::{
    Flow, FlowEndpoint, FlowPlace, FlowSnapshot, IcmpKind, PacketCounts, TcpState, protocol_name,
    standard_error,
};

use crate::number::UNKNOWN;

/// `10.0.0.1:443`, `[2001:db8::1]:443`, or the address alone where there is no port.
pub fn endpoint(end: FlowEndpoint) -> String {
    match end {
        FlowEndpoint { addr, port: 0 } => addr.to_string(),
        FlowEndpoint { addr, port } => std::net::SocketAddr::new(addr, port).to_string(),
    }
}

/// Name of an IP protocol, or its number.
pub fn protocol(number: u8) -> String {
    protocol_name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// As `ss` calls it; `-` where there is none.
pub fn state(state: TcpState) -> &'static str {
    match state {
        TcpState::None => UNKNOWN,
        TcpState::SynSent => "SYN-SENT",
        TcpState::SynReceived => "SYN-RECV",
        TcpState::Established => "ESTAB",
        TcpState::FinWait => "FIN-WAIT",
        TcpState::Closed => "CLOSED",
        TcpState::Reset => "RESET",
    }
}

/// The TCP flags that are set, in the order of their first mention in a connection; `-` without any.
pub fn flags(bits: u8) -> String {
    const NAMES: [(u8, &str); 8] = [
        (0x02, "SYN"),
        (0x10, "ACK"),
        (0x08, "PSH"),
        (0x20, "URG"),
        (0x40, "ECE"),
        (0x80, "CWR"),
        (0x01, "FIN"),
        (0x04, "RST"),
    ];
    let set = NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
    match set.collect::<Vec<_>>().join(" ") {
        none if none.is_empty() => UNKNOWN.to_owned(),
        set => set,
    }
}

/// VLANs and tunnel, outermost first: `vlan 7.42 vxlan 5001 vlan 3`; empty without any.
pub fn wrapping(flow: &Flow) -> String {
    let tunnel = flow.tunnel.map(|tunnel| tunnel.to_string());
    let parts = [vlans(flow.vlans), tunnel, vlans(flow.inner_vlans)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn vlans(ids: [u16; 2]) -> Option<String> {
    let ids = ids.iter().filter(|id| **id != 0).map(ToString::to_string).collect::<Vec<_>>();
    (!ids.is_empty()).then(|| format!("vlan {}", ids.join(".")))
}

/// The state of a conversation: of TCP as `ss` calls it, of ICMP the messages; `-` where there is none.
pub fn flow_state(flow: &Flow) -> String {
    match flow.icmp {
        Some(kind) => icmp(kind, flow.local.addr.is_ipv6()),
        None => state(flow.state).to_owned(),
    }
}

/// Messages of ICMP by their type and code, such as `echo` or `unreachable/3`; without a name `type/code`.
fn icmp(IcmpKind { kind, code }: IcmpKind, v6: bool) -> String {
    let name = match (v6, kind) {
        (false, 8) | (true, 128) => "echo",
        (false, 3) | (true, 1) => "unreachable",
        (false, 11) | (true, 3) => "time-exceeded",
        (true, 2) => "too-big",
        (false, 12) | (true, 4) => "parameter",
        (false, 4) => "quench",
        (false, 5) | (true, 137) => "redirect",
        (false, 13) => "timestamp",
        (false, 9 | 10) | (true, 133) => "router",
        (true, 130..=132 | 143) => "mld",
        (true, 135) => "neighbor",
        _ => return format!("{kind}/{code}"),
    };
    if code == 0 { name.to_owned() } else { format!("{name}/{code}") }
}

/// `PORT:QUEUE`, with a `+` behind it when other queues had packets as well.
pub fn place(place: &FlowPlace) -> String {
    let queue = place.queue.map_or_else(|| UNKNOWN.to_owned(), |queue| queue.to_string());
    format!("{}:{queue}{}", place.port, if place.several { "+" } else { "" })
}

/// Packets and bytes per second of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficRate {
    /// Packets per second.
    pub pps: f64,
    /// Bits per second.
    pub bps: f64,
}

impl TrafficRate {
    /// The rates of what was counted in `seconds`; `None` if these are 0.
    pub fn of(counts: PacketCounts, seconds: f64) -> Option<Self> {
        let speed =
            Self { pps: counts.packets as f64 / seconds, bps: counts.bytes as f64 * 8.0 / seconds };
        (seconds > 0.0).then_some(speed)
    }
}

/// What happened in the interval of a snapshot, `recent`; before there is one, on average since the
/// beginning, of `all`.
pub fn speed(
    snapshot: &FlowSnapshot,
    recent: PacketCounts,
    all: PacketCounts,
) -> Option<TrafficRate> {
    if snapshot.interval_s > 0.0 {
        return TrafficRate::of(recent, snapshot.interval_s);
    }
    TrafficRate::of(all, snapshot.now_ns.saturating_sub(snapshot.begin_ns) as f64 / 1e9)
}

/// Titles of the rates over [`pmdscope_flows::RATE_WINDOWS`].
pub const WINDOW_TITLES: [&str; 3] = ["bit/s 2s", "bit/s 10s", "bit/s 40s"];

/// Bits per second of a conversation over each window; `None` where there are no windows.
pub fn window_bps(snapshot: &FlowSnapshot, flow: &Flow) -> Option<[f64; 3]> {
    snapshot.windows_s.map(|_| flow.window_bps.map(f64::from))
}

/// Counts from either end.
fn both(ways: pmdscope_flows::SenderCounts) -> PacketCounts {
    ways.from_local.plus(ways.from_remote)
}

/// What the app has received of a conversation.
pub fn rx_counts(flow: &Flow) -> PacketCounts {
    both(flow.rx)
}

/// Packets of it that the app has sent, or all of them where the direction is not known.
pub fn tx_counts(flow: &Flow) -> PacketCounts {
    both(flow.tx).plus(both(flow.unknown))
}

/// How fast the app receives a conversation.
pub fn rx_speed(snapshot: &FlowSnapshot, flow: &Flow) -> Option<TrafficRate> {
    speed(snapshot, flow.recent_rx, rx_counts(flow))
}

/// How fast the app sends it, or how fast it is where the direction is not known.
pub fn tx_speed(snapshot: &FlowSnapshot, flow: &Flow) -> Option<TrafficRate> {
    speed(snapshot, flow.recent_tx, tx_counts(flow))
}

/// Standard error as a share of the packets; `None` where every packet was seen.
pub fn relative_error(packets: u64, variance: u64) -> Option<f64> {
    (variance > 0 && packets > 0).then(|| standard_error(variance) / packets as f64)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn ends_have_ports_where_there_are_any() {
        let end = |addr: &str, port| endpoint(FlowEndpoint { addr: addr.parse().unwrap(), port });
        assert_eq!(end("10.0.0.1", 443), "10.0.0.1:443");
        assert_eq!(end("10.0.0.1", 0), "10.0.0.1");
        assert_eq!(end("2001:db8::1", 53), "[2001:db8::1]:53");
        assert_eq!(end("::1", 0), "::1");
    }

    #[test]
    fn numbers_without_a_name_stay_numbers() {
        assert_eq!([protocol(6), protocol(254)], ["tcp", "254"]);
    }

    #[test]
    fn flags_are_spelled_out() {
        assert_eq!(flags(0), "-");
        assert_eq!(flags(0x1b), "SYN ACK PSH FIN");
        assert_eq!(flags(0xff).split(' ').count(), 8);
    }

    #[test]
    fn places_show_other_queues() {
        let one = FlowPlace { port: 3, queue: Some(7), lcore: None, several: false };
        assert_eq!(place(&one), "3:7");
        assert_eq!(place(&FlowPlace { several: true, queue: None, ..one }), "3:-+");
    }

    #[test]
    fn the_first_speed_is_that_since_the_beginning() {
        let counts = |packets, bytes| PacketCounts { packets, bytes };
        let (recent, all) = (counts(10, 1_000), counts(50, 5_000));
        let mut snapshot = FlowSnapshot { begin_ns: 5, now_ns: 5, ..FlowSnapshot::default() };
        assert_eq!(speed(&snapshot, recent, all), None);
        snapshot.now_ns += 2_000_000_000;
        assert_eq!(speed(&snapshot, recent, all), Some(TrafficRate { pps: 25.0, bps: 20_000.0 }));
        snapshot.interval_s = 0.5;
        assert_eq!(speed(&snapshot, recent, all), Some(TrafficRate { pps: 20.0, bps: 16_000.0 }));
    }

    #[test]
    fn an_error_is_shown_only_for_samples() {
        assert_eq!(relative_error(100, 0), None);
        assert_eq!(relative_error(100, 25), Some(0.05));
        assert_eq!(relative_error(0, 25), None);
    }

    #[test]
    fn encapsulation_is_named_from_outside_in() {
        use pmdscope_flows::{SenderCounts, Tunnel};
        let end = FlowEndpoint { addr: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let mut flow = Flow {
            app: 0,
            proto: 17,
            vlans: [0; 2],
            inner_vlans: [0; 2],
            icmp: None,
            icmp_errors: 0,
            tunnel_ends: None,
            tunnel: None,
            local: end,
            remote: end,
            rx: SenderCounts::default(),
            tx: SenderCounts::default(),
            unknown: SenderCounts::default(),
            recent_rx: PacketCounts::default(),
            recent_tx: PacketCounts::default(),
            window_bps: [0.0; 3],
            variance: 0,
            state: TcpState::None,
            opener: None,
            tcp_flags: [0; 2],
            first_ns: 0,
            last_ns: 0,
            rx_place: None,
            tx_place: None,
        };
        assert_eq!(wrapping(&flow), "");
        flow.vlans = [7, 42];
        flow.tunnel = Some(Tunnel::Vxlan(5_001));
        assert_eq!(wrapping(&flow), "vlan 7.42 vxlan 5001");
        (flow.vlans, flow.inner_vlans) = ([5, 0], [7, 0]);
        assert_eq!(wrapping(&flow), "vlan 5 vxlan 5001 vlan 7");
        assert_eq!(flow_state(&flow), UNKNOWN);
        flow.icmp = Some(IcmpKind { kind: 3, code: 4 });
        assert_eq!(flow_state(&flow), "unreachable/4");
        flow.icmp = Some(IcmpKind { kind: 200, code: 1 });
        assert_eq!(flow_state(&flow), "200/1");
    }
}
