//! Packets and their interfaces, on their way from a ring or a file to a [`crate::sink::PacketSink`].

/// Link type of Ethernet.
pub const ETHERNET: u16 = 1;
/// Direction: received by the app.
pub const DIR_RX: u8 = 1;
/// Direction: sent by the app.
pub const DIR_TX: u8 = 2;
/// Largest (and default) snap length, bytes.
pub const MAX_SNAPLEN: u32 = 262_144;

/// What made a section; empty strings are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectionOrigin {
    /// Hardware, for instance a CPU model.
    pub hardware: String,
    /// Operating system.
    pub os: String,
    /// The program that captured.
    pub application: String,
}

/// One interface of a section; empty strings are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Name to show, `PREFIX:PORT`.
    pub name: String,
    /// The device behind it.
    pub description: String,
    /// Capture filter, as tcpdump writes it.
    pub filter: String,
    /// What a reader must know of its packets.
    pub comment: String,
    /// Most bytes kept of a packet.
    pub snaplen: u32,
    /// Link type, as in pcap files; [`ETHERNET`] of every DPDK port.
    pub linktype: u16,
}

/// One packet.
pub type Packet<'a> = PacketWith<'a, &'a [u8]>;

/// One packet whose bytes are anywhere, see [`crate::PacketData`].
#[derive(Clone, Copy, Debug)]
pub struct PacketWith<'a, D> {
    /// Number of the interface in the section.
    pub interface: u32,
    /// Wall clock, nanoseconds since 1970.
    pub ns: u64,
    /// Bytes kept.
    pub data: D,
    /// Bytes on the wire, without FCS.
    pub len: u32,
    /// [`DIR_RX`], [`DIR_TX`] or unknown.
    pub dir: u8,
    /// Queue of the port, where it is known.
    pub queue: Option<u16>,
    /// The lcore that handled it, where it is known.
    pub lcore: Option<u16>,
    /// Packets that it stands for: 1, or N where one packet in N is kept.
    pub weight: u32,
    /// Packets of this interface lost since the one before.
    pub dropped: u64,
    /// Number of the packet in the capture, from 0.
    pub id: u64,
    /// What to say about this packet; empty is left out.
    pub comment: &'a str,
}

impl<'a, D> PacketWith<'a, D> {
    /// The same packet with its bytes elsewhere.
    #[inline]
    pub fn with_data<E>(&self, data: E) -> PacketWith<'a, E> {
        PacketWith {
            interface: self.interface,
            ns: self.ns,
            data,
            len: self.len,
            dir: self.dir,
            queue: self.queue,
            lcore: self.lcore,
            weight: self.weight,
            dropped: self.dropped,
            id: self.id,
            comment: self.comment,
        }
    }
}

/// What is known of an interface since `start_ns`; `None` is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// Number of the interface in the section.
    pub interface: u32,
    /// Begin of the capture, wall clock, nanoseconds.
    pub start_ns: u64,
    /// Time of the counts, wall clock, nanoseconds.
    pub end_ns: u64,
    /// Packets seen.
    pub received: Option<u64>,
    /// Packets lost because the capture was too slow.
    pub dropped: Option<u64>,
    /// Packets that passed the filter.
    pub accepted: Option<u64>,
    /// Packets handed to the sink.
    pub delivered: u64,
}
