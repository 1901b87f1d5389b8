//! Blocks of `malloc()` with references to mbufs: an mbuf to which only such a block refers is lost if nothing
//! reaches the block.
//!
//! A block is reached if a word anywhere outside of these blocks points into it, or one in another block that is
//! reached. All other blocks count as reached, even if they are lost themselves, and so does one whose bounds are
//! not known: rather too few mbufs are lost than too many.

use std::collections::{BTreeMap, BTreeSet};

use crate::Mapping;
use crate::address::AddressRange;
use crate::error::XrayError;
use crate::holders::MallocHeaps;

use super::pass::{Free, Pass, Scanner};
use super::process;
use super::references::{Reach, WordIndex, search};
use super::searched::Part;

/// References in the heap that are judged; further ones are taken as they are.
pub(super) const MOST_REFERENCES: usize = 1 << 20;

/// Bits of an address of a program; structures without locks keep other values in the rest.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// A reference to an mbuf: address of the word, and number of the object.
pub(super) type HeapReference = (u64, u32);

/// Blocks that nothing reaches, and what they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LostBlocks {
    /// Ascending.
    blocks: Vec<AddressRange>,
    /// The mbufs to which nothing else refers.
    pub(super) objects: BTreeSet<u32>,
}

impl LostBlocks {
    /// Whether the word at this address is in one of them.
    pub(super) fn contain(&self, address: u64) -> bool {
        find(&self.blocks, address).is_some()
    }
}

/// The block that contains an address; blocks ascend.
fn find(blocks: &[AddressRange], address: u64) -> Option<usize> {
    let behind = blocks.partition_point(|block| block.start() <= address);
    let place = behind.checked_sub(1)?;
    blocks.get(place)?.contains(address).then_some(place)
}

/// Blocks by number.
struct BlockIndex {
    blocks: Vec<AddressRange>,
    whole: AddressRange,
}

impl BlockIndex {
    fn new(blocks: Vec<AddressRange>) -> Self {
        let start = blocks.first().map_or(0, AddressRange::start);
        let end = blocks.last().map_or(0, AddressRange::end);
        Self { blocks, whole: AddressRange::from(start..end) }
    }
}

impl WordIndex for BlockIndex {
    fn may_contain(&self, word: u64) -> bool {
        self.whole.contains(word & ADDRESS_BITS)
    }

    fn may_contain_any(&self, words: &[[u8; 8]]) -> bool {
        words.iter().any(|word| self.may_contain(u64::from_le_bytes(*word)))
    }

    fn find(&self, word: u64) -> Option<u32> {
        find(&self.blocks, word & ADDRESS_BITS).and_then(|place| u32::try_from(place).ok())
    }
}

/// What refers to each block.
struct BlockReach {
    reached: Vec<bool>,
    /// References from one block to another.
    links: Vec<(u32, u32)>,
}

impl BlockReach {
    fn new(blocks: usize) -> Self {
        Self { reached: vec![false; blocks], links: Vec::new() }
    }

    fn reach(&mut self, block: u32) {
        if let Some(reached) = self.reached.get_mut(block as usize) {
            *reached = true;
        }
    }

    fn is_reached(&self, block: u32) -> bool {
        self.reached.get(block as usize).copied().unwrap_or(true)
    }

    /// Follows the references between blocks.
    fn follow(&mut self) {
        self.links.sort_unstable();
        self.links.dedup();
        let mut waiting: Vec<u32> =
            (0..).zip(&self.reached).filter_map(|(at, it)| it.then_some(at)).collect();
        while let Some(from) = waiting.pop() {
            let begin = self.links.partition_point(|(other, _)| *other < from);
            let next = self.links[begin..].iter().take_while(|(other, _)| *other == from);
            let next: Vec<u32> = next.map(|(_, to)| *to).collect();
            for to in next {
                if !self.is_reached(to) {
                    self.reach(to);
                    waiting.push(to);
                }
            }
        }
    }

    fn is_all_reached(&self) -> bool {
        self.reached.iter().all(|reached| *reached)
    }
}

impl Scanner<'_> {
    /// Adds the references in the heap of the C library to `pass`, except those in blocks that nothing
    /// reaches, which become [`Pass::lost_blocks`].
    pub(super) fn judge_blocks(
        &self,
        maps: &[Mapping],
        parts: &[Part],
        references: &[HeapReference],
        pass: &mut Pass,
    ) -> Result<(), XrayError> {
        let memory = &*self.target.memory;
        let heaps = MallocHeaps::new(memory, maps);
        let mut blocks: BTreeMap<AddressRange, Vec<HeapReference>> = BTreeMap::new();
        for reference in references {
            let is_in_doubt = pass.free_before.get(reference.1) == Free::No
                && !pass.reached.is_reached(reference.1);
            match heaps.find(reference.0).filter(|_| is_in_doubt) {
                Some(block) => blocks.entry(block).or_default().push(*reference),
                None => add(pass, *reference),
            }
        }
        if blocks.is_empty() {
            return Ok(());
        }
        let index = BlockIndex::new(blocks.keys().copied().collect());
        let reach = self.reach(&index, parts, pass)?;
        for ((block, references), number) in blocks.iter().zip(0_u32..) {
            if reach.is_reached(number) {
                for reference in references {
                    add(pass, *reference);
                }
            } else {
                pass.lost_blocks.blocks.push(*block);
                pass.lost_blocks.objects.extend(references.iter().map(|(_, object)| *object));
            }
        }
        Ok(())
    }

    /// Searches the memory for references to blocks: `parts` first, then mbufs, which may point to memory of the
    /// app, if blocks are left that nothing reaches.
    fn reach(
        &self,
        index: &BlockIndex,
        parts: &[Part],
        pass: &Pass,
    ) -> Result<BlockReach, XrayError> {
        let memory = &*self.target.memory;
        let mut reach = BlockReach::new(index.blocks.len());
        let mut found = |address: u64, block: u32| {
            if !pass.holders.can_refer(address) {
                return;
            }
            match index.find(address) {
                None => reach.reach(block),
                Some(from) if from != block => reach.links.push((from, block)),
                Some(_) => {}
            }
        };
        search(memory, parts, index, &mut found, &mut |_| {})?;
        for (_, argument) in
            memory.process().map(process::system_call_arguments).unwrap_or_default()
        {
            if let Some(block) = index.find(argument) {
                reach.reach(block);
            }
        }
        reach.follow();
        if !reach.is_all_reached() {
            let mbufs: Vec<Part> =
                self.pools.judged.iter().flat_map(|pool| pool.chunks.iter().copied()).collect();
            search(memory, &mbufs, index, &mut |_, block| reach.reach(block), &mut |_| {})?;
            reach.follow();
        }
        Ok(reach)
    }
}

fn add(pass: &mut Pass, (address, object): HeapReference) {
    let holder = pass.holders.id(address);
    pass.reached.add(object, Reach::From(holder));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_reached_through_others_and_rings_of_them_are_not() {
        let mut reach = BlockReach::new(6);
        reach.reach(0);
        reach.links = vec![(0, 2), (2, 3), (3, 2), (4, 5), (5, 4), (0, 2)];
        reach.follow();
        assert_eq!(reach.reached, [true, false, true, true, false, false]);
        assert!(!reach.is_all_reached() && reach.is_reached(77));
    }

    #[test]
    fn words_lead_to_blocks_whatever_is_in_their_highest_bits() {
        let index = BlockIndex::new(vec![(0x1000..0x1040).into(), (0x2000..0x2010).into()]);
        assert_eq!(index.find(0x1000), Some(0));
        assert_eq!(index.find(0xfffe_0000_0000_200f), Some(1));
        assert_eq!([index.find(0x1040), index.find(0xfff), index.find(0x2010)], [None; 3]);
        assert!(index.may_contain_any(&[[0; 8], 0x1fff_u64.to_le_bytes()]));
        assert!(!index.may_contain_any(&[[0; 8], 0x2010_u64.to_le_bytes()]));
        let lost = LostBlocks { blocks: index.blocks, objects: BTreeSet::new() };
        assert!(lost.contain(0x103f) && !lost.contain(0x1040));
    }
}
