//! The stream of records of one ring, parsed from bytes that were copied out of it.

// For what every packet goes through: a call would hand each record over in memory, twice.
#![allow(clippy::inline_always)]
// Sizes are bounded by a ring of 64 MiB.
#![allow(clippy::cast_possible_truncation)]

use crate::layout::{
    LEAK_SIZE, LeakInfo, RECORD_LEAK, RECORD_PACKET, RECORD_PAD, RECORD_SAMPLE, RECORD_SIZE,
    RING_ALIGN, RingRecord,
};

/// How a record breaks the rules of the ring.
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
        /// Bytes up to the end of the ring or of what was published.
        room: usize,
    },
    /// More packet bytes than the record, the snap length or the packet's own length allow.
    #[error("record at {position} of {size} bytes says {caplen} bytes of a packet of {len}")]
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

/// Records in the order of their ring. Broken input is an error, once and for good.
#[derive(Debug)]
pub struct RecordStream {
    bytes: Vec<u8>,
    read: usize,
    /// Bytes that follow in the ring: published and not put in yet.
    left: usize,
    position: u64,
    data_size: u32,
    snaplen: u32,
    /// Type of the records to read; others are passed over.
    kind: u8,
    /// Bytes before the packet.
    head: usize,
    /// Packets that one stands for, from the last marker on.
    weight: u32,
}

impl RecordStream {
    /// A stream that starts at a position of a ring of `data_size` bytes, a power of two.
    pub fn new(position: u64, data_size: u32, snaplen: u32) -> Self {
        Self {
            bytes: Vec::new(),
            read: 0,
            left: 0,
            position,
            data_size,
            snaplen,
            kind: RECORD_PACKET,
            head: RECORD_SIZE,
            weight: 1,
        }
    }

    /// As [`RecordStream::new`], of a ring that begins with one packet in so many; 0 and 1 are all.
    pub fn sampled(position: u64, data_size: u32, snaplen: u32, sample: u32) -> Self {
        Self { weight: sample.max(1), ..Self::new(position, data_size, snaplen) }
    }

    /// As [`RecordStream::new`], for lost mbufs instead of captured packets.
    pub fn of_leaks(position: u64, data_size: u32, snaplen: u32) -> Self {
        let (kind, head) = (RECORD_LEAK, RECORD_SIZE + LEAK_SIZE);
        Self { kind, head, ..Self::new(position, data_size, snaplen) }
    }

    /// Bytes that were put in and not yet read.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// Packets that the one which [`RecordStream::peek`] returned stands for. Where that returned none, those
    /// that the one before stood for, or that a later one is to stand for.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How many bytes were published behind those that were put in.
    pub fn set_left(&mut self, left: usize) {
        self.left = left;
    }

    /// Bytes that were published behind those that were put in.
    pub fn left(&self) -> usize {
        self.left
    }

    /// More was published than was put in.
    pub fn is_behind(&self) -> bool {
        self.left > 0
    }

    /// Where to append records, as they come out of the ring. With [`RecordStream::set_left`], the last
    /// may be cut at a multiple of the alignment.
    pub fn input(&mut self) -> &mut Vec<u8> {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        } else if self.read > self.bytes.len() / 2 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        &mut self.bytes
    }

    /// The next record, without taking it; `None` when there is no whole one. Padding and other types
    /// are passed over, markers of the sampling once they are obeyed.
    ///
    /// # Errors
    /// When the bytes are no valid record.
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

    /// The bytes of the packet that [`RecordStream::peek`] returned.
    pub fn payload(&self, record: &RingRecord) -> &[u8] {
        let start = self.read + self.head;
        self.bytes.get(start..start + record.caplen as usize).unwrap_or_default()
    }

    /// What is known of the lost mbuf that [`RecordStream::peek`] returned; `None` for a packet.
    pub fn leak(&self) -> Option<LeakInfo> {
        let bytes = self.bytes.get(self.read + RECORD_SIZE..self.read + self.head)?;
        Some(LeakInfo::parse(bytes.try_into().ok()?))
    }

    /// Goes past a record that [`RecordStream::peek`] returned.
    pub fn skip(&mut self, size: u32) {
        self.read = (self.read + size as usize).min(self.bytes.len());
        self.position += u64::from(size);
    }

    #[inline(always)]
    fn check_frame(&self) -> Result<(u32, u8), RingRecordError> {
        let position = self.position;
        let to_ring_end = u64::from(self.data_size) - position % u64::from(self.data_size);
        let room = (self.pending() + self.left).min(to_ring_end as usize);
        let frame = self.bytes[self.read..].first_chunk();
        let Some((size, kind)) = frame.map(|bytes| RingRecord::parse_size_and_kind(*bytes)) else {
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

    #[inline(always)]
    fn parse(&self, size: u32) -> Result<RingRecord, RingRecordError> {
        let (position, room) = (self.position, self.pending());
        let header = self.bytes[self.read..].first_chunk();
        header.map(RingRecord::parse).ok_or(RingRecordError::Bounds { position, size, room })
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
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of a record, as a producer writes them.
    pub(crate) fn encode(record: &RingRecord, payload: &[u8]) -> Vec<u8> {
        let mut out = record.encode().to_vec();
        out.extend(payload);
        out.resize(record.size as usize, 0);
        out
    }

    /// A packet record of the right size for its payload.
    pub(crate) fn packet(tsc: u64, payload: &[u8]) -> (RingRecord, Vec<u8>) {
        let caplen = payload.len() as u32;
        let size = (RECORD_SIZE as u32 + caplen).next_multiple_of(RING_ALIGN);
        let record = RingRecord {
            size,
            kind: RECORD_PACKET,
            dir: 1,
            caplen,
            len: caplen,
            tsc,
            ..RingRecord::default()
        };
        (record, encode(&record, payload))
    }

    const RING: u32 = 1 << 16;

    fn read_all(records: &mut RecordStream) -> Result<Vec<(RingRecord, Vec<u8>)>, RingRecordError> {
        let mut found = Vec::new();
        while let Some(record) = records.peek()? {
            found.push((record, records.payload(&record).to_vec()));
            records.skip(record.size);
        }
        Ok(found)
    }

    #[test]
    fn padding_and_unknown_types_are_passed_over() {
        let mut records = RecordStream::new(u64::from(RING) - 128, RING, 1500);
        let (record, bytes) = packet(7, b"hello");
        let unknown = RingRecord { size: 48, kind: 77, ..RingRecord::default() };
        let pad = RingRecord { size: 32, kind: RECORD_PAD, ..RingRecord::default() };
        records.input().extend([encode(&unknown, &[]), bytes.clone(), encode(&pad, &[])].concat());
        records.input().extend(bytes);
        let hello = (record, b"hello".to_vec());
        assert_eq!(read_all(&mut records), Ok(vec![hello.clone(), hello]));
    }

    fn marker(sample: u32) -> Vec<u8> {
        let size = RECORD_SIZE as u32;
        encode(&RingRecord { size, kind: RECORD_SAMPLE, len: sample, ..RingRecord::default() }, &[])
    }

    #[test]
    fn a_packet_has_the_weight_of_the_marker_before_it() {
        let mut records = RecordStream::sampled(0, RING, 1500, 5);
        records.input().extend([packet(1, b"a").1, marker(64), packet(2, b"b").1].concat());
        records.input().extend([marker(7), marker(0), packet(3, b"c").1, marker(9)].concat());
        let mut weights = Vec::new();
        while let Some(record) = records.peek().unwrap() {
            weights.push((record.tsc, records.weight()));
            records.skip(record.size);
        }
        assert_eq!(weights, [(1, 5), (2, 64), (3, 1)]);
        assert_eq!(records.weight(), 9);
        assert_eq!(RecordStream::sampled(0, RING, 1500, 0).weight(), 1);
    }

    #[test]
    fn lost_mbufs_have_weight_one() {
        let mut records = RecordStream::of_leaks(0, RING, 1500);
        records.input().extend(marker(64));
        assert_eq!((records.peek(), records.weight()), (Ok(None), 1));
    }

    #[test]
    fn a_record_across_the_end_of_the_ring_is_refused() {
        let mut records = RecordStream::new(u64::from(RING) - 32, RING, 1500);
        records.input().extend(packet(7, b"hello").1);
        assert_eq!(
            records.peek(),
            Err(RingRecordError::Bounds { position: u64::from(RING) - 32, size: 48, room: 32 })
        );
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let (good, _) = packet(7, b"hello");
        let bad = [
            RingRecord { caplen: 17, len: 17, ..good },
            RingRecord { len: 4, ..good },
            RingRecord { caplen: u32::MAX, len: u32::MAX, ..good },
        ];
        for record in bad {
            let mut records = RecordStream::new(0, RING, 1500);
            records.input().extend(encode(&record, b"hello"));
            assert!(matches!(records.peek(), Err(RingRecordError::Lengths { .. })), "{record:?}");
        }
        let mut records = RecordStream::new(0, RING, 4);
        records.input().extend(encode(&good, b"hello"));
        assert!(
            matches!(records.peek(), Err(RingRecordError::Lengths { .. })),
            "beyond the snap length"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_loop(
            bytes in proptest::collection::vec(any::<u8>(), 0..4096),
            position in 0u64..1 << 40,
        ) {
            let mut records = RecordStream::new(position, RING, 1500);
            records.input().extend(bytes);
            let _ = read_all(&mut records);
        }

        #[test]
        fn one_spoilt_byte_never_panics_or_reads_beyond(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let mut bytes = payloads.iter().flat_map(|p| packet(1, p).1).collect::<Vec<_>>();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let total = bytes.len();
            let mut records = RecordStream::new(0, RING, 1500);
            records.input().extend(bytes);
            if let Ok(found) = read_all(&mut records) {
                prop_assert!(found.iter().all(|(r, p)| p.len() == r.caplen as usize));
                prop_assert!(found.iter().map(|(r, _)| r.size as usize).sum::<usize>() <= total);
            }
        }

        #[test]
        fn packets_come_out_as_they_went_in_whatever_the_batches(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..60),
            batch in 1usize..10,
        ) {
            let mut records = RecordStream::new(0, RING, 1500);
            let mut found = Vec::new();
            for chunk in payloads.chunks(batch) {
                for payload in chunk {
                    records.input().extend(packet(1, payload).1);
                }
                if let Some(record) = records.peek().unwrap() {
                    found.push(records.payload(&record).to_vec());
                    records.skip(record.size);
                }
            }
            found.extend(read_all(&mut records).unwrap().into_iter().map(|(_, payload)| payload));
            prop_assert_eq!(found, payloads);
        }

        #[test]
        fn weights_follow_markers_whatever_the_batches(
            written in proptest::collection::vec(
                (proptest::option::of(any::<u32>()), proptest::collection::vec(any::<u8>(), 0..80)),
                0..60),
            initial in any::<u32>(),
            reads in proptest::collection::vec(1usize..20, 1..20),
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            let mut sample = initial;
            for (change, payload) in written {
                if let Some(change) = change {
                    bytes.extend(marker(change));
                    sample = change;
                }
                bytes.extend(packet(1, &payload).1);
                expected.push((payload, sample.max(1)));
            }
            let mut records = RecordStream::sampled(0, RING, 1500, initial);
            let mut rest = &bytes[..];
            let mut found = Vec::new();
            let mut reads = reads.into_iter().cycle();
            while let Some(read) = reads.next().filter(|_| !rest.is_empty()) {
                let (now, later) = rest.split_at((read * RING_ALIGN as usize).min(rest.len()));
                records.input().extend(now);
                records.set_left(later.len());
                while let Some(record) = records.peek().unwrap() {
                    found.push((records.payload(&record).to_vec(), records.weight()));
                    records.skip(record.size);
                }
                rest = later;
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_split_of_reads_gives_the_same_records(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..40),
            spoilt in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
            reads in proptest::collection::vec(1usize..40, 1..20),
        ) {
            let mut bytes = payloads.iter().flat_map(|p| packet(1, p).1).collect::<Vec<_>>();
            if let Some((at, value)) = spoilt.filter(|_| !bytes.is_empty()) {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let position = u64::from(RING) - 1024;
            let mut whole = RecordStream::new(position, RING, 1500);
            whole.input().extend(&bytes);
            let mut split = RecordStream::new(position, RING, 1500);
            let mut rest = &bytes[..];
            let mut found = Ok(Vec::new());
            let mut reads = reads.into_iter().cycle();
            while let Some(read) = reads.next().filter(|_| !rest.is_empty()) {
                let (now, later) = rest.split_at((read * RING_ALIGN as usize).min(rest.len()));
                split.input().extend(now);
                split.set_left(later.len());
                found = found.and_then(|found| Ok([found, read_all(&mut split)?].concat()));
                rest = later;
            }
            prop_assert_eq!(found, read_all(&mut whole));
        }
    }
}
