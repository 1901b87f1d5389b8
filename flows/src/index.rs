//! Finds entries by the hashes of their keys.

// A slot is split into its two parts.
#![allow(clippy::cast_possible_truncation)]

/// A hash table with open addressing and linear probing, at most half full. A slot is the hash and the
/// number of the entry plus one, so that neither a search nor a removal has to read other entries.
#[derive(Debug)]
pub(super) struct HashIndex {
    slots: Vec<u64>,
    mask: usize,
}

impl HashIndex {
    /// Returns an index for this many entries.
    pub(super) fn new(capacity: usize) -> Self {
        let size = (capacity * 2).next_power_of_two();
        // The system provides zeroed pages; pages that are never used take no memory.
        Self { slots: vec![0; size], mask: size - 1 }
    }

    /// Returns the entry with this hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = hash as usize & self.mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            let entry = slot as u32 as usize - 1;
            if (slot >> 32) as u32 == hash && is(entry) {
                return Some(entry);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Returns the entry that a search for a hash most likely ends at; if there is none, a number that
    /// is too large.
    #[inline]
    pub(super) fn likely(&self, hash: u32) -> usize {
        (self.slots[hash as usize & self.mask] as u32 as usize).wrapping_sub(1)
    }

    /// Adds an entry that is not in the index.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, entry: usize) {
        let mut at = hash as usize & self.mask;
        while self.slots[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = slot(hash, entry);
    }

    /// Removes an entry if it is in the index, and closes the gap: following slots move up as far as
    /// their hashes allow.
    pub(super) fn remove(&mut self, hash: u32, entry: usize) {
        let mut gap = hash as usize & self.mask;
        while self.slots[gap] != slot(hash, entry) {
            if self.slots[gap] == 0 {
                return;
            }
            gap = (gap + 1) & self.mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let moved = self.slots[at];
            if moved == 0 {
                break;
            }
            let home = (moved >> 32) as usize & self.mask;
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(gap) & self.mask {
                self.slots[gap] = moved;
                gap = at;
            }
        }
        self.slots[gap] = 0;
    }
}

fn slot(hash: u32, entry: usize) -> u64 {
    u64::from(hash) << 32 | (entry as u64 + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(
            steps in prop::collection::vec((any::<bool>(), 0_usize..32, 0_u32..40), 0..400),
        ) {
            let mut index = HashIndex::new(32);
            let mut model = HashMap::new();
            for (add, entry, hash) in steps {
                // Few hashes at the end of the table, so that they collide and wrap around.
                let hash = hash.wrapping_sub(20);
                match model.get(&entry).copied() {
                    None if add => {
                        index.insert(hash, entry);
                        model.insert(entry, hash);
                    }
                    Some(hash) if !add => {
                        index.remove(hash, entry);
                        model.remove(&entry);
                    }
                    _ => index.remove(hash, entry + 32),
                }
                for (&entry, &hash) in &model {
                    prop_assert_eq!(index.find(hash, |found| found == entry), Some(entry));
                }
                for entry in (0..32).filter(|entry| !model.contains_key(entry)) {
                    prop_assert_eq!(index.find(hash, |found| found == entry), None);
                }
            }
        }
    }
}
