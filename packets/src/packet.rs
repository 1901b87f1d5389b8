//! Packets and their interfaces, as passed from a ring or a file to a [`crate::sink::PacketSink`].

/// Link type of Ethernet.
pub const ETHERNET: u16 = 1;
/// Direction: received by the app.
pub const DIR_RX: u8 = 1;
/// Direction: sent by the app.
pub const DIR_TX: u8 = 2;
/// Largest (and default) snap length, bytes.
pub const MAX_SNAPLEN: u32 = 262_144;

/// Where a section was captured; empty strings are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectionOrigin {
    /// Hardware, for instance a CPU model.
    pub hardware: String,
    /// Operating system.
    pub os: String,
    /// The program that captured.
    pub application: String,
    /// Comments and other options of the block in a pcapng file, which are written as they are: encoded in
    /// the byte order of this machine, each padded to four bytes, without the end of options.
    pub options: Vec<u8>,
}

/// One interface of a section; empty strings are not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Name, `PREFIX:PORT`.
    pub name: String,
    /// The device of the interface.
    pub description: String,
    /// Capture filter, in the syntax of tcpdump.
    pub filter: String,
    /// A note for the reader of the file.
    pub comment: String,
    /// Further comments and other options, see [`SectionOrigin::options`].
    pub options: Vec<u8>,
    /// Snap length: most bytes kept of a packet.
    pub snaplen: u32,
    /// Link type, as in pcap files; [`ETHERNET`] for every DPDK port.
    pub linktype: u16,
}

/// One packet.
pub type Packet<'a> = PacketWith<'a, &'a [u8]>;

/// One packet, with its bytes anywhere, see [`crate::PacketData`].
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
    /// Queue of the port, if known.
    pub queue: Option<u16>,
    /// The lcore that handled the packet, if known.
    pub lcore: Option<u16>,
    /// Number of packets that it represents: 1, or N if one packet in N is kept.
    pub weight: u32,
    /// Packets of this interface lost since the previous one.
    pub dropped: u64,
    /// Number of the packet in the capture, from 0.
    pub id: u64,
    /// Comment about this packet; an empty one is not written.
    pub comment: &'a str,
    /// Further comments and other options of its block in a pcapng file, see [`SectionOrigin::options`].
    pub options: &'a [u8],
}

impl<'a, D> PacketWith<'a, D> {
    /// Returns the same packet with other data.
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
            options: self.options,
        }
    }
}

/// Statistics of an interface since `start_ns`; unknown counts are `None`, and are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// Number of the interface in the section.
    pub interface: u32,
    /// Start of the capture, wall clock, nanoseconds since 1970.
    pub start_ns: u64,
    /// Time of the counts, wall clock, nanoseconds since 1970.
    pub end_ns: u64,
    /// Packets seen.
    pub received: Option<u64>,
    /// Packets lost because the capture was too slow.
    pub dropped: Option<u64>,
    /// Packets that passed the filter.
    pub accepted: Option<u64>,
    /// Packets passed to the sink.
    pub delivered: u64,
}
