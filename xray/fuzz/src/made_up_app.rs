//! An app whose memory is generated, with the layout of DPDK 22.11: its configuration, a heap that
//! contains a pool of mbufs, a ring and a port, and other memory of the app.

use std::sync::{Arc, Mutex, PoisonError};

use pmdscope_xray::{Layout, Mapping, Memory, XrayError};

use crate::patches::Patch;

const VERSION: &str = "DPDK 22.11.0";
/// `RTE_MAGIC`, and the version in `struct rte_mem_config`: 22.11.0.
const MAGIC: u32 = 19_820_526;
const VERSION_NUMBER: u32 = 0x160b_0063;

/// Addresses of its parts.
const ELF: u64 = 0x40_0000;
const CONFIG: u64 = 0x7f00_0000_0000;
const ZONES: u64 = CONFIG + 0x7000;
pub(crate) const HUGE: u64 = 0x7f10_0000_0000;
const OWN: u64 = 0x7f20_0000_0000;

const ELF_BYTES: usize = 0x1000;
const CONFIG_BYTES: usize = 0x8000;
const HUGE_BYTES: usize = 0x1_0000;
const OWN_BYTES: usize = 0x1000;

const LCORES: u64 = 2;
pub(crate) const OBJECTS: u64 = 24;
const RING_SLOTS: u64 = 32;
const CACHE_SIZE: u32 = 8;
const MOST_ZONES: u32 = 16;
const DATA_ROOM: u16 = 256;
const OBJECT_HEADER: u64 = 64;
const POOL_PRIVATE: u64 = 64;

/// The structure in which the pool keeps its free objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Ring,
    Stack,
    LockFreeStack,
}

/// A piece of memory.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) mapping: Mapping,
    pub(crate) bytes: Vec<u8>,
}

/// The memory, and the changes to be made in it.
#[derive(Debug)]
pub(crate) struct MadeUpMemory {
    state: Mutex<State>,
    maps: Vec<Mapping>,
}

#[derive(Debug)]
struct State {
    regions: Vec<Region>,
    /// The next change is the last element.
    patches: Vec<Patch>,
    reads: u32,
}

impl MadeUpMemory {
    pub(crate) fn new(regions: Vec<Region>, mut patches: Vec<Patch>) -> Self {
        patches.reverse();
        let maps = regions.iter().map(|region| region.mapping.clone()).collect();
        Self { state: Mutex::new(State { regions, patches, reads: 0 }), maps }
    }
}

impl State {
    /// Makes the changes that are due.
    fn patch(&mut self) {
        while let Some(patch) = self.patches.pop_if(|patch| patch.after <= self.reads) {
            let at = address(&self.regions, patch.place);
            let bytes = patch.bytes(|place| address(&self.regions, place));
            write(&mut self.regions, at, &bytes);
        }
        self.reads += 1;
    }
}

impl Memory for MadeUpMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.patch();
        let piece = state.regions.iter().find_map(|region| {
            let begin = usize::try_from(address.checked_sub(region.mapping.start)?).ok()?;
            region.bytes.get(begin..begin.checked_add(buffer.len())?)
        });
        let piece = piece.ok_or(XrayError::NotMapped { address, bytes: buffer.len() })?;
        buffer.copy_from_slice(piece);
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        Ok(self.maps.clone())
    }
}

/// The address of a 32-bit word, numbered over all regions; numbers wrap around.
fn address(regions: &[Region], place: usize) -> u64 {
    let total: usize = regions.iter().map(|region| region.bytes.len()).sum();
    let mut offset = place * 4 % total.max(1);
    for region in regions {
        if offset < region.bytes.len() {
            return region.mapping.start + offset as u64;
        }
        offset -= region.bytes.len();
    }
    0
}

/// Writes as many of the bytes as fit.
fn write(regions: &mut [Region], address: u64, bytes: &[u8]) {
    for region in regions {
        let begin =
            address.checked_sub(region.mapping.start).and_then(|at| usize::try_from(at).ok());
        if let Some(room) = begin.and_then(|begin| region.bytes.get_mut(begin..)) {
            let length = bytes.len().min(room.len());
            room[..length].copy_from_slice(&bytes[..length]);
        }
    }
}

/// The layout of its DPDK build.
pub(crate) fn layout() -> Option<Layout> {
    Layout::select(VERSION, &MadeUpMemory::new(vec![program()], Vec::new()), &[]).ok()
}

/// The header of its executable.
fn program() -> Region {
    let mut region = region(ELF, ELF_BYTES, "", 0);
    region.mapping.writable = false;
    region.bytes[..5].copy_from_slice(b"\x7fELF\x02");
    region.bytes[18] = 62;
    region
}

/// Its regions, by address, without errors.
pub(crate) fn regions(handler: Handler) -> Vec<Region> {
    let regions = vec![
        program(),
        region(CONFIG, CONFIG_BYTES, "/var/run/dpdk/rte/config", 1),
        region(HUGE, HUGE_BYTES, "/dev/hugepages/rtemap_0", 2),
        region(OWN, OWN_BYTES, "", 0),
    ];
    let Some(layout) = layout() else { return regions };
    let mut builder = Builder { regions, layout, zones: 0, last: 0, next: HUGE };
    builder.configuration();
    builder.app(handler);
    builder.end_heap();
    builder.regions
}

fn region(start: u64, bytes: usize, path: &str, inode: u64) -> Region {
    let mapping = Mapping {
        start,
        end: start + bytes as u64,
        readable: true,
        writable: true,
        shared: inode != 0,
        inode,
        path: path.to_owned(),
        ..Mapping::default()
    };
    Region { mapping, bytes: vec![0; bytes] }
}

/// Fills the memory as the EAL and an app would.
struct Builder {
    regions: Vec<Region>,
    layout: Layout,
    zones: u64,
    /// The last element of the heap, and the address after it.
    last: u64,
    next: u64,
}

impl Builder {
    fn u16(&mut self, address: u64, value: u16) {
        write(&mut self.regions, address, &value.to_le_bytes());
    }

    fn u32(&mut self, address: u64, value: u32) {
        write(&mut self.regions, address, &value.to_le_bytes());
    }

    fn u64(&mut self, address: u64, value: u64) {
        write(&mut self.regions, address, &value.to_le_bytes());
    }

    fn text(&mut self, address: u64, text: &str) {
        write(&mut self.regions, address, text.as_bytes());
    }

    fn heap(&self) -> u64 {
        CONFIG + self.layout.mem_config.malloc_heaps
    }

    fn configuration(&mut self) {
        let config = self.layout.mem_config.clone();
        self.u32(CONFIG + config.magic, MAGIC);
        self.u32(CONFIG + config.version, VERSION_NUMBER);
        let (array, zones) = (self.layout.fbarray.clone(), CONFIG + config.memzones);
        self.text(zones + array.name, "memzone");
        self.u32(zones + array.len, MOST_ZONES);
        self.u32(zones + array.elt_sz, u32_of(self.layout.memzone.bytes));
        self.u64(zones + array.data, ZONES);
        let mask = ZONES + u64::from(MOST_ZONES) * self.layout.memzone.bytes;
        self.u32(mask, MOST_ZONES.div_ceil(64));
        self.u64(self.heap() + self.layout.malloc_heap.first, HUGE);
    }

    /// Adds an element that is in use; returns the address of its data.
    fn element(&mut self, bytes: u64) -> u64 {
        let (layout, heap, at) = (self.layout.malloc_elem.clone(), self.heap(), self.next);
        let size = (layout.bytes + bytes).next_multiple_of(64);
        self.u64(at + layout.heap, heap);
        self.u64(at + layout.prev, self.last);
        self.u64(at + layout.next, at + size);
        self.u32(at + layout.state, 1);
        self.u64(at + layout.size, size);
        (self.last, self.next) = (at, at + size);
        at + layout.bytes
    }

    /// The rest of the heap is free.
    fn end_heap(&mut self) {
        let (elem, end) = (self.layout.malloc_elem.clone(), HUGE + HUGE_BYTES as u64);
        let at = self.next;
        assert!(at + elem.bytes < end, "it has no room for {:#x} bytes", at - HUGE);
        self.element(end - at - elem.bytes);
        self.u32(at + elem.state, 0);
        self.u64(at + elem.next, 0);
    }

    /// Returns the address of its memory, and that of its `struct rte_memzone`.
    fn memzone(&mut self, name: &str, bytes: u64) -> (u64, u64) {
        let (layout, address) = (self.layout.memzone.clone(), self.element(bytes));
        let zone = ZONES + self.zones * layout.bytes;
        self.zones += 1;
        self.text(zone + layout.name, name);
        self.u64(zone + layout.addr, address);
        self.u64(zone + layout.len, bytes);
        let mask = ZONES + u64::from(MOST_ZONES) * layout.bytes + 8;
        self.u64(mask, (1 << self.zones) - 1);
        (address, zone)
    }

    fn app(&mut self, handler: Handler) {
        let mbufs = self.pool(handler);
        let backlog = self.ring("RG_backlog", &mbufs[8..11]);
        let queue = self.port(&mbufs[11..14]);
        for (word, address) in (0..).zip([mbufs[14], mbufs[15] + 200, backlog, queue]) {
            self.u64(OWN + word * 8, address);
        }
        // The last two are lost; the second is in the chain of the first.
        self.u64(mbufs[20] + self.layout.mbuf.next, mbufs[21]);
        self.u16(mbufs[20] + self.layout.mbuf.nb_segs, 2);
    }

    /// The first mbufs are free: six in the common part, two in a cache.
    fn pool(&mut self, handler: Handler) -> Vec<u64> {
        let (pool, cache) = (self.layout.mempool.clone(), self.layout.cache.clone());
        let bytes = pool.bytes + LCORES * cache.bytes + POOL_PRIVATE;
        let (address, zone) = self.memzone("MP_pkts", bytes);
        let element_bytes = self.layout.mbuf.bytes + u64::from(DATA_ROOM);
        let each = OBJECT_HEADER + element_bytes;
        let (objects, _) = self.memzone("MP_pkts_0", OBJECTS * each);
        let chunk = self.element(self.layout.memhdr.bytes);
        let mbufs: Vec<_> = (0..OBJECTS).map(|o| objects + o * each + OBJECT_HEADER).collect();
        let free = match handler {
            Handler::Ring => self.ring("RG_MP_pkts", &mbufs[..6]),
            Handler::Stack | Handler::LockFreeStack => {
                self.stack(&mbufs[..6], handler == Handler::LockFreeStack)
            }
        };
        self.text(address + pool.name, "pkts");
        for (member, value) in [
            (pool.mz, zone),
            (pool.pool_data, free),
            (pool.local_cache, address + pool.bytes),
            (pool.elt_list, mbufs[0] - self.layout.objhdr.bytes),
            (pool.mem_list, chunk),
        ] {
            self.u64(address + member, value);
        }
        for (member, value) in [
            (pool.size, u32_of(OBJECTS)),
            (pool.populated_size, u32_of(OBJECTS)),
            (pool.cache_size, CACHE_SIZE),
            (pool.nb_mem_chunks, 1),
            (pool.private_data_size, u32_of(POOL_PRIVATE)),
            (pool.header_size, u32_of(OBJECT_HEADER)),
            (pool.elt_size, u32_of(element_bytes)),
        ] {
            self.u32(address + member, value);
        }
        let memhdr = self.layout.memhdr.clone();
        self.u64(chunk + memhdr.mp, address);
        self.u64(chunk + memhdr.addr, objects);
        self.u64(chunk + memhdr.len, OBJECTS * each);
        for lcore in 0..LCORES {
            self.u32(address + pool.bytes + lcore * cache.bytes + cache.size, CACHE_SIZE);
        }
        self.u32(address + pool.bytes + cache.len, 2);
        self.u64(address + pool.bytes + cache.objs, mbufs[6]);
        self.u64(address + pool.bytes + cache.objs + 8, mbufs[7]);
        let private = address + pool.bytes + LCORES * cache.bytes;
        self.u16(private + self.layout.pktmbuf_pool.data_room_size, DATA_ROOM);
        self.objects(address, &mbufs);
        mbufs
    }

    fn objects(&mut self, pool: u64, mbufs: &[u64]) {
        let (objhdr, mbuf) = (self.layout.objhdr.clone(), self.layout.mbuf.clone());
        for (number, address) in mbufs.iter().enumerate() {
            let header = address - objhdr.bytes;
            let next = mbufs.get(number + 1).map_or(0, |next| next - objhdr.bytes);
            self.u64(header + objhdr.next, next);
            self.u64(header + objhdr.mp, pool);
            let buffer = address + mbuf.bytes;
            self.u64(address + mbuf.buf_addr, buffer);
            self.u64(address + 8, buffer ^ 0xff_0000_0000);
            self.u64(address + mbuf.pool, pool);
            self.u32(address + mbuf.pkt_len, 60);
            for (member, value) in [
                (mbuf.data_off, 128),
                (mbuf.refcnt, 1),
                (mbuf.nb_segs, 1),
                (mbuf.data_len, 60),
                (mbuf.buf_len, DATA_ROOM),
            ] {
                self.u16(address + member, value);
            }
        }
    }

    /// A ring whose indices have wrapped.
    fn ring(&mut self, name: &str, entries: &[u64]) -> u64 {
        let ring = self.layout.ring.clone();
        let (address, _) = self.memzone(name, ring.bytes + RING_SLOTS * 8);
        self.text(address + ring.name, name.trim_start_matches("RG_"));
        let slots = u32_of(RING_SLOTS);
        let first = slots * 3 - 2;
        let end = first + u32_of(entries.len() as u64);
        for (member, value) in [
            (ring.size, slots),
            (ring.mask, slots - 1),
            (ring.capacity, slots - 1),
            (ring.cons_head, first),
            (ring.cons_tail, first),
            (ring.prod_head, end),
            (ring.prod_tail, end),
        ] {
            self.u32(address + member, value);
        }
        for (place, entry) in (first..).zip(entries) {
            self.u64(address + ring.bytes + u64::from(place % slots) * 8, *entry);
        }
        address
    }

    fn stack(&mut self, entries: &[u64], is_lock_free: bool) -> u64 {
        let (stack, element) = (self.layout.stack.clone(), self.layout.stack_element.clone());
        let bytes = stack.lf_elems.max(stack.std_objs) + OBJECTS * element.bytes;
        let (address, _) = self.memzone("STK_MP_pkts", bytes);
        self.text(address + stack.name, "MP_pkts");
        self.u32(address + stack.capacity, u32_of(OBJECTS));
        self.u32(address + stack.flags, is_lock_free.into());
        let length = entries.len() as u64;
        self.u32(address + if is_lock_free { stack.lf_len } else { stack.std_len }, u32_of(length));
        let mut top = 0;
        for (place, entry) in (0..).zip(entries) {
            if is_lock_free {
                let at = address + stack.lf_elems + place * element.bytes;
                self.u64(at + element.data, *entry);
                self.u64(at + element.next, top);
                top = at;
            } else {
                self.u64(address + stack.std_objs + place * 8, *entry);
            }
        }
        if is_lock_free {
            self.u64(address + stack.lf_top, top);
        }
        address
    }

    /// A port with one RX queue, which has these mbufs; returns the address of the queue.
    fn port(&mut self, mbufs: &[u64]) -> u64 {
        let data = self.layout.eth_dev_data.clone();
        let begin = self.layout.eth_dev_shared.data;
        let (ports, _) = self.memzone("rte_eth_dev_data", begin + data.bytes);
        let (table, queue, posted) = (self.element(8), self.element(64), self.element(64));
        self.u64(table, queue);
        self.u64(queue, posted);
        for (place, mbuf) in (0..).zip(mbufs) {
            self.u64(posted + place * 8, *mbuf);
        }
        self.text(ports + begin + data.name, "net_made_up");
        self.u64(ports + begin + data.rx_queues, table);
        self.u16(ports + begin + data.nb_rx_queues, 1);
        queue
    }
}

/// Converts a number, all of which are small here.
fn u32_of(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The app with these changes.
pub(crate) fn memory(handler: Handler, patches: Vec<Patch>) -> Arc<MadeUpMemory> {
    Arc::new(MadeUpMemory::new(regions(handler), patches))
}
