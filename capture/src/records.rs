//! The stream of records of one ring, parsed from bytes that were copied out of it or in place.

// For functions that run for every packet: a call would pass each record through memory, twice.
#![allow(clippy::inline_always)]
// Sizes are bounded by a ring of 64 MiB.
#![allow(clippy::cast_possible_truncation)]

use std::sync::Arc;

use pmdscope_packets::{SharedBytes, SharedRegion};

use crate::layout::{
    LEAK_SIZE, LeakInfo, RECORD_LEAK, RECORD_PACKET, RECORD_PAD, RECORD_SAMPLE, RECORD_SIZE,
    RING_ALIGN, RING_HEADER_SIZE, RingRecord,
};

/// How a record violates the ring protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingRecordError {
    /// Not a multiple of the alignment, or shorter than its header.
    #[error("record at {position} has a size of {size} bytes")]
    Size {
        /// Ring position.
        position: u64,
        /// The size it states.
        size: u32,
    },
    /// Reaches beyond what was published, or across the end of the ring.
    #[error("record at {position} of {size} bytes has only {room} bytes of room")]
    Bounds {
        /// Ring position.
        position: u64,
        /// The size it states.
        size: u32,
        /// Bytes up to the end of the ring, or of the published data.
        room: usize,
    },
    /// More packet bytes than the record, the snap length or the packet's own length allow.
    #[error("record at {position} of {size} bytes claims {caplen} bytes of a packet of {len}")]
    Lengths {
        /// Ring position.
        position: u64,
        /// The size it states.
        size: u32,
        /// The captured length it states.
        caplen: u32,
        /// The packet length it states.
        len: u32,
    },
}

/// The bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordData<'a> {
    /// Copied out of the ring.
    Copied(&'a [u8]),
    /// Still in the ring, where the app can change them.
    Shared(SharedBytes<'a>),
}

/// Records in the order of their ring. Invalid input is an error, and stays one.
#[derive(Debug)]
pub struct RecordStream {
    bytes: Vec<u8>,
    read: usize,
    /// The ring, and the position up to which records are read in place; then `bytes` is empty.
    ring: Option<Arc<SharedRegion>>,
    view_end: u64,
    /// Bytes that follow in the ring: published, and not appended yet.
    left: usize,
    position: u64,
    data_size: u32,
    snaplen: u32,
    /// Type of the records to read; others are skipped.
    kind: u8,
    /// Bytes before the packet.
    head: usize,
    /// Packets that each packet stands for, since the last sampling record.
    weight: u32,
    /// TSC up to which no further records follow.
    complete_until: u64,
}

impl RecordStream {
    /// Returns a stream that starts at a position of a ring of `data_size` bytes, a power of two.
    pub fn new(position: u64, data_size: u32, snaplen: u32) -> Self {
        Self {
            bytes: Vec::new(),
            read: 0,
            ring: None,
            view_end: 0,
            left: 0,
            position,
            data_size,
            snaplen,
            kind: RECORD_PACKET,
            head: RECORD_SIZE,
            weight: 1,
            complete_until: 0,
        }
    }

    /// Like [`RecordStream::new`], for a ring that begins with one packet in `sample`; 0 and 1 mean
    /// all.
    pub fn sampled(position: u64, data_size: u32, snaplen: u32, sample: u32) -> Self {
        Self { weight: sample.max(1), ..Self::new(position, data_size, snaplen) }
    }

    /// Like [`RecordStream::new`], for lost mbufs instead of captured packets.
    pub fn of_leaks(position: u64, data_size: u32, snaplen: u32) -> Self {
        let (kind, head) = (RECORD_LEAK, RECORD_SIZE + LEAK_SIZE);
        Self { kind, head, ..Self::new(position, data_size, snaplen) }
    }

    /// Sets the TSC up to which no further records follow those that can be read, unless it is known
    /// for a later one.
    pub(crate) fn set_complete_until(&mut self, tsc: u64) {
        self.complete_until = self.complete_until.max(tsc);
    }

    /// Returns the TSC up to which no further records follow those that can be read.
    pub(crate) fn complete_until(&self) -> u64 {
        self.complete_until
    }

    /// Returns the number of bytes that were appended, or are in view, and not yet read.
    pub fn pending(&self) -> usize {
        self.copied() + self.view_end.saturating_sub(self.position) as usize
    }

    /// Returns the number of bytes that were appended and not yet read.
    pub(crate) fn copied(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// Makes the stream read complete records in place, up to a position that no record crosses.
    /// All appended bytes must have been read.
    pub(crate) fn view(&mut self, ring: &Arc<SharedRegion>, end: u64) {
        debug_assert_eq!(self.copied(), 0, "bytes before those in view");
        if self.ring.is_none() {
            self.ring = Some(Arc::clone(ring));
        }
        self.view_end = end;
    }

    /// Returns the position up to which records were read in place; `None` if they are appended.
    pub(crate) fn viewed(&self) -> Option<u64> {
        (self.view_end > 0).then_some(self.position)
    }

    /// Returns the number of packets that the one returned by [`RecordStream::peek`] stands for. If
    /// that returned none, it is the number for the previous packet, or already for a later one.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Sets the number of bytes that were published after the appended ones.
    pub fn set_left(&mut self, left: usize) {
        self.left = left;
    }

    /// Returns the number of bytes that were published after the appended ones.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns whether more was published than appended.
    pub fn is_behind(&self) -> bool {
        self.left > 0
    }

    /// Returns the buffer to append records to, as they are in the ring. With
    /// [`RecordStream::set_left`], the last may be cut at a multiple of the alignment.
    pub fn input(&mut self) -> &mut Vec<u8> {
        self.view_end = 0;
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        } else if self.read > self.bytes.len() / 2 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        &mut self.bytes
    }

    /// Returns the next record without consuming it; `None` when it is not complete. Padding and
    /// other types are skipped; sampling records are applied.
    ///
    /// # Errors
    /// When the bytes are not a valid record.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Option<RingRecord>, RingRecordError> {
        while self.pending() > 0 {
            let (size, kind) = self.check_frame()?;
            if size as usize > self.pending() {
                break;
            }
            if kind == self.kind {
                return self.check_packet(size).map(Some);
            }
            if kind == RECORD_SAMPLE && self.kind == RECORD_PACKET {
                self.weight = self.parse(size)?.len.max(1);
            }
            self.skip(size);
        }
        Ok(None)
    }

    /// Returns the bytes of the packet that [`RecordStream::peek`] returned, copied or in place.
    #[inline(always)]
    pub(crate) fn data(&self, record: &RingRecord) -> RecordData<'_> {
        let shared = self.view_at().and_then(|(ring, at)| {
            let end = self.position + u64::from(record.size);
            ring.bytes(at + self.head, record.caplen as usize, end)
        });
        shared.map_or_else(|| RecordData::Copied(self.payload(record)), RecordData::Shared)
    }

    /// Returns the bytes of the packet that [`RecordStream::peek`] returned, if they were appended.
    pub fn payload(&self, record: &RingRecord) -> &[u8] {
        let start = self.read + self.head;
        self.bytes.get(start..start + record.caplen as usize).unwrap_or_default()
    }

    /// Returns the information about the lost mbuf that [`RecordStream::peek`] returned; `None` for
    /// a packet.
    pub fn leak(&self) -> Option<LeakInfo> {
        let bytes = self.bytes.get(self.read + RECORD_SIZE..self.read + self.head)?;
        Some(LeakInfo::parse(bytes.try_into().ok()?))
    }

    /// Consumes a record that [`RecordStream::peek`] returned.
    pub fn skip(&mut self, size: u32) {
        self.read = (self.read + size as usize).min(self.bytes.len());
        self.position += u64::from(size);
    }

    #[inline(always)]
    fn check_frame(&self) -> Result<(u32, u8), RingRecordError> {
        let position = self.position;
        let to_ring_end = u64::from(self.data_size) - position % u64::from(self.data_size);
        let room = (self.pending() + self.left).min(to_ring_end as usize);
        let frame = match self.view_at() {
            Some((ring, at)) => ring.words(at).map(|[word]: [u64; 1]| word.to_ne_bytes()),
            None => self.bytes[self.read..].first_chunk().copied(),
        };
        let Some((size, kind)) = frame.map(RingRecord::parse_size_and_kind) else {
            return Err(RingRecordError::Bounds { position, size: RING_ALIGN, room });
        };
        let least = if kind == RECORD_PAD { RING_ALIGN } else { RECORD_SIZE as u32 };
        if size < least || !size.is_multiple_of(RING_ALIGN) {
            return Err(RingRecordError::Size { position, size });
        }
        if size as usize > room {
            return Err(RingRecordError::Bounds { position, size, room });
        }
        Ok((size, kind))
    }

    /// Returns the ring and the offset in it of the next record.
    #[inline(always)]
    fn view_at(&self) -> Option<(&Arc<SharedRegion>, usize)> {
        let ring = self.ring.as_ref().filter(|_| self.view_end > 0)?;
        Some((ring, RING_HEADER_SIZE + (self.position % u64::from(self.data_size)) as usize))
    }

    /// Parses the header of a record with a checked size; in the ring, the producer may have
    /// changed it since.
    #[inline(always)]
    fn parse(&self, size: u32) -> Result<RingRecord, RingRecordError> {
        let (position, room) = (self.position, self.pending());
        let record = match self.view_at() {
            Some((ring, at)) => ring.words(at).map(RingRecord::of_words),
            None => self.bytes[self.read..].first_chunk().map(RingRecord::parse),
        };
        let record = record.ok_or(RingRecordError::Bounds { position, size, room })?;
        Ok(RingRecord { size, ..record })
    }

    #[inline(always)]
    fn check_packet(&self, size: u32) -> Result<RingRecord, RingRecordError> {
        let position = self.position;
        let record = self.parse(size)?;
        let RingRecord { caplen, len, .. } = record;
        let most = size.checked_sub(self.head as u32);
        if most.is_none_or(|most| caplen > most) || caplen > self.snaplen || caplen > len {
            return Err(RingRecordError::Lengths { position, size, caplen, len });
        }
        Ok(record)
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
pub(crate) mod tests;
