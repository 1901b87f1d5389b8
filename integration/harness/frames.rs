//! Packets of known conversations, and the files and streams that carry them.

// Headers hold the lower bits of lengths; frames have at most 1514 bytes.
#![allow(clippy::cast_possible_truncation)]

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::process::run_to_success;

/// Protocol numbers of what [`frame`] makes.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// SCTP.
pub const SCTP: u8 = 132;

const VXLAN_PORT: u16 = 4789;
const MAC: [u8; 12] = [2, b'p', b'm', b'd', 0, 1, 2, b'p', b'm', b'd', 0, 2];

/// One direction of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Protocol number.
    pub proto: u8,
    /// Sender; no port for ICMP.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// VLAN, where there is one.
    pub vlan: Option<u16>,
}

impl Way {
    /// The other direction of the same conversation.
    #[must_use]
    pub fn back(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}

/// A frame of `size` bytes or, where headers need more, of those; payload begins with `number`.
pub fn frame(way: Way, number: u64, tcp_flags: u8, size: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(size);
    frame.extend(MAC);
    if let Some(vlan) = way.vlan {
        frame.extend(0x8100_u16.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    let mut upper = transport(way, tcp_flags);
    let ip_bytes = if way.from.is_ipv4() { 20 } else { 40 };
    let before = frame.len() + 2 + ip_bytes + upper.len();
    let mut payload = size.saturating_sub(before).max(8);
    match way.proto {
        UDP => upper[4..6].copy_from_slice(&(8 + payload as u16).to_be_bytes()),
        SCTP => {
            payload = payload.next_multiple_of(4);
            upper[14..16].copy_from_slice(&(16 + payload as u16).to_be_bytes());
        }
        _ => {}
    }
    frame.extend(network(way, (upper.len() + payload) as u16));
    frame.extend(upper);
    frame.extend(number.to_be_bytes());
    frame.resize(frame.len() + payload - 8, 0x5a);
    frame
}

/// A frame in a VXLAN tunnel between two hosts.
pub fn in_vxlan(inner: &[u8], network_id: u32, tunnel: Way) -> Vec<u8> {
    let mut frame = MAC.to_vec();
    let udp_bytes = (8 + 8 + inner.len()) as u16;
    frame.extend(network(tunnel, udp_bytes));
    for field in [tunnel.from.port(), VXLAN_PORT, udp_bytes, 0] {
        frame.extend(field.to_be_bytes());
    }
    frame.extend([0x08, 0, 0, 0]);
    frame.extend((network_id << 8).to_be_bytes());
    frame.extend(inner);
    frame
}

/// Ethernet type and IP header.
fn network(way: Way, payload: u16) -> Vec<u8> {
    match (way.from.ip(), way.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, way.proto, 0, 0];
            header[2..4].copy_from_slice(&(20 + payload).to_be_bytes());
            header.extend(from.octets());
            header.extend(to.octets());
            let checksum = checksum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            [&[0x08, 0x00], header.as_slice()].concat()
        }
        (from, to) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let mut header = vec![0x86, 0xdd, 0x60, 0, 0, 0];
            header.extend(payload.to_be_bytes());
            header.extend([way.proto, 64]);
            header.extend(octets(from));
            header.extend(octets(to));
            header
        }
    }
}

/// Header of the transport protocol, without lengths and checksums.
fn transport(way: Way, tcp_flags: u8) -> Vec<u8> {
    let mut header = Vec::new();
    if way.proto == ICMP {
        return vec![8, 0, 0, 0, 0, 1, 0, 1];
    }
    header.extend(way.from.port().to_be_bytes());
    header.extend(way.to.port().to_be_bytes());
    match way.proto {
        TCP => header.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, tcp_flags, 0x10, 0, 0, 0, 0, 0]),
        // A verification tag, no checksum, and one chunk of data.
        SCTP => {
            header.extend([0, 0, 0, 7, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 1]);
            header.extend([0; 8]);
        }
        _ => header.extend([0, 0, 0, 0]),
    }
    header
}

fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The file header of a classic capture file: microseconds, Ethernet.
pub fn pcap_header() -> [u8; 24] {
    let mut header = [0; 24];
    let words = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65535, 1];
    for (field, word) in header.chunks_exact_mut(4).zip(words) {
        field.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

/// The record header of a frame in such a file, seen this many microseconds after the first.
pub fn record_header(us: u64, len: usize) -> [u8; 16] {
    let mut header = [0; 16];
    let seconds = 1_700_000_000 + us / 1_000_000;
    let words = [seconds as u32, (us % 1_000_000) as u32, len as u32, len as u32];
    for (field, word) in header.chunks_exact_mut(4).zip(words) {
        field.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

/// Writes a capture file, a packet each microsecond.
pub fn write_pcap(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    file.write_all(&pcap_header())?;
    for (us, frame) in (0..).zip(frames) {
        file.write_all(&record_header(us, frame.len()))?;
        file.write_all(frame)?;
    }
    Ok(file.flush()?)
}

/// A named pipe for the `rx_pcap` of a `net_pcap` device: a file whose packets come when they are due.
/// The device waits in its poll loop for the next packet, and reads the end when this is dropped.
pub struct Feed {
    path: PathBuf,
    opened: Option<JoinHandle<std::io::Result<std::fs::File>>>,
    file: Option<std::fs::File>,
}

/// Frames per write: a burst.
const CHUNK: usize = 32;

impl Feed {
    /// Makes the pipe. The header of the file is written as soon as a device opens it.
    pub fn new(path: PathBuf) -> Result<Self> {
        run_to_success(Command::new("mkfifo").arg(&path))?;
        let pipe = path.clone();
        // This waits for the reader, which is yet to be started.
        let opened = thread::spawn(move || {
            let mut file = OpenOptions::new().write(true).open(pipe)?;
            file.write_all(&pcap_header())?;
            Ok(file)
        });
        Ok(Self { path, opened: Some(opened), file: None })
    }

    /// The path that the device opens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands out frames, at most this many per second. The device keeps an incomplete burst until the end.
    pub fn play(&mut self, frames: &[Vec<u8>], per_second: u64) -> Result<()> {
        if let Some(opened) = self.opened.take() {
            let file = opened.join().map_err(|_| anyhow!("the thread of the pipe has died"))?;
            self.file = Some(file.context("open the pipe")?);
        }
        let file = self.file.as_mut().context("the pipe is closed")?;
        let pause = Duration::from_secs(CHUNK as u64) / u32::try_from(per_second)?;
        for (at, chunk) in frames.chunks(CHUNK).enumerate() {
            let mut bytes = Vec::new();
            for (us, frame) in (at * CHUNK..).zip(chunk) {
                bytes.extend(record_header(us as u64, frame.len()));
                bytes.extend(frame);
            }
            file.write_all(&bytes).context("feed net_pcap")?;
            sleep(pause);
        }
        Ok(())
    }

    /// Ends the file: the device hands out what it has and then nothing.
    pub fn end(&mut self) {
        self.file = None;
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Without a reader, the thread would wait for ever to open the pipe.
        let _ = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(&self.path);
    }
}
