//! Packets to capture with a filter, and counting the packets of a capture.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Packets of the pattern; one of them matches.
pub(crate) const PATTERN: u64 = 100;
/// The filter that it matches.
pub(crate) const FILTER: &str = "udp dst port 7";

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const PACKET: u32 = 6;

/// Writes a pcap file of UDP packets of this size, one in [`PATTERN`] to the port of [`FILTER`].
pub(crate) fn write_pattern(path: &Path, size: u16) -> Result<()> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        out.extend(word.to_ne_bytes());
    }
    for number in 0..PATTERN {
        let packet = udp(size, if number == PATTERN / 2 { 7 } else { 9 });
        for word in [0, 0, u32::from(size), u32::from(size)] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(packet);
    }
    fs::write(path, out).with_context(|| path.display().to_string())
}

fn udp(size: u16, port: u16) -> Vec<u8> {
    let mut packet = vec![0; usize::from(size)];
    packet[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    packet[14] = 0x45;
    packet[16..18].copy_from_slice(&(size - 14).to_be_bytes());
    packet[22] = 64;
    packet[23] = 17;
    packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[34..36].copy_from_slice(&1024u16.to_be_bytes());
    packet[36..38].copy_from_slice(&port.to_be_bytes());
    packet[38..40].copy_from_slice(&(size - 34).to_be_bytes());
    packet
}

/// Packets in a pcapng file of any program and size, counted block by block.
pub(crate) fn count_packets(path: &Path) -> Result<u64> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut packets = 0;
    let mut head = [0; 8];
    while read_whole(&mut file, &mut head)? {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        let (kind, size) = (word(0), word(4));
        if size < 12 || (packets == 0 && kind != SECTION_HEADER && kind > PACKET) {
            bail!("{} is no pcapng file of this machine", path.display());
        }
        packets += u64::from(kind == PACKET);
        file.seek_relative(i64::from(size) - 8)?;
    }
    Ok(packets)
}

/// False at the end of the file, also within a block header.
fn read_whole(file: &mut impl Read, bytes: &mut [u8]) -> Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error.into()),
    }
}
