//! tcpdump as a decoder.
//!
//! Each packet is passed to tcpdump with a number in place of the seconds, and a secret in place of
//! the fraction, which tcpdump prints before the first line of the packet. This identifies
//! the packet of each line whatever the packets contain, because they do not contain the secret.
//! Number, time, interface and direction are added by pmdscope.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use pmdscope_packets::SinkError;

use super::ViewArgs;
use super::child::{EachLine, Running};
use super::lines::{Prefix, append};
use super::stage::{Batch, Decoder, Head};

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

/// A packet that tcpdump has not yet spoken of.
struct Due {
    number: u32,
    head: Head,
    name: Arc<str>,
}

type Dues = Arc<Mutex<VecDeque<Due>>>;

pub(super) struct Tcpdump {
    running: Running,
    dues: Dues,
    secret: u32,
    next: u32,
    names: Vec<Arc<str>>,
    linktype: Option<u16>,
    buffer: Vec<u8>,
}

/// The arguments for what people want to see.
pub(super) fn flags(args: &ViewArgs) -> Vec<String> {
    let mut flags =
        ["-r", "-", "-l", "-tt", "--time-stamp-precision=nano"].map(str::to_owned).to_vec();
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
    /// Starts a command that is tcpdump with [`flags`].
    pub(super) fn start(
        command: Command,
        prefix: Prefix,
        out: Box<dyn Write + Send>,
    ) -> anyhow::Result<Self> {
        let secret = (RandomState::new().hash_one(NAME) % 1_000_000_000) as u32;
        let dues = Dues::default();
        let each = each_line(secret, Arc::clone(&dues), prefix);
        let running = Running::start(NAME, command, each, out)?;
        let (next, names, linktype, buffer) = (0, Vec::new(), None, Vec::new());
        Ok(Self { running, dues, secret, next, names, linktype, buffer })
    }

    fn words(&mut self, words: &[u32]) {
        self.buffer.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    /// tcpdump takes one link type for all packets.
    fn begin(&mut self, batch: &Batch) -> Result<(), SinkError> {
        for interface in batch.interfaces.iter().skip(self.names.len()) {
            self.names.push(interface.name.as_str().into());
            if self.linktype.is_some_and(|known| known != interface.linktype) {
                let source = std::io::Error::other("tcpdump prints one link type at a time");
                return Err(SinkError::Write { name: NAME.to_owned(), source });
            }
            if self.linktype.is_none() {
                self.linktype = Some(interface.linktype);
                self.words(&HEADER);
                self.words(&[interface.linktype.into()]);
            }
        }
        Ok(())
    }
}

impl Decoder for Tcpdump {
    fn decode(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.begin(batch)?;
        for (head, data) in batch.packets() {
            let number = self.next;
            self.next = (self.next + 1) % NUMBERS;
            self.words(&[number, self.secret, data.len() as u32, head.len]);
            self.buffer.extend_from_slice(data);
            let name = Arc::clone(&self.names[head.interface]);
            lock(&self.dues).push_back(Due { number, head: *head, name });
        }
        let bytes = std::mem::take(&mut self.buffer);
        self.running.feed(NAME, &bytes)
    }

    fn has_ended(&mut self) -> bool {
        self.running.has_ended()
    }

    fn end(mut self: Box<Self>) -> Result<(), SinkError> {
        if self.linktype.is_none() {
            // Without a header it would complain.
            self.words(&HEADER);
            self.words(&[1]);
            let bytes = std::mem::take(&mut self.buffer);
            // Whether it is still there is told by its end.
            let _ = self.running.feed(NAME, &bytes);
        }
        self.running.end()
    }
}

fn lock(dues: &Dues) -> std::sync::MutexGuard<'_, VecDeque<Due>> {
    dues.lock().unwrap_or_else(PoisonError::into_inner)
}

fn each_line(secret: u32, dues: Dues, mut prefix: Prefix) -> EachLine {
    let mark = format!(".{secret:09} ");
    Box::new(move |out, line| {
        let Some((number, rest)) = split_mark(line, &mark) else { return append(out, line) };
        let mut dues = lock(&dues);
        while let Some(due) = dues.pop_front() {
            if due.number == number {
                prefix.write(out, &due.head, &due.name);
                break;
            }
        }
        append(out, rest);
    })
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
