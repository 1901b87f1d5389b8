//! The bytes of the capture ring and of the messages that hand it over: `pmdscope_ring.h` in Rust.
//!
//! Everything is parsed from bytes that were copied out first, in host byte order.

/// First word of a ring header.
pub const RING_MAGIC: u32 = 0x5244_4d50;
/// First word of a socket message.
pub const TEE_MAGIC: u32 = 0x5444_4d50;
/// Version of layout and messages that this crate speaks.
pub const VERSION: u16 = 1;

/// Bytes in front of the ring data.
pub const RING_HEADER_SIZE: usize = 4096;
/// Bytes of a ring header that are in use.
pub const RING_HEADER_USED: usize = 448;
/// Alignment of every record, bytes.
pub const RING_ALIGN: u32 = 16;
/// Smallest data size of a ring, bytes.
pub const RING_MIN_SIZE: u32 = 1 << 16;
/// Largest data size of a ring, bytes.
pub const RING_MAX_SIZE: u32 = 1 << 26;
/// Ports whose drops a ring counts one by one.
pub const RING_PORTS: usize = 32;
/// Bytes of the tail memfd that must be there.
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
/// Offset of `port_dropped`.
pub const PORT_DROPPED: usize = 192;

/// The producer counts drops per port and per gap.
pub const FEATURE_GAPS: u32 = 1;

/// Bytes of a record header.
pub const RECORD_SIZE: usize = 32;
/// Record type: a packet.
pub const RECORD_PACKET: u8 = 1;
/// Record type: fills the ring up to its end.
pub const RECORD_PAD: u8 = 0xff;
/// Direction: received by the app.
pub const DIR_RX: u8 = 1;
/// Direction: sent by the app.
pub const DIR_TX: u8 = 2;
/// Record flag: offered to the NIC, not known to be taken.
pub const RECORD_ATTEMPT: u16 = 1;

/// Any port or any queue.
pub const ANY: u16 = 0xffff;
/// Most selections of a request.
pub const MAX_SELECTS: usize = 64;
/// Most BPF instructions of a request.
pub const MAX_INSNS: usize = 512;
/// Largest (and default) snap length, bytes.
pub const MAX_SNAPLEN: u32 = 262_144;

/// Bytes of a request's header.
pub const REQUEST_SIZE: usize = 32;
/// Bytes of a message to the consumer.
pub const MESSAGE_SIZE: usize = 128;
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

/// The part of a ring header that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingHeader {
    /// [`RING_MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// [`RING_HEADER_SIZE`].
    pub header_size: u16,
    /// Bytes of data behind the header, a power of two.
    pub data_size: u32,
    /// [`RECORD_SIZE`].
    pub record_size: u16,
    /// The lcore that produces.
    pub lcore: u16,
    /// `FEATURE_*` bits.
    pub features: u32,
    /// Most bytes copied of one packet.
    pub snaplen: u32,
}

impl RingHeader {
    /// Bytes that [`RingHeader::parse`] looks at.
    pub const SIZE: usize = 24;

    /// Reads the fields; judges none.
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
pub struct Anchor {
    /// Time-stamp counter, cycles.
    pub tsc: u64,
    /// `CLOCK_REALTIME`, nanoseconds.
    pub realtime_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`, nanoseconds.
    pub raw_ns: u64,
}

/// Header of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Bytes of the record with header and padding.
    pub size: u32,
    /// `RECORD_PACKET`, `RECORD_PAD` or unknown.
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
    /// TSC when the burst was seen.
    pub tsc: u64,
}

impl Record {
    /// Reads size and type, all that every record is sure to have.
    pub fn parse_size_and_kind(bytes: [u8; 8]) -> (u32, u8) {
        (u32_at(&bytes, 0), bytes[4])
    }

    /// Reads the fields; judges none.
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
}

/// Queues to copy from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// Port id, or [`ANY`].
    pub port: u16,
    /// Queue, or [`ANY`].
    pub queue: u16,
    /// Bit set of [`DIR_RX`] and [`DIR_TX`].
    pub dirs: u16,
}

/// One classic BPF instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Operation.
    pub code: u16,
    /// Jump if true.
    pub jt: u8,
    /// Jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// What a consumer asks of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Most bytes of a packet, 1 to [`MAX_SNAPLEN`]; 0 means the latter.
    pub snaplen: u32,
    /// Keep one packet in this many; 0 and 1 keep all.
    pub sample: u32,
    /// Bytes per ring, a power of two; 0 leaves it to the app.
    pub ring_size: u32,
    /// Disarm when a full ring is not read for so long, milliseconds; 0 leaves it to the app.
    pub lease_ms: u32,
    /// Queues, 1 to [`MAX_SELECTS`].
    pub selects: Vec<Select>,
    /// Filter, up to [`MAX_INSNS`]; empty keeps everything.
    pub program: Vec<Insn>,
}

impl Request {
    /// The datagram; `None` when there are too many selections or instructions.
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
        out.extend([0; 4]);
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

/// A message of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `TEE_*`.
    pub kind: u16,
    /// By kind.
    pub value: u32,
    /// Reason for people, may be empty.
    pub text: String,
}

impl Message {
    /// Reads a datagram; `None` when it is not a message of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_SIZE] = bytes.try_into().ok()?;
        if u32_at(bytes, 0) != TEE_MAGIC || u16_at(bytes, 4) != VERSION {
            return None;
        }
        let text = bytes[16..].split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text).replace(|c: char| c.is_control(), " ");
        Some(Self { kind: u16_at(bytes, 6), value: u32_at(bytes, 8), text })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// Every size and offset that this file hard-codes, as C expressions on `pmdscope_ring.h`.
    const GOLDEN: &[(&str, usize)] = &[
        ("PMDSCOPE_RING_MAGIC", RING_MAGIC as usize),
        ("PMDSCOPE_TEE_MAGIC", TEE_MAGIC as usize),
        ("PMDSCOPE_RING_VERSION", VERSION as usize),
        ("PMDSCOPE_RING_HDR_SIZE", RING_HEADER_SIZE),
        ("PMDSCOPE_RING_ALIGN", RING_ALIGN as usize),
        ("PMDSCOPE_RING_MIN_SIZE", RING_MIN_SIZE as usize),
        ("PMDSCOPE_RING_MAX_SIZE", RING_MAX_SIZE as usize),
        ("PMDSCOPE_RING_PORTS", RING_PORTS),
        ("PMDSCOPE_RING_F_GAPS", FEATURE_GAPS as usize),
        ("PMDSCOPE_RECORD_PACKET", RECORD_PACKET as usize),
        ("PMDSCOPE_RECORD_PAD", RECORD_PAD as usize),
        ("PMDSCOPE_DIR_RX", DIR_RX as usize),
        ("PMDSCOPE_DIR_TX", DIR_TX as usize),
        ("PMDSCOPE_RECORD_F_ATTEMPT", RECORD_ATTEMPT as usize),
        ("PMDSCOPE_TEE_ANY", ANY as usize),
        ("PMDSCOPE_TEE_MAX_SELECTS", MAX_SELECTS),
        ("PMDSCOPE_TEE_MAX_INSNS", MAX_INSNS),
        ("PMDSCOPE_TEE_ACCEPT", TEE_ACCEPT as usize),
        ("PMDSCOPE_TEE_REFUSE", TEE_REFUSE as usize),
        ("PMDSCOPE_TEE_RING", TEE_RING as usize),
        ("PMDSCOPE_TEE_END", TEE_END as usize),
        ("sizeof(struct pmdscope_ring_hdr)", RING_HEADER_USED),
        ("offsetof(struct pmdscope_ring_hdr, version)", 4),
        ("offsetof(struct pmdscope_ring_hdr, hdr_size)", 6),
        ("offsetof(struct pmdscope_ring_hdr, data_size)", 8),
        ("offsetof(struct pmdscope_ring_hdr, record_size)", 12),
        ("offsetof(struct pmdscope_ring_hdr, lcore)", 14),
        ("offsetof(struct pmdscope_ring_hdr, features)", 16),
        ("offsetof(struct pmdscope_ring_hdr, snaplen)", 20),
        ("offsetof(struct pmdscope_ring_hdr, anchor_seq)", ANCHOR_SEQ),
        ("offsetof(struct pmdscope_ring_hdr, first)", ANCHORS),
        ("offsetof(struct pmdscope_ring_hdr, last)", ANCHORS + ANCHOR_SIZE),
        ("offsetof(struct pmdscope_ring_hdr, head)", HEAD),
        ("offsetof(struct pmdscope_ring_hdr, records)", RECORDS),
        ("offsetof(struct pmdscope_ring_hdr, dropped)", DROPPED),
        ("offsetof(struct pmdscope_ring_hdr, filtered)", FILTERED),
        ("offsetof(struct pmdscope_ring_hdr, sampled_out)", SAMPLED_OUT),
        ("offsetof(struct pmdscope_ring_hdr, port_dropped)", PORT_DROPPED),
        ("sizeof(struct pmdscope_anchor)", ANCHOR_SIZE),
        ("offsetof(struct pmdscope_anchor, realtime_ns)", 8),
        ("offsetof(struct pmdscope_anchor, raw_ns)", 16),
        ("sizeof(struct pmdscope_ring_tail)", TAIL_SIZE),
        ("sizeof(struct pmdscope_record)", RECORD_SIZE),
        ("offsetof(struct pmdscope_record, type)", 4),
        ("offsetof(struct pmdscope_record, dir)", 5),
        ("offsetof(struct pmdscope_record, flags)", 6),
        ("offsetof(struct pmdscope_record, caplen)", 8),
        ("offsetof(struct pmdscope_record, len)", 12),
        ("offsetof(struct pmdscope_record, port)", 16),
        ("offsetof(struct pmdscope_record, queue)", 18),
        ("offsetof(struct pmdscope_record, gap)", 20),
        ("offsetof(struct pmdscope_record, tsc)", 24),
        ("sizeof(struct pmdscope_tee_select)", 8),
        ("sizeof(struct pmdscope_insn)", size_of::<Insn>()),
        ("offsetof(struct pmdscope_insn, k)", 4),
        ("sizeof(struct pmdscope_tee_request)", REQUEST_SIZE),
        ("offsetof(struct pmdscope_tee_request, nb_selects)", 24),
        ("offsetof(struct pmdscope_tee_request, nb_insns)", 26),
        ("sizeof(struct pmdscope_tee_message)", MESSAGE_SIZE),
        ("offsetof(struct pmdscope_tee_message, kind)", 6),
        ("offsetof(struct pmdscope_tee_message, value)", 8),
        ("offsetof(struct pmdscope_tee_message, text)", 16),
    ];

    #[test]
    fn layout_agrees_with_the_c_header() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../lib/include/pmdscope_ring.h");
        let mut source = format!("#include <stddef.h>\n#include \"{header}\"\n");
        for (expression, value) in GOLDEN {
            writeln!(source, "_Static_assert(({expression}) == {value}, \"{expression}\");")
                .unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("golden.c");
        std::fs::write(&file, source).unwrap();
        match Command::new("cc").arg("-fsyntax-only").arg("-std=c11").arg(&file).output() {
            Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
            Err(error) => eprintln!("SKIP: no C compiler: {error}"),
        }
    }

    #[test]
    fn request_is_header_selects_and_instructions() {
        let request = Request {
            snaplen: 128,
            sample: 10,
            ring_size: 1 << 20,
            lease_ms: 0,
            selects: vec![Select { port: 3, queue: ANY, dirs: 3 }],
            program: vec![Insn { code: 6, jt: 1, jf: 2, k: 0x0102_0304 }],
        };
        let bytes = request.encode().unwrap();
        assert_eq!(bytes.len(), REQUEST_SIZE + 16);
        assert_eq!(&bytes[24..28], [1u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
        assert_eq!(&bytes[32..40], [3u16, ANY, 3, 0].map(u16::to_ne_bytes).concat());
        assert_eq!(&bytes[40..44], [6u16.to_ne_bytes(), [1, 2]].concat());
        assert_eq!(&bytes[44..], 0x0102_0304_u32.to_ne_bytes());
    }

    #[test]
    fn request_beyond_the_limits_is_not_encoded() {
        let insn = Insn { code: 6, jt: 0, jf: 0, k: 0 };
        let mut request = Request {
            snaplen: 0,
            sample: 0,
            ring_size: 0,
            lease_ms: 0,
            selects: vec![],
            program: vec![insn; MAX_INSNS],
        };
        assert!(request.encode().is_some());
        request.program.push(insn);
        assert!(request.encode().is_none());
    }

    proptest! {
        #[test]
        fn any_datagram_is_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let message = Message::parse(&bytes);
            prop_assert!(message.is_none() || bytes.len() == MESSAGE_SIZE);
        }

        #[test]
        fn message_text_ends_at_nul_and_has_no_control_characters(
            text in proptest::collection::vec(any::<u8>(), 112),
        ) {
            let mut bytes = TEE_MAGIC.to_ne_bytes().to_vec();
            bytes.extend(VERSION.to_ne_bytes());
            bytes.extend(TEE_REFUSE.to_ne_bytes());
            bytes.extend(13u32.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(&text);
            let message = Message::parse(&bytes).unwrap();
            prop_assert_eq!((message.kind, message.value), (TEE_REFUSE, 13));
            prop_assert!(!message.text.contains(char::is_control));
        }
    }
}
