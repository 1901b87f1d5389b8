//! One pass over the app's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::Mapping;
use crate::address::AddressRange;
use crate::error::XrayError;
use crate::holders::{HolderMap, HolderSources};
use crate::memzone::Memzone;
use crate::target::XrayTarget;

use super::blocks::LostBlocks;
use super::free::FreeLists;
use super::objects::torn;
use super::pools::{MbufPool, MbufPools, fatal};
use super::process::{self, NotJudged, Secondary};
use super::references::{self, Reach, Reached, Searched};
use super::searched::{Part, SearchedMemory, dead_ring_slots, live_ring_slots};

/// Maximum bytes of a quick check: memory in which references move fast, such as stacks and
/// variables.
const MOST_QUICK_BYTES: u64 = 64 << 20;

/// The place where an object is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Free {
    /// Nowhere: it is in use.
    #[default]
    No,
    /// In the common part of its pool.
    Common,
    /// In the cache of an lcore.
    Cache(u32),
    /// It was free a moment ago.
    Before,
}

/// The place where each object is free, by its number.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeMap {
    objects: Vec<Free>,
    /// Pools whose free objects could not be read, or belonged to other pools, with the reason; by
    /// index.
    pub(super) torn: BTreeMap<usize, String>,
}

impl FreeMap {
    pub(super) fn get(&self, object: u32) -> Free {
        self.objects.get(object as usize).copied().unwrap_or_default()
    }

    pub(super) fn in_use(&self, object: u32) -> bool {
        matches!(self.get(object), Free::No | Free::Before)
    }
}

/// Results of one pass.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) reached: Reached,
    /// Blocks of the heap of the C library that refer to mbufs, and that nothing reaches.
    pub(super) lost_blocks: LostBlocks,
    /// Before the memory was searched.
    pub(super) free_before: FreeMap,
    /// After it was.
    pub(super) free_after: FreeMap,
    pub(super) holders: HolderMap,
    pub(super) secondaries: Vec<Secondary>,
    pub(super) searched: Searched,
    pub(super) foreign_bytes: u64,
    /// Why unreachable mbufs may be in use.
    pub(super) not_judged: Vec<NotJudged>,
    /// When it ended.
    pub(super) ended: Instant,
}

impl Pass {
    /// Why the counts of the pool with this index contradict each other, if they do.
    pub(super) fn torn(&self, pool: usize) -> Option<&String> {
        self.free_before.torn.get(&pool).or_else(|| self.free_after.torn.get(&pool))
    }

    pub(super) fn is_torn(&self) -> bool {
        !self.free_before.torn.is_empty() || !self.free_after.torn.is_empty()
    }

    /// Why mbufs of the pool at this address may be in use although they are unreachable.
    pub(super) fn not_judged_why(&self, pool: u64) -> Vec<String> {
        let concerns = |it: &&NotJudged| it.pool.is_none_or(|only| only == pool);
        self.not_judged.iter().filter(concerns).map(|it| it.why.clone()).collect()
    }

    /// It is in use without a reference.
    pub(super) fn is_unreachable(&self, object: u32) -> bool {
        self.free_before.get(object) == Free::No
            && self.free_after.get(object) == Free::No
            && !self.reached.is_reached(object)
    }
}

/// The app and its pools.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) target: &'a XrayTarget,
    pub(super) pools: &'a MbufPools,
}

impl Scanner<'_> {
    /// One pass over all memory. `progress` gets the bytes done so far, and the total.
    pub(super) fn pass(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Pass, XrayError> {
        let memory = &*self.target.memory;
        let free_before = self.free()?;
        let sources = HolderSources::of_memory(memory);
        let maps = memory.maps()?;
        let holders = HolderMap::new(self.target, &sources, &maps);
        let not_judged = process::kept_otherwise(self.target, holders.af_xdp());
        let mut pass = Pass {
            reached: Reached::new(self.pools.index.len()),
            lost_blocks: LostBlocks::default(),
            free_before,
            free_after: FreeMap::default(),
            holders,
            secondaries: Vec::new(),
            searched: Searched::default(),
            foreign_bytes: 0,
            not_judged,
            ended: Instant::now(),
        };
        let found = SearchedMemory::new(&maps, &self.own_addresses(), self.left_out());
        let total = found.bytes();
        pass.foreign_bytes = found.foreign_bytes;
        let mut of_heap = Vec::new();
        pass.searched = references::mark(
            memory,
            &found.parts,
            &self.pools.index,
            &pass.holders,
            (&mut pass.reached, &mut of_heap),
            &mut |done| progress(done, total),
        )?;
        pass.not_judged.extend(process::unknown_pages(pass.searched.unknown));
        self.kernel_rings(&mut pass);
        self.system_calls(&mut pass);
        self.secondaries(&maps, &mut pass);
        self.judge_blocks(&maps, &found.parts, &of_heap, &mut pass)?;
        pass.free_after = self.free()?;
        self.follow(&pass.free_after, &mut pass.reached)?;
        pass.ended = Instant::now();
        Ok(pass)
    }

    pub(super) fn follow(&self, free: &FreeMap, reached: &mut Reached) -> Result<(), XrayError> {
        let in_use = |object| free.in_use(object);
        let (memory, pools) = (&*self.target.memory, &self.pools.judged);
        references::follow(memory, pools, &self.pools.index, &in_use, reached)
    }

    /// The current place of free objects.
    pub(super) fn free(&self) -> Result<FreeMap, XrayError> {
        let objects = vec![Free::No; self.pools.index.len()];
        let mut map = FreeMap { objects, torn: BTreeMap::new() };
        for (place, pool) in self.pools.judged.iter().enumerate() {
            match fatal(FreeLists::read(self.target, &pool.pool))? {
                Ok(free) => {
                    let wild = self.add_free(pool, &free, &mut map);
                    if wild > 0 {
                        let why = format!("{wild} of its free objects are none of its objects");
                        map.torn.insert(place, torn(&pool.pool, why).to_string());
                    }
                }
                Err(error) => {
                    map.torn.insert(place, error.to_string());
                }
            }
        }
        Ok(map)
    }

    /// The last list that contains an object determines its place. Returns the number of addresses
    /// that are not objects of the pool.
    fn add_free(&self, pool: &MbufPool, free: &FreeLists, map: &mut FreeMap) -> usize {
        let mut wild = BTreeSet::new();
        let mut add = |objects: &[u64], place: Free| {
            for address in objects {
                let object = self.pools.index.find_begin(*address);
                let object = object.filter(|object| pool.objects.contains(object));
                match object.and_then(|object| map.objects.get_mut(object as usize)) {
                    Some(known) => *known = place,
                    None => {
                        wild.insert(*address);
                    }
                }
            }
        };
        for cache in free.before.values() {
            add(cache, Free::Before);
        }
        add(free.common.as_deref().unwrap_or_default(), Free::Common);
        for (lcore, cache) in &free.caches {
            add(cache, Free::Cache(*lcore));
        }
        wild.len()
    }

    /// Addresses in memory that certainly belongs to the app.
    fn own_addresses(&self) -> Vec<u64> {
        let zones = self.target.memzones.iter().map(|zone| zone.address);
        let chunks = self.pools.judged.iter().flat_map(|pool| &pool.chunks);
        zones.chain(chunks.map(AddressRange::start)).collect()
    }

    /// Memory that contains no references: packets, free lists, empty slots of rings.
    fn left_out(&self) -> Vec<Part> {
        let mut parts = dead_ring_slots(self.target);
        for pool in &self.pools.judged {
            parts.push(pool.header(self.target));
            parts.extend(&pool.chunks);
            let handler = self.target.memzone_at(pool.pool.handler_data);
            parts.extend(handler.map(Memzone::range));
        }
        parts
    }

    /// Mbufs whose offsets are in rings that drivers share with the kernel.
    fn kernel_rings(&self, pass: &mut Pass) {
        for (entry, mbuf) in pass.holders.af_xdp().entries(&*self.target.memory) {
            if let Some(object) = self.pools.index.find_begin(mbuf) {
                pass.reached.add(object, Reach::From(pass.holders.id(entry)));
            }
        }
    }

    fn system_calls(&self, pass: &mut Pass) {
        let Some(pid) = self.target.memory.process() else {
            return;
        };
        for (stack, argument) in process::system_call_arguments(pid) {
            if let Some(object) = self.pools.index.find(argument) {
                pass.reached.add(object, Reach::From(pass.holders.id(stack)));
            }
        }
    }

    /// Secondary processes hold mbufs in their own memory.
    fn secondaries(&self, maps: &[Mapping], pass: &mut Pass) {
        for secondary in process::secondaries(self.target, maps) {
            let result = secondary.and_then(|secondary| {
                let number = u32::try_from(pass.secondaries.len()).unwrap_or(u32::MAX);
                let pid = secondary.memory.process().unwrap_or_default();
                let reached = &mut pass.reached;
                let memory = SearchedMemory::new(&secondary.maps, &[], Vec::new());
                let mut found = |_, object| reached.add(object, Reach::FromSecondary(number));
                let index = &self.pools.index;
                let searched = references::search(
                    &*secondary.memory,
                    &memory.parts,
                    index,
                    &mut found,
                    &mut |_| {},
                )
                .map_err(|error| (pid, error))?;
                pass.not_judged.extend(process::unknown_pages(searched.unknown));
                pass.secondaries.push(secondary);
                Ok(())
            });
            match result {
                Ok(()) | Err((_, XrayError::Ended { .. })) => {}
                Err((pid, error)) => pass.not_judged.push(NotJudged::all(format!(
                    "process {pid} works with the same pools, and cannot be read: {error}"
                ))),
            }
        }
    }

    /// Parts of the memory in which references move fast: all except the memory of the EAL,
    /// smallest first.
    pub(super) fn quick_parts(&self) -> Result<Vec<Part>, XrayError> {
        let memory = &*self.target.memory;
        let (maps, own) = (memory.maps()?, self.own_addresses());
        let found = SearchedMemory::new(&maps, &own, self.left_out());
        let mut present = Vec::new();
        for part in found.parts {
            let mapping = maps.iter().find(|mapping| mapping.contains(part.start()));
            let of_eal = |mapping: &Mapping| own.iter().any(|address| mapping.contains(*address));
            if !mapping.is_some_and(of_eal) {
                present.extend(memory.present(part)?.parts);
            }
        }
        present.sort_by_key(AddressRange::bytes);
        let mut bytes = 0_u64;
        present.retain(|part| {
            bytes = bytes.saturating_add(part.bytes());
            bytes <= MOST_QUICK_BYTES
        });
        Ok(present)
    }

    /// The objects that these parts, except lost blocks, and the rings refer to now.
    pub(super) fn quick_look(
        &self,
        parts: &[Part],
        lost: &LostBlocks,
    ) -> Result<(Reached, FreeMap), XrayError> {
        let memory = &*self.target.memory;
        let mut reached = Reached::new(self.pools.index.len());
        let rings = live_ring_slots(self.target);
        let mut found = |address, object| {
            if !lost.contain(address) {
                reached.add(object, Reach::FromMbuf);
            }
        };
        for parts in [&rings, parts] {
            references::search(memory, parts, &self.pools.index, &mut found, &mut |_| {})?;
        }
        let free = self.free()?;
        self.follow(&free, &mut reached)?;
        Ok((reached, free))
    }
}
