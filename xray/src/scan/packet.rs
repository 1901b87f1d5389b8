//! The bytes of the packet of an mbuf, over all its segments.

use crate::address::Address;
use crate::error::XrayError;
use crate::memory::{read_u16, read_u32, read_u64};
use crate::report::LostMbuf;
use crate::target::XrayTarget;

/// Maximum number of bytes read from a packet: the maximum of a pcapng packet.
pub const MOST_PACKET_BYTES: usize = 262_144;

/// Maximum number of segments: a garbage chain may be circular.
const MOST_SEGMENTS: u16 = 1024;

/// The bytes of a lost mbuf's packet, beginning with the first segment; at most
/// [`MOST_PACKET_BYTES`].
///
/// A lost segment from the middle of a chain has the rest of the chain.
///
/// # Errors
/// If its memory cannot be read, or its lengths contradict each other: it has been used again meanwhile.
pub fn packet(target: &XrayTarget, mbuf: &LostMbuf) -> Result<Vec<u8>, XrayError> {
    let mut bytes = Vec::new();
    let mut segment = mbuf.address;
    for _ in 0..MOST_SEGMENTS {
        if segment == 0 || bytes.len() >= MOST_PACKET_BYTES {
            break;
        }
        segment = append_segment(target, segment, &mut bytes)?;
    }
    bytes.truncate(MOST_PACKET_BYTES);
    Ok(bytes)
}

/// Returns the address of the next segment.
fn append_segment(
    target: &XrayTarget,
    segment: u64,
    bytes: &mut Vec<u8>,
) -> Result<u64, XrayError> {
    let (memory, layout) = (&*target.memory, &target.layout.mbuf);
    let field = |offset: u64| Address(segment).member(offset);
    let buffer = read_u64(memory, field(layout.buf_addr)?)?;
    let offset = read_u16(memory, field(layout.data_off)?)?;
    let length = read_u32(memory, field(layout.data_len)?)? & 0xffff;
    let buffer_bytes = read_u16(memory, field(layout.buf_len)?)?;
    if length.saturating_add(offset.into()) > u32::from(buffer_bytes) {
        let why = format!("{length} bytes from {offset} on in a buffer of {buffer_bytes}");
        return Err(XrayError::implausible(format!("the mbuf at {segment:#x}"), why));
    }
    let begin = bytes.len();
    bytes.resize(begin.saturating_add(length as usize), 0);
    memory.read(Address(buffer).member(offset.into())?, &mut bytes[begin..])?;
    read_u64(memory, field(layout.next)?)
}
