//! Writes the blocks of a pcapng section into a buffer: Ethernet, nanoseconds, host byte order.

// Packets have at most 256 KiB, blocks and options little more; a time is split into two halves.
#![allow(clippy::cast_possible_truncation)]

use crate::options::MAX_OPTION;
use crate::packet::{
    CaptureInterface, DIR_RX, DIR_TX, InterfaceStatistics, Packet, PacketWith, SectionOrigin,
};
use crate::shared::PacketData;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const NANOSECONDS: u8 = 9;

/// A block being written at the end of a buffer.
struct BlockBuilder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> BlockBuilder<'a> {
    fn begin(out: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = out.len();
        let mut block = Self { out, start };
        block.u32(kind);
        block.u32(0);
        block
    }

    fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_ne_bytes());
    }

    /// Writes a time stamp: the high half comes first, in any byte order.
    fn time(&mut self, ns: u64) {
        self.u32((ns >> 32) as u32);
        self.u32(ns as u32);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.extend_from_slice(&[0; 3][..padding]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(MAX_OPTION)];
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn text(&mut self, code: u16, text: &str) {
        if !text.is_empty() {
            self.option(code, text.as_bytes());
        }
    }

    fn counter(&mut self, code: u16, value: Option<u64>) {
        if let Some(value) = value {
            self.option(code, &value.to_ne_bytes());
        }
    }

    fn end(self) {
        let len = (self.out.len() - self.start + 4) as u32;
        self.out.extend_from_slice(&len.to_ne_bytes());
        self.out[self.start + 4..self.start + 8].copy_from_slice(&len.to_ne_bytes());
    }

    fn end_options(mut self) {
        self.option(0, &[]);
        self.end();
    }
}

/// Appends the section header.
pub fn write_section(out: &mut Vec<u8>, origin: &SectionOrigin) {
    let mut block = BlockBuilder::begin(out, SECTION_HEADER);
    block.u32(BYTE_ORDER_MAGIC);
    block.u16(1);
    block.u16(0);
    block.out.extend_from_slice(&[0xff; 8]); // Length unknown.
    block.text(2, &origin.hardware);
    block.text(3, &origin.os);
    block.text(4, &origin.application);
    block.out.extend_from_slice(&origin.options);
    block.end_options();
}

/// Appends an interface; the first of a section has number 0. Some readers require the same link type
/// and snap length for all interfaces of a section.
pub fn write_interface(out: &mut Vec<u8>, interface: &CaptureInterface) {
    let mut block = BlockBuilder::begin(out, INTERFACE);
    block.u16(interface.linktype);
    block.u16(0);
    block.u32(interface.snaplen);
    block.text(1, &interface.comment);
    block.out.extend_from_slice(&interface.options);
    block.text(2, &interface.name);
    block.text(3, &interface.description);
    block.option(9, &[NANOSECONDS]);
    if !interface.filter.is_empty() {
        block.option(11, &[&[0], interface.filter.as_bytes()].concat());
    }
    block.end_options();
}

/// Returns the first word of an option.
const fn option(code: u16, len: u16) -> u32 {
    let ([a, b], [c, d]) = (code.to_ne_bytes(), len.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

/// Writes into a slice from its start.
struct SliceWriter<'a>(&'a mut [u8]);

impl SliceWriter<'_> {
    fn words<const N: usize>(&mut self, words: [u32; N]) {
        let (target, rest) = std::mem::take(&mut self.0).split_at_mut(4 * N);
        for (target, word) in target.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_ne_bytes());
        }
        self.0 = rest;
    }

    fn number(&mut self, code: u16, value: u64) {
        let (target, rest) = std::mem::take(&mut self.0).split_at_mut(12);
        target[..4].copy_from_slice(&option(code, 8).to_ne_bytes());
        target[4..].copy_from_slice(&value.to_ne_bytes());
        self.0 = rest;
    }

    fn padded(&mut self, bytes: &[u8]) {
        let size = bytes.len().next_multiple_of(4);
        let (target, rest) = std::mem::take(&mut self.0).split_at_mut(size);
        if size != bytes.len() {
            target[size - 4..].fill(0);
        }
        target[..bytes.len()].copy_from_slice(bytes);
        self.0 = rest;
    }
}

fn bounded(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MAX_OPTION)]
}

/// Length of a packet block before the data.
pub(crate) const HEAD_SIZE: usize = 28;

/// Returns the length of the block of a packet.
#[inline]
pub fn packet_size<D: PacketData>(packet: &PacketWith<'_, D>) -> usize {
    let comment = match bounded(packet.comment).len() {
        0 => 0,
        len => 4 + len.next_multiple_of(4),
    };
    let dropped = if packet.dropped > 0 { 12 } else { 0 };
    let queue = if packet.queue.is_some() { 8 } else { 0 };
    let options = packet.options.len();
    // Head, flags, id, end of options, length.
    HEAD_SIZE
        + packet.data.size().next_multiple_of(4)
        + comment
        + options
        + 8
        + dropped
        + 12
        + queue
        + 4
        + 4
}

/// Appends a packet.
pub fn write_packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    let start = out.len();
    out.resize(start + packet_size(packet), 0);
    put_packet(&mut out[start..], packet);
}

/// Writes a packet into exactly [`packet_size`] bytes.
#[inline]
pub fn put_packet<D: PacketData>(out: &mut [u8], packet: &PacketWith<'_, D>) {
    let size = out.len();
    let (head, rest) = out.split_at_mut(HEAD_SIZE);
    let (data, tail) = rest.split_at_mut(packet.data.size());
    packet.data.copy_to(data);
    put_head_and_tail(head, tail, size, packet);
}

/// Writes a packet without its data, which belong after the first [`HEAD_SIZE`] of these bytes.
#[inline]
pub(crate) fn put_packet_around<D: PacketData>(out: &mut [u8], packet: &PacketWith<'_, D>) {
    let size = out.len() + packet.data.size();
    let (head, tail) = out.split_at_mut(HEAD_SIZE);
    put_head_and_tail(head, tail, size, packet);
}

#[inline]
fn put_head_and_tail<D: PacketData>(
    head: &mut [u8],
    tail: &mut [u8],
    size: usize,
    packet: &PacketWith<'_, D>,
) {
    let (size, len) = (size as u32, packet.data.size());
    let (high, low) = ((packet.ns >> 32) as u32, packet.ns as u32);
    SliceWriter(head).words([PACKET, size, packet.interface, high, low, len as u32, packet.len]);
    let (padding, options) = tail.split_at_mut(len.next_multiple_of(4) - len);
    padding.fill(0);
    let mut fill = SliceWriter(options);
    let comment = bounded(packet.comment);
    if !comment.is_empty() {
        fill.words([option(1, comment.len() as u16)]);
        fill.padded(comment);
    }
    if !packet.options.is_empty() {
        fill.padded(packet.options);
    }
    let direction = match packet.dir {
        DIR_RX => 1,
        DIR_TX => 2,
        _ => 0,
    };
    fill.words([option(2, 4), direction]);
    if packet.dropped > 0 {
        fill.number(4, packet.dropped);
    }
    fill.number(5, packet.id);
    if let Some(queue) = packet.queue {
        fill.words([option(6, 4), queue.into()]);
    }
    fill.words([option(0, 0), size]);
}

/// Longest comment of statistics, padded, see [`sampling_comment`].
const MAX_SAMPLING: usize = 84;
/// Longest statistics block.
pub const STATISTICS_SIZE: usize = 112 + 4 + MAX_SAMPLING;

/// Counts of the packets of an interface in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Packets that were captured, but not written.
    pub lost: u64,
    /// Packets that those in the file represent.
    pub represented: u64,
    /// Packets that the last one represents.
    pub weight: u32,
}

/// Appends the statistics of an interface.
pub fn write_statistics(out: &mut Vec<u8>, statistics: &InterfaceStatistics) {
    write_file_statistics(out, statistics, FileCounts::default());
}

/// Returns a comment about the sampling of packets; empty if each represents only itself.
fn sampling_comment(delivered: u64, counts: FileCounts) -> String {
    let FileCounts { represented, weight, .. } = counts;
    if represented <= delivered || delivered == 0 {
        return String::new();
    }
    let mean = (represented as f64 / delivered as f64).min(u32::MAX.into());
    format!("Sampled: a packet stands for {mean:.2} on average, the last one for {weight}.")
}

/// Appends the statistics of an interface in a file, with the counts of the packets that were written
/// to it.
pub fn write_file_statistics(
    out: &mut Vec<u8>,
    statistics: &InterfaceStatistics,
    counts: FileCounts,
) {
    let mut block = BlockBuilder::begin(out, STATISTICS);
    block.u32(statistics.interface);
    block.time(statistics.end_ns);
    for (code, ns) in [(2, statistics.start_ns), (3, statistics.end_ns)] {
        block.u16(code);
        block.u16(8);
        block.time(ns);
    }
    block.text(1, &sampling_comment(statistics.delivered, counts));
    block.counter(4, statistics.received);
    block.counter(5, statistics.dropped);
    block.counter(6, statistics.accepted);
    block.counter(7, (counts.lost > 0).then_some(counts.lost));
    block.counter(8, Some(statistics.delivered));
    block.end_options();
}

/// Returns the bytes and packets of the complete blocks at the start of `bytes`.
pub fn whole(bytes: &[u8]) -> (usize, u64) {
    let (mut done, mut packets) = (0, 0);
    while let Some((kind, rest)) = bytes[done..].split_first_chunk() {
        let Some(size) = rest.first_chunk().map(|size| u32::from_ne_bytes(*size) as usize) else {
            break;
        };
        if size < 12 || bytes.len() - done < size {
            break;
        }
        done += size;
        packets += u64::from(u32::from_ne_bytes(*kind) == PACKET);
    }
    (done, packets)
}

#[cfg(test)]
#[path = "pcapng_tests.rs"]
mod tests;
