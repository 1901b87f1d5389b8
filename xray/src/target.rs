//! An app that is read from outside: its memory, its layout, and its mempools.

use std::sync::Arc;

use crate::error::XrayError;
use crate::field::Field;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::memory_config::MemoryConfig;
use crate::memzone::Memzone;

/// Prefix of the memzone names of mempools.
const POOL_ZONE: &str = "MP_";

/// `RTE_MEMPOOL_NAMESIZE`, the same in all releases.
const NAME_BYTES: usize = 26;

/// The largest plausible number of objects.
const MOST_OBJECTS: u32 = 1 << 30;

/// An app that is read from outside.
#[derive(Clone, Debug)]
pub struct XrayTarget {
    /// Its memory.
    pub memory: Arc<dyn Memory>,
    /// Offsets of its build of DPDK.
    pub layout: Layout,
    /// Its memzones, by address.
    pub memzones: Vec<Memzone>,
    /// [`MemoryConfig::array`], if it was found.
    zone_array: Option<u64>,
}

/// The header of a mempool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Address of its `struct rte_mempool`.
    pub address: u64,
    /// Requested number of objects.
    pub size: u32,
    /// Number of objects.
    pub populated: u32,
    /// `RTE_MEMPOOL_F_*`.
    pub flags: u32,
    /// NUMA node, -1 for any.
    pub socket: i32,
    /// Maximum number of objects in the cache of an lcore.
    pub cache_size: u32,
    /// Bytes of an object, without header and trailer.
    pub element_bytes: u32,
    /// Bytes from the start of a slot to the object.
    pub header_bytes: u32,
    /// Bytes after the object.
    pub trailer_bytes: u32,
    /// Bytes of private data after the header of the pool.
    pub private_bytes: u32,
    /// Number of the handler that keeps the free objects, in the table of the app.
    pub handler: i32,
    /// The handler's structure with the free objects, such as a `struct rte_ring`.
    pub handler_data: u64,
    /// Address of the caches of the lcores; 0 if there are none.
    pub caches: u64,
    /// Address of the object header of the first object.
    pub first_object_header: u64,
    /// Address of the first chunk of memory.
    pub first_chunk: u64,
    /// Number of chunks.
    pub chunks: u32,
}

impl XrayTarget {
    /// Creates a target; sorts the memzones.
    pub fn new(memory: Arc<dyn Memory>, layout: Layout, mut memzones: Vec<Memzone>) -> Self {
        memzones.sort_by_key(|zone| zone.address);
        Self { memory, layout, memzones, zone_array: None }
    }

    /// Sets the array that contains its memzones; see [`MemoryConfig::array`].
    #[must_use]
    pub(crate) fn with_zone_array(self, array: u64) -> Self {
        Self { zone_array: Some(array), ..self }
    }

    /// Reads the memzones again: the app may have reserved and freed some. Much cheaper than
    /// opening it again.
    ///
    /// # Errors
    /// [`XrayError::Implausible`] if they have moved, or came from the app's telemetry; as
    /// [`Memory::read`].
    pub fn refresh(&mut self) -> Result<(), XrayError> {
        let told = || XrayError::implausible("the memzones", "they were not found in memory");
        let array = self.zone_array.ok_or_else(told)?;
        self.memzones = MemoryConfig::memzones_in(&*self.memory, array)?;
        Ok(())
    }

    /// The memzone that contains an address.
    pub fn memzone_at(&self, address: u64) -> Option<&Memzone> {
        let behind = self.memzones.partition_point(|zone| zone.address <= address);
        self.memzones[..behind].last().filter(|zone| zone.contains(address))
    }

    /// The mempools by address, each with an error if it cannot be read.
    pub fn pools(&self) -> Vec<Result<Pool, XrayError>> {
        let zones = self.memzones.iter().filter(|zone| zone.name.starts_with(POOL_ZONE));
        zones
            .map(|zone| (zone, self.pool(zone)))
            .filter(|(zone, pool)| pool.is_ok() || !self.is_chunk(zone))
            .map(|(_, pool)| pool)
            .collect()
    }

    /// Objects of pool `x` are in memzones `MP_x_0`, `MP_x_1` and so on, if no pool has such a name.
    fn is_chunk(&self, zone: &Memzone) -> bool {
        let Some((pool, number)) = zone.name.rsplit_once('_') else {
            return false;
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && self.memzones.iter().any(|zone| zone.name == pool)
    }

    fn pool(&self, zone: &Memzone) -> Result<Pool, XrayError> {
        let layout = &self.layout.mempool;
        let mut header = vec![0; usize::try_from(layout.bytes).unwrap_or_default()];
        self.memory.read(zone.address, &mut header)?;
        let field = |offset| Field { bytes: &header, offset };
        let pool = Pool {
            name: field(layout.name).text(NAME_BYTES),
            address: zone.address,
            size: field(layout.size).u32(),
            populated: field(layout.populated_size).u32(),
            flags: field(layout.flags).u32(),
            socket: field(layout.socket_id).u32().cast_signed(),
            cache_size: field(layout.cache_size).u32(),
            element_bytes: field(layout.elt_size).u32(),
            header_bytes: field(layout.header_size).u32(),
            trailer_bytes: field(layout.trailer_size).u32(),
            private_bytes: field(layout.private_data_size).u32(),
            handler: field(layout.ops_index).u32().cast_signed(),
            handler_data: field(layout.pool_data).u64(),
            caches: field(layout.local_cache).u64(),
            first_object_header: field(layout.elt_list).u64(),
            first_chunk: field(layout.mem_list).u64(),
            chunks: field(layout.nb_mem_chunks).u32(),
        };
        pool.plausible(zone)?;
        Ok(pool)
    }
}

/// Whether a ring can have this number of slots and this mask.
pub(crate) fn is_ring_size(slots: u32, mask: u32) -> bool {
    slots.is_power_of_two() && slots.checked_sub(1) == Some(mask)
}

impl Pool {
    /// The name serves as the magic number of a mempool: that of its memzone begins with it.
    fn plausible(&self, zone: &Memzone) -> Result<(), XrayError> {
        let what = || format!("mempool {}", zone.name);
        if zone.name.strip_prefix(POOL_ZONE) != Some(&self.name) {
            return Err(XrayError::implausible(what(), format!("its name reads {:?}", self.name)));
        }
        if self.populated > self.size || self.size > MOST_OBJECTS {
            let why = format!("{} of {} objects", self.populated, self.size);
            return Err(XrayError::implausible(what(), why));
        }
        Ok(())
    }
}
