//! Tests of the redaction of capture files.

use std::fs;
use std::net::Ipv4Addr;

use super::*;

/// A capture file with a UDP packet, comments with an address and a payload.
fn capture() -> Vec<u8> {
    let mut out = Vec::new();
    let text = b"host 198.18.0.1";
    block(&mut out, SECTION_HEADER, &section(&[(4, b"pmdscope of 198.18.0.1"), (99, text)]));
    let mut interface = vec![1, 0, 0, 0, 0, 0, 4, 0];
    let filter = [&[0], &text[..]].concat();
    add(&mut interface, &[(2, b"fwd:0"), (9, &[9]), (4, &[198, 18, 0, 1]), (11, &filter)]);
    block(&mut out, INTERFACE, &interface);
    let frame = frame();
    let size = u32::try_from(frame.len()).unwrap().to_ne_bytes();
    let mut packet = [[0; 4], 7_u32.to_ne_bytes(), 8_u32.to_ne_bytes(), size, size].concat();
    padded(&mut packet, &frame);
    add(&mut packet, &[(1, text), (2, &1_u32.to_ne_bytes()), (2988, text)]);
    block(&mut out, PACKET, &packet);
    // Names of hosts.
    block(&mut out, 4, &[1, 0, 8, 0, 198, 18, 0, 1, b'g', b'w', b'7', 0, 0, 0, 0, 0]);
    out
}

fn section(options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = BYTE_ORDER_MAGIC.to_ne_bytes().to_vec();
    body.extend_from_slice(&[1_u16.to_ne_bytes(), 0_u16.to_ne_bytes()].concat());
    body.extend_from_slice(&[0xff; 8]);
    add(&mut body, options);
    body
}

fn add(body: &mut Vec<u8>, options: &[(u16, &[u8])]) {
    for (code, value) in options {
        option(body, *code, value);
    }
    option(body, 0, &[]);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let size = u32::try_from(body.len() + 12).unwrap().to_ne_bytes();
    out.extend_from_slice(&[&kind.to_ne_bytes(), &size, body, &size].concat());
}

fn frame() -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 42, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&[198, 18, 0, 1, 198, 19, 0, 2, 0xc0, 0, 0, 53, 0, 22, 1, 2]);
    frame.extend_from_slice(b"secret payload");
    frame
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn packets_comments_and_names_are_redacted() {
    let file = capture();
    let mut redactor = Redactor::new(&[]).unwrap();
    let out = redact(&file, &mut redactor).unwrap();
    for part in [&b"secret"[..], b"198.18.0.1", &[198, 18, 0, 1], &[198, 19, 0, 2], b"gw7", &[2; 6]]
    {
        assert!(contains(&file, part), "{part:?} is not in the file");
        assert!(!contains(&out, part), "{part:?} is left");
    }
    let pseudonym = redactor.text("198.18.0.1").into_owned();
    assert!(contains(&out, format!("host {pseudonym}").as_bytes()), "comments say the same");
    let octets = pseudonym.parse::<Ipv4Addr>().unwrap().octets();
    assert!(contains(&out, &octets), "packets say the same");
    assert!(contains(&out, b"fwd:0"));
    assert_eq!(pmdscope_packets::pcapng::whole(&out), (out.len(), 1));
}

#[test]
fn a_block_that_is_cut_off_is_left_out() {
    let file = capture();
    let mut redactor = Redactor::new(&[]).unwrap();
    for end in 28..file.len() {
        if let Ok(out) = redact(&file[..end], &mut redactor) {
            assert_eq!(pmdscope_packets::pcapng::whole(&out).0, out.len(), "cut at {end}");
        }
    }
}

#[test]
fn another_file_is_refused() {
    let mut redactor = Redactor::new(&[]).unwrap();
    for wrong in [&b""[..], b"abcdefghijklmnop", &[0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        assert!(redact(wrong, &mut redactor).is_err());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("binary");
    fs::write(&path, [0xff, 0xfe, 198, 18, 0, 1]).unwrap();
    assert!(redactor.file(&path).is_err(), "what is not text is not a part of a bundle");
}
