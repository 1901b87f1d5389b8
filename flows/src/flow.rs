//! Conversations, and counts of all packets at one time.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

/// Most captured bytes of a packet that are of use: the headers, also in tunnels with options.
pub const SNAPLEN: u32 = 512;

/// One end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowEndpoint {
    /// IP address.
    pub addr: IpAddr,
    /// Port of TCP, UDP or SCTP; 0 if the protocol has no ports, or if the packet is a later fragment, which
    /// does not contain them.
    pub port: u16,
}

/// Tunnel that carries a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "id", rename_all = "lowercase")]
pub enum Tunnel {
    /// VXLAN, with its network identifier.
    Vxlan(u32),
    /// VXLAN with the generic protocol extension, with its network identifier.
    #[serde(rename = "vxlan-gpe")]
    VxlanGpe(u32),
    /// GENEVE, with its network identifier.
    Geneve(u32),
    /// GRE, also over UDP, with its key; 0 if it has none.
    Gre(u32),
    /// ERSPAN, with its session; 0 for type I, which has none.
    Erspan(u32),
    /// PPP over Ethernet, with its session.
    Pppoe(u32),
    /// GTP-U. Each direction has its own tunnel endpoint id, so a conversation has none.
    #[serde(rename = "gtp-u")]
    GtpU,
    /// IP in IP, for all combinations of IPv4 and IPv6.
    Ipip,
    /// Ethernet after MPLS labels, or MPLS over UDP or IP. Each direction has its own labels, so a
    /// conversation has none.
    Mpls,
    /// A network service header. Each direction has its own path.
    Nsh,
    /// IPv6 over UDP by Teredo.
    Teredo,
    /// Ethernet in IP: `EtherIP`, and Ethernet after an `SRv6` header.
    EtherIp,
    /// L2TP of version 2 or 3. Each direction has its own tunnel and session ids.
    L2tp,
    /// PPTP: PPP in GRE. Each direction has its own call id.
    Pptp,
    /// Generic UDP encapsulation.
    Gue,
    /// Ethernet between bridges of TRILL.
    Trill,
    /// Ethernet between provider backbone bridges, with its service.
    Pbb(u32),
}

/// A kind of ICMP messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IcmpKind {
    /// ICMP type; of a conversation of requests and answers, that of requests.
    #[serde(rename = "type")]
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
}

impl Tunnel {
    /// Names of all kinds of tunnels.
    pub const KINDS: [&'static str; 17] = [
        "vxlan",
        "vxlan-gpe",
        "geneve",
        "gre",
        "erspan",
        "pppoe",
        "gtp-u",
        "ipip",
        "mpls",
        "nsh",
        "teredo",
        "etherip",
        "l2tp",
        "pptp",
        "gue",
        "trill",
        "pbb",
    ];

    /// Name of its kind.
    pub fn kind(self) -> &'static str {
        let at = match self {
            Self::Vxlan(_) => 0,
            Self::VxlanGpe(_) => 1,
            Self::Geneve(_) => 2,
            Self::Gre(_) => 3,
            Self::Erspan(_) => 4,
            Self::Pppoe(_) => 5,
            Self::GtpU => 6,
            Self::Ipip => 7,
            Self::Mpls => 8,
            Self::Nsh => 9,
            Self::Teredo => 10,
            Self::EtherIp => 11,
            Self::L2tp => 12,
            Self::Pptp => 13,
            Self::Gue => 14,
            Self::Trill => 15,
            Self::Pbb(_) => 16,
        };
        Self::KINDS[at]
    }

    /// Its number, if its kind has one.
    pub fn id(self) -> Option<u32> {
        match self {
            Self::Vxlan(id)
            | Self::VxlanGpe(id)
            | Self::Geneve(id)
            | Self::Gre(id)
            | Self::Erspan(id)
            | Self::Pppoe(id)
            | Self::Pbb(id) => Some(id),
            _ => None,
        }
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id() {
            Some(id) => write!(f, "{} {id}", self.kind()),
            None => f.write_str(self.kind()),
        }
    }
}

/// Packets and bytes; estimates if packets were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacketCounts {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of whole frames, as on the wire without FCS.
    pub bytes: u64,
}

/// Packets and bytes by sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SenderCounts {
    /// Packets from the local end to the remote end.
    pub from_local: PacketCounts,
    /// Packets from the remote end to the local end.
    pub from_remote: PacketCounts,
}

/// State of a TCP connection, from the flags of its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TcpState {
    /// Not TCP, or no packet has shown the state.
    #[default]
    None,
    /// One end has sent a SYN.
    SynSent,
    /// The other end has answered with SYN and ACK.
    SynReceived,
    /// The connection is established: data or acknowledgements were seen.
    Established,
    /// One end has sent a FIN.
    FinWait,
    /// Both ends have sent a FIN.
    Closed,
    /// One end has sent an RST.
    Reset,
}

/// An end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlowEnd {
    /// The end on the side of the app.
    Local,
    /// The other end.
    Remote,
}

/// Place where the app last handled packets of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowPlace {
    /// DPDK port, or number of the interface in a file.
    pub port: u16,
    /// Queue; `None` if unknown.
    pub queue: Option<u16>,
    /// Lcore; `None` if unknown.
    pub lcore: Option<u16>,
    /// Whether packets of this direction were also seen on other ports or queues.
    pub several: bool,
}

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow {
    /// Index of the app in [`FlowSnapshot::apps`].
    pub app: u16,
    /// IP protocol number of the innermost header.
    pub proto: u8,
    /// VLAN ids outside of tunnels, outermost first; 0 if there is none.
    pub vlans: [u16; 2],
    /// VLAN ids inside the tunnel, outermost first; 0 if there is none. At most three ids are known in all.
    pub inner_vlans: [u16; 2],
    /// Kind of ICMP messages; `None` if it is not ICMP.
    pub icmp: Option<IcmpKind>,
    /// Number of ICMP errors about packets of the conversation, which are in its counts: from the end that
    /// the packets in them were sent to.
    pub icmp_errors: u64,
    /// Outermost tunnel of a known type; `None` if there is none.
    pub tunnel: Option<Tunnel>,
    /// Ends of the outermost tunnel with an IP header, of the last packet: on the side of the local end, and of
    /// the remote end. Only in reports to a [`crate::FlowListener`]; `None` if there is no such tunnel.
    #[serde(skip)]
    pub tunnel_ends: Option<[IpAddr; 2]>,
    /// The end on the side of the app: the receiver of the first packet if the app received it, otherwise
    /// the sender; also the sender if the direction is unknown, as in a plain pcap file.
    pub local: FlowEndpoint,
    /// The other end.
    pub remote: FlowEndpoint,
    /// Packets received by the app.
    pub rx: SenderCounts,
    /// Packets sent by the app.
    pub tx: SenderCounts,
    /// Packets of unknown direction.
    pub unknown: SenderCounts,
    /// Packets received in the interval of the snapshot.
    pub recent_rx: PacketCounts,
    /// Packets sent, or of unknown direction, in the interval of the snapshot.
    pub recent_tx: PacketCounts,
    /// Bits per second in both directions, over each window of [`FlowSnapshot::windows_s`]; 0 if that is
    /// `None`.
    pub window_bps: [f32; 3],
    /// Variance of the number of packets; 0 if every packet was seen.
    pub variance: u64,
    /// State of the TCP connection.
    pub state: TcpState,
    /// The end that opened the conversation. For TCP, the sender of the SYN, known from the SYN or the answer
    /// to it; `None` if neither was seen. Otherwise the sender of the first packet; `None` if packets were
    /// sampled then.
    pub opener: Option<FlowEnd>,
    /// Bitwise OR of the TCP flags of all packets, from the local and from the remote end.
    pub tcp_flags: [u8; 2],
    /// Wall clock of the first packet, nanoseconds since 1970.
    pub first_ns: u64,
    /// Wall clock of the last packet, nanoseconds since 1970.
    pub last_ns: u64,
    /// Place where packets were last received; `None` if none was received.
    pub rx_place: Option<FlowPlace>,
    /// Place where packets were last sent; `None` if none was sent.
    pub tx_place: Option<FlowPlace>,
}

impl Flow {
    /// Returns the two outermost VLAN ids, outside of tunnels or inside; 0 if there is none.
    pub fn outer_vlans(&self) -> [u16; 2] {
        let mut ids = self.vlans.into_iter().chain(self.inner_vlans).filter(|id| *id > 0);
        [ids.next().unwrap_or(0), ids.next().unwrap_or(0)]
    }

    /// Returns the sum of all packets and bytes.
    pub fn total(&self) -> PacketCounts {
        let ways = [self.rx, self.tx, self.unknown];
        let all = ways.iter().flat_map(|ways| [ways.from_local, ways.from_remote]);
        all.fold(PacketCounts::default(), PacketCounts::plus)
    }
}

impl PacketCounts {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Returns what was added since `before`.
    #[must_use]
    pub fn minus(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Packets that belong to no listed conversation, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnlistedPackets {
    /// Packets of evicted conversations.
    pub evicted: PacketCounts,
    /// Variance of the number of packets in `evicted`.
    pub evicted_variance: u64,
    /// Number of evicted conversations; a conversation counts each time that it is evicted.
    pub evictions: u64,
    /// Packets of conversations that were removed after their idle timeout.
    pub expired: PacketCounts,
    /// Variance of the number of packets in `expired`.
    pub expired_variance: u64,
    /// Number of conversations that were removed after their idle timeout.
    pub expirations: u64,
    /// Packets that are not IP.
    pub not_ip: PacketCounts,
    /// Packets that are truncated or malformed before their addresses.
    pub unreadable: PacketCounts,
    /// Packets of link types that are not parsed, see [`FlowSnapshot::unknown_links`].
    pub unknown_link: PacketCounts,
}

/// Packets by protocol, similar to `netstat -s`, but of captured packets; estimates if packets were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProtocolCounts {
    /// IPv4 packets, by the innermost IP header.
    pub ipv4: PacketCounts,
    /// Fragments of IPv4 packets.
    pub ipv4_fragments: PacketCounts,
    /// IPv4 packets with options.
    pub ipv4_options: PacketCounts,
    /// IPv6 packets, by the innermost IP header.
    pub ipv6: PacketCounts,
    /// Fragments of IPv6 packets.
    pub ipv6_fragments: PacketCounts,
    /// ARP packets.
    pub arp: PacketCounts,
    /// Packets that are neither IP nor ARP, without packets that are unreadable or of an unknown link type.
    pub other_ethertypes: PacketCounts,
    /// Packets with at least one VLAN tag.
    pub vlan_tagged: PacketCounts,
    /// Packets in a tunnel of a known type, with a readable IP header in it.
    pub tunnelled: PacketCounts,
    /// TCP packets.
    pub tcp: PacketCounts,
    /// Number of TCP packets with SYN and without ACK, which request a connection.
    pub tcp_syn: u64,
    /// Number of TCP packets with SYN and ACK, which accept a connection.
    pub tcp_syn_ack: u64,
    /// Number of TCP packets with FIN.
    pub tcp_fin: u64,
    /// Number of TCP packets with RST.
    pub tcp_rst: u64,
    /// Number of TCP packets with a receive window of 0, without packets with SYN, FIN or RST.
    pub tcp_zero_window: u64,
    /// UDP packets.
    pub udp: PacketCounts,
    /// SCTP packets.
    pub sctp: PacketCounts,
    /// ICMP packets of IPv4.
    pub icmp: PacketCounts,
    /// Number of echo requests, of IPv4 and IPv6.
    pub icmp_echo_requests: u64,
    /// Number of echo replies, of IPv4 and IPv6.
    pub icmp_echo_replies: u64,
    /// Number of destination unreachable messages, of IPv4 and IPv6.
    pub icmp_unreachable: u64,
    /// Number of time exceeded messages, of IPv4 and IPv6.
    pub icmp_time_exceeded: u64,
    /// ICMP packets of IPv6.
    pub icmp6: PacketCounts,
    /// GRE packets in which no inner IP header was read.
    pub gre: PacketCounts,
    /// ESP packets.
    pub esp: PacketCounts,
    /// IP packets of other protocols.
    pub other_protocols: PacketCounts,
}

/// Packets without IP that is read, of one ethertype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherEtherType {
    /// Ethertype, or protocol of PPP; below 1536 there was none.
    pub ether_type: u16,
    /// Name, such as `ARP`; its number if it has no known name.
    pub name: String,
    /// Packets of the ethertype.
    #[serde(flatten)]
    pub counts: PacketCounts,
}

/// Packets of a file with a link type that is not parsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnknownLink {
    /// Number of the link type in capture files.
    pub link_type: u16,
    /// Name of the link type, as in libpcap.
    pub name: String,
    /// Packets of the link type.
    #[serde(flatten)]
    pub counts: PacketCounts,
}

/// Packets of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueCounts {
    /// Index of the app in [`FlowSnapshot::apps`].
    pub app: u16,
    /// DPDK port, or number of the interface in a file.
    pub port: u16,
    /// Direction: [`pmdscope_packets::DIR_RX`] (1), [`pmdscope_packets::DIR_TX`] (2), or 0 if unknown.
    pub dir: u8,
    /// Queue; `None` if unknown.
    pub queue: Option<u16>,
    /// The lcore that handled the last packet; `None` if unknown.
    pub lcore: Option<u16>,
    /// Packets since the start of counting.
    pub total: PacketCounts,
    /// Packets in the interval of the snapshot.
    pub recent: PacketCounts,
}

/// Conversations, and counts of all packets, at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowSnapshot {
    /// Names of the apps; for files of other tools, names of the interfaces.
    pub apps: Vec<String>,
    /// Wall clock of the start of counting, or of the earliest packet, nanoseconds since 1970; 0 before
    /// either.
    pub begin_ns: u64,
    /// Wall clock of this snapshot, nanoseconds since 1970; for a file, of its last packet or of the
    /// statistics after it.
    pub now_ns: u64,
    /// Length of the interval of the `recent` counts, seconds; 0 in the first snapshot.
    pub interval_s: f64,
    /// Lengths of the windows of `window_bps`, seconds: [`crate::RATE_WINDOWS`] (2, 10, 40), or less until so
    /// much time has passed. `None` before the first window has ended, or without windows.
    pub windows_s: Option<[f64; 3]>,
    /// Conversations, in no particular order.
    pub flows: Vec<Flow>,
    /// Packets that belong to no listed conversation.
    pub other: UnlistedPackets,
    /// All packets: the sum of the conversations and `other`.
    pub total: PacketCounts,
    /// Variance of the number of all packets; 0 if every packet was seen.
    pub variance: u64,
    /// Packets by protocol.
    pub protocols: ProtocolCounts,
    /// Packets by queue.
    pub queues: Vec<QueueCounts>,
    /// Packets of link types that are not parsed, by link type.
    pub unknown_links: Vec<UnknownLink>,
    /// Packets that are not IP, by ethertype; the first 32 ethertypes.
    pub other_ether_types: Vec<OtherEtherType>,
    /// Number of packets that were examined, without those that sampling left out.
    pub looked_at: u64,
    /// Lost packets, which are in none of the counts.
    pub lost: u64,
    /// Current sampling interval N: one packet in N is examined; 1 means all.
    pub sample: u32,
    /// Maximum number of conversations.
    pub capacity: usize,
}

/// Returns the standard error of a number of packets with this variance.
pub fn standard_error(variance: u64) -> f64 {
    (variance as f64).sqrt()
}
