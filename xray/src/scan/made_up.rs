//! An app whose memory is generated: one pool of mbufs, a ring, and a heap.

use std::sync::Arc;

use crate::error::XrayError;
use crate::layout::Layout;
use crate::memzone::Memzone;
use crate::target::XrayTarget;
use crate::test_memory::{ChangingMemory, TestMemory};
use crate::{Mapping, PoolHandler};

/// Start of the memory, and of its parts.
const BASE: u64 = 0x1_0000_0000;
pub(super) const POOL: u64 = BASE;
const HANDLER: u64 = BASE + 0x20_0000;
const CHUNKS: u64 = BASE + 0x22_0000;
pub(super) const OBJECTS: u64 = BASE + 0x23_0000;
pub(super) const RING: u64 = BASE + 0x2a_0000;
pub(super) const HEAP: u64 = BASE + 0x2b_0000;
/// Memory of another process that the app maps.
pub(super) const GUEST: u64 = BASE + 0x2c_0000;
const END: u64 = BASE + 0x2d_0000;

const SLOT_BYTES: u64 = 768;
const HEADER_BYTES: u64 = 64;
const ELEMENT_BYTES: u64 = 640;
/// Objects per chunk; between chunks there is a gap.
const PER_CHUNK: u64 = 50;
const CHUNK_BYTES: u64 = PER_CHUNK * SLOT_BYTES + 4096;
pub(super) const PRIVATE_BYTES: u64 = 64;
pub(super) const RING_SLOTS: u64 = 64;

/// The app.
pub(super) struct MadeUpApp {
    pub(super) memory: Arc<ChangingMemory>,
    pub(super) target: XrayTarget,
    objects: u64,
    cached: Vec<(u64, Vec<u64>)>,
    next_heap_word: u64,
}

impl MadeUpApp {
    /// A pool with this number of mbufs, all of them in use.
    pub(super) fn new(objects: u64, handler: PoolHandler) -> Self {
        let mut memory = TestMemory::default();
        memory.map(BASE, END - BASE);
        let memory = Arc::new(ChangingMemory::from(memory));
        *memory.mappings() = mappings();
        let handler_zone = match handler {
            PoolHandler::Ring => "RG_MP_pkts",
            PoolHandler::Stack => "STK_MP_pkts",
            PoolHandler::Unknown => "bucket",
        };
        let zone = |name: &str, address, bytes| Memzone { name: name.to_owned(), address, bytes };
        let ring_bytes = Layout::dpdk_22_11().ring.bytes + RING_SLOTS * 8;
        let zones = vec![
            zone("MP_pkts", POOL, HANDLER - POOL),
            zone(handler_zone, HANDLER, CHUNKS - HANDLER),
            zone("MP_pkts_0", OBJECTS, RING - OBJECTS),
            zone("RG_backlog", RING, ring_bytes),
        ];
        let target = XrayTarget::new(memory.clone(), Layout::dpdk_22_11(), zones);
        let app = Self { memory, target, objects, cached: Vec::new(), next_heap_word: HEAP };
        app.make_pool();
        app.make_ring(RING, RING_SLOTS);
        (0..objects).for_each(|object| app.make_object(object));
        app
    }

    pub(super) fn set(&self, address: u64, value: u64) {
        self.memory.lock().write_u64(address, value);
    }

    pub(super) fn set_u32(&self, address: u64, value: u32) {
        self.memory.lock().write_u32(address, value);
    }

    pub(super) fn set_u16(&self, address: u64, value: u16) {
        self.memory.lock().write_u16(address, value);
    }

    pub(super) fn set_bytes(&self, address: u64, bytes: &[u8]) {
        self.memory.lock().write(address, bytes);
    }

    /// Calls `before` before each read.
    pub(super) fn before_read(
        &self,
        before: impl FnMut(u64, &mut TestMemory) -> Result<(), XrayError> + Send + 'static,
    ) {
        self.memory.before_read(before);
    }

    fn slot(object: u64) -> u64 {
        OBJECTS + object / PER_CHUNK * CHUNK_BYTES + object % PER_CHUNK * SLOT_BYTES
    }

    /// Address of the object with this number.
    pub(super) fn mbuf(object: u64) -> u64 {
        Self::slot(object) + HEADER_BYTES
    }

    /// Where the data buffer of its mbuf begins.
    pub(super) fn buffer(object: u64) -> u64 {
        Self::mbuf(object) + Layout::dpdk_22_11().mbuf.bytes + PRIVATE_BYTES
    }

    fn header(object: u64) -> u64 {
        Self::mbuf(object) - Layout::dpdk_22_11().objhdr.bytes
    }

    fn make_pool(&self) {
        let (layout, count) = (&self.target.layout, u32::try_from(self.objects).unwrap());
        let pool = &layout.mempool;
        self.set_bytes(POOL + pool.name, b"pkts\0");
        for (field, value) in [
            (pool.size, count),
            (pool.populated_size, count),
            (pool.cache_size, 64),
            (pool.elt_size, u32::try_from(ELEMENT_BYTES).unwrap()),
            (pool.header_size, u32::try_from(HEADER_BYTES).unwrap()),
            (pool.trailer_size, u32::try_from(SLOT_BYTES - HEADER_BYTES - ELEMENT_BYTES).unwrap()),
            (pool.private_data_size, 8),
            (pool.nb_mem_chunks, u32::try_from(self.objects.div_ceil(PER_CHUNK)).unwrap()),
        ] {
            self.set_u32(POOL + field, value);
        }
        self.set(POOL + pool.pool_data, HANDLER);
        self.set(POOL + pool.local_cache, POOL + pool.bytes);
        self.set(POOL + pool.elt_list, Self::header(0));
        self.set(POOL + pool.elt_list + 8, Self::header(self.objects - 1));
        self.set(POOL + pool.mem_list, CHUNKS);
        let private = POOL + pool.bytes + u64::from(layout.max_lcore) * layout.cache.bytes;
        assert!(private + 8 <= HANDLER);
        self.set_u16(private, 256);
        self.set_u16(private + 2, u16::try_from(PRIVATE_BYTES).unwrap());
        let chunks = self.objects.div_ceil(PER_CHUNK);
        for chunk in 0..chunks {
            let (at, next) = (CHUNKS + chunk * 64, CHUNKS + (chunk + 1) * 64);
            self.set(at + layout.memhdr.next, if chunk + 1 < chunks { next } else { 0 });
            self.set(at + layout.memhdr.addr, OBJECTS + chunk * CHUNK_BYTES);
            self.set(at + layout.memhdr.len, CHUNK_BYTES);
        }
        self.make_ring(HANDLER, self.objects.next_power_of_two());
    }

    fn make_ring(&self, ring: u64, slots: u64) {
        let layout = &self.target.layout.ring;
        self.set_u32(ring + layout.size, u32::try_from(slots).unwrap());
        self.set_u32(ring + layout.mask, u32::try_from(slots - 1).unwrap());
        self.set_u32(ring + layout.capacity, u32::try_from(slots - 1).unwrap());
    }

    fn make_object(&self, object: u64) {
        let (layout, mbuf) = (&self.target.layout, Self::mbuf(object));
        let next = if object + 1 < self.objects { Self::header(object + 1) } else { 0 };
        self.set(Self::header(object) + layout.objhdr.next, next);
        self.set(Self::header(object) + layout.objhdr.mp, POOL);
        self.set(mbuf + layout.mbuf.pool, POOL);
        self.set(mbuf + layout.mbuf.buf_addr, Self::buffer(object));
        self.set_u16(mbuf + layout.mbuf.data_off, 128);
        self.set_u16(mbuf + layout.mbuf.refcnt, 1);
        self.set_u16(mbuf + layout.mbuf.nb_segs, 1);
        self.set_u16(mbuf + layout.mbuf.buf_len, 256);
        self.set_u16(mbuf + layout.mbuf.port, 3);
    }

    /// Frees objects to the common part, which has a ring.
    pub(super) fn free_to_ring(&self, objects: &[u64]) {
        self.fill_ring(HANDLER, self.objects.next_power_of_two(), objects);
    }

    /// Overwrites the addresses of objects freed to the ring of the common part, beginning at entry
    /// `first`.
    pub(super) fn replace_in_ring(&self, first: u64, addresses: impl Iterator<Item = u64>) {
        let slots = self.objects.next_power_of_two();
        for (entry, address) in (first..).zip(addresses) {
            let slot = (slots * 3 - 2 + entry) % slots;
            self.set(HANDLER + self.target.layout.ring.bytes + slot * 8, address);
        }
    }

    /// Puts objects into the ring of the app, whose indices have wrapped.
    pub(super) fn enqueue(&self, objects: &[u64]) {
        self.fill_ring(RING, RING_SLOTS, objects);
    }

    fn fill_ring(&self, ring: u64, slots: u64, objects: &[u64]) {
        let layout = &self.target.layout.ring;
        let first = slots * 3 - 2;
        for (place, object) in (first..).zip(objects) {
            self.set(ring + layout.bytes + place % slots * 8, Self::mbuf(*object));
        }
        let index = |value: u64| u32::try_from(value).unwrap();
        for (head, tail, value) in [
            (layout.cons_head, layout.cons_tail, index(first)),
            (layout.prod_head, layout.prod_tail, index(first + objects.len() as u64)),
        ] {
            self.set_u32(ring + head, value);
            self.set_u32(ring + tail, value);
        }
    }

    /// Leaves pointers in slots of the app's ring that contain no entry.
    pub(super) fn leave_in_ring(&self, slot_and_object: &[(u64, u64)]) {
        for (slot, object) in slot_and_object {
            self.set(RING + self.target.layout.ring.bytes + slot * 8, Self::mbuf(*object));
        }
    }

    /// Frees objects to a stack that is lock-free or has a lock.
    pub(super) fn free_to_stack(&self, objects: &[u64], lock_free: bool) {
        let layout = &self.target.layout;
        self.set_bytes(HANDLER, &[0; 4096]);
        self.set_u32(HANDLER + layout.stack.capacity, u32::try_from(self.objects).unwrap());
        self.set_u32(HANDLER + layout.stack.flags, lock_free.into());
        if !lock_free {
            let length = u32::try_from(objects.len()).unwrap();
            self.set_u32(HANDLER + layout.stack.std_len, length);
            for (place, object) in (0..).zip(objects) {
                self.set(HANDLER + layout.stack.std_objs + place * 8, Self::mbuf(*object));
            }
            return;
        }
        let element = |place: u64| HANDLER + layout.stack.lf_elems + place * 16;
        let mut top = 0;
        for (place, object) in (0..).zip(objects) {
            self.set(element(place), Self::mbuf(*object));
            self.set(element(place) + 8, top);
            top = element(place);
        }
        self.set(HANDLER + layout.stack.lf_top, top);
    }

    /// Frees an object to the cache of an lcore.
    pub(super) fn free_to_cache(&mut self, lcore: u64, object: u64) {
        let layout = &self.target.layout;
        let cache = POOL + layout.mempool.bytes + lcore * layout.cache.bytes;
        let place = self.cached.iter().position(|(known, _)| *known == lcore);
        let place = place.unwrap_or_else(|| {
            self.cached.push((lcore, Vec::new()));
            self.cached.len() - 1
        });
        self.cached[place].1.push(object);
        let length = self.cached[place].1.len() as u64;
        self.set_u32(cache + layout.cache.len, u32::try_from(length).unwrap());
        self.set(cache + layout.cache.objs + (length - 1) * 8, Self::mbuf(object));
        // An object that was taken out is still in the array.
        self.set(cache + layout.cache.objs + length * 8, Self::mbuf(0));
    }

    /// Stores an address in the next word of the heap; returns the address of that word.
    pub(super) fn keep(&mut self, address: u64) -> u64 {
        let word = self.next_heap_word;
        self.set(word, address);
        self.next_heap_word += 8;
        word
    }
}

/// All except the objects in one mapping of the app's own hugepage files, then the guest's.
fn mappings() -> Vec<Mapping> {
    let mapping = |start, end, inode, path: &str| Mapping {
        start,
        end,
        readable: true,
        writable: true,
        shared: true,
        inode,
        device: "00:31".to_owned(),
        path: path.to_owned(),
        ..Mapping::default()
    };
    vec![
        mapping(BASE, HEAP, 1, "/dev/hugepages/rtemap_0"),
        mapping(HEAP, GUEST, 2, "/dev/hugepages/rtemap_1"),
        // Not adjacent to the app's own mappings.
        mapping(GUEST + 4096, END, 3, "/dev/hugepages/genmap_0"),
    ]
}
