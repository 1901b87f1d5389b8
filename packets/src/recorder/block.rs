//! Packets in memory, one after the other, each encoded relative to the previous one.
//!
//! A record is a byte of flags, the time since the previous record, the length, the fields that the
//! flags announce, and the packet. All numbers are LEB128; those that may decrease are zigzag-encoded.
//! Most packets need 5 to 7 bytes in addition to their own.

// Values are decoded to the types that they were encoded from, so casts do not change them. LEB128
// takes the low 7 bits.
#![allow(clippy::cast_possible_truncation)]

use memmap2::MmapOptions;

use crate::packet::{DIR_RX, DIR_TX, Packet};

/// Direction of a packet, as in the ring; 0 is unknown.
const DIR: u8 = 3;
/// The interface differs from that of the previous record.
const INTERFACE: u8 = 1 << 2;
/// The queue differs from that of the previous record.
const QUEUE: u8 = 1 << 3;
/// The packet was truncated.
const CUT: u8 = 1 << 4;
/// Packets were lost before this one, or its weight differs from that of the previous record.
const DROPPED_OR_WEIGHT: u8 = 1 << 5;
/// The packet number is not the previous one plus one.
const ID: u8 = 1 << 6;
/// The packet has a comment.
const COMMENT: u8 = 1 << 7;

/// Longest record without comment and packet.
const HEAD_MAX: usize = 64;

/// The values that a record is encoded against.
#[derive(Clone, Copy, Debug, Default)]
struct PreviousRecord {
    ns: u64,
    id: u64,
    interface: u32,
    queue: Option<u16>,
    weight: u32,
}

/// A fixed amount of memory for packets.
#[derive(Debug)]
pub(super) struct PacketBlock {
    bytes: Vec<u8>,
    packets: u64,
    newest_ns: u64,
    before: PreviousRecord,
}

impl PacketBlock {
    /// Returns an empty block of `size` bytes; `None` if the allocation fails. The memory is not
    /// touched before packets are written to it.
    pub(super) fn new(size: usize) -> Option<Self> {
        // An allocator may end the process where the system refuses memory.
        drop(MmapOptions::new().len(size).map_anon().ok()?);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).ok()?;
        Some(Self { bytes, packets: 0, newest_ns: 0, before: PreviousRecord::default() })
    }

    /// Adds a packet; returns false if it does not fit.
    pub(super) fn push(&mut self, packet: &Packet<'_>) -> bool {
        let mut head = RecordHead::new(packet, &self.before);
        let comment = if packet.comment.is_empty() { 0 } else { packet.comment.len() };
        let size = head.len + comment + packet.data.len();
        if size > self.bytes.capacity() - self.bytes.len() {
            return false;
        }
        self.bytes.extend_from_slice(head.finish());
        self.bytes.extend_from_slice(packet.comment.as_bytes());
        self.bytes.extend_from_slice(packet.data);
        self.packets += 1;
        self.newest_ns = self.newest_ns.max(packet.ns);
        self.before = PreviousRecord {
            ns: packet.ns,
            id: packet.id.wrapping_add(1),
            interface: packet.interface,
            queue: packet.queue,
            weight: packet.weight,
        };
        true
    }

    /// Removes the packets, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.packets, self.newest_ns, self.before) = (0, 0, PreviousRecord::default());
    }

    /// Returns all records.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of packets.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the latest time of a packet, 0 without packets.
    pub(super) fn newest_ns(&self) -> u64 {
        self.newest_ns
    }
}

/// The part of a record before comment and packet.
struct RecordHead {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl RecordHead {
    fn new(packet: &Packet<'_>, before: &PreviousRecord) -> Self {
        let mut head = Self { bytes: [0; HEAD_MAX], len: 1 };
        head.zigzag(packet.ns.wrapping_sub(before.ns));
        head.number(packet.len.into());
        if packet.data.len() as u64 != u64::from(packet.len) {
            head.flag(CUT).number(packet.data.len() as u64);
        }
        if packet.interface != before.interface {
            head.flag(INTERFACE).number(packet.interface.into());
        }
        if packet.queue != before.queue {
            head.flag(QUEUE).number(packet.queue.map_or(0, |queue| u64::from(queue) + 1));
        }
        if packet.dropped > 0 || packet.weight != before.weight {
            head.flag(DROPPED_OR_WEIGHT).number(packet.dropped);
            head.number(packet.weight.into());
        }
        if packet.id != before.id {
            head.flag(ID).zigzag(packet.id.wrapping_sub(before.id));
        }
        if !packet.comment.is_empty() {
            head.flag(COMMENT).number(packet.comment.len() as u64);
        }
        if let DIR_RX | DIR_TX = packet.dir {
            head.flag(packet.dir);
        }
        head
    }

    fn flag(&mut self, flag: u8) -> &mut Self {
        self.bytes[0] |= flag;
        self
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.bytes[self.len] = value as u8;
        self.len += 1;
    }

    fn zigzag(&mut self, difference: u64) {
        let signed = difference.cast_signed();
        self.number(((signed << 1) ^ (signed >> 63)).cast_unsigned());
    }

    fn finish(&mut self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes the records of a block, in one or several pieces.
#[derive(Debug, Default)]
pub(super) struct BlockReader {
    before: PreviousRecord,
}

impl BlockReader {
    /// Decodes the next packet at the start of `bytes`; `None` at the end.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Packet<'a>> {
        let (&flags, rest) = bytes.split_first()?;
        let mut rest = rest;
        let has = |flag| flags & flag != 0;
        let ns = self.before.ns.wrapping_add(zigzag(&mut rest)?);
        let len = number(&mut rest)? as u32;
        let kept = if has(CUT) { number(&mut rest)? as usize } else { len as usize };
        let mut optional = |flag| if has(flag) { number(&mut rest).map(Some) } else { Some(None) };
        let interface = optional(INTERFACE)?.map_or(self.before.interface, |number| number as u32);
        let queue = match optional(QUEUE)? {
            Some(number) => number.checked_sub(1).map(|queue| queue as u16),
            None => self.before.queue,
        };
        let (dropped, weight) = match optional(DROPPED_OR_WEIGHT)? {
            Some(dropped) => (dropped, number(&mut rest)? as u32),
            None => (0, self.before.weight),
        };
        let difference = if has(ID) { zigzag(&mut rest)? } else { 0 };
        let id = self.before.id.wrapping_add(difference);
        let comment = if has(COMMENT) { number(&mut rest)? as usize } else { 0 };
        let (comment, rest) = rest.split_at_checked(comment)?;
        let (data, rest) = rest.split_at_checked(kept)?;
        *bytes = rest;
        self.before = PreviousRecord { ns, id: id.wrapping_add(1), interface, queue, weight };
        let comment = std::str::from_utf8(comment).unwrap_or_default();
        // Packets of captures have no other options.
        let (dir, lcore, options) = (flags & DIR, None, &[][..]);
        Some(Packet {
            interface,
            ns,
            data,
            len,
            dir,
            queue,
            lcore,
            weight,
            dropped,
            id,
            comment,
            options,
        })
    }
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn zigzag(bytes: &mut &[u8]) -> Option<u64> {
    let value = number(bytes)?;
    Some((value >> 1) ^ (value & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{Owned, any_packets};
    use super::*;

    fn read(mut bytes: &[u8], reader: &mut BlockReader) -> Vec<Owned> {
        std::iter::from_fn(|| reader.next(&mut bytes).map(|packet| Owned::of(&packet))).collect()
    }

    #[test]
    fn packets_of_one_flow_take_few_bytes() {
        let mut block = PacketBlock::new(1 << 16).unwrap();
        let data = [7; 64];
        for id in 0..100 {
            let packet = Owned { ns: 1_780_000_000_000_000_000 + id * 700, id, ..Owned::default() };
            assert!(block.push(&Packet { data: &data, len: 64, ..packet.packet() }));
        }
        assert!(block.bytes().len() < 100 * (64 + 5) + 20, "{}", block.bytes().len());
        assert_eq!((block.packets(), block.newest_ns()), (100, 1_780_000_000_000_069_300));
    }

    #[test]
    fn a_packet_that_does_not_fit_leaves_the_block_alone() {
        let mut block = PacketBlock::new(100).unwrap();
        let (small, large) = ([1; 40], [2; 100]);
        let packet = Owned::default();
        let of = |data| Packet { data, len: 40, ..packet.packet() };
        assert!(block.push(&of(&small)));
        let size = block.bytes().len();
        assert!(!block.push(&of(&large)) && block.bytes().len() == size);
        assert!(block.push(&of(&small)) && block.packets() == 2);
    }

    proptest! {
        #[test]
        fn packets_come_out_as_they_went_in(packets in any_packets(), cut: prop::sample::Index) {
            let mut block = PacketBlock::new(1 << 20).unwrap();
            let mut piece = 0;
            let middle = cut.index(packets.len() + 1);
            for (number, packet) in packets.iter().enumerate() {
                if number == middle {
                    piece = block.bytes().len();
                }
                prop_assert!(block.push(&packet.packet()));
            }
            prop_assert_eq!(&read(block.bytes(), &mut BlockReader::default()), &packets);
            let mut reader = BlockReader::default();
            let mut pieces = read(&block.bytes()[..piece], &mut reader);
            pieces.extend(read(&block.bytes()[piece..], &mut reader));
            prop_assert_eq!(&pieces, &packets);
            block.clear();
            prop_assert!(block.bytes().is_empty() && block.newest_ns() == 0);
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            prop_assert!(read(&bytes, &mut BlockReader::default()).len() <= bytes.len());
        }
    }
}
