//! Classic pcap, in host byte order.

use crate::packet::PacketWith;
use crate::shared::PacketData;

const MICROSECONDS_MAGIC: u32 = 0xa1b2_c3d4;
const NANOSECONDS_MAGIC: u32 = 0xa1b2_3c4d;

/// Length of a file header.
const HEADER_SIZE: usize = 24;
/// Length of a record header.
pub(super) const RECORD_SIZE: usize = 16;

/// Returns whether a record can have this time: seconds have 32 bits, and last until 2106.
pub(super) fn has_time(ns: u64) -> bool {
    u32::try_from(ns / 1_000_000_000).is_ok()
}

/// Returns the header of a file.
pub(super) fn header(nanos: bool, snaplen: u32, linktype: u16) -> Vec<u8> {
    let magic = if nanos { NANOSECONDS_MAGIC } else { MICROSECONDS_MAGIC };
    let mut out = magic.to_ne_bytes().to_vec();
    for version in [2_u16, 4] {
        out.extend(version.to_ne_bytes());
    }
    for word in [0, 0, snaplen, linktype.into()] {
        out.extend(word.to_ne_bytes());
    }
    out
}

/// Returns the length of the record of a packet.
pub(super) fn packet_size<D: PacketData>(packet: &PacketWith<'_, D>) -> usize {
    RECORD_SIZE + packet.data.size()
}

/// Writes a record of exactly [`packet_size`] bytes.
pub(super) fn put_packet<D: PacketData>(out: &mut [u8], packet: &PacketWith<'_, D>, nanos: bool) {
    let (head, data) = out.split_at_mut(RECORD_SIZE);
    put_head(head, packet, nanos);
    packet.data.copy_to(data);
}

/// Writes the header of a record.
#[allow(clippy::cast_possible_truncation)] // Times beyond the seconds of pcap are refused before.
pub(super) fn put_head<D: PacketData>(head: &mut [u8], packet: &PacketWith<'_, D>, nanos: bool) {
    let (seconds, rest) = (packet.ns / 1_000_000_000, (packet.ns % 1_000_000_000) as u32);
    let fraction = if nanos { rest } else { rest / 1000 };
    let words = [seconds as u32, fraction, packet.data.size() as u32, packet.len];
    for (target, word) in head.chunks_exact_mut(4).zip(words) {
        target.copy_from_slice(&word.to_ne_bytes());
    }
}

/// Returns the bytes and packets of the complete records at the start of `bytes`; with `at_start`, a
/// file header comes first.
pub(super) fn whole(bytes: &[u8], at_start: bool) -> (usize, u64) {
    let (mut done, mut packets) = (if at_start { HEADER_SIZE } else { 0 }, 0);
    if done > bytes.len() {
        return (0, 0);
    }
    while let Some(captured) = bytes[done..].get(8..12).and_then(|field| field.first_chunk()) {
        let size = RECORD_SIZE + u32::from_ne_bytes(*captured) as usize;
        if bytes.len() - done < size {
            break;
        }
        done += size;
        packets += 1;
    }
    (done, packets)
}
