//! Stores conversations in a fixed number of entries, and decides which are evicted.
//!
//! Entries are in one array that never grows beyond its capacity, and a [`HashIndex`] finds them. If
//! all are in use, a new conversation competes with the eight entries of a group that its hash selects,
//! by the votes of Elastic Sketch (Yang et al., SIGCOMM 2018): each packet without an entry is a vote
//! against the weakest of them, which is evicted when eight times its own packets, except the first,
//! have voted against it. So a conversation of one packet is evicted at once, and a heavy one only if
//! all eight are heavy and packets of others keep arriving.

use std::hint::black_box;

use crate::entry::{FlowDetails, FlowEntry, ReportedCounts, SeenPacket};
use crate::index::HashIndex;
use crate::key::{FlowKey, KeyHasher};
use crate::rate_windows::ByteHistory;

/// Entries that a new conversation competes with.
const GROUP: usize = 8;
/// Votes that are needed for each packet of the weakest entry.
const VOTES: u32 = 8;

/// Packets that are counted together.
pub(super) const BATCH: usize = 16;

/// Most entries, so that their numbers fit into 32 bits, and all of them into the memory of a machine.
pub(super) const CAPACITY_MAX: usize = 1 << 28;

/// Where a new conversation may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeSlot {
    /// In a free entry.
    Free,
    /// In place of this entry, which is evicted.
    InPlaceOf(usize),
    /// Nowhere.
    None,
}

/// All stored conversations.
#[derive(Debug)]
pub(super) struct FlowStore {
    capacity: usize,
    pub(super) entries: Vec<FlowEntry>,
    /// Details of each entry.
    pub(super) sides: Vec<FlowDetails>,
    /// Reported counts of each entry, if there is a listener.
    pub(super) told: Vec<ReportedCounts>,
    /// Byte history of each entry, if rates over windows are enabled.
    pub(super) histories: Vec<ByteHistory>,
    listened: bool,
    windowed: bool,
    hasher: KeyHasher,
    index: HashIndex,
    /// Entries that are free again.
    free: Vec<u32>,
    /// Votes against the weakest entry, by group.
    against: Vec<u32>,
}

impl FlowStore {
    /// Returns an empty store; `listened` keeps what was reported to a listener, `windowed` keeps byte
    /// histories.
    pub(super) fn new(capacity: usize, listened: bool, windowed: bool) -> Self {
        let capacity = capacity.clamp(1, CAPACITY_MAX);
        Self {
            capacity,
            // Reserves the whole capacity, so that entries never move; unused pages take no memory.
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

    /// Reads the entries of a batch before they are counted, so that their cache misses overlap.
    #[inline]
    pub(super) fn fetch(&self, batch: &[SeenPacket]) {
        let mut numbers = [usize::MAX; BATCH];
        for (number, seen) in numbers.iter_mut().zip(batch) {
            *number = self.index.likely(seen.hash);
        }
        let entries = numbers.iter().filter_map(|number| self.entries.get(*number));
        black_box(entries.fold(0, |sum, entry| sum ^ entry.touch()));
    }

    /// Looks for an entry for a new conversation; if there is none, this counts as a vote.
    pub(super) fn room(&mut self, hash: u32, now_ns: u64) -> FreeSlot {
        if !self.free.is_empty() || self.entries.len() < self.capacity {
            return FreeSlot::Free;
        }
        let groups = self.against.len();
        // The index uses the low bits of the hash, groups use the high ones.
        let group = ((u64::from(hash) * groups as u64) >> 32) as usize;
        // Members are `groups` apart, so entries that are filled one after the other are in different
        // groups.
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

    /// Stores a conversation in a free entry.
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

    /// Removes a conversation from the index: packets with its key belong to another one from now on.
    pub(super) fn unlink(&mut self, at: usize) {
        let hash = self.hash(&self.entries[at].key);
        self.index.remove(hash, at);
        self.entries[at].unlink();
    }

    /// Removes a conversation.
    pub(super) fn remove(&mut self, at: usize) {
        self.unlink(at);
        self.entries[at].live = false;
        // Entry numbers fit into 32 bits, see `CAPACITY_MAX`.
        self.free.extend(u32::try_from(at));
    }

    /// Returns the number of entries in use.
    pub(super) fn live_count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
