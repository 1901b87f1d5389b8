//! Tests of rings of a model app, valid and invalid.

use pmdscope_packets::PacketData;
use pmdscope_testing::{current_test, skip};
use proptest::prelude::*;

use super::*;
use crate::layout::RingRecord;
use crate::producer::Producer;
use crate::records::RecordData;

const SIZE: u32 = RING_MIN_SIZE;

fn map(producer: &Producer) -> Result<Ring, RingError> {
    let (data, tail) = producer.fds();
    Ring::map(data, tail)
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn bytes_of(records: &RecordStream, record: &RingRecord) -> Vec<u8> {
    match records.data(record) {
        RecordData::Copied(bytes) => bytes.to_vec(),
        RecordData::Shared(bytes) => {
            let mut copy = vec![0; bytes.size()];
            bytes.copy_to(&mut copy);
            copy
        }
    }
}

#[test]
fn a_ring_that_could_fault_is_refused() {
    let good = Producer::new(SIZE, 1);
    let (data, tail) = good.fds();
    let unsealed = memfd(4096, SealFlags::GROW);
    assert!(matches!(Ring::map(data, unsealed), Err(RingError::Unsealed("tail"))));
    let (data, _) = good.fds();
    let empty = memfd(0, SealFlags::SHRINK);
    assert!(matches!(Ring::map(data, empty), Err(RingError::Short { what: "tail", .. })));
    let short = memfd(8192, SealFlags::SHRINK);
    let mut header = [0; RingHeader::SIZE];
    std::os::unix::fs::FileExt::read_exact_at(&good.data, &mut header, 0).unwrap();
    let file = File::from(short);
    std::os::unix::fs::FileExt::write_all_at(&file, &header, 0).unwrap();
    assert!(matches!(Ring::map(file.into(), tail), Err(RingError::Short { what: "data", .. })));
}

#[test]
fn what_is_published_after_the_end_is_neither_read_nor_counted() {
    let mut producer = Producer::new(SIZE, 1);
    let publish = |producer: &mut Producer| {
        while producer.push(RingRecord::default(), &[0; 1000]) {}
        producer.publish();
    };
    publish(&mut producer);
    let mut ring = map(&producer).unwrap();
    let mut records = RecordStream::new(0, SIZE, 1500);
    let first = ring.read(4096, &mut records).unwrap();
    let before = (ring.counters(), ring.port_dropped(0), producer.head());
    ring.close();
    publish(&mut producer);
    assert!(producer.head() > before.2);
    assert_eq!((ring.counters(), ring.port_dropped(0)), (before.0, before.1));
    let rest = ring.read(usize::MAX, &mut records).unwrap();
    assert_eq!((first + rest) as u64, before.2);
    // A producer that is in a burst does not keep the end waiting.
    let mut other = map(&producer).unwrap();
    producer.set_in_burst(true);
    other.close();
    assert!(other.counters().records > before.0.records);
}

#[test]
fn huge_pages_are_refused() {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    let (data, tail) = Producer::new(SIZE, 1).fds();
    let huge = || {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let fd = memfd_create("huge", flags)?;
        // The file has holes with no pages behind them, in spite of the seals.
        ftruncate(&fd, 1 << 30)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK).map(|()| fd)
    };
    let made = huge().and_then(|first| Ok((first, huge()?)));
    let (first, second) = match made {
        Ok(both) => both,
        Err(error) => return skip(&current_test(), format!("no huge pages: {error}")),
    };
    assert!(matches!(Ring::map(first, tail), Err(RingError::HugePages("data"))));
    assert!(matches!(Ring::map(data, second), Err(RingError::HugePages("tail"))));
}

#[test]
fn a_descriptor_that_is_no_memfd_is_refused() {
    let (_, tail) = Producer::new(SIZE, 1).fds();
    let file = File::open("/dev/null").unwrap();
    assert!(Ring::map(file.into(), tail).is_err());
    let (reader, _writer) = std::io::pipe().unwrap();
    let (_, tail) = Producer::new(SIZE, 1).fds();
    assert!(Ring::map(reader.into(), tail).is_err());
}

#[test]
fn a_head_that_jumps_or_goes_back_is_an_error() {
    let mut producer = Producer::new(SIZE, 1);
    let mut ring = map(&producer).unwrap();
    let mut records = RecordStream::new(0, SIZE, 1500);
    producer.set_head(64);
    assert_eq!(ring.read(usize::MAX, &mut records).unwrap(), 64);
    for head in [48, 65, 64 + u64::from(SIZE) + 16, u64::MAX] {
        producer.set_head(head);
        let read = ring.read(usize::MAX, &mut records);
        assert!(matches!(read, Err(RingError::Head { from: 64, .. })), "{head}");
    }
    assert_eq!(records.pending(), 64);
}

#[test]
fn anchors_are_not_read_while_they_are_written() {
    let producer = Producer::new(SIZE, 1);
    let ring = map(&producer).unwrap();
    let last = ClockAnchor { tsc: 5, realtime_ns: 6, raw_ns: 7 };
    producer.anchor(ClockAnchor::default(), last);
    assert_eq!(ring.anchors(), Some((ClockAnchor::default(), last)));
    producer.poke(ANCHOR_SEQ, &3u32.to_ne_bytes());
    assert_eq!(ring.anchors(), None);
}

#[test]
fn a_ring_is_between_bursts_if_its_producer_says_so() {
    let producer = Producer::new(SIZE, 1);
    let ring = map(&producer).unwrap();
    assert!(ring.is_between_bursts());
    producer.set_in_burst(true);
    assert!(!ring.is_between_bursts());
    assert!(!map(&Producer::old(SIZE, 1)).unwrap().is_between_bursts());
}

#[test]
fn two_threads_lose_nothing_that_was_not_counted() {
    two_threads(|ring, records| ring.read(8 * 1024, records).unwrap());
}

#[test]
fn records_in_view_are_not_overwritten() {
    two_threads(|ring, records| {
        ring.view(records).unwrap();
        records.pending()
    });
}

/// Reads while another thread writes. Records that `read_some` has not taken must still be in the
/// ring when it is called again.
fn two_threads(read_some: impl Fn(&mut Ring, &mut RecordStream) -> usize) {
    const PACKETS: u32 = 300_000;
    let mut producer = Producer::new(SIZE, 1);
    let mut ring = map(&producer).unwrap();
    let writer = std::thread::spawn(move || {
        for id in 0..PACKETS {
            let payload = vec![id as u8; (id % 1400) as usize];
            producer.push(RingRecord { tsc: id.into(), ..RingRecord::default() }, &payload);
            if id % 7 == 0 {
                producer.publish();
            }
            if id % 64 == 0 {
                std::thread::yield_now();
            }
        }
        producer.publish();
        producer
    });
    let mut records = RecordStream::new(0, SIZE, 1500);
    let (mut read, mut lost) = (0u64, 0u64);
    let mut next = 0;
    loop {
        let finished = writer.is_finished();
        let got = read_some(&mut ring, &mut records);
        while let Some(record) = records.peek().unwrap() {
            let id = record.tsc as u32;
            assert_eq!(id, next + record.gap);
            assert_eq!(record.caplen, id % 1400);
            assert!(bytes_of(&records, &record).iter().all(|byte| *byte == id as u8));
            (next, read, lost) = (id + 1, read + 1, lost + u64::from(record.gap));
            records.skip(record.size);
        }
        ring.release(&records);
        if finished && got == 0 && !records.is_behind() {
            break;
        }
    }
    let producer = writer.join().unwrap();
    let counters = ring.counters();
    assert_eq!(counters.records, read);
    assert_eq!(read + counters.dropped, u64::from(PACKETS));
    assert_eq!(counters.dropped - lost, u64::from(PACKETS - next), "the gap that nothing follows");
    assert_eq!(ring.port_dropped(0), Some(counters.dropped));
    assert_eq!(ring.port_dropped(32), None);
    assert_eq!(producer.tail(), ring.consumed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_header_is_a_ring_or_an_error(
        spoilt in proptest::collection::vec((0usize..RingHeader::SIZE, any::<u8>()), 0..4),
        head in any::<u64>(),
        content in proptest::collection::vec(any::<u8>(), 256),
    ) {
        let mut producer = Producer::new(SIZE, 1);
        producer.poke(RING_HEADER_SIZE, &content);
        producer.set_head(head % (2 * u64::from(SIZE)));
        for (offset, byte) in spoilt {
            producer.poke(offset, &[byte]);
        }
        if let Ok(mut ring) = map(&producer) {
            let mut records = RecordStream::new(0, ring.data_size(), ring.snaplen());
            let read = ring.read(usize::MAX, &mut records).unwrap();
            prop_assert!(read <= ring.data_size() as usize);
            while let Ok(Some(record)) = records.peek() {
                records.skip(record.size);
            }
            let mut ring = map(&producer).unwrap();
            let mut viewed = RecordStream::new(ring.consumed(), ring.data_size(), ring.snaplen());
            ring.view(&mut viewed).unwrap();
            while let Ok(Some(record)) = viewed.peek() {
                prop_assert_eq!(bytes_of(&viewed, &record).len(), record.caplen as usize);
                viewed.skip(record.size);
            }
            ring.release(&viewed);
            prop_assert!(ring.consumed() <= head % (2 * u64::from(SIZE)));
            ring.counters();
            ring.anchors();
        }
    }
}
