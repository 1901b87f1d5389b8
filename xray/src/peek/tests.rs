//! Tests of the sampler with generated memory of a pool.

use std::sync::Arc;

use super::*;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::memzone::Memzone;
use crate::test_memory::{ChangingMemory, TestMemory};

const BASE: u64 = 0x10000;
const POOL: u64 = BASE;
const CACHES: u64 = BASE + 0x100;
const RING: u64 = BASE + 0x5000;
const OBJECTS: u64 = BASE + 0x6000;
const STRIDE: u64 = 1024;
const MBUFS: u64 = 16;
const ELEMENT: u32 = 768;

impl TestMemory {
    /// The cache of lcore 1 holds these mbufs, the last on top.
    fn cache(&mut self, mbufs: &[u64]) {
        let layout = &Layout::dpdk_22_11().cache;
        let cache = CACHES + layout.bytes;
        self.write(cache + layout.len, &u32::try_from(mbufs.len()).unwrap().to_le_bytes());
        for (place, number) in (0..).zip(mbufs) {
            self.write(cache + layout.objs + 8 * place, &mbuf(*number).to_le_bytes());
        }
    }

    /// The common ring contains these mbufs, and has contained `before` others.
    fn ring(&mut self, before: u32, mbufs: &[u64]) {
        let layout = &Layout::dpdk_22_11().ring;
        for (place, number) in (before..).zip(mbufs) {
            let slot = RING + layout.bytes + 8 * u64::from(place % 16);
            self.write(slot, &mbuf(*number).to_le_bytes());
        }
        let tail = before + u32::try_from(mbufs.len()).unwrap();
        self.write(RING + layout.prod_tail, &tail.to_le_bytes());
        self.write(RING + layout.cons_head, &before.to_le_bytes());
    }

    /// A free mbuf with a packet of `len` bytes, `data.len()` of them in its segment.
    fn packet(&mut self, number: u64, len: u32, data: &[u8]) {
        self.packet_behind(128, number, len, data);
    }

    /// As above, with the packet at this offset in its buffer.
    fn packet_behind(&mut self, offset: u16, number: u64, len: u32, data: &[u8]) {
        let (at, layout) = (mbuf(number), &Layout::dpdk_22_11().mbuf);
        self.write(at + layout.buf_addr, &(at + layout.bytes).to_le_bytes());
        self.write(at + layout.buf_len, &640u16.to_le_bytes());
        self.write(at + layout.data_off, &offset.to_le_bytes());
        self.write(at + layout.refcnt, &1u16.to_le_bytes());
        self.write(at + layout.nb_segs, &1u16.to_le_bytes());
        self.write(at + layout.port, &3u16.to_le_bytes());
        self.write(at + layout.pkt_len, &len.to_le_bytes());
        self.write(at + layout.data_len, &u16::try_from(data.len()).unwrap().to_le_bytes());
        self.write(at + layout.bytes + u64::from(offset), data);
    }
}

fn mbuf(number: u64) -> u64 {
    OBJECTS + number * STRIDE + Layout::dpdk_22_11().objhdr.bytes
}

/// An app that may change at each read.
struct App {
    memory: Arc<ChangingMemory>,
}

impl App {
    /// All mbufs are in the cache of lcore 1, and were never used.
    fn new() -> Self {
        let mut memory = TestMemory::default();
        memory.map(BASE, 0x10000);
        let layout = Layout::dpdk_22_11();
        let pool = &layout.mempool;
        let size = u32::try_from(MBUFS).unwrap();
        memory.write(POOL + pool.name, b"packets");
        let words = [
            (pool.size, size),
            (pool.populated_size, size),
            (pool.cache_size, size),
            (pool.elt_size, ELEMENT),
        ];
        for (offset, word) in words {
            memory.write(POOL + offset, &word.to_le_bytes());
        }
        memory.write(POOL + pool.local_cache, &CACHES.to_le_bytes());
        memory.write(POOL + pool.pool_data, &RING.to_le_bytes());
        memory.write(POOL + pool.elt_list, &OBJECTS.to_le_bytes());
        memory.write(RING + layout.ring.mask, &15u32.to_le_bytes());
        for number in 0..MBUFS {
            memory.write(mbuf(number) + layout.mbuf.pool, &POOL.to_le_bytes());
        }
        memory.cache(&(0..MBUFS).collect::<Vec<_>>());
        Self { memory: Arc::new(memory.into()) }
    }

    fn write(&self, write: impl FnOnce(&mut TestMemory)) {
        write(&mut self.memory.lock());
    }

    fn sampler(&self, snaplen: u32) -> PacketSampler {
        let zone = |name: &str, address, bytes| Memzone { name: name.to_owned(), address, bytes };
        let zones = vec![zone("MP_packets", POOL, 192), zone("RG_MP_packets", RING, 512)];
        let layout = Layout { max_lcore: 2, ..Layout::dpdk_22_11() };
        let target = XrayTarget::new(Arc::clone(&self.memory) as Arc<dyn Memory>, layout, zones);
        PacketSampler::new(target, snaplen).unwrap()
    }
}

/// The packets of one pass, as port, length and data.
fn pass(sampler: &mut PacketSampler) -> Vec<(Option<u16>, u32, Vec<u8>)> {
    let mut shown = Vec::new();
    sampler
        .pass(&mut |packet| shown.push((packet.port, packet.len, packet.data.to_vec())))
        .unwrap();
    shown
}

#[test]
fn a_packet_is_shown_once_and_not_if_it_is_from_before() {
    let app = App::new();
    app.write(|memory| memory.packet(4, 60, &[7; 60]));
    let mut sampler = app.sampler(1500);
    assert!(pass(&mut sampler).is_empty(), "from before");
    app.write(|memory| memory.packet(15, 60, &[1; 60]));
    assert_eq!(pass(&mut sampler), [(Some(3), 60, vec![1; 60])]);
    assert!(pass(&mut sampler).is_empty(), "a second time");
    app.write(|memory| memory.packet(15, 64, &[2; 64]));
    assert_eq!(pass(&mut sampler).len(), 1, "another packet in the same mbuf");
    // Taken and given back without a packet: the data is still there.
    app.write(|memory| memory.packet(15, 0, &[]));
    assert!(pass(&mut sampler).is_empty());
    app.write(|memory| memory.packet(15, 64, &[2; 64]));
    assert!(pass(&mut sampler).is_empty());
    assert_eq!(sampler.counts().packets, 2);
}

#[test]
fn mbufs_in_use_are_not_shown_until_they_come_back() {
    let app = App::new();
    let mut sampler = app.sampler(1500);
    app.write(|memory| {
        memory.cache(&(0..15).collect::<Vec<_>>());
        memory.packet(15, 60, &[1; 60]);
    });
    assert!(pass(&mut sampler).is_empty());
    app.write(|memory| memory.ring(0, &[15]));
    assert_eq!(pass(&mut sampler).len(), 1, "it came back to the common ring");
}

#[test]
fn long_packets_are_cut_and_keep_their_length() {
    let app = App::new();
    let mut sampler = app.sampler(500);
    let long: Vec<_> = (0..510u32).map(|byte| (byte % 251) as u8).collect();
    app.write(|memory| memory.packet(2, 510, &long));
    assert_eq!(pass(&mut sampler), [(Some(3), 510, long[..500].to_vec())]);
    let mut first = long[..500].to_vec();
    first[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    app.write(|memory| memory.packet(2, 9000, &first));
    assert_eq!(pass(&mut sampler), [(Some(3), 9000, first)], "the first of several segments");
    app.write(|memory| memory.packet(5, 400, &[9; 400]));
    assert!(pass(&mut sampler).is_empty(), "this one may be a following segment");
    assert_eq!(sampler.counts().implausible, 1);
}

#[test]
fn packets_far_behind_the_header_are_told_apart() {
    let app = App::new();
    app.write(|memory| {
        for number in 0..MBUFS {
            memory.packet_behind(500, number, 100, &[7; 100]);
        }
    });
    let mut sampler = app.sampler(1500);
    assert!(pass(&mut sampler).is_empty(), "the first look ended before them");
    for content in 0..3 {
        app.write(|memory| memory.packet_behind(500, 15, 100, &[content; 100]));
        assert_eq!(pass(&mut sampler), [(Some(3), 100, vec![content; 100])]);
        assert!(pass(&mut sampler).is_empty());
    }
}

#[test]
fn what_changes_while_it_is_read_is_dropped() {
    for changed_at in [0, 300, 500] {
        let app = App::new();
        let mut sampler = app.sampler(1500);
        app.write(|memory| memory.packet(15, 400, &[1; 400]));
        let mut content = 2;
        app.memory.before_read(move |address, memory| {
            if address == mbuf(15) {
                let byte = mbuf(15) + Layout::dpdk_22_11().mbuf.bytes + 128 + changed_at % 400;
                memory.write(byte, &[content]);
                content += 1;
            }
            Ok(())
        });
        assert!(pass(&mut sampler).is_empty());
        assert_eq!(sampler.counts().torn, 1);
        app.memory.read_unchanged();
        assert_eq!(pass(&mut sampler).len(), 1, "it rests now");
    }
}

#[test]
fn what_is_taken_while_it_is_read_is_dropped() {
    let app = App::new();
    let mut sampler = app.sampler(1500);
    app.write(|memory| memory.packet(15, 400, &[1; 400]));
    app.memory.before_read(|address, memory| {
        if address == mbuf(15) {
            memory.cache(&(0..15).collect::<Vec<_>>());
        }
        Ok(())
    });
    assert!(pass(&mut sampler).is_empty());
    assert_eq!(sampler.counts().torn, 1);
}

#[test]
fn an_mbuf_that_is_in_two_places_is_shown_once() {
    let app = App::new();
    let mut sampler = app.sampler(1500);
    app.write(|memory| {
        memory.packet(15, 60, &[1; 60]);
        memory.cache(&[3, 15, 4, 15]);
        memory.ring(0, &[15]);
    });
    assert_eq!(pass(&mut sampler).len(), 1);
}

#[test]
fn garbage_is_counted_and_survived() {
    let app = App::new();
    let mut sampler = app.sampler(1500);
    let layout = Layout::dpdk_22_11().mbuf;
    app.write(|memory| {
        memory.packet(15, 60, &[1; 60]);
        memory.write(mbuf(15) + layout.data_off, &600u16.to_le_bytes());
        memory.packet(14, 60, &[1; 60]);
        memory.write(mbuf(14) + layout.refcnt, &2u16.to_le_bytes());
        memory.packet(13, 60, &[1; 60]);
        memory.write(mbuf(13) + layout.buf_addr, &BASE.to_le_bytes());
        memory.packet(12, 1 << 20, &[1; 60]);
    });
    assert!(pass(&mut sampler).is_empty());
    assert_eq!(sampler.counts().implausible, 4);
    // Words of a cache that was read while it changed, and of one that is no cache.
    app.write(|memory| {
        let layout = Layout::dpdk_22_11().cache;
        let cache = CACHES + layout.bytes;
        memory.write(cache + layout.objs, &(u64::MAX - 7).to_le_bytes());
        memory.write(cache + layout.len, &u32::MAX.to_le_bytes());
    });
    assert!(pass(&mut sampler).is_empty());
    assert!(sampler.counts().torn > 0);
}
