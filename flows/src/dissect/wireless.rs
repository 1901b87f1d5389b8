//! Frames of IEEE 802.11, with or without the headers that drivers write before them.

use super::link::{self, Found};
use super::wire_bytes::WireBytes;
use super::{IEEE802_11, LinkHeaders, NetworkLayer};

/// Flags of radiotap: an FCS follows the frame, its header is padded.
const WITH_FCS: u8 = 0x10;
const PADDED: u8 = 0x20;

/// Type and subtype of a frame, in its first byte: the subtype is a number of bits for data frames.
const TYPE: u8 = 0x0c;
const DATA: u8 = 0x08;
const WITHOUT_DATA: u8 = 0x40;
const QOS: u8 = 0x80;

/// Flags of the second byte: to and from a distribution system, protected, more control fields.
const FOUR_ADDRESSES: u8 = 0x03;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;

/// Fragment number, in the low bits of the sequence control.
const FRAGMENT: u8 = 0x0f;
/// The control field for quality of service: the frame has several packets.
const AGGREGATE: u8 = 0x80;

/// Parses a frame after a radiotap header.
pub(super) fn radiotap<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let size = usize::from(le16(&data, 2)?);
    let flags = radiotap_flags(data.get(..size)?).unwrap_or(0);
    let frame = data.after(size)?;
    let fcs = if flags & WITH_FCS == 0 { 0 } else { 4 };
    let frame = frame.up_to(frame.wire_length().saturating_sub(fcs));
    padded_frame(frame, flags & PADDED != 0, headers)
}

/// Returns the field `flags` of a radiotap header; only the time may be before it.
fn radiotap_flags(header: &[u8]) -> Option<u8> {
    let (words, _) = header.get(4..)?.as_chunks::<4>();
    let present = words.first()?[0];
    let last = words.iter().position(|word| word[3] & 0x80 == 0)?;
    let mut at = 4 + (last + 1) * 4;
    if present & 1 != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    header.get(at).copied().filter(|_| present & 2 != 0)
}

/// Parses a frame after a PPI header.
pub(super) fn ppi<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    let (size, linktype) = (le16(&data, 2)?, le16(&data, 4)?);
    if linktype == IEEE802_11 {
        return frame(data.after(size.into())?, headers);
    }
    Some((NetworkLayer::UnknownLink, data))
}

/// Parses a frame.
pub(super) fn frame<'a>(data: WireBytes<'a>, headers: &mut LinkHeaders) -> Found<'a> {
    padded_frame(data, false, headers)
}

fn padded_frame<'a>(data: WireBytes<'a>, padded: bool, headers: &mut LinkHeaders) -> Found<'a> {
    let [kind, flags] = *data.first_chunk()?;
    let other = Some((NetworkLayer::Other(0), data));
    if kind & TYPE != DATA || kind & WITHOUT_DATA != 0 || flags & PROTECTED != 0 {
        return other;
    }
    let mut size = if flags & FOUR_ADDRESSES == FOUR_ADDRESSES { 30 } else { 24 };
    if data.get(22)? & FRAGMENT != 0 {
        return other;
    }
    let mut aggregate = false;
    if kind & QOS != 0 {
        aggregate = data.get(size)? & AGGREGATE != 0;
        size += if flags & ORDER == 0 { 2 } else { 6 };
    }
    if padded {
        size = size.next_multiple_of(4);
    }
    let packet = data.after(size)?;
    // The first of several packets has a header like that of IEEE 802.3.
    if aggregate { link::ethernet(packet, headers) } else { link::llc(packet, headers) }
}

fn le16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*data.get(at..)?.first_chunk()?))
}
