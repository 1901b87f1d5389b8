//! Free lists of pools that contradict themselves: an object that was freed twice is in them twice, and one
//! that is used after it was freed has a changed header there. Two users will get it.
//!
//! The app moves objects while the lists are read, so an entry counts only if it was certainly there at one
//! moment: in the ring, between the consumers' tail after the read and the producers' tail before it; in a
//! cache or a stack, at the same place before and after. What is found must be found again in each of several
//! rounds.

use std::collections::BTreeMap;
use std::fmt;

use crate::address::Address;
use crate::error::XrayError;
use crate::field::Field;
use crate::memory::read_u32;
use crate::target::{Pool, XrayTarget, is_ring_size};

use super::free::{PoolHandler, caches, stack, words};
use super::pools::mbuf_private_bytes;
use super::references::read_each;

/// Rounds in which an object must be found.
const ROUNDS: usize = 3;

/// Objects that are listed; all are counted.
const MOST_LISTED: usize = 8;

/// Free mbufs of a pool whose headers are read, those in caches first.
const MOST_HEADERS: usize = 1 << 14;

/// Maximum number of mbufs per read.
const MBUFS_PER_READ: usize = 1024;

/// Larger free lists are not read: a pool of 16 million.
const MOST_ENTRIES: u32 = 1 << 24;

const WORD_BYTES: u64 = 8;

/// A pool with objects that are free and in use, or free more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorruptPool {
    /// Name of the pool.
    pub pool: String,
    /// Number of such objects.
    pub total: u64,
    /// Some of them, by address.
    pub objects: Vec<CorruptObject>,
}

/// An object of a corrupt pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorruptObject {
    /// Its address, that of the `struct rte_mbuf`.
    pub address: u64,
    /// Where it is seen, and what is wrong there, such as "common part".
    pub seen: Vec<String>,
}

/// A place in the free lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Common,
    Cache(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common => f.write_str("common part"),
            Self::Cache(lcore) => write!(f, "cache of lcore {lcore}"),
        }
    }
}

/// Objects that were free for certain at one moment, with their places.
type FreePlaces = BTreeMap<u64, Vec<Place>>;

/// The pools that are corrupt for certain. Pools that cannot be read are left out: others report why.
///
/// # Errors
/// If the app has ended or may not be read.
pub fn corrupt_pools(target: &XrayTarget) -> Result<Vec<CorruptPool>, XrayError> {
    let mut corrupt = Vec::new();
    for pool in target.pools().into_iter().flatten() {
        match corrupt_pool(target, &pool) {
            Ok(found) => corrupt.extend(found),
            Err(error @ (XrayError::Ended { .. } | XrayError::NotAllowed { .. })) => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(corrupt)
}

fn corrupt_pool(target: &XrayTarget, pool: &Pool) -> Result<Option<CorruptPool>, XrayError> {
    let mut found = wrong(target, pool)?;
    for _ in 1..ROUNDS {
        if found.is_empty() {
            return Ok(None);
        }
        let again = wrong(target, pool)?;
        found.retain(|address, _| again.contains_key(address));
    }
    let total = found.len() as u64;
    let objects = found.into_iter().take(MOST_LISTED);
    let objects = objects.map(|(address, seen)| CorruptObject { address, seen }).collect();
    Ok((total > 0).then(|| CorruptPool { pool: pool.name.clone(), total, objects }))
}

/// What is wrong with the free objects of a pool in one round, by address.
fn wrong(target: &XrayTarget, pool: &Pool) -> Result<BTreeMap<u64, Vec<String>>, XrayError> {
    let places = free_places(target, pool)?;
    let twice = places.iter().filter(|(_, places)| places.len() > 1);
    let mut wrong: BTreeMap<u64, Vec<String>> =
        twice.map(|(address, places)| (*address, in_words(places))).collect();
    if mbuf_private_bytes(target, pool)?.is_some() {
        let changed = changed_headers(target, pool, &places)?;
        let still = if changed.is_empty() { FreePlaces::new() } else { free_places(target, pool)? };
        for (address, change) in changed {
            // It may have been allocated meanwhile.
            if let Some(places) = still.get(&address) {
                let seen = wrong.entry(address).or_insert_with(|| in_words(places));
                seen.push(change);
            }
        }
    }
    Ok(wrong)
}

/// Each place once, with the number of entries there.
fn in_words(places: &[Place]) -> Vec<String> {
    let mut counts: BTreeMap<Place, usize> = BTreeMap::new();
    for place in places {
        let count = counts.entry(*place).or_default();
        *count = count.saturating_add(1);
    }
    let words = |(place, count): (Place, usize)| match count {
        1 => place.to_string(),
        2 => format!("{place}, twice"),
        _ => format!("{place}, {count} times"),
    };
    counts.into_iter().map(words).collect()
}

/// Free mbufs whose header a freed mbuf never has, in words.
fn changed_headers(
    target: &XrayTarget,
    pool: &Pool,
    places: &FreePlaces,
) -> Result<Vec<(u64, String)>, XrayError> {
    let (memory, layout) = (&*target.memory, &target.layout.mbuf);
    let mut changed = Vec::new();
    let in_cache = |places: &&Vec<Place>| places.iter().any(|place| *place != Place::Common);
    let cached = places.iter().filter(|(_, places)| in_cache(places));
    let others = places.iter().filter(|(_, places)| !in_cache(places));
    let chosen: Vec<u64> =
        cached.chain(others).take(MOST_HEADERS).map(|(address, _)| *address).collect();
    let bytes = usize::try_from(layout.bytes).unwrap_or_default().max(1);
    for addresses in chosen.chunks(MBUFS_PER_READ) {
        let headers = read_each(memory, addresses, bytes)?;
        for (address, header) in addresses.iter().zip(headers.chunks_exact(bytes)) {
            let field = |offset| Field { bytes: header, offset };
            let (owner, refcnt) = (field(layout.pool).u64(), field(layout.refcnt).u16());
            if owner != pool.address {
                let wrong = format!("its pool reads {owner:#x}, not {:#x}", pool.address);
                changed.push((*address, wrong));
            } else if refcnt != 1 {
                changed.push((*address, format!("free with a reference count of {refcnt}")));
            }
        }
    }
    Ok(changed)
}

/// Objects that were free at one moment. Only those of a ring or of a stack with a lock, and those in caches.
fn free_places(target: &XrayTarget, pool: &Pool) -> Result<FreePlaces, XrayError> {
    let before = caches(target, pool)?;
    let common = match PoolHandler::of(target, pool) {
        PoolHandler::Ring => certain_of_ring(target, pool)?,
        PoolHandler::Stack => {
            let (one, other) = (stack(target, pool)?, stack(target, pool)?);
            unchanged(&one, &other).collect()
        }
        PoolHandler::Unknown => Vec::new(),
    };
    let after = caches(target, pool)?;
    let mut places = FreePlaces::new();
    let mut add = |object: u64, place| places.entry(object).or_default().push(place);
    for object in common {
        add(object, Place::Common);
    }
    for (lcore, objects) in &before {
        let again = after.get(lcore).map(Vec::as_slice).unwrap_or_default();
        if objects.len() == again.len() {
            unchanged(objects, again).for_each(|object| add(object, Place::Cache(*lcore)));
        }
    }
    Ok(places)
}

fn unchanged<'a>(before: &'a [u64], after: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    before.iter().zip(after).filter(|(one, other)| one == other).map(|(one, _)| *one)
}

/// Entries of a ring that were there for the whole time of the read.
fn certain_of_ring(target: &XrayTarget, pool: &Pool) -> Result<Vec<u64>, XrayError> {
    let (layout, memory) = (&target.layout.ring, &*target.memory);
    let ring = Address(pool.handler_data);
    let field = |offset| read_u32(memory, ring.member(offset)?);
    let (slots, mask) = (field(layout.size)?, field(layout.mask)?);
    let zone = target.memzone_at(pool.handler_data);
    let bytes = u64::from(slots).saturating_mul(WORD_BYTES).saturating_add(layout.bytes);
    if !is_ring_size(slots, mask) || slots > MOST_ENTRIES || zone.is_none_or(|it| it.bytes < bytes)
    {
        return Ok(Vec::new());
    }
    let count = usize::try_from(slots).unwrap_or_default();
    let produced = field(layout.prod_tail)?;
    let entries = words(memory, ring.member(layout.bytes)?, count)?;
    let consumed = field(layout.cons_tail)?;
    let live = produced.wrapping_sub(consumed);
    // Consumers have overtaken what producers had added.
    let live = if live > slots { 0 } else { live };
    let position = |back: u32| produced.wrapping_sub(back) & mask;
    let entry = |back: u32| entries.get(usize::try_from(position(back)).ok()?).copied();
    Ok((1..=live).filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::made_up::MadeUpApp;

    fn found(app: &MadeUpApp) -> Vec<CorruptPool> {
        corrupt_pools(&app.target).unwrap()
    }

    fn seen(app: &MadeUpApp, object: u64) -> Vec<String> {
        let [pool] = &found(app)[..] else { panic!("{:?}", found(app)) };
        assert_eq!(pool.total, 1, "{pool:?}");
        assert_eq!(pool.objects[0].address, MadeUpApp::mbuf(object));
        pool.objects[0].seen.clone()
    }

    fn app() -> MadeUpApp {
        MadeUpApp::new(100, PoolHandler::Ring)
    }

    #[test]
    fn an_mbuf_that_was_freed_twice_is_seen_in_both_places() {
        let mut sound = app();
        sound.free_to_ring(&[1, 2, 3, 4]);
        sound.free_to_cache(2, 5);
        assert_eq!(found(&sound), []);
        let twice = app();
        twice.free_to_ring(&[1, 2, 3, 2]);
        assert_eq!(seen(&twice, 2), ["common part, twice"]);
        let mut both = app();
        both.free_to_ring(&[1, 2, 3]);
        both.free_to_cache(2, 3);
        assert_eq!(seen(&both, 3), ["common part", "cache of lcore 2"]);
    }

    #[test]
    fn an_mbuf_that_changes_while_it_is_free_is_seen() {
        let used = app();
        used.free_to_ring(&[1, 2, 3]);
        let refcnt = used.target.layout.mbuf.refcnt;
        used.set_u16(MadeUpApp::mbuf(2) + refcnt, 2);
        assert_eq!(seen(&used, 2), ["common part", "free with a reference count of 2"]);
        let written = app();
        written.free_to_ring(&[1, 2, 3]);
        let pool = written.target.layout.mbuf.pool;
        written.set(MadeUpApp::mbuf(1) + pool, 7);
        assert!(seen(&written, 1)[1].starts_with("its pool reads 0x7"));
    }

    /// A ring that consumers and producers move during the read shows each entry twice, but not for certain.
    #[test]
    fn an_mbuf_that_moves_is_not_seen_twice() {
        let app = app();
        app.free_to_ring(&[1, 2, 3]);
        let ring = app.target.pools()[0].as_ref().unwrap().handler_data;
        let (layout, mbuf) = (app.target.layout.ring.clone(), MadeUpApp::mbuf(1));
        // The first entry is consumed, and freed again behind the last.
        app.before_read(move |address, memory| {
            if address == ring + layout.bytes {
                let slot = u64::from(memory.u32(ring + layout.prod_tail) % 128);
                memory.write_u64(ring + layout.bytes + slot * 8, mbuf);
                memory.add_u32(ring + layout.prod_tail, 1);
                memory.add_u32(ring + layout.cons_tail, 1);
            }
            Ok(())
        });
        assert_eq!(found(&app), []);
    }
}
