//! An app whose memory is generated, and changes while it is read.

use std::sync::Arc;

use crate::layout::Layout;
use crate::memory_config::ARRAY_BYTES;
use crate::memory_config::tests::{mask_offset, zone_array};
use crate::memzone::Memzone;
use crate::target::XrayTarget;
use crate::test_memory::{ChangingMemory, TestMemory};

/// Start of the memory.
pub(crate) const BASE: u64 = 0x1_0000_0000;

/// The structure in which a pool keeps its free objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Ring,
    Stack,
    LockFreeStack,
    Other,
}

/// The memory of an app that runs.
pub(crate) struct RunningMemory {
    pub(crate) memory: Arc<ChangingMemory>,
    /// Where the mask of reserved memzones is.
    mask: u64,
}

impl RunningMemory {
    /// Frees the first 32 memzones, except those of this mask.
    pub(crate) fn keep_memzones(&self, mask: u32) {
        self.memory.lock().write_u32(self.mask, mask);
    }
}

/// An app without pools, which can be added.
pub(crate) struct MadeUpApp {
    layout: Layout,
    bytes: Vec<u8>,
    memzones: Vec<Memzone>,
}

impl MadeUpApp {
    pub(crate) fn new() -> Self {
        Self { layout: Layout::dpdk_22_11(), bytes: Vec::new(), memzones: Vec::new() }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn zone(&mut self, name: String, bytes: u64) -> u64 {
        let address = BASE + self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + usize::try_from(bytes).unwrap(), 0);
        self.memzones.push(Memzone { name, address, bytes });
        address
    }

    /// Memory of this length with a pointer at an offset; returns its address.
    pub(crate) fn object(&mut self, bytes: u64, offset: u64, pointer: u64) -> u64 {
        let address = self.zone(format!("object_{}", self.memzones.len()), bytes);
        self.put_u64(address + offset, pointer);
        address
    }

    pub(crate) fn put_u64(&mut self, address: u64, value: u64) {
        let begin = usize::try_from(address - BASE).unwrap();
        self.bytes[begin..begin + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn put_name(&mut self, address: u64, name: &str) {
        let begin = usize::try_from(address - BASE).unwrap();
        self.bytes[begin..begin + name.len()].copy_from_slice(name.as_bytes());
    }

    /// Sets a word.
    pub(crate) fn put(&mut self, address: u64, value: u32) {
        let begin = usize::try_from(address - BASE).unwrap();
        self.bytes[begin..begin + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// A ring with this number of entries, whose counters are about to wrap; returns its address.
    pub(crate) fn ring(&mut self, name: &str, size: u32, used: u32) -> u64 {
        let ring = self.layout.ring.clone();
        let address = self.zone(format!("RG_{name}"), ring.bytes + 8 * u64::from(size));
        self.put_name(address + ring.name, name);
        self.put(address + ring.size, size);
        self.put(address + ring.mask, size - 1);
        self.put(address + ring.capacity, size - 1);
        self.put(address + ring.cons_tail, u32::MAX - 2);
        self.put(address + ring.prod_tail, (u32::MAX - 2).wrapping_add(used));
        address
    }

    fn stack(&mut self, name: &str, flags: u32, len: u32) -> u64 {
        let stack = self.layout.stack.clone();
        let address = self.zone(format!("STK_{name}"), 256);
        self.put_name(address + stack.name, name);
        self.put(address + stack.flags, flags);
        let at = if flags == 1 { stack.lf_len } else { stack.std_len };
        self.put(address + at, len);
        address
    }

    /// A pool with these numbers of free objects in its common part and in the caches; returns its
    /// address, that of the first cache, and that of the handler's structure.
    pub(crate) fn pool(
        &mut self,
        name: &str,
        size: u32,
        common: u32,
        caches: &[u32],
        handler: Handler,
    ) -> (u64, u64, u64) {
        let (pool, cache) = (self.layout.mempool.clone(), self.layout.cache.clone());
        let lcores = u64::from(self.layout.max_lcore);
        let address = self.zone(format!("MP_{name}"), pool.bytes + lcores * cache.bytes + 64);
        let own = format!("MP_{name}");
        let data = match handler {
            Handler::Ring => self.ring(&own, (size + 1).next_power_of_two(), common),
            Handler::Stack => self.stack(&own, 0, common),
            Handler::LockFreeStack => self.stack(&own, 1, common),
            Handler::Other => 0x7f00_0000_0000,
        };
        self.put_name(address + pool.name, name);
        self.put(address + pool.size, size);
        self.put(address + pool.populated_size, size);
        self.put(address + pool.cache_size, 256);
        self.put_u64(address + pool.pool_data, data);
        let first = address + pool.bytes;
        self.put_u64(address + pool.local_cache, first);
        for (lcore, len) in (0..).zip(caches) {
            self.put(first + lcore * cache.bytes + cache.len, *len);
        }
        (address, first, data)
    }

    /// The app, and its memory.
    pub(crate) fn start(mut self) -> (XrayTarget, RunningMemory) {
        let place = BASE + self.bytes.len() as u64;
        let zones = self.memzones.iter().enumerate();
        let zones: Vec<_> = zones
            .map(|(index, zone)| (index, zone.name.as_str(), zone.address, zone.bytes))
            .collect();
        let elements = u32::try_from(zones.len()).unwrap().max(1);
        let (array, data) = zone_array(place + ARRAY_BYTES as u64, elements, &zones);
        self.bytes.extend(array.into_iter().chain(data));
        let mask = place + (ARRAY_BYTES + mask_offset(elements) + 8) as u64;
        let mut memory = TestMemory::default();
        memory.insert(BASE, self.bytes);
        let memory = Arc::new(ChangingMemory::from(memory));
        let target = XrayTarget::new(memory.clone(), self.layout, self.memzones);
        (target.with_zone_array(place), RunningMemory { memory, mask })
    }
}
