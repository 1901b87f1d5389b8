//! Conversations, and counts of all packets at one time.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

/// Captured bytes of a packet that suffice: the headers, also in a tunnel.
pub const SNAPLEN: u32 = 128;

/// One end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowEndpoint {
    /// Address.
    pub addr: IpAddr,
    /// Port of TCP, UDP or SCTP; 0 where the protocol has none, or where it is not in the packet
    /// because that is a later fragment.
    pub port: u16,
}

/// What a conversation is wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "id", rename_all = "lowercase")]
pub enum Tunnel {
    /// VXLAN, with its network identifier.
    Vxlan(u32),
    /// GENEVE, with its network identifier.
    Geneve(u32),
    /// GRE, also in UDP, with its key; 0 without one.
    Gre(u32),
    /// ERSPAN, with its session; 0 of type I, which has none.
    Erspan(u32),
    /// PPP over Ethernet, with its session.
    Pppoe(u32),
    /// GTP-U. Each direction has a tunnel endpoint id of its own, so none is part of a conversation.
    #[serde(rename = "gtp-u")]
    GtpU,
    /// IP in IP: either version in either.
    Ipip,
    /// Ethernet behind labels of MPLS, or MPLS in UDP or IP. Labels differ by direction, as in GTP-U.
    Mpls,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vxlan(id) => write!(f, "vxlan {id}"),
            Self::Geneve(id) => write!(f, "geneve {id}"),
            Self::Gre(id) => write!(f, "gre {id}"),
            Self::Erspan(id) => write!(f, "erspan {id}"),
            Self::Pppoe(id) => write!(f, "pppoe {id}"),
            Self::GtpU => f.write_str("gtp-u"),
            Self::Ipip => f.write_str("ipip"),
            Self::Mpls => f.write_str("mpls"),
        }
    }
}

/// Packets and bytes: what was seen, or an estimate of it where packets were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PacketCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes of whole frames, as on the wire without FCS.
    pub bytes: u64,
}

/// By who sent the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SenderCounts {
    /// From the local end to the remote one.
    pub from_local: PacketCounts,
    /// From the remote end to the local one.
    pub from_remote: PacketCounts,
}

/// What TCP was last seen to do, by its flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TcpState {
    /// Not TCP, or nothing that tells.
    #[default]
    None,
    /// One side has asked for a connection.
    SynSent,
    /// The other side has agreed.
    SynReceived,
    /// Data or acknowledgements go by.
    Established,
    /// One side has ended its half.
    FinWait,
    /// Both sides have.
    Closed,
    /// One side has broken it off.
    Reset,
}

/// An end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlowEnd {
    /// The one behind the app.
    Local,
    /// The other.
    Remote,
}

/// Where the app last handled packets of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowPlace {
    /// DPDK port, or number of the interface in a file.
    pub port: u16,
    /// Queue, where it is known.
    pub queue: Option<u16>,
    /// Lcore, where it is known.
    pub lcore: Option<u16>,
    /// Packets of this direction came by other queues as well.
    pub several: bool,
}

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow {
    /// Index into [`FlowSnapshot::apps`].
    pub app: u16,
    /// IP protocol number of the innermost header.
    pub proto: u8,
    /// VLAN ids, outermost first; 0 where there is none.
    pub vlans: [u16; 2],
    /// What it is wrapped in, outermost first known.
    pub tunnel: Option<Tunnel>,
    /// The end behind the app: receiver of the first packet if that was received, sender if it was
    /// sent; without a direction, as in a plain pcap file, the sender.
    pub local: FlowEndpoint,
    /// The other end.
    pub remote: FlowEndpoint,
    /// Received by the app.
    pub rx: SenderCounts,
    /// Sent by the app.
    pub tx: SenderCounts,
    /// Direction unknown.
    pub unknown: SenderCounts,
    /// Received, in the interval of the snapshot.
    pub recent_rx: PacketCounts,
    /// Sent, or of unknown direction, in the interval of the snapshot.
    pub recent_tx: PacketCounts,
    /// Bits per second over [`crate::RATE_WINDOWS`], in either direction; 0 where
    /// [`FlowSnapshot::windows_s`] is `None`.
    pub window_bps: [f32; 3],
    /// Variance of the number of packets; 0 where every packet was seen.
    pub variance: u64,
    /// TCP.
    pub state: TcpState,
    /// Who began it: of TCP the sender of the SYN, as a SYN or its answer tells, and `None` where neither
    /// was seen; otherwise the sender of the first packet, and `None` where packets were sampled then.
    pub opener: Option<FlowEnd>,
    /// TCP flags seen, all ors'ed, from the local and from the remote end.
    pub tcp_flags: [u8; 2],
    /// Wall clock of the first packet, nanoseconds.
    pub first_ns: u64,
    /// Wall clock of the last packet, nanoseconds.
    pub last_ns: u64,
    /// Where packets were received.
    pub rx_place: Option<FlowPlace>,
    /// Where packets were sent.
    pub tx_place: Option<FlowPlace>,
}

impl Flow {
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

/// Packets whose conversation is not listed, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnlistedPackets {
    /// Of evicted conversations.
    pub evicted: PacketCounts,
    /// Variance of their number of packets.
    pub evicted_variance: u64,
    /// Evicted conversations; one that came back counts again.
    pub evictions: u64,
    /// Of conversations that were forgotten after their time.
    pub expired: PacketCounts,
    /// Variance of their number of packets.
    pub expired_variance: u64,
    /// Conversations that were forgotten after their time.
    pub expirations: u64,
    /// Not IP.
    pub not_ip: PacketCounts,
    /// Cut off or broken before their addresses.
    pub unreadable: PacketCounts,
    /// Behind link types that are not read, see [`FlowSnapshot::unknown_links`].
    pub unknown_link: PacketCounts,
}

/// Packets by what they carry, estimated where sampled. As `netstat -s` has it, but of what went by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs)] // The names are those of the headers.
pub struct ProtocolCounts {
    pub ipv4: PacketCounts,
    pub ipv4_fragments: PacketCounts,
    pub ipv4_options: PacketCounts,
    pub ipv6: PacketCounts,
    pub ipv6_fragments: PacketCounts,
    pub arp: PacketCounts,
    pub other_ethertypes: PacketCounts,
    pub vlan_tagged: PacketCounts,
    pub tunnelled: PacketCounts,
    pub tcp: PacketCounts,
    pub tcp_syn: u64,
    pub tcp_syn_ack: u64,
    pub tcp_fin: u64,
    pub tcp_rst: u64,
    pub tcp_zero_window: u64,
    pub udp: PacketCounts,
    pub sctp: PacketCounts,
    pub icmp: PacketCounts,
    pub icmp_echo_requests: u64,
    pub icmp_echo_replies: u64,
    pub icmp_unreachable: u64,
    pub icmp_time_exceeded: u64,
    pub icmp6: PacketCounts,
    pub gre: PacketCounts,
    pub esp: PacketCounts,
    pub other_protocols: PacketCounts,
}

/// Packets of a file behind a link type that is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnknownLink {
    /// Number of the link type in files.
    pub link_type: u16,
    /// Its name, as libpcap has it.
    pub name: String,
    /// Its packets.
    #[serde(flatten)]
    pub counts: PacketCounts,
}

/// What went by a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueCounts {
    /// Index into [`FlowSnapshot::apps`].
    pub app: u16,
    /// Port, direction, queue and lcore.
    pub port: u16,
    /// [`pmdscope_packets::DIR_RX`], [`pmdscope_packets::DIR_TX`] or 0.
    pub dir: u8,
    /// Queue, where it is known.
    pub queue: Option<u16>,
    /// The lcore that handled the last packet.
    pub lcore: Option<u16>,
    /// Since the beginning.
    pub total: PacketCounts,
    /// In the interval of the snapshot.
    pub recent: PacketCounts,
}

/// All that is known at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowSnapshot {
    /// Names of apps, or of interfaces' owners in files.
    pub apps: Vec<String>,
    /// Wall clock when counting began, or of the earliest packet, nanoseconds; 0 before either.
    pub begin_ns: u64,
    /// Wall clock of this snapshot, nanoseconds; where a file is read, of the last packet, or of the
    /// statistics behind it.
    pub now_ns: u64,
    /// Length of the interval that `recent` counts are of, seconds; 0 in the first snapshot.
    pub interval_s: f64,
    /// Lengths of the windows that `window_bps` are of, seconds: those of [`crate::RATE_WINDOWS`], or less
    /// where counting has not gone on for so long. `None` before the first is over, or without windows.
    pub windows_s: Option<[f64; 3]>,
    /// Conversations, in no order.
    pub flows: Vec<Flow>,
    /// What is not among them.
    pub other: UnlistedPackets,
    /// All packets. The flows and `other` add up to it.
    pub total: PacketCounts,
    /// Variance of the number of all packets; 0 where every packet was seen.
    pub variance: u64,
    /// By protocol.
    pub protocols: ProtocolCounts,
    /// By queue.
    pub queues: Vec<QueueCounts>,
    /// By link type, those that are not read.
    pub unknown_links: Vec<UnknownLink>,
    /// Packets that were looked at: without those that a sampled one stands for.
    pub looked_at: u64,
    /// Packets lost on the way, in none of the counts.
    pub lost: u64,
    /// One packet in so many is looked at now; 1 is all.
    pub sample: u32,
    /// Most conversations that are kept.
    pub capacity: usize,
}

/// Returns the standard error of a number of packets with this variance.
pub fn standard_error(variance: u64) -> f64 {
    (variance as f64).sqrt()
}
