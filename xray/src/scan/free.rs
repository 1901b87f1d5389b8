//! The free objects of a mempool: those in its common part, and those in the cache of each lcore.

use std::collections::BTreeMap;

use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::memory::{Memory, read_u32, read_u64};
use crate::target::{Pool, XrayTarget, is_ring_size};

use super::objects::torn;

/// How often values are read again that changed during the read.
const ATTEMPTS: usize = 4;

const WORD_BYTES: u64 = 8;

/// Bytes of one read.
const MOST_PER_READ: usize = 1 << 20;

/// The structure in which a pool keeps its free objects, apart from caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolHandler {
    /// `rte_ring`: the handlers `ring_mp_mc`, `ring_sp_sc`, `ring_mt_rts`, `ring_mt_hts` and the like.
    Ring,
    /// `rte_stack`, with a lock or lock-free: the handlers `stack` and `lf_stack`.
    Stack,
    /// Another: `bucket`, hardware, or one of the app. Its free objects are not known.
    Unknown,
}

impl PoolHandler {
    /// Determined from the memzone that contains the pool's data.
    pub fn of(target: &XrayTarget, pool: &Pool) -> Self {
        let zone = target.memzone_at(pool.handler_data);
        match zone.filter(|zone| zone.address == pool.handler_data) {
            Some(zone) if zone.name.starts_with("RG_") => Self::Ring,
            Some(zone) if zone.name.starts_with("STK_") => Self::Stack,
            _ => Self::Unknown,
        }
    }
}

/// The free objects of a mempool, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeObjects {
    /// In the common part, ascending; `None` if the handler is not known.
    pub common: Option<Vec<u64>>,
    /// In the cache of each lcore, ascending; empty caches are left out.
    pub caches: BTreeMap<u32, Vec<u64>>,
    /// Objects that were in a cache just before, and are now neither there nor in the common part.
    pub before: Vec<u64>,
}

/// The free objects of a mempool as they were read, not sorted. An object that moved meanwhile may
/// be in several lists: its current place is the last of them.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeLists {
    /// In the cache of each lcore, a moment ago.
    pub(super) before: BTreeMap<u32, Vec<u64>>,
    /// In the common part; `None` if the handler is not known.
    pub(super) common: Option<Vec<u64>>,
    /// In the cache of each lcore.
    pub(super) caches: BTreeMap<u32, Vec<u64>>,
}

impl FreeLists {
    /// Reads the caches, the common part, and the caches again, as objects move between them
    /// meanwhile.
    pub(super) fn read(target: &XrayTarget, pool: &Pool) -> Result<Self, XrayError> {
        let before = caches(target, pool)?;
        let common = match PoolHandler::of(target, pool) {
            PoolHandler::Ring => Some(repeat(|| ring(target, pool))?),
            PoolHandler::Stack => Some(repeat(|| stack(target, pool))?),
            PoolHandler::Unknown => None,
        };
        Ok(Self { before, common, caches: caches(target, pool)? })
    }

    /// All objects in any list, ascending.
    pub(super) fn sorted(&self) -> Vec<u64> {
        let caches = self.before.values().chain(self.caches.values()).flatten();
        let mut objects: Vec<u64> = self.common.iter().flatten().chain(caches).copied().collect();
        objects.sort_unstable();
        objects
    }
}

impl FreeObjects {
    /// Reads the caches, the common part, and the caches again, as objects move between them
    /// meanwhile.
    ///
    /// # Errors
    /// If the memory cannot be read, or its counts are never plausible.
    pub fn read(target: &XrayTarget, pool: &Pool) -> Result<Self, XrayError> {
        let FreeLists { before, mut common, mut caches } = FreeLists::read(target, pool)?;
        for cache in caches.values_mut() {
            cache.sort_unstable();
        }
        let mut all_cached: Vec<u64> = caches.values().flatten().copied().collect();
        all_cached.sort_unstable();
        let in_cache = |object: &u64| all_cached.binary_search(object).is_ok();
        if let Some(common) = &mut common {
            common.sort_unstable();
            common.dedup();
            common.retain(|object| !in_cache(object));
        }
        let gone = |object: &u64| {
            let common = common.as_deref().unwrap_or_default();
            common.binary_search(object).is_err() && !in_cache(object)
        };
        let before = before.into_values().flatten().filter(gone).collect();
        Ok(Self { common, caches, before })
    }
}

/// Repeats a read if values contradict each other, because the app changed them meanwhile.
fn repeat<T>(read: impl Fn() -> Result<T, XrayError>) -> Result<T, XrayError> {
    let mut result = read();
    for _ in 1..ATTEMPTS {
        if !matches!(result, Err(XrayError::Implausible { .. })) {
            break;
        }
        result = read();
    }
    result
}

/// `count` words, beginning at `address`.
pub(super) fn words(
    memory: &dyn Memory,
    address: u64,
    count: usize,
) -> Result<Vec<u64>, XrayError> {
    let mut bytes = vec![0; count.saturating_mul(8)];
    let not_mapped = || XrayError::NotMapped { address, bytes: count.saturating_mul(8) };
    let range = AddressRange::of_length(address, bytes.len() as u64).ok_or_else(not_mapped)?;
    let pieces = bytes.chunks_mut(MOST_PER_READ).zip(range.chunks(MOST_PER_READ as u64));
    for (piece, range) in pieces {
        memory.read(range.start(), piece)?;
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Objects in the cache of each lcore.
pub(super) fn caches(
    target: &XrayTarget,
    pool: &Pool,
) -> Result<BTreeMap<u32, Vec<u64>>, XrayError> {
    let (layout, memory) = (&target.layout.cache, &*target.memory);
    if pool.caches == 0 || pool.cache_size == 0 {
        return Ok(BTreeMap::new());
    }
    let in_cache = |lcore: u32, member: u64| {
        Address(pool.caches).member_of(lcore.into(), layout.bytes, member)
    };
    let places = (0..target.layout.max_lcore).map(|lcore| in_cache(lcore, layout.len));
    let places: Vec<u64> = places.collect::<Result<_, _>>()?;
    let mut lengths = vec![0; places.len().saturating_mul(4)];
    memory.read_pieces(&places, &mut lengths)?;
    let most = layout.bytes.saturating_sub(layout.objs) / 8;
    let mut caches = BTreeMap::new();
    for (lcore, length) in (0..).zip(lengths.as_chunks::<4>().0) {
        let length = u32::from_le_bytes(*length);
        if u64::from(length) > most {
            return Err(torn(pool, format!("{length} objects in the cache of lcore {lcore}")));
        }
        if length > 0 {
            let objects = words(memory, in_cache(lcore, layout.objs)?, length as usize)?;
            caches.insert(lcore, objects);
        }
    }
    Ok(caches)
}

/// The live part of a ring of pointers: `count` slots, beginning at `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingWindow {
    /// Number of its slots, a power of two.
    pub(super) slots: u32,
    /// Slot of the oldest entry.
    pub(super) first: u32,
    /// Entries.
    pub(super) count: u32,
}

impl RingWindow {
    /// The entries of the ring at `address` whose `enqueue` is complete, and whose `dequeue` is
    /// not. Only the tails are read, as they have the same offsets in all modes of a ring.
    pub(super) fn read(target: &XrayTarget, address: u64) -> Result<Self, XrayError> {
        let (layout, memory) = (&target.layout.ring, &*target.memory);
        let field = |offset| read_u32(memory, Address(address).member(offset)?);
        // The consumer's tail is read first: even if it moves, the producer's tail is not behind
        // the value read.
        let consumer = field(layout.cons_tail)?;
        let producer = field(layout.prod_tail)?;
        let (slots, mask) = (field(layout.size)?, field(layout.mask)?);
        let count = producer.wrapping_sub(consumer);
        if !is_ring_size(slots, mask) || count > slots {
            let what = format!("the ring at {address:#x}");
            return Err(XrayError::implausible(what, format!("{count} entries in {slots} slots")));
        }
        Ok(Self { slots, first: consumer & mask, count })
    }

    /// Live slots as up to two rows of `(first, count)`.
    pub(super) fn rows(self) -> [(u32, u32); 2] {
        let until_end = self.count.min(self.slots.saturating_sub(self.first));
        [(self.first, until_end), (0, self.count.saturating_sub(until_end))]
    }
}

/// The array of this many elements that is `offset` bytes behind the start of the handler's data; it must be in
/// the memzone that the handler created.
fn array(
    target: &XrayTarget,
    pool: &Pool,
    offset: u64,
    elements: u32,
    bytes_each: u64,
) -> Result<AddressRange, XrayError> {
    let begin = Address(pool.handler_data).member(offset)?;
    let array = AddressRange::of_elements(begin, elements.into(), bytes_each);
    let zone = target.memzone_at(pool.handler_data);
    let fits = |array: &AddressRange| zone.is_some_and(|zone| zone.range().contains_all(array));
    array.filter(fits).ok_or_else(|| {
        torn(pool, format!("{elements} free objects, more than their memzone has room for"))
    })
}

fn ring(target: &XrayTarget, pool: &Pool) -> Result<Vec<u64>, XrayError> {
    let window = RingWindow::read(target, pool.handler_data)?;
    let slots = array(target, pool, target.layout.ring.bytes, window.slots, WORD_BYTES)?;
    let mut objects = Vec::with_capacity(window.count as usize);
    for (first, count) in window.rows() {
        let first = Address(slots.start()).member_of(first.into(), WORD_BYTES, 0)?;
        objects.extend(words(&*target.memory, first, count as usize)?);
    }
    Ok(objects)
}

/// `RTE_STACK_F_LF`
const STACK_LOCK_FREE: u32 = 1;

pub(super) fn stack(target: &XrayTarget, pool: &Pool) -> Result<Vec<u64>, XrayError> {
    let (memory, layout) = (&*target.memory, &target.layout.stack);
    let stack = Address(pool.handler_data);
    let capacity = read_u32(memory, stack.member(layout.capacity)?)?;
    if read_u32(memory, stack.member(layout.flags)?)? & STACK_LOCK_FREE != 0 {
        return lock_free_stack(target, pool, capacity);
    }
    let objects = array(target, pool, layout.std_objs, capacity, WORD_BYTES)?;
    let length = read_u32(memory, stack.member(layout.std_len)?)?;
    if length > capacity {
        return Err(torn(pool, format!("{length} objects in a stack of {capacity}")));
    }
    words(memory, objects.start(), length as usize)
}

/// All elements are read in one piece and the list is followed in this copy, as it would change
/// otherwise.
fn lock_free_stack(target: &XrayTarget, pool: &Pool, capacity: u32) -> Result<Vec<u64>, XrayError> {
    let (memory, layout) = (&*target.memory, &target.layout.stack);
    let element = &target.layout.stack_element;
    let elements = array(target, pool, layout.lf_elems, capacity, element.bytes)?;
    let mut next = read_u64(memory, Address(pool.handler_data).member(layout.lf_top)?)?;
    let count = usize::try_from(elements.bytes() / WORD_BYTES).unwrap_or_default();
    let copy = words(memory, elements.start(), count)?;
    let word = |at: Option<u64>| {
        let place = usize::try_from(elements.offset(at?)? / WORD_BYTES).ok()?;
        copy.get(place).copied()
    };
    let mut objects = Vec::new();
    while next != 0 {
        let offset = elements.offset(next);
        let is_element = offset.is_some_and(|offset| offset.is_multiple_of(element.bytes.max(1)));
        let at = Address(next);
        let found = word(at.plus(element.data)).zip(word(at.plus(element.next)));
        let Some((object, following)) =
            found.filter(|_| is_element && objects.len() < capacity as usize)
        else {
            return Err(torn(pool, "the list of its stack does not end"));
        };
        objects.push(object);
        next = following;
    }
    Ok(objects)
}
