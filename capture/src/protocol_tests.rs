//! Tests of the protocol with loom, which tries every order in which its accesses can take effect.
//! The producer is that of `lib/src/capture/capture.c` and `capture_ring.c`, access by access.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

use super::*;

word!(AtomicU32, u32, fence);
word!(AtomicU64, u64, fence);

/// Units of data, each standing for the smallest record.
const UNITS: usize = 4;
const UNIT: u64 = 16;
const SIZE: u64 = UNITS as u64 * UNIT;

/// Value of units that fill the ring up to its end.
const PAD: u64 = u64::MAX;

struct Shared {
    head: AtomicU64,
    tail: AtomicU64,
    dropped: AtomicU64,
    /// loom fails when one side accesses a cell while the other may access it.
    data: [UnsafeCell<u64>; UNITS],
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            data: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    #[allow(unsafe_code)] // Cells of loom, which checks each access.
    fn put(&self, at: u64, value: u64) {
        // SAFETY: the pointer is that of a live cell; loom fails on a second access to it.
        self.data[(at % SIZE / UNIT) as usize].with_mut(|cell| unsafe { *cell = value });
    }

    #[allow(unsafe_code)] // As above.
    fn get(&self, unit: usize) -> u64 {
        // SAFETY: as in `put`.
        self.data[unit].with(|cell| unsafe { *cell })
    }
}

/// One lcore. Its head and tail are private.
struct Producer {
    head: u64,
    tail: u64,
    dropped: u64,
}

impl Producer {
    /// Writes a record of `units` units, each with the id as its value; returns false when there is
    /// no room.
    fn write(&self, ring: &Shared, head: &mut u64, id: u64, units: u64) -> bool {
        let left = SIZE - *head % SIZE;
        let size = units * UNIT;
        let pad = if size > left { left } else { 0 };
        if *head - self.tail + pad + size > SIZE {
            return false;
        }
        for (length, value) in [(pad, PAD), (size, id)] {
            for at in (0..length).step_by(UNIT as usize) {
                ring.put(*head + at, value);
            }
            *head += length;
        }
        true
    }

    fn accept_tail(&mut self, ring: &Shared) {
        self.accept(ring.tail.load(Ordering::Acquire));
    }

    fn accept(&mut self, tail: u64) {
        assert!(tail >= self.tail && tail <= self.head, "a tail that breaks the rules");
        self.tail = tail;
    }

    /// Writes and publishes one record; returns false when there is no room.
    fn mark(&mut self, ring: &Shared, value: u64) -> bool {
        self.accept_tail(ring);
        let mut head = self.head;
        let fits = self.write(ring, &mut head, value, 1);
        if fits {
            self.head = head;
            ring.head.store(self.head, Ordering::Release);
        }
        fits
    }

    /// Accepts the tail, writes records, stores the counters, and publishes the head.
    fn burst(&mut self, ring: &Shared, records: &[(u64, u64)]) {
        self.accept_tail(ring);
        self.publish(ring, records);
    }

    fn publish(&mut self, ring: &Shared, records: &[(u64, u64)]) {
        let mut head = self.head;
        for (id, units) in records {
            if !self.write(ring, &mut head, *id, *units) {
                self.dropped += 1;
            }
        }
        self.head = head;
        ring.dropped.store(self.dropped, Ordering::Relaxed);
        ring.head.store(self.head, Ordering::Release);
    }
}

/// Checks that records arrive whole, in order and once.
#[derive(Default)]
struct Seen {
    ids: Vec<u64>,
    /// A unit of a record that was not read completely yet.
    cut: Option<u64>,
}

impl Seen {
    /// Reads once; returns false when there was nothing more.
    fn read(&mut self, ring: &Shared, cursor: &mut RingCursor, most: usize) -> bool {
        let mut units = Vec::from_iter(self.cut.take());
        let before = units.len();
        let read = cursor.read(&ring.head, most, |offset, len| {
            let first = offset / UNIT as usize;
            units.extend((first..first + len / UNIT as usize).map(|unit| ring.get(unit)));
        });
        cursor.release(&ring.tail, cursor.consumed());
        let (copied, left) = read.unwrap();
        assert!(copied <= most && copied == (units.len() - before) * UNIT as usize);
        let mut units = units.into_iter().filter(|unit| *unit != PAD).peekable();
        while let Some(id) = units.next() {
            assert!(self.ids.last().is_none_or(|last| id > *last), "{id} after {:?}", self.ids);
            // Records of odd ids have two units.
            if !id.is_multiple_of(2) && units.next_if_eq(&id).is_none() {
                assert!(left > 0 && units.peek().is_none(), "half a record");
                self.cut = Some(id);
                break;
            }
            self.ids.push(id);
        }
        copied > 0
    }
}

#[test]
fn records_arrive_whole_in_order_and_once_under_loom() {
    arrive(usize::MAX);
}

#[test]
fn records_that_are_read_in_parts_arrive_whole_under_loom() {
    arrive(UNIT as usize + 1);
}

fn arrive(most: usize) {
    let bursts: [&[(u64, u64)]; 4] =
        [&[(1, 2), (2, 1)], &[(3, 2)], &[(4, 1), (5, 2)], &[(6, 1), (7, 2)]];
    loom::model(move || {
        let ring = Shared::new();
        let producer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || {
                let mut producer = Producer { head: 0, tail: 0, dropped: 0 };
                for records in bursts {
                    producer.burst(&ring, records);
                }
            }
        });
        let mut cursor = RingCursor::new(&ring.tail, SIZE as u32, UNIT as u32);
        let mut seen = Seen::default();
        for _ in 0..3 {
            seen.read(&ring, &mut cursor, most);
        }
        producer.join().unwrap();
        while seen.read(&ring, &mut cursor, most) {}
        let dropped = ring.dropped.load(Ordering::Relaxed);
        assert_eq!(seen.ids.len() as u64 + dropped, 7, "{:?}", seen.ids);
    });
}

/// Added to the sampling in a unit that announces the sampling of the units after it.
const MARK: u64 = 1 << 32;

#[test]
fn packets_stand_behind_the_marker_of_their_sampling_under_loom() {
    loom::model(|| {
        let ring = Shared::new();
        let wanted = Arc::new(AtomicU32::new(1));
        let producer = thread::spawn({
            let (ring, wanted) = (Arc::clone(&ring), Arc::clone(&wanted));
            move || {
                let mut producer = Producer { head: 0, tail: 0, dropped: 0 };
                let mut sample = 1;
                for _ in 0..3 {
                    let now = u64::from(wanted.load(Ordering::Relaxed));
                    if now != sample && producer.mark(&ring, MARK + now) {
                        sample = now;
                    }
                    // The value of a packet is its sampling.
                    producer.burst(&ring, &[(sample, 1), (sample, 1)]);
                }
                producer.head / UNIT
            }
        });
        let mut cursor = RingCursor::new(&ring.tail, SIZE as u32, UNIT as u32);
        let (mut units, mut sample) = (0, 1);
        let mut read = || {
            let copy = |offset: usize, len: usize| {
                let first = offset / UNIT as usize;
                for unit in first..first + len / UNIT as usize {
                    match ring.get(unit) {
                        mark if mark >= MARK => sample = mark - MARK,
                        packet => assert_eq!(packet, sample),
                    }
                    units += 1;
                }
            };
            let read = cursor.read(&ring.head, usize::MAX, copy).unwrap().0 > 0;
            cursor.release(&ring.tail, cursor.consumed());
            read
        };
        wanted.store(2, Ordering::Relaxed);
        read();
        let written = producer.join().unwrap();
        while read() {}
        assert_eq!(units, written);
    });
}

#[test]
fn a_tail_that_was_taken_over_and_then_confirmed_never_goes_back_under_loom() {
    /// What the control thread of the app passes on to its lcore.
    struct Passed {
        tail: AtomicU64,
        mapped: AtomicU32,
    }
    loom::model(|| {
        let ring = Shared::new();
        let passed = Arc::new(Passed { tail: AtomicU64::new(0), mapped: AtomicU32::new(0) });
        let control = thread::spawn({
            let (ring, passed) = (Arc::clone(&ring), Arc::clone(&passed));
            move || {
                passed.tail.store(ring.tail.load(Ordering::Acquire), Ordering::Release);
                passed.mapped.store(1, Ordering::Release);
            }
        });
        let producer = thread::spawn({
            let (ring, passed) = (Arc::clone(&ring), Arc::clone(&passed));
            move || {
                let mut producer = Producer { head: 0, tail: 0, dropped: 0 };
                for id in [2, 4] {
                    let mapped = passed.mapped.load(Ordering::Acquire) != 0;
                    let tail = if mapped { &ring.tail } else { &passed.tail };
                    producer.accept(tail.load(Ordering::Acquire));
                    producer.publish(&ring, &[(id, 2)]);
                }
            }
        });
        let mut cursor = RingCursor::new(&ring.tail, SIZE as u32, UNIT as u32);
        let copy = |offset: usize, len: usize| {
            let first = offset / UNIT as usize;
            for unit in first..first + len / UNIT as usize {
                ring.get(unit);
            }
        };
        cursor.read(&ring.head, usize::MAX, copy).unwrap();
        cursor.release(&ring.tail, cursor.consumed());
        control.join().unwrap();
        producer.join().unwrap();
    });
}

#[test]
fn the_head_after_a_burst_has_its_records_under_loom() {
    loom::model(|| {
        let ring = Shared::new();
        let in_burst = Arc::new(AtomicU32::new(0));
        let producer = thread::spawn({
            let (ring, in_burst) = (Arc::clone(&ring), Arc::clone(&in_burst));
            move || {
                let mut producer = Producer { head: 0, tail: 0, dropped: 0 };
                in_burst.store(1, Ordering::Relaxed);
                producer.burst(&ring, &[(2, 1)]);
                in_burst.store(0, Ordering::Release);
            }
        });
        let began = !is_between_bursts(&*in_burst);
        if began && is_between_bursts(&*in_burst) {
            let cursor = RingCursor::new(&ring.tail, SIZE as u32, UNIT as u32);
            assert_eq!(cursor.available(&ring.head), Ok(UNIT as usize));
        }
        producer.join().unwrap();
    });
}

#[test]
fn anchors_are_of_one_moment_under_loom() {
    struct Locked {
        seq: AtomicU32,
        words: [AtomicU64; 2],
    }
    loom::model(|| {
        let shared = Arc::new(Locked {
            seq: AtomicU32::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for moment in 1..=2 {
                    shared.seq.store(2 * moment - 1, Ordering::Relaxed);
                    fence(Ordering::Release);
                    for word in &shared.words {
                        word.store(moment.into(), Ordering::Relaxed);
                    }
                    shared.seq.store(2 * moment, Ordering::Release);
                }
            }
        });
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let read = || read_locked(&shared.seq, || (load(&shared.words[0]), load(&shared.words[1])));
        if let Some((first, second)) = read() {
            assert_eq!(first, second);
        }
        writer.join().unwrap();
        assert_eq!(read(), Some((2, 2)), "nobody writes any more");
    });
}
