//! Keeps conversations, as many as there is room for, and decides which are evicted.
//!
//! Entries stand in one array that never grows beyond its capacity, and an [`HashIndex`] finds them. Where all
//! are taken, a newcomer competes with the eight entries of a group that its hash picks, by the votes of
//! Elastic Sketch (Yang et al., SIGCOMM 2018): each newcomer is a vote against the weakest of them,
//! which is evicted when eight times its own packets, but the first, have voted against it. So one that
//! was seen once is evicted at once, and one that is heavy only where all eight are and a ninth insists.

use std::hint::black_box;

use crate::entry::{FlowDetails, FlowEntry, ReportedCounts, SeenPacket};
use crate::index::HashIndex;
use crate::key::{FlowKey, KeyHasher};
use crate::rate_windows::ByteHistory;

/// Entries that a newcomer competes with.
const GROUP: usize = 8;
/// Votes that it takes against each of the weakest's packets.
const VOTES: u32 = 8;

/// Packets that are counted together.
pub(super) const BATCH: usize = 16;

/// Most entries, so that their numbers fit into half a word, and memory into a machine.
pub(super) const CAPACITY_MAX: usize = 1 << 28;

/// Where a newcomer may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeSlot {
    /// Nobody is there.
    Free,
    /// In place of this entry.
    InPlaceOf(usize),
    /// Nowhere.
    None,
}

/// All conversations that are kept.
#[derive(Debug)]
pub(super) struct FlowStore {
    capacity: usize,
    pub(super) entries: Vec<FlowEntry>,
    /// Of each entry.
    pub(super) sides: Vec<FlowDetails>,
    /// Of each entry, where somebody listens.
    pub(super) told: Vec<ReportedCounts>,
    /// Of each entry, where rates over windows are wanted.
    pub(super) histories: Vec<ByteHistory>,
    listened: bool,
    windowed: bool,
    hasher: KeyHasher,
    index: HashIndex,
    /// Entries that are free again.
    free: Vec<u32>,
    /// Votes against the weakest, by group.
    against: Vec<u32>,
}

impl FlowStore {
    /// An empty store; `listened` where what a listener was told is to be known, `windowed` where
    /// rates over windows are.
    pub(super) fn new(capacity: usize, listened: bool, windowed: bool) -> Self {
        let capacity = capacity.clamp(1, CAPACITY_MAX);
        Self {
            capacity,
            // Room for all without moving any: what is not used takes no memory.
            entries: Vec::with_capacity(capacity),
            sides: Vec::with_capacity(capacity),
            told: Vec::with_capacity(if listened { capacity } else { 0 }),
            histories: Vec::with_capacity(if windowed { capacity } else { 0 }),
            listened,
            windowed,
            hasher: KeyHasher::new(),
            index: HashIndex::new(capacity),
            free: Vec::new(),
            against: vec![0; capacity.div_ceil(GROUP)],
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        self.hasher.hash(key)
    }

    #[inline]
    pub(super) fn find(&self, key: &FlowKey, hash: u32) -> Option<usize> {
        self.index.find(hash, |at| self.entries[at].key.is(key))
    }

    /// Has the memory of conversations that are about to be looked for fetched all at once, where one
    /// after the other would wait for each.
    #[inline]
    pub(super) fn fetch(&self, batch: &[SeenPacket]) {
        let mut numbers = [usize::MAX; BATCH];
        for (number, seen) in numbers.iter_mut().zip(batch) {
            *number = self.index.likely(seen.hash);
        }
        let entries = numbers.iter().filter_map(|number| self.entries.get(*number));
        black_box(entries.fold(0, |sum, entry| sum ^ entry.touch()));
    }

    /// Looks for room, which counts as a vote where there is none.
    pub(super) fn room(&mut self, hash: u32, now_ns: u64) -> FreeSlot {
        if !self.free.is_empty() || self.entries.len() < self.capacity {
            return FreeSlot::Free;
        }
        let groups = self.against.len();
        // The index goes by the low bits of the hash, this by the high ones.
        let group = ((u64::from(hash) * groups as u64) >> 32) as usize;
        // Conversations that begin one after the other are in different groups.
        let members = (group..self.capacity).step_by(groups);
        let strength = |at: &usize| {
            let entry = &self.entries[*at];
            (entry.strength(now_ns), entry.last_ns)
        };
        let Some(weakest) = members.min_by_key(strength) else { return FreeSlot::None };
        let against = &mut self.against[group];
        *against = against.saturating_add(1);
        let needed = self.entries[weakest].strength(now_ns).saturating_sub(1).saturating_mul(VOTES);
        if *against <= needed {
            return FreeSlot::None;
        }
        *against = 0;
        FreeSlot::InPlaceOf(weakest)
    }

    /// Puts a conversation where there is nobody.
    pub(super) fn add(&mut self, entry: FlowEntry, hash: u32, first_ns: u64) -> usize {
        let (side, told) = (FlowDetails::since(first_ns), ReportedCounts::since(first_ns));
        let at = if let Some(at) = self.free.pop() {
            let at = at as usize;
            (self.entries[at], self.sides[at]) = (entry, side);
            if self.listened {
                self.told[at] = told;
            }
            if self.windowed {
                self.histories[at] = ByteHistory::default();
            }
            at
        } else {
            self.entries.push(entry);
            self.sides.push(side);
            if self.listened {
                self.told.push(told);
            }
            if self.windowed {
                self.histories.push(ByteHistory::default());
            }
            self.entries.len() - 1
        };
        self.index.insert(hash, at);
        at
    }

    /// Packets of its key belong to another conversation from now on.
    pub(super) fn unlink(&mut self, at: usize) {
        let hash = self.hash(&self.entries[at].key);
        self.index.remove(hash, at);
        self.entries[at].unlink();
    }

    /// Forgets a conversation.
    pub(super) fn remove(&mut self, at: usize) {
        self.unlink(at);
        self.entries[at].live = false;
        // Entries are numbered by 32 bits, as the free ones that this one came from.
        self.free.extend(u32::try_from(at));
    }

    /// Number of entries in use.
    pub(super) fn live_count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
