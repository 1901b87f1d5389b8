//! The layout of the capture ring and of the messages that hand it over: `pmdscope_ring.h` in Rust.
//!
//! Everything is parsed from bytes that were copied first, in host byte order.

use pmdscope_packets::filter::{BpfInsn, MAX_INSNS};
#[cfg(doc)]
use pmdscope_packets::{DIR_RX, DIR_TX, MAX_SNAPLEN};

/// First word of a ring header.
pub const RING_MAGIC: u32 = 0x5244_4d50;
/// First word of a socket message.
pub const TEE_MAGIC: u32 = 0x5444_4d50;
/// Version of layout and messages that this crate supports.
pub const VERSION: u16 = 1;

/// Bytes before the ring data.
pub const RING_HEADER_SIZE: usize = 4096;
/// Bytes of a ring header that are in use.
pub const RING_HEADER_USED: usize = 448;
/// Alignment of every record, bytes.
pub const RING_ALIGN: u32 = 16;
/// Smallest data size of a ring, bytes.
pub const RING_MIN_SIZE: u32 = 1 << 16;
/// Largest data size of a ring, bytes.
pub const RING_MAX_SIZE: u32 = 1 << 26;
/// Number of ports for which a ring counts drops separately.
pub const RING_PORTS: usize = 32;
/// Minimum size of the tail memfd, bytes.
pub const TAIL_SIZE: usize = 8;

/// Offset of the seqlock of the anchors.
pub const ANCHOR_SEQ: usize = 64;
/// Offset of the first anchor; the latest follows.
pub const ANCHORS: usize = 72;
/// Bytes of one anchor.
pub const ANCHOR_SIZE: usize = 24;
/// Offset of `head`.
pub const HEAD: usize = 128;
/// Offset of `records`.
pub const RECORDS: usize = 136;
/// Offset of `dropped`.
pub const DROPPED: usize = 144;
/// Offset of `filtered`.
pub const FILTERED: usize = 152;
/// Offset of `sampled_out`.
pub const SAMPLED_OUT: usize = 160;
/// Offset of `in_burst`.
pub const IN_BURST: usize = 168;
/// Offset of `port_dropped`.
pub const PORT_DROPPED: usize = 192;

/// Feature bit: the producer counts drops per port and per gap.
pub const FEATURE_GAPS: u32 = 1;
/// Feature bit: records have the time of their packet, not of its burst.
pub const FEATURE_PACKET_TSC: u32 = 2;
/// Feature bit: the sampling can be changed.
pub const FEATURE_RESAMPLE: u32 = 4;
/// Feature bit: `in_burst` tells whether a burst has its time stamp and is not published.
pub const FEATURE_IN_BURST: u32 = 8;
/// Feature bit: the producer reads the tail directly once the consumer has confirmed its mapping.
pub const FEATURE_MAPPED: u32 = 16;

/// Bytes of a record header.
pub const RECORD_SIZE: usize = 32;
/// Record type: a packet.
pub const RECORD_PACKET: u8 = 1;
/// Record type: a lost mbuf; a [`LeakInfo`] precedes the packet bytes.
pub const RECORD_LEAK: u8 = 2;
/// Record type: packets after it are sampled 1 in `len`.
pub const RECORD_SAMPLE: u8 = 3;
/// Record type: fills the ring up to its end.
pub const RECORD_PAD: u8 = 0xff;
/// Record flag: offered to the NIC, but not known to be accepted.
pub const RECORD_ATTEMPT: u16 = 1;

/// Bytes that describe a lost mbuf.
pub const LEAK_SIZE: usize = 64;
/// Offset of the name of the pool in these bytes, which extends to their end.
pub const LEAK_POOL: usize = 32;
/// Kind of a lost mbuf: nothing holds it.
pub const LEAK_LOST: u8 = 1;
/// Kind of a lost mbuf: passed to TX, and not freed.
pub const LEAK_TX_LOST: u8 = 2;
/// Kind of a lost mbuf: referenced by a lost clone.
pub const LEAK_PINNED: u8 = 3;

/// Any port, or any queue.
pub const ANY: u16 = 0xffff;
/// Most queue selections of a request.
pub const MAX_SELECTS: usize = 64;

/// Request flag: send lost mbufs instead of captured packets.
pub const TEE_LEAKED: u32 = 1;
/// Request flag: a time stamp for every packet, not for every burst.
pub const TEE_PACKET_TSC: u32 = 2;
/// Request flag: of each packet the headers that name its conversation, and of a possible tunnel all bytes.
pub const TEE_HEADERS: u32 = 4;
/// Bytes of a packet that are asked for in place of [`TEE_HEADERS`].
pub const HEADERS_SNAPLEN: u32 = 192;
/// Bytes of a request's header.
pub const REQUEST_SIZE: usize = 32;
/// Bytes of a message to the consumer.
pub const MESSAGE_SIZE: usize = 128;
/// Message of the consumer: sample 1 packet in `value` from now on.
pub const TEE_SAMPLE: u16 = 16;
/// Message of the consumer: it has mapped the ring of lcore `value`.
pub const TEE_MAPPED: u16 = 17;
/// Bytes of a [`TEE_SAMPLE`] or [`TEE_MAPPED`] message.
pub const CHANGE_SIZE: usize = 16;
/// Message: the capture is armed.
pub const TEE_ACCEPT: u16 = 1;
/// Message: the request was refused.
pub const TEE_REFUSE: u16 = 2;
/// Message: one ring.
pub const TEE_RING: u16 = 3;
/// Message: the session was ended by the producer.
pub const TEE_END: u16 = 4;

fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// The constant part of a ring header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingHeader {
    /// [`RING_MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// [`RING_HEADER_SIZE`].
    pub header_size: u16,
    /// Bytes of data after the header, a power of two.
    pub data_size: u32,
    /// [`RECORD_SIZE`].
    pub record_size: u16,
    /// The producing lcore.
    pub lcore: u16,
    /// `FEATURE_*` bits.
    pub features: u32,
    /// Most bytes copied of one packet.
    pub snaplen: u32,
}

impl RingHeader {
    /// Bytes that [`RingHeader::parse`] reads.
    pub const SIZE: usize = 24;

    /// Parses the fields without validation.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            magic: u32_at(bytes, 0),
            version: u16_at(bytes, 4),
            header_size: u16_at(bytes, 6),
            data_size: u32_at(bytes, 8),
            record_size: u16_at(bytes, 12),
            lcore: u16_at(bytes, 14),
            features: u32_at(bytes, 16),
            snaplen: u32_at(bytes, 20),
        }
    }
}

/// A (TSC, wall clock, raw monotonic clock) triple taken at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockAnchor {
    /// Time-stamp counter, cycles.
    pub tsc: u64,
    /// `CLOCK_REALTIME`, nanoseconds.
    pub realtime_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`, nanoseconds.
    pub raw_ns: u64,
}

/// Header of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingRecord {
    /// Bytes of the record, with header and padding.
    pub size: u32,
    /// `RECORD_PACKET`, `RECORD_LEAK`, `RECORD_SAMPLE`, `RECORD_PAD` or unknown.
    pub kind: u8,
    /// `DIR_RX` or `DIR_TX`.
    pub dir: u8,
    /// `RECORD_ATTEMPT` and others.
    pub flags: u16,
    /// Bytes copied.
    pub caplen: u32,
    /// Bytes of the packet on the wire, without FCS.
    pub len: u32,
    /// DPDK port id.
    pub port: u16,
    /// Queue of that port.
    pub queue: u16,
    /// Packets of this port dropped since its last record in this ring.
    pub gap: u32,
    /// TSC of the burst, or of the copy of the packet ([`FEATURE_PACKET_TSC`]).
    pub tsc: u64,
}

impl RingRecord {
    /// Parses the fields of a header in four words, without validation.
    pub fn of_words(words: [u64; RECORD_SIZE / 8]) -> Self {
        let mut bytes = [0; RECORD_SIZE];
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_ne_bytes());
        }
        Self::parse(&bytes)
    }

    /// Parses size and type, which every record has.
    pub fn parse_size_and_kind(bytes: [u8; 8]) -> (u32, u8) {
        (u32_at(&bytes, 0), bytes[4])
    }

    /// Parses the fields without validation.
    pub fn parse(bytes: &[u8; RECORD_SIZE]) -> Self {
        Self {
            size: u32_at(bytes, 0),
            kind: bytes[4],
            dir: bytes[5],
            flags: u16_at(bytes, 6),
            caplen: u32_at(bytes, 8),
            len: u32_at(bytes, 12),
            port: u16_at(bytes, 16),
            queue: u16_at(bytes, 18),
            gap: u32_at(bytes, 20),
            tsc: u64_at(bytes, 24),
        }
    }

    /// Returns the bytes as they are in the ring.
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut out = [0; RECORD_SIZE];
        out[..4].copy_from_slice(&self.size.to_ne_bytes());
        out[4..6].copy_from_slice(&[self.kind, self.dir]);
        out[6..8].copy_from_slice(&self.flags.to_ne_bytes());
        out[8..12].copy_from_slice(&self.caplen.to_ne_bytes());
        out[12..16].copy_from_slice(&self.len.to_ne_bytes());
        out[16..18].copy_from_slice(&self.port.to_ne_bytes());
        out[18..20].copy_from_slice(&self.queue.to_ne_bytes());
        out[20..24].copy_from_slice(&self.gap.to_ne_bytes());
        out[24..].copy_from_slice(&self.tsc.to_ne_bytes());
        out
    }
}

/// Information about a lost mbuf, in addition to the [`RingRecord`] of its last stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeakInfo {
    /// Its address in the app.
    pub mbuf: u64,
    /// Time since its last change was seen, milliseconds.
    pub age_ms: u64,
    /// Site id, as in the telemetry table of sites.
    pub site: u32,
    /// `LEAK_LOST`, `LEAK_TX_LOST`, `LEAK_PINNED` or unknown.
    pub kind: u8,
    /// Name of its pool.
    pub pool: String,
}

impl LeakInfo {
    /// Parses the fields without validation.
    pub fn parse(bytes: &[u8; LEAK_SIZE]) -> Self {
        Self {
            mbuf: u64_at(bytes, 0),
            age_ms: u64_at(bytes, 8),
            site: u32_at(bytes, 16),
            kind: bytes[20],
            pool: text(&bytes[LEAK_POOL..]),
        }
    }
}

/// Returns the text up to a NUL, with control characters replaced.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).replace(|c: char| c.is_control(), " ")
}

/// A selection of queues to copy from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSelect {
    /// Port id, or [`ANY`].
    pub port: u16,
    /// Queue, or [`ANY`].
    pub queue: u16,
    /// Bit set of [`DIR_RX`] and [`DIR_TX`].
    pub dirs: u16,
}

/// The request of a consumer to an app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureRequest {
    /// Most bytes of a packet, 1 to [`MAX_SNAPLEN`]; 0 means [`MAX_SNAPLEN`].
    pub snaplen: u32,
    /// Keep one packet in this many; 0 and 1 keep all.
    pub sample: u32,
    /// Bytes per ring, a power of two; 0 leaves it to the app.
    pub ring_size: u32,
    /// Whether smaller rings will do if the app has no memory for these. Not sent.
    pub shrinks: bool,
    /// Disarm when a full ring is not read for this long, milliseconds; 0 leaves it to the app.
    pub lease_ms: u32,
    /// Selected queues, 1 to [`MAX_SELECTS`] entries.
    pub selects: Vec<QueueSelect>,
    /// Filter program, up to [`MAX_INSNS`] instructions; empty keeps everything.
    pub program: Vec<BpfInsn>,
    /// One of [`TEE_LEAKED`], [`TEE_PACKET_TSC`] and [`TEE_HEADERS`], or 0. An app of an older release, which
    /// does not know the last, sends up to [`HEADERS_SNAPLEN`] bytes of each packet.
    pub flags: u32,
}

impl CaptureRequest {
    /// Returns the datagram; `None` when there are too many selections or instructions.
    #[allow(clippy::cast_possible_truncation)] // A constant.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let selects = u16::try_from(self.selects.len()).ok()?;
        let insns = u16::try_from(self.program.len()).ok()?;
        if usize::from(selects) > MAX_SELECTS || usize::from(insns) > MAX_INSNS {
            return None;
        }
        let mut out = Vec::with_capacity(REQUEST_SIZE + 8 * (MAX_SELECTS + MAX_INSNS));
        out.extend(TEE_MAGIC.to_ne_bytes());
        out.extend(VERSION.to_ne_bytes());
        out.extend((REQUEST_SIZE as u16).to_ne_bytes());
        for word in [self.snaplen, self.sample, self.ring_size, self.lease_ms] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(selects.to_ne_bytes());
        out.extend(insns.to_ne_bytes());
        out.extend(self.flags.to_ne_bytes());
        for select in &self.selects {
            for word in [select.port, select.queue, select.dirs, 0] {
                out.extend(word.to_ne_bytes());
            }
        }
        for insn in &self.program {
            out.extend(insn.code.to_ne_bytes());
            out.extend([insn.jt, insn.jf]);
            out.extend(insn.k.to_ne_bytes());
        }
        Some(out)
    }
}

/// A later request of a consumer to an app, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMessage {
    /// [`TEE_SAMPLE`] or [`TEE_MAPPED`].
    pub kind: u16,
    /// Meaning depends on `kind`.
    pub value: u32,
}

impl ChangeMessage {
    /// Returns the datagram.
    pub fn encode(self) -> [u8; CHANGE_SIZE] {
        let mut out = [0; CHANGE_SIZE];
        out[..4].copy_from_slice(&TEE_MAGIC.to_ne_bytes());
        out[4..6].copy_from_slice(&VERSION.to_ne_bytes());
        out[6..8].copy_from_slice(&self.kind.to_ne_bytes());
        out[8..12].copy_from_slice(&self.value.to_ne_bytes());
        out
    }
}

/// A message of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppMessage {
    /// `TEE_*`.
    pub kind: u16,
    /// Meaning depends on `kind`.
    pub value: u32,
    /// Of a refusal for lack of memory: the largest ring size that fits, bytes; otherwise 0.
    pub ring_size: u32,
    /// Reason as text for the user; may be empty.
    pub text: String,
}

impl AppMessage {
    /// Returns the datagram; a text that is too long is truncated.
    pub fn encode(&self) -> [u8; MESSAGE_SIZE] {
        let mut out = [0; MESSAGE_SIZE];
        out[..4].copy_from_slice(&TEE_MAGIC.to_ne_bytes());
        out[4..6].copy_from_slice(&VERSION.to_ne_bytes());
        out[6..8].copy_from_slice(&self.kind.to_ne_bytes());
        out[8..12].copy_from_slice(&self.value.to_ne_bytes());
        out[12..16].copy_from_slice(&self.ring_size.to_ne_bytes());
        let room = &mut out[16..MESSAGE_SIZE - 1];
        let most = room.len().min(self.text.len());
        let end = (0..=most).rev().find(|end| self.text.is_char_boundary(*end)).unwrap_or(0);
        room[..end].copy_from_slice(&self.text.as_bytes()[..end]);
        out
    }

    /// Parses a datagram; `None` when it is not a message of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_SIZE] = bytes.try_into().ok()?;
        if u32_at(bytes, 0) != TEE_MAGIC || u16_at(bytes, 4) != VERSION {
            return None;
        }
        Some(Self {
            kind: u16_at(bytes, 6),
            value: u32_at(bytes, 8),
            ring_size: u32_at(bytes, 12),
            text: text(&bytes[16..]),
        })
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
