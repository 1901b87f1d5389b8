//! One pass over the app's memory.

use std::time::Instant;

use crate::Mapping;
use crate::error::XrayError;
use crate::holders::{HolderMap, HolderSources};
use crate::target::XrayTarget;

use super::free::FreeObjects;
use super::pools::{MbufPools, fatal};
use super::process::{self, Secondary};
use super::references::{self, Reach, Reached, Searched};
use super::searched::{Part, SearchedMemory, dead_ring_slots, live_ring_slots};

/// Most bytes of a quick look: memory in which references move fast, such as stacks and variables.
const MOST_QUICK_BYTES: u64 = 64 << 20;

/// Where an object is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Free {
    /// Nowhere: it is in use.
    #[default]
    No,
    /// In the common part of its pool.
    Common,
    /// In the cache of an lcore.
    Cache(u32),
    /// It was a moment ago.
    Before,
}

/// Where each object is free, by its number.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeMap {
    objects: Vec<Free>,
    /// Words in a free list that are no objects of the pool.
    pub(super) wild: u64,
}

impl FreeMap {
    pub(super) fn get(&self, object: u32) -> Free {
        self.objects.get(object as usize).copied().unwrap_or_default()
    }

    pub(super) fn in_use(&self, object: u32) -> bool {
        matches!(self.get(object), Free::No | Free::Before)
    }
}

/// What one pass found.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) reached: Reached,
    /// Before the memory was searched.
    pub(super) free_before: FreeMap,
    /// After it was.
    pub(super) free_after: FreeMap,
    pub(super) holders: HolderMap,
    pub(super) secondaries: Vec<Secondary>,
    pub(super) searched: Searched,
    pub(super) foreign_bytes: u64,
    /// Why mbufs that are unreachable may be in use.
    pub(super) not_judged_why: Vec<String>,
    /// Free lists had entries of other pools, or could not be read: pools changed.
    pub(super) torn: bool,
    /// When it ended.
    pub(super) ended: Instant,
}

impl Pass {
    /// In use, and nothing refers to it.
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
    /// One pass over all memory. `progress` is told the bytes that are done, and all.
    pub(super) fn pass(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Pass, XrayError> {
        let memory = &*self.target.memory;
        let (free_before, torn_before) = self.free()?;
        let sources = memory
            .process()
            .map_or_else(HolderSources::default, |pid| HolderSources::of_process(pid));
        let holders = HolderMap::new(self.target, &sources)?;
        let maps = memory.maps()?;
        let mut pass = Pass {
            reached: Reached::new(self.pools.index.len()),
            free_before,
            free_after: FreeMap::default(),
            holders,
            secondaries: Vec::new(),
            searched: Searched::default(),
            foreign_bytes: 0,
            not_judged_why: process::kept_otherwise(self.target, &maps),
            torn: torn_before,
            ended: Instant::now(),
        };
        let found = SearchedMemory::new(&maps, &self.own_addresses(), self.left_out());
        let total = found.bytes();
        pass.foreign_bytes = found.foreign_bytes;
        pass.searched = references::mark(
            memory,
            &found.parts,
            &self.pools.index,
            &pass.holders,
            &mut pass.reached,
            &mut |done| progress(done, total),
        )?;
        self.system_calls(&mut pass);
        self.secondaries(&maps, &mut pass);
        let (free_after, torn_after) = self.free()?;
        pass.free_after = free_after;
        pass.torn |= torn_after;
        self.follow(&pass.free_after, &mut pass.reached)?;
        pass.ended = Instant::now();
        Ok(pass)
    }

    pub(super) fn follow(&self, free: &FreeMap, reached: &mut Reached) -> Result<(), XrayError> {
        let in_use = |object| free.in_use(object);
        let (memory, pools) = (&*self.target.memory, &self.pools.judged);
        references::follow(memory, pools, &self.pools.index, &in_use, reached)
    }

    /// Where objects are free now, and whether that contradicts the pools.
    pub(super) fn free(&self) -> Result<(FreeMap, bool), XrayError> {
        let mut map = FreeMap { objects: vec![Free::No; self.pools.index.len()], wild: 0 };
        let mut torn = false;
        for pool in &self.pools.judged {
            match fatal(FreeObjects::read(self.target, &pool.pool))? {
                Ok(free) => self.add_free(&free, &mut map),
                Err(_) => torn = true,
            }
        }
        torn |= map.wild > 0;
        Ok((map, torn))
    }

    fn add_free(&self, free: &FreeObjects, map: &mut FreeMap) {
        let mut add = |objects: &[u64], place: Free| {
            for address in objects {
                let object = self.pools.index.find_begin(*address);
                match object.and_then(|object| map.objects.get_mut(object as usize)) {
                    Some(known) => *known = place,
                    None => map.wild += 1,
                }
            }
        };
        add(&free.before, Free::Before);
        add(free.common.as_deref().unwrap_or_default(), Free::Common);
        for (lcore, cache) in &free.caches {
            add(cache, Free::Cache(*lcore));
        }
    }

    /// Addresses in memory that is surely the app's.
    fn own_addresses(&self) -> Vec<u64> {
        let zones = self.target.memzones.iter().map(|zone| zone.address);
        let chunks = self.pools.judged.iter().flat_map(|pool| &pool.chunks);
        zones.chain(chunks.map(|chunk| chunk.start)).collect()
    }

    /// Memory that holds no references: packets, free lists, empty slots of rings.
    fn left_out(&self) -> Vec<Part> {
        let mut parts = dead_ring_slots(self.target);
        for pool in &self.pools.judged {
            parts.push(pool.header(self.target));
            parts.extend(pool.chunks.iter().cloned());
            let handler = self.target.memzone_at(pool.pool.handler_data);
            parts.extend(handler.map(|zone| zone.address..zone.address + zone.bytes));
        }
        parts
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

    /// Secondary processes hold mbufs in memory of their own.
    fn secondaries(&self, maps: &[Mapping], pass: &mut Pass) {
        for secondary in process::secondaries(self.target, maps) {
            let result = secondary.and_then(|secondary| {
                let number = u32::try_from(pass.secondaries.len()).unwrap_or(u32::MAX);
                let pid = secondary.memory.process().unwrap_or_default();
                let reached = &mut pass.reached;
                let memory = SearchedMemory::new(&secondary.maps, &[], Vec::new());
                let mut found = |_, object| reached.add(object, Reach::FromSecondary(number));
                let index = &self.pools.index;
                references::search(
                    &*secondary.memory,
                    &memory.parts,
                    index,
                    &mut found,
                    &mut |_| {},
                )
                .map_err(|error| (pid, error))?;
                pass.secondaries.push(secondary);
                Ok(())
            });
            match result {
                Ok(()) | Err((_, XrayError::Ended { .. })) => {}
                Err((pid, error)) => pass.not_judged_why.push(format!(
                    "process {pid} works with the same pools, and cannot be read: {error}"
                )),
            }
        }
    }

    /// Parts of the memory in which references move fast: all but the memory of the EAL, smallest first.
    pub(super) fn quick_parts(&self) -> Result<Vec<Part>, XrayError> {
        let memory = &*self.target.memory;
        let (maps, own) = (memory.maps()?, self.own_addresses());
        let found = SearchedMemory::new(&maps, &own, self.left_out());
        let mut present = Vec::new();
        for part in found.parts {
            let mapping = maps.iter().find(|mapping| mapping.contains(part.start));
            let of_eal = |mapping: &Mapping| own.iter().any(|address| mapping.contains(*address));
            if !mapping.is_some_and(of_eal) {
                present.extend(memory.present(part)?);
            }
        }
        present.sort_by_key(|part| part.end - part.start);
        let mut bytes = 0;
        present.retain(|part| {
            bytes += part.end - part.start;
            bytes <= MOST_QUICK_BYTES
        });
        Ok(present)
    }

    /// What is referred to from these parts and from rings, now.
    pub(super) fn quick_look(&self, parts: &[Part]) -> Result<(Reached, FreeMap), XrayError> {
        let memory = &*self.target.memory;
        let mut reached = Reached::new(self.pools.index.len());
        let rings = live_ring_slots(self.target);
        let mut found = |_, object| reached.add(object, Reach::FromMbuf);
        for parts in [&rings, parts] {
            references::search(memory, parts, &self.pools.index, &mut found, &mut |_| {})?;
        }
        let (free, _) = self.free()?;
        self.follow(&free, &mut reached)?;
        Ok((reached, free))
    }
}
