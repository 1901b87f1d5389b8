//! Tests of streams of records, valid and invalid, and helpers that make them.

use proptest::prelude::*;

use super::*;

/// Returns the bytes of a record, as a producer writes them.
pub(crate) fn encode(record: &RingRecord, payload: &[u8]) -> Vec<u8> {
    let mut out = record.encode().to_vec();
    out.extend(payload);
    out.resize(record.size as usize, 0);
    out
}

/// Returns a packet record of the right size for its payload.
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
