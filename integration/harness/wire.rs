//! The packets that the generator sends, built again from its rules, and the packets of a capture
//! file.

// Packets have at most 1514 bytes, and headers hold the lower bits of sums.
#![allow(clippy::cast_possible_truncation)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{LIMIT, run};

/// Magic of a classic pcap file with nanoseconds, in the byte order of this machine.
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAP_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

const UDP_AT: usize = 34;
const PROBE_AT: usize = 42;
const FILL_AT: usize = 60;
const PROBE_MAGIC: u16 = 0x504d;
/// Numbers and time stamps in the header have 48 bits.
const NUMBER_MASK: u64 = (1 << 48) - 1;
/// Packets of one lane are numbered in the lower bits of the seed.
const LANE_SHIFT: u32 = 48;

/// A packet out of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Wall clock, nanoseconds.
    pub ns: u64,
    /// Bytes on the wire.
    pub len: u32,
    /// Bytes kept.
    pub data: Vec<u8>,
}

impl Captured {
    /// Number of the packet, from its probe header.
    pub fn sequence(&self) -> Result<u64> {
        Ok(self.probe_field(PROBE_AT + 4)? & NUMBER_MASK)
    }

    /// The lower 48 bits of the TSC of its sending, from its probe header.
    pub fn tsc(&self) -> Result<u64> {
        Ok(self.probe_field(PROBE_AT + 10)? & NUMBER_MASK)
    }

    fn run_and_lane(&self) -> Result<(u16, u16)> {
        let field = self.probe_field(PROBE_AT)?;
        Ok(((field >> 32) as u16, (field >> 16) as u16))
    }

    fn probe_field(&self, at: usize) -> Result<u64> {
        let bytes = self.data.get(at..at + 8).context("a packet without a whole probe header")?;
        Ok(u64::from_be_bytes(bytes.try_into()?))
    }
}

/// The packets of a capture file of any format that Wireshark reads, by its `editcap`.
pub fn captured(file: &Path) -> Result<Vec<Captured>> {
    // Not next to the file: its disk may be full.
    let dir = tempfile::tempdir()?;
    let plain = dir.path().join("plain.pcap");
    let mut editcap = Command::new("editcap");
    editcap.args(["-F", "nsecpcap"]).arg(file).arg(&plain);
    let (code, _, err) = run(&mut editcap, dir.path(), LIMIT)?;
    ensure!(code == 0, "editcap {} failed ({code}): {err}", file.display());
    parse(&std::fs::read(&plain)?)
}

/// As [`captured`], for files that continue each other.
pub fn captured_in_turn(files: &[PathBuf]) -> Result<Vec<Captured>> {
    let parts = files.iter().map(|file| captured(file)).collect::<Result<Vec<_>>>()?;
    Ok(parts.concat())
}

fn parse(bytes: &[u8]) -> Result<Vec<Captured>> {
    ensure!(bytes.len() >= PCAP_HEADER, "editcap wrote {} bytes", bytes.len());
    ensure!(word(bytes, 0) == PCAP_NANOSECONDS, "editcap wrote no nanoseconds");
    let mut packets = Vec::new();
    let mut rest = &bytes[PCAP_HEADER..];
    while !rest.is_empty() {
        ensure!(rest.len() >= RECORD_HEADER, "editcap wrote half a packet header");
        let seconds = u64::from(word(rest, 0));
        let ns = seconds * 1_000_000_000 + u64::from(word(rest, 4));
        let end = RECORD_HEADER + word(rest, 8) as usize;
        let data = rest.get(RECORD_HEADER..end).context("editcap wrote half a packet")?;
        packets.push(Captured { ns, len: word(rest, 12), data: data.to_vec() });
        rest = &rest[end..];
    }
    Ok(packets)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The generator's command line, as far as packets depend on it: IPv4 with `--fill`.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// `--src-mac`.
    pub src_mac: [u8; 6],
    /// `--size A-B`.
    pub sizes: (u16, u16),
    /// `--flows`.
    pub flows: u16,
}

impl Traffic {
    /// The arguments.
    pub fn arguments(&self) -> Vec<String> {
        let mac = self.src_mac.map(|byte| format!("{byte:02x}")).join(":");
        let sizes = format!("{}-{}", self.sizes.0, self.sizes.1);
        let flows = self.flows.to_string();
        ["--fill", "--src-mac", &mac, "--size", &sizes, "--flows", &flows]
            .map(str::to_owned)
            .to_vec()
    }

    /// Demands that the packets are those with the numbers `from..`, byte for byte, each with the
    /// length on the wire and kept up to `snaplen`.
    pub fn check(&self, packets: &[Captured], from: u64, snaplen: usize) -> Result<()> {
        let run_and_lane = packets.first().map(Captured::run_and_lane).transpose()?;
        for (expected, packet) in (from..).zip(packets) {
            let (run, lane) = run_and_lane.unwrap_or_default();
            let whole = self.packet(expected, run, lane, packet.tsc()?);
            let kept = &whole[..whole.len().min(snaplen)];
            if packet.len as usize != whole.len() || packet.data != kept {
                bail!(
                    "packet {expected} is not what was sent ({} of {} bytes):\n{:02x?}\nsent:\n{kept:02x?}",
                    packet.data.len(),
                    packet.len,
                    packet.data,
                );
            }
        }
        Ok(())
    }

    /// One packet as it was sent.
    fn packet(&self, seq: u64, run: u16, lane: u16, tsc: u64) -> Vec<u8> {
        let (least, most) = (u64::from(self.sizes.0), u64::from(self.sizes.1));
        let size = (least + seq % (most - least + 1)) as usize;
        let flow = (seq % u64::from(self.flows)) as u16;
        let mut frame = Vec::with_capacity(size);
        frame.extend([0x02, b'p', b'm', b'd', b's', 2]);
        frame.extend(self.src_mac);
        frame.extend([0x08, 0x00]);
        frame.extend(ipv4_header((size - 14) as u16));
        let udp_len = (size - UDP_AT) as u16;
        for field in [49152 + flow, 7, udp_len, 0] {
            frame.extend(field.to_be_bytes());
        }
        frame.extend(PROBE_MAGIC.to_be_bytes());
        frame.extend(run.to_be_bytes());
        frame.extend(lane.to_be_bytes());
        frame.extend(&seq.to_be_bytes()[2..]);
        frame.extend(&tsc.to_be_bytes()[2..]);
        frame.extend(fill(u64::from(lane) << LANE_SHIFT | seq).take(size - FILL_AT));
        let pseudo = [&frame[26..34], &[0, 17], &udp_len.to_be_bytes()].concat();
        let checksum = match !folded([&pseudo, &frame[UDP_AT..]]) {
            0 => 0xffff,
            sum => sum,
        };
        frame[UDP_AT + 6..UDP_AT + 8].copy_from_slice(&checksum.to_be_bytes());
        frame
    }
}

fn ipv4_header(len: u16) -> [u8; 20] {
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 19, 0, 1];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let checksum = !folded([&header[..], &[]]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// One's complement sum of big-endian words; an odd end counts as if a zero followed.
fn folded(parts: [&[u8]; 2]) -> u16 {
    let words = parts.into_iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default()))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The generator's payload: words of `SplitMix64`, little-endian.
fn fill(mut state: u64) -> impl Iterator<Item = u8> {
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    })
    .flatten()
}
