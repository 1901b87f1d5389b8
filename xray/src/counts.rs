//! Counts the objects of pools and rings, without reading any of them.

mod entries;
mod ring;

#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::layout::Layout;
use crate::memory::{Memory, read_u32};
use crate::memzone::Memzone;
use crate::target::{Pool, XrayTarget};

pub(crate) use entries::{RingEntries, entries};

/// Prefix of the memzone names of rings.
const RING_ZONE: &str = "RG_";

/// Prefix of the memzone names of stacks.
const STACK_ZONE: &str = "STK_";

/// How often counts are read again if they changed during the read, or contradict each other.
const ATTEMPTS: u32 = 8;

/// The number of objects by place, in all pools and rings of an app.
#[derive(Debug, Default)]
pub struct Counts {
    /// Pools, by address.
    pub pools: Vec<PoolCount>,
    /// Rings, by address, without those that contain the free objects of pools.
    pub rings: Vec<RingCount>,
    /// Why some could not be counted.
    pub problems: Vec<XrayError>,
    /// A memzone has changed: the memzones should be read again.
    pub outdated: bool,
}

/// Objects of one pool. While lcores move objects, as exact as `rte_mempool_avail_count()` in the
/// app; otherwise exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// Name.
    pub name: String,
    /// Number of its objects.
    pub size: u64,
    /// Free in the ring or stack that all lcores share; `None` for handlers with another structure.
    pub common: Option<u64>,
    /// Free in the cache of each lcore, without empty caches.
    pub caches: BTreeMap<u32, u64>,
}

impl PoolCount {
    /// Free in all caches.
    pub fn cached(&self) -> u64 {
        self.caches.values().copied().fold(0, u64::saturating_add)
    }

    /// Not free; includes objects in caches that the app created itself
    /// (`rte_mempool_cache_create()`).
    pub fn in_use(&self) -> Option<u64> {
        self.common.map(|common| self.size.saturating_sub(common.saturating_add(self.cached())))
    }
}

/// Entries of one ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingCount {
    /// Name.
    pub name: String,
    /// Usable entries.
    pub capacity: u64,
    /// Entries in use.
    pub used: u64,
    /// Address of its `struct rte_ring`.
    pub address: u64,
    /// Entries that were put in since it was created, modulo 2^32.
    pub enqueued: u32,
    /// Entries that were taken out since it was created, modulo 2^32.
    pub dequeued: u32,
    /// It is for a single producer.
    pub single_producer: bool,
    /// It is for a single consumer.
    pub single_consumer: bool,
}

/// Counts the objects of all pools and rings, in a few reads of some bytes each.
///
/// # Errors
/// If the app has ended or may not be read. Problems of single pools or rings are in
/// [`Counts::problems`].
pub fn counts(target: &XrayTarget) -> Result<Counts, XrayError> {
    let mut counts = Counts::default();
    let mut free_lists = Vec::new();
    for pool in target.pools() {
        let Some(pool) = counts.keep(pool)? else { continue };
        free_lists.push(pool.handler_data);
        if let Some(count) = counts.keep(pool_count(target, &pool))? {
            if count.common.is_none() {
                counts.problems.push(XrayError::UnknownHandler { pool: count.name.clone() });
            }
            counts.pools.push(count);
        }
    }
    let of_pool = |zone: &Memzone| free_lists.contains(&zone.address);
    let rings = target.memzones.iter().filter(|zone| zone.name.starts_with(RING_ZONE));
    let rings: Vec<_> =
        rings.filter(|zone| !of_pool(zone) && !of_lost_pool(target, zone)).collect();
    ring::count(target, &rings, &mut counts)?;
    Ok(counts)
}

/// Whether a ring contains the free objects of a pool that could not be read, and so is not the
/// app's.
fn of_lost_pool(target: &XrayTarget, ring: &Memzone) -> bool {
    let pool = ring.name.strip_prefix(RING_ZONE).filter(|name| name.starts_with("MP_"));
    pool.is_some_and(|pool| target.memzones.iter().any(|zone| zone.name == pool))
}

impl Counts {
    /// Returns the value, or notes why there is none.
    fn keep<T>(&mut self, read: Result<T, XrayError>) -> Result<Option<T>, XrayError> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error @ (XrayError::NotMapped { .. } | XrayError::Implausible { .. })) => {
                self.outdated = true;
                self.problems.push(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The structure with the free objects of a pool, apart from caches: addresses of the words with
/// their number.
enum CommonPart {
    /// The tails of producers and consumers of a ring.
    Ring([u64; 2]),
    /// The length of a stack.
    Stack([u64; 1]),
    /// No objects were added to the pool yet.
    Empty,
    /// The handler has no ring and no stack.
    Unknown,
}

impl CommonPart {
    fn of(target: &XrayTarget, pool: &Pool) -> Result<Self, XrayError> {
        if pool.populated == 0 {
            return Ok(Self::Empty);
        }
        let zone = target.memzone_at(pool.handler_data);
        let Some(zone) = zone.filter(|zone| zone.address == pool.handler_data) else {
            return Ok(Self::Unknown);
        };
        if zone.name.starts_with(RING_ZONE) {
            let (ring, at) = (&target.layout.ring, Address(zone.address));
            return Ok(Self::Ring([at.member(ring.prod_tail)?, at.member(ring.cons_tail)?]));
        }
        if zone.name.starts_with(STACK_ZONE) {
            let len = stack_len(&target.layout, target.memory.as_ref(), zone.address)?;
            return Ok(Self::Stack([len]));
        }
        Ok(Self::Unknown)
    }

    fn words(&self) -> &[u64] {
        match self {
            Self::Ring(words) => words,
            Self::Stack(words) => words,
            Self::Empty | Self::Unknown => &[],
        }
    }

    /// Number of objects, from the values of these words.
    fn objects(&self, values: &[u32]) -> Option<u64> {
        match (self, values) {
            (Self::Ring(_), [producer, consumer]) => {
                Some(u64::from(producer.wrapping_sub(*consumer)))
            }
            (Self::Stack(_), [len]) => Some(u64::from(*len)),
            (Self::Empty, _) => Some(0),
            _ => None,
        }
    }
}

/// `RTE_STACK_F_LF`: the stack is a linked list without a lock.
const LOCK_FREE: u32 = 1;

/// Address of the length of a stack.
fn stack_len(layout: &Layout, memory: &dyn Memory, stack: u64) -> Result<u64, XrayError> {
    let flags = read_u32(memory, Address(stack).member(layout.stack.flags)?)?;
    let lock_free = flags & LOCK_FREE != 0;
    Address(stack).member(if lock_free { layout.stack.lf_len } else { layout.stack.std_len })
}

fn pool_count(target: &XrayTarget, pool: &Pool) -> Result<PoolCount, XrayError> {
    let common = CommonPart::of(target, pool)?;
    let caches = cache_lengths(target, pool)?;
    // In the order in which the kernel copies them: if the values before and after the caches are
    // equal, they have not changed while the caches were read.
    let ends = common.words().len();
    let words: Vec<u64> = [common.words(), &caches, common.words()].concat();
    let mut best: Option<(u64, PoolCount)> = None;
    for _ in 0..ATTEMPTS {
        let values = read_words(target.memory.as_ref(), &words)?;
        let (before, rest) = values.split_at(ends);
        let (lengths, after) = rest.split_at(caches.len());
        let Some(count) = plausible(&target.layout, pool, common.objects(before), lengths) else {
            continue;
        };
        let moved = before.iter().zip(after).map(|(old, new)| u64::from(new.wrapping_sub(*old)));
        let moved = moved.fold(0, u64::saturating_add);
        if moved == 0 {
            return Ok(count);
        }
        if best.as_ref().is_none_or(|(least, _)| moved < *least) {
            best = Some((moved, count));
        }
    }
    best.map(|(_, count)| count).ok_or_else(|| {
        let why = format!("its free objects do not fit into its {}", pool.populated);
        XrayError::implausible(format!("mempool {}", pool.name), why)
    })
}

/// Addresses of the lengths of the caches of all lcores.
fn cache_lengths(target: &XrayTarget, pool: &Pool) -> Result<Vec<u64>, XrayError> {
    if pool.caches == 0 || pool.cache_size == 0 {
        return Ok(Vec::new());
    }
    let cache = &target.layout.cache;
    let caches = u64::from(target.layout.max_lcore);
    let all = AddressRange::of_elements(pool.caches, caches, cache.bytes);
    // The caches follow the header of the pool.
    let zone = target.memzone_at(pool.address);
    if !zone.zip(all).is_some_and(|(zone, all)| zone.range().contains_all(&all)) {
        let why = format!("{caches} caches at {:#x} exceed its memzone", pool.caches);
        return Err(XrayError::implausible(format!("mempool {}", pool.name), why));
    }
    let first = Address(pool.caches);
    (0..caches).map(|lcore| first.member_of(lcore, cache.bytes, cache.len)).collect()
}

/// The counts; `None` if they cannot be of one moment.
fn plausible(
    layout: &Layout,
    pool: &Pool,
    common: Option<u64>,
    lengths: &[u32],
) -> Option<PoolCount> {
    let room = layout.cache.bytes.saturating_sub(layout.cache.objs) / 8;
    if lengths.iter().any(|len| u64::from(*len) > room) {
        return None;
    }
    let caches = (0..).zip(lengths).filter(|(_, len)| **len > 0);
    let count = PoolCount {
        name: pool.name.clone(),
        size: u64::from(pool.populated),
        common,
        caches: caches.map(|(lcore, len)| (lcore, u64::from(*len))).collect(),
    };
    let free = count.cached().saturating_add(common.unwrap_or_default());
    (free <= count.size).then_some(count)
}

/// Words of 32 bits, in the order of their addresses, in as few calls as possible.
fn read_words(memory: &dyn Memory, addresses: &[u64]) -> Result<Vec<u32>, XrayError> {
    let mut bytes = vec![0; addresses.len().saturating_mul(4)];
    if !addresses.is_empty() {
        memory.read_pieces(addresses, &mut bytes)?;
    }
    let (words, _) = bytes.as_chunks::<4>();
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}
