//! One tcpdump process that prints packets.
//!
//! Each packet is passed to tcpdump with a number in place of the seconds, and a secret in place of
//! the fraction, which tcpdump prints before the first line of the packet. This identifies
//! the packet of each line whatever the packets contain, because they do not contain the secret.
//! Number, time, interface and direction are added by pmdscope.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pmdscope_packets::{ETHERNET, SinkError};

use super::ViewArgs;
use super::child::{LineHandler, Running};
use super::lines::{LinePrefix, append};
use super::stage::Head;

const NAME: &str = "tcpdump";
/// Start of a file with nanoseconds: magic, version, zone, accuracy, snap length.
const HEADER: [u32; 5] = [
    0xa1b2_3c4d,
    if cfg!(target_endian = "little") { 0x0004_0002 } else { 0x0002_0004 },
    0,
    0,
    262_144,
];
/// Numbers begin again before tcpdump would take them for negative.
const NUMBERS: u32 = 1 << 31;

/// Interval of checks during a wait whether tcpdump still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Types of packets that tcpdump 4.99 accepts.
const PACKET_TYPES: [&str; 21] = [
    "aodv",
    "carp",
    "cnfp",
    "domain",
    "lmp",
    "pgm",
    "pgm_zmtp1",
    "ptp",
    "quic",
    "radius",
    "resp",
    "rpc",
    "rtcp",
    "rtp",
    "snmp",
    "someip",
    "tftp",
    "vat",
    "vxlan",
    "wb",
    "zmtp1",
];

/// A packet that tcpdump has not yet printed.
struct PendingPacket {
    number: u32,
    shown: LineStart,
}

/// What the line of a packet begins with; `None` for a packet of our own, which is not shown.
type LineStart = Option<(Head, Arc<str>)>;

#[derive(Default)]
struct PendingState {
    packets: VecDeque<PendingPacket>,
    /// Everything up to the last packet of our own was written to the output.
    drained: bool,
}

/// What tcpdump has not yet printed.
#[derive(Default)]
struct PendingPackets {
    state: Mutex<PendingState>,
    drained: Condvar,
}

impl PendingPackets {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the packet of this number, and those before it. Those in `taken` are before those here.
    fn take(&self, taken: &mut VecDeque<PendingPacket>, number: u32) -> Option<LineStart> {
        loop {
            while let Some(packet) = taken.pop_front() {
                if packet.number == number {
                    return Some(packet.shown);
                }
            }
            let mut state = self.lock();
            if state.packets.is_empty() {
                return None;
            }
            std::mem::swap(taken, &mut state.packets);
        }
    }
}

/// One process, for the packets of one link type.
pub(super) struct Tcpdump {
    running: Running,
    pending: Arc<PendingPackets>,
    secret: u32,
    next: u32,
    linktype: Option<u16>,
    /// Its lines come out at once, and not in blocks.
    at_once: bool,
    buffer: Vec<u8>,
    /// The packets in the buffer.
    buffered: Vec<PendingPacket>,
}

/// What tcpdump takes a packet for.
pub(super) fn parse_packet_type(text: &str) -> Result<String, String> {
    if PACKET_TYPES.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("expected a packet type of tcpdump: {}", PACKET_TYPES.join(", ")))
}

/// The argument by which lines come out at once.
pub(super) const AT_ONCE: &str = "-l";

/// The arguments for what people want to see, without [`AT_ONCE`].
pub(super) fn flags(args: &ViewArgs) -> Vec<String> {
    let mut flags = ["-r", "-", "-tt", "--time-stamp-precision=nano"].map(str::to_owned).to_vec();
    let counted = [
        ('n', args.numeric),
        ('v', args.verbose),
        ('x', args.hex),
        ('X', args.hex_ascii),
        ('A', args.ascii),
        ('e', args.link_header.into()),
        ('q', args.quick.into()),
        ('S', args.absolute_tcp_sequence_numbers.into()),
        ('K', args.dont_verify_checksums.into()),
        ('N', args.no_domain.into()),
        ('b', args.asdot.into()),
        ('H', args.mesh.into()),
        ('u', args.nfs_handles.into()),
    ];
    for (letter, count) in counted {
        flags.extend((0..count).map(|_| format!("-{letter}")));
    }
    if let Some(packet_type) = &args.packet_type {
        flags.extend(["-T".to_owned(), packet_type.clone()]);
    }
    flags
}

impl Tcpdump {
    /// Starts a command that is tcpdump with [`flags`], and with [`AT_ONCE`] where it is meant.
    pub(super) fn start(
        command: Command,
        at_once: bool,
        prefix: Arc<Mutex<LinePrefix>>,
        out: Box<dyn Write + Send>,
    ) -> anyhow::Result<Self> {
        let secret = (RandomState::new().hash_one(NAME) % 1_000_000_000) as u32;
        let pending = Arc::<PendingPackets>::default();
        let lines = PacketLines {
            mark: format!(".{secret:09} "),
            pending: Arc::clone(&pending),
            taken: VecDeque::new(),
            prefix,
            hidden: false,
            drained: false,
        };
        let running = Running::start(NAME, command, Box::new(lines), out)?;
        let (linktype, buffer, buffered) = (None, Vec::new(), Vec::new());
        Ok(Self { running, pending, secret, next: 0, linktype, at_once, buffer, buffered })
    }

    /// The link type of its packets, once it has any.
    pub(super) fn linktype(&self) -> Option<u16> {
        self.linktype
    }

    /// Whether its lines come out at once, and not in blocks.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once
    }

    /// Begins the file that it reads.
    pub(super) fn begin(&mut self, linktype: u16) {
        self.linktype = Some(linktype);
        self.words(&HEADER);
        self.words(&[linktype.into()]);
    }

    /// Adds a packet of an interface to those that [`Tcpdump::flush`] passes on.
    pub(super) fn packet(&mut self, head: &Head, data: &[u8], name: Arc<str>) {
        self.record(data, head.len, Some((*head, name)));
    }

    fn record(&mut self, data: &[u8], len: u32, shown: LineStart) {
        let number = self.next;
        self.next = (self.next + 1) % NUMBERS;
        self.words(&[number, self.secret, data.len() as u32, len]);
        self.buffer.extend_from_slice(data);
        self.buffered.push(PendingPacket { number, shown });
    }

    fn words(&mut self, words: &[u32]) {
        self.buffer.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    /// Passes packets on; waits while tcpdump is busy.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        // Before it can print them.
        self.pending.lock().packets.extend(self.buffered.drain(..));
        let result = self.running.feed(NAME, &self.buffer);
        self.buffer.clear();
        result
    }

    /// Waits until all packets were written to the output: until tcpdump has printed another one, which
    /// is not shown. Its lines must come out at once.
    pub(super) fn drain(&mut self) -> Result<(), SinkError> {
        self.pending.lock().drained = false;
        self.record(&[0], 1, None);
        self.flush()?;
        let mut pending = self.pending.lock();
        while !pending.drained {
            if self.running.has_ended() {
                return Err(ended_early());
            }
            let waited = self.pending.drained.wait_timeout(pending, POLL_INTERVAL);
            (pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Waits for its last lines.
    pub(super) fn end(mut self) -> Result<(), SinkError> {
        if self.linktype.is_none() {
            // Without a header it would complain.
            self.begin(ETHERNET);
        }
        // Its end reports whether it has failed.
        let _ = self.flush();
        self.running.end()
    }
}

/// The error of a process that ended without a reason.
pub(super) fn ended_early() -> SinkError {
    let source = std::io::Error::other("it ended early");
    SinkError::Write { name: NAME.to_owned(), source }
}

/// Replaces the marks at the start of packets.
struct PacketLines {
    mark: String,
    pending: Arc<PendingPackets>,
    /// Of these, the next ones.
    taken: VecDeque<PendingPacket>,
    prefix: Arc<Mutex<LinePrefix>>,
    /// The lines are of a packet that is not shown.
    hidden: bool,
    /// Such a packet was seen, and what was before it is not yet written.
    drained: bool,
}

impl LineHandler for PacketLines {
    fn line(&mut self, out: &mut String, line: &[u8]) {
        let Some((number, rest)) = split_mark(line, &self.mark) else {
            if !self.hidden {
                append(out, line);
                out.push('\n');
            }
            return;
        };
        let packet = self.pending.take(&mut self.taken, number);
        self.hidden = matches!(packet, Some(None));
        self.drained |= self.hidden;
        if self.hidden {
            return;
        }
        if let Some((head, name)) = packet.flatten() {
            let mut prefix = self.prefix.lock().unwrap_or_else(PoisonError::into_inner);
            prefix.write(out, &head, &name);
        }
        append(out, rest);
        out.push('\n');
    }

    fn written(&mut self) {
        if std::mem::take(&mut self.drained) {
            self.pending.lock().drained = true;
            self.pending.drained.notify_all();
        }
    }
}

/// The number of a packet, and the text behind it, if the line is the first one of a packet.
fn split_mark<'a>(line: &'a [u8], mark: &str) -> Option<(u32, &'a [u8])> {
    let digits = line.iter().position(|byte| !byte.is_ascii_digit())?;
    let rest = line[digits..].strip_prefix(mark.as_bytes())?;
    let number = std::str::from_utf8(&line[..digits]).ok()?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests;
