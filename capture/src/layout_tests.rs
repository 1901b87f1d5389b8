//! Tests of the layout, against the C header.

use std::fmt::Write;
use std::process::Command;

use pmdscope_testing::output;
use proptest::prelude::*;

use pmdscope_packets::{DIR_RX, DIR_TX};

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
    ("PMDSCOPE_RING_F_PACKET_TSC", FEATURE_PACKET_TSC as usize),
    ("PMDSCOPE_RING_F_RESAMPLE", FEATURE_RESAMPLE as usize),
    ("PMDSCOPE_RING_F_IN_BURST", FEATURE_IN_BURST as usize),
    ("PMDSCOPE_RING_F_MAPPED", FEATURE_MAPPED as usize),
    ("PMDSCOPE_RECORD_PACKET", RECORD_PACKET as usize),
    ("PMDSCOPE_RECORD_SAMPLE", RECORD_SAMPLE as usize),
    ("PMDSCOPE_RECORD_PAD", RECORD_PAD as usize),
    ("PMDSCOPE_DIR_RX", DIR_RX as usize),
    ("PMDSCOPE_DIR_TX", DIR_TX as usize),
    ("PMDSCOPE_RECORD_F_ATTEMPT", RECORD_ATTEMPT as usize),
    ("PMDSCOPE_RECORD_LEAK", RECORD_LEAK as usize),
    ("PMDSCOPE_LEAK_LOST", LEAK_LOST as usize),
    ("PMDSCOPE_LEAK_TX_LOST", LEAK_TX_LOST as usize),
    ("PMDSCOPE_LEAK_PINNED", LEAK_PINNED as usize),
    ("PMDSCOPE_TEE_F_LEAKED", TEE_LEAKED as usize),
    ("PMDSCOPE_TEE_F_PACKET_TSC", TEE_PACKET_TSC as usize),
    ("PMDSCOPE_TEE_F_HEADERS", TEE_HEADERS as usize),
    ("PMDSCOPE_TEE_ANY", ANY as usize),
    ("PMDSCOPE_TEE_MAX_SELECTS", MAX_SELECTS),
    ("PMDSCOPE_TEE_MAX_INSNS", MAX_INSNS),
    ("PMDSCOPE_TEE_SAMPLE", TEE_SAMPLE as usize),
    ("PMDSCOPE_TEE_MAPPED", TEE_MAPPED as usize),
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
    ("offsetof(struct pmdscope_ring_hdr, in_burst)", IN_BURST),
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
    ("sizeof(struct pmdscope_leak)", LEAK_SIZE),
    ("offsetof(struct pmdscope_leak, mbuf)", 0),
    ("offsetof(struct pmdscope_leak, age_ms)", 8),
    ("offsetof(struct pmdscope_leak, site)", 16),
    ("offsetof(struct pmdscope_leak, kind)", 20),
    ("offsetof(struct pmdscope_leak, pool)", LEAK_POOL),
    ("offsetof(struct pmdscope_leak, pool) + PMDSCOPE_LEAK_POOL_SIZE", LEAK_SIZE),
    ("sizeof(struct pmdscope_tee_select)", 8),
    ("sizeof(struct pmdscope_insn)", size_of::<BpfInsn>()),
    ("offsetof(struct pmdscope_insn, k)", 4),
    ("sizeof(struct pmdscope_tee_request)", REQUEST_SIZE),
    ("offsetof(struct pmdscope_tee_request, nb_selects)", 24),
    ("offsetof(struct pmdscope_tee_request, nb_insns)", 26),
    ("offsetof(struct pmdscope_tee_request, flags)", 28),
    ("sizeof(struct pmdscope_tee_change)", CHANGE_SIZE),
    ("offsetof(struct pmdscope_tee_change, kind)", 6),
    ("offsetof(struct pmdscope_tee_change, value)", 8),
    ("sizeof(struct pmdscope_tee_message)", MESSAGE_SIZE),
    ("offsetof(struct pmdscope_tee_message, kind)", 6),
    ("offsetof(struct pmdscope_tee_message, value)", 8),
    ("offsetof(struct pmdscope_tee_message, ring_size)", 12),
    ("offsetof(struct pmdscope_tee_message, text)", 16),
];

#[test]
fn layout_agrees_with_the_c_header() {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../lib/include/pmdscope_ring.h");
    let mut source = format!("#include <stddef.h>\n#include \"{header}\"\n");
    for (expression, value) in GOLDEN {
        writeln!(source, "_Static_assert(({expression}) == {value}, \"{expression}\");").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("golden.c");
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    let Some(out) = output(cc.arg("-fsyntax-only").arg("-std=c11").arg(&file)) else { return };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn request_is_header_selects_and_instructions() {
    let request = CaptureRequest {
        snaplen: 128,
        sample: 10,
        ring_size: 1 << 20,
        shrinks: true,
        lease_ms: 0,
        selects: vec![QueueSelect { port: 3, queue: ANY, dirs: 3 }],
        program: vec![BpfInsn { code: 6, jt: 1, jf: 2, k: 0x0102_0304 }],
        flags: TEE_LEAKED,
    };
    let bytes = request.encode().unwrap();
    assert_eq!(bytes.len(), REQUEST_SIZE + 16);
    assert_eq!(&bytes[24..28], [1u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
    assert_eq!(&bytes[28..32], TEE_LEAKED.to_ne_bytes());
    assert_eq!(&bytes[32..40], [3u16, ANY, 3, 0].map(u16::to_ne_bytes).concat());
    assert_eq!(&bytes[40..44], [6u16.to_ne_bytes(), [1, 2]].concat());
    assert_eq!(&bytes[44..], 0x0102_0304_u32.to_ne_bytes());
}

#[test]
fn change_is_magic_version_kind_and_value() {
    let bytes = ChangeMessage { kind: TEE_SAMPLE, value: 0x0102_0304 }.encode();
    assert_eq!(&bytes[..4], TEE_MAGIC.to_ne_bytes());
    assert_eq!(&bytes[4..8], [VERSION.to_ne_bytes(), TEE_SAMPLE.to_ne_bytes()].concat());
    assert_eq!(&bytes[8..], [0x0102_0304_u32.to_ne_bytes(), [0; 4]].concat());
}

#[test]
fn request_beyond_the_limits_is_not_encoded() {
    let insn = BpfInsn { code: 6, jt: 0, jf: 0, k: 0 };
    let mut request =
        CaptureRequest { program: vec![insn; MAX_INSNS], ..CaptureRequest::default() };
    assert!(request.encode().is_some());
    request.program.push(insn);
    assert!(request.encode().is_none());
}

proptest! {
    #[test]
    fn any_bytes_describe_a_leak(bytes in proptest::collection::vec(any::<u8>(), LEAK_SIZE)) {
        let leak = LeakInfo::parse(bytes.as_slice().try_into().unwrap());
        prop_assert_eq!(&leak.mbuf.to_ne_bytes()[..], &bytes[..8]);
        prop_assert_eq!(&leak.site.to_ne_bytes()[..], &bytes[16..20]);
        prop_assert_eq!(leak.kind, bytes[20]);
        prop_assert!(!leak.pool.contains(char::is_control));
    }

    #[test]
    fn any_datagram_is_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let message = AppMessage::parse(&bytes);
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
        bytes.extend(65536u32.to_ne_bytes());
        bytes.extend(&text);
        let message = AppMessage::parse(&bytes).unwrap();
        prop_assert_eq!((message.kind, message.value), (TEE_REFUSE, 13));
        prop_assert_eq!(message.ring_size, 65536);
        prop_assert!(!message.text.contains(char::is_control));
    }
}
