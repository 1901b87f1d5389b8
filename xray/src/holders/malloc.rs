//! The heap of the C library (`malloc()` of glibc): chunks in the order of their addresses, each with its
//! length in front. Drivers may keep the structures of their queues there.
//!
//! The start of a chunk can only be found by walking from the first chunk to the last. So a heap is
//! used only if the walk ends exactly at its end, and a chunk with a separate mapping only if it
//! fills whole pages.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::memory::{Memory, read_array, read_u64};

/// Precedes the data of a chunk: a word that belongs to the previous one, and its length.
const HEADER_BYTES: u64 = 16;
/// The data of a chunk in use extends into the header of the next one.
const SHARED_BYTES: u64 = 8;
/// Bits in the word of the length.
const PREVIOUS_IN_USE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;

/// Chunks begin at multiples of it.
const ALIGNMENT: u64 = 16;
/// Shortest chunk.
const LEAST_BYTES: u64 = 32;
/// Length of the marks after the last chunk of a heap that continues elsewhere.
const MARK_BYTES: u64 = 16;

const PAGE: usize = 4096;
const PAGE_BYTES: u64 = PAGE as u64;

/// Heaps of arenas other than the first begin at multiples of it: `HEAP_MAX_SIZE`.
const ARENA_ALIGNMENT: u64 = 64 << 20;
/// `sizeof(heap_info)`, from glibc 2.35 on and before.
const HEAP_INFO_BYTES: [u64; 2] = [48, 32];
/// `sizeof(struct malloc_state)`, from glibc 2.27 on; it follows the first `heap_info` of its arena.
const ARENA_BYTES: u64 = 2200;
/// `ar_ptr` and `size` of `heap_info`.
const INFO_ARENA: u64 = 0;
const INFO_SIZE: u64 = 16;

/// Maximum number of chunks in a walk.
const MOST_CHUNKS: usize = 1 << 22;
/// Number of walks through a heap, which the app may change meanwhile.
const MOST_WALKS: usize = 3;

/// The heaps of an app, which are walked on demand.
#[derive(Debug)]
pub(crate) struct MallocHeaps<'a> {
    memory: &'a dyn Memory,
    /// Anonymous memory, ascending, with neighbours joined.
    regions: Vec<Region>,
}

/// Memory that may contain heaps.
#[derive(Debug)]
struct Region {
    range: AddressRange,
    /// The heap of the first arena, which fills it.
    first: OnceCell<Option<Heap>>,
    /// Those of other arenas, by their first address, a multiple of [`ARENA_ALIGNMENT`].
    others: RefCell<BTreeMap<u64, Option<Heap>>>,
}

/// Addresses of its chunks, ascending. The lowest bit is [`PREVIOUS_IN_USE`].
#[derive(Debug, Default)]
struct Heap {
    chunks: Vec<u64>,
}

impl<'a> MallocHeaps<'a> {
    pub(crate) fn new(memory: &'a dyn Memory, maps: &[Mapping]) -> Self {
        let is_anonymous = |path: &str| matches!(path, "" | "[heap]") || path.starts_with("[anon");
        let mut regions: Vec<Region> = Vec::new();
        for mapping in maps.iter().filter(|it| it.writable && !it.shared && is_anonymous(&it.path))
        {
            let range = AddressRange::from(mapping);
            if !regions.last_mut().is_some_and(|last| last.range.join(&range)) {
                regions.push(Region::new(range));
            }
        }
        Self { memory, regions }
    }

    /// The data of the chunk in use that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<AddressRange> {
        let behind = self.regions.partition_point(|region| region.range.start() <= address);
        let region = self.regions[..behind].last().filter(|it| it.range.contains(address))?;
        let walk = || heap(self.memory, &region.range);
        if let Some(heap) = region.first.get_or_init(walk) {
            return heap.find(address);
        }
        let mut others = region.others.borrow_mut();
        let arena = others
            .entry(address & !(ARENA_ALIGNMENT - 1))
            .or_insert_with_key(|base| arena_heap(self.memory, region, *base));
        match arena {
            Some(heap) => heap.find(address),
            None => mmapped(self.memory, region, address),
        }
    }
}

impl Region {
    fn new(range: AddressRange) -> Self {
        Self { range, first: OnceCell::new(), others: RefCell::default() }
    }
}

impl Heap {
    fn find(&self, address: u64) -> Option<AddressRange> {
        let shared_end = |chunk: &u64| Address(chunk & !FLAGS).plus(SHARED_BYTES);
        let begins_before = |chunk: &u64| shared_end(chunk).is_some_and(|end| end <= address);
        let behind = self.chunks.partition_point(begins_before);
        let chunk = self.chunks[..behind].last()? & !FLAGS;
        // The last chunk is free.
        let next = self.chunks.get(behind)?;
        let data = AddressRange::new(Address(chunk).plus(HEADER_BYTES)?, shared_end(next)?)?;
        (next & PREVIOUS_IN_USE != 0 && data.contains(address)).then_some(data)
    }
}

/// The heap of an arena that is not the first.
fn arena_heap(memory: &dyn Memory, region: &Region, base: u64) -> Option<Heap> {
    if !region.range.contains(base) || !is_present(memory, base) {
        return None;
    }
    let arena = read_u64(memory, Address(base).plus(INFO_ARENA)?).ok()?;
    let size = read_u64(memory, Address(base).plus(INFO_SIZE)?).ok()?;
    let whole = AddressRange::of_length(base, size)?;
    if size > ARENA_ALIGNMENT || !region.range.contains_all(&whole) {
        return None;
    }
    HEAP_INFO_BYTES.into_iter().find_map(|info| {
        let behind = Address(base).plus(info)?;
        let arena_bytes = if arena == behind { ARENA_BYTES } else { 0 };
        let (_, chunks) = whole.split_at(Address(behind).plus(arena_bytes)?);
        heap(
            memory,
            &AddressRange::new(chunks.start().checked_next_multiple_of(ALIGNMENT)?, whole.end())?,
        )
    })
}

/// The chunks in a range, if they fill it.
fn heap(memory: &dyn Memory, range: &AddressRange) -> Option<Heap> {
    if !is_present(memory, range.start()) {
        return None;
    }
    (0..MOST_WALKS).find_map(|_| walk(memory, range))
}

/// Whether the app has ever touched this page. It has touched those with chunk headers. Others must
/// not be read, as the kernel would allocate them.
fn is_present(memory: &dyn Memory, address: u64) -> bool {
    let page = AddressRange::up_to_length(page_of(address), PAGE_BYTES);
    let presence = memory.present(page);
    presence.is_ok_and(|presence| !presence.parts.is_empty())
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE_BYTES - 1)
}

fn walk(memory: &dyn Memory, range: &AddressRange) -> Option<Heap> {
    let mut heap = Heap::default();
    let mut pages = Pages { memory, page: None };
    let mut rest = *range;
    while !rest.is_empty() && heap.chunks.len() < MOST_CHUNKS {
        let at = rest.start();
        let word = pages.word(Address(at).plus(8)?)?;
        heap.chunks.push(at | word & PREVIOUS_IN_USE);
        let length = word & !FLAGS;
        if length == MARK_BYTES && rest.bytes() == 2 * MARK_BYTES {
            return Some(heap);
        }
        if length < LEAST_BYTES
            || !length.is_multiple_of(ALIGNMENT)
            || word & IS_MMAPPED != 0
            || length > rest.bytes()
        {
            return None;
        }
        (_, rest) = rest.split_at(Address(at).plus(length)?);
    }
    (rest.is_empty() && !heap.chunks.is_empty()).then_some(heap)
}

/// A chunk with a separate mapping. It is found by the start of its data only.
fn mmapped(memory: &dyn Memory, region: &Region, address: u64) -> Option<AddressRange> {
    let chunk =
        Address(address).minus(HEADER_BYTES).filter(|chunk| chunk.is_multiple_of(ALIGNMENT))?;
    if !is_present(memory, chunk) {
        return None;
    }
    // Memory before it that was left free to align the data.
    let before = read_u64(memory, chunk).ok()?;
    let word = read_u64(memory, Address(chunk).plus(8)?).ok()?;
    let (start, end) = (Address(chunk).minus(before)?, Address(chunk).plus(word & !FLAGS)?);
    let data = AddressRange::new(address, end)?;
    let fits = word & FLAGS == IS_MMAPPED
        && start.is_multiple_of(PAGE_BYTES)
        && end.is_multiple_of(PAGE_BYTES)
        && region.range.contains_all(&AddressRange::new(start, end)?)
        && !data.is_empty();
    fits.then_some(data)
}

/// Reads words, each page once, and only pages with chunk headers.
struct Pages<'a> {
    memory: &'a dyn Memory,
    page: Option<(u64, [u8; PAGE])>,
}

impl Pages<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let begin = page_of(address);
        if self.page.as_ref().is_none_or(|(page, _)| *page != begin) {
            self.page = Some((begin, read_array(self.memory, begin).ok()?));
        }
        let (_, page) = self.page.as_ref()?;
        let place = usize::try_from(Address(address).minus(begin)?).ok()?;
        page.get(place..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::memory::ProcessMemory;
    use crate::test_memory::TestMemory;

    const HEAP: u64 = 0x7000_1000;
    const MAIN_FLAGS: u64 = PREVIOUS_IN_USE;
    const ARENA_FLAGS: u64 = PREVIOUS_IN_USE | 4;

    /// Writes chunks of these lengths one after another, from `start` on; addresses of their data.
    fn write_chunks(memory: &mut TestMemory, start: u64, lengths: &[u64], flags: u64) -> Vec<u64> {
        let mut at = start;
        let mut data = Vec::new();
        for length in lengths {
            memory.write_u64(at + 8, length | flags);
            data.push(at + HEADER_BYTES);
            at += length;
        }
        data
    }

    /// The heap of the first arena: chunks, and the rest of two pages, which is free; addresses of the data.
    pub(in crate::holders) fn write_heap(memory: &mut TestMemory, lengths: &[u64]) -> Vec<u64> {
        memory.map(HEAP, 2 * PAGE_BYTES);
        let rest = 2 * PAGE_BYTES - lengths.iter().sum::<u64>();
        write_chunks(memory, HEAP, &[lengths, &[rest]].concat(), MAIN_FLAGS)
    }

    fn find(memory: &TestMemory, address: u64) -> Option<(u64, u64)> {
        let found = MallocHeaps::new(memory, &memory.maps().unwrap()).find(address);
        found.map(|data| (data.start(), data.end()))
    }

    #[test]
    fn a_chunk_is_found_by_any_address_in_it() {
        let mut memory = TestMemory::default();
        let data = write_heap(&mut memory, &[0x290, 32, 0x1010, 48]);
        let whole = |chunk: usize, bytes| Some((data[chunk], data[chunk] + bytes));
        assert_eq!(find(&memory, data[1]), whole(1, 24));
        assert_eq!(find(&memory, data[2] + 0x1007), whole(2, 0x1008));
        assert_eq!(find(&memory, data[2] + 0x1008), None, "the length of the next");
        assert_eq!(find(&memory, data[4]), None, "the rest of the heap");
        assert_eq!([find(&memory, HEAP - 1), find(&memory, HEAP + 2 * PAGE_BYTES)], [None, None]);
        // Free, as the next one says.
        memory.write_u64(data[3] - 8, 48);
        assert_eq!([find(&memory, data[2]), find(&memory, data[3])], [None, whole(3, 40)]);
    }

    #[test]
    fn a_heap_that_does_not_end_where_its_memory_does_is_none() {
        let mut memory = TestMemory::default();
        let data = write_heap(&mut memory, &[0x290, 32, 64]);
        for length in [0, 16, 24, 40, 1 << 40, 64 + 16, 64 | IS_MMAPPED] {
            let mut broken = memory.clone();
            broken.write_u64(data[2] - 8, length | PREVIOUS_IN_USE);
            assert_eq!(find(&broken, data[1]), None, "{length:#x}");
        }
        assert!(find(&memory, data[1]).is_some());
        // The heap continues elsewhere: marks at its end.
        let end = HEAP + 2 * PAGE_BYTES;
        let rest = end - 32 - (data[2] + 48);
        write_chunks(&mut memory, data[2] + 48, &[rest, 16, 16], PREVIOUS_IN_USE);
        assert!(find(&memory, data[1]).is_some());
    }

    #[test]
    fn heaps_of_other_arenas_are_known_by_their_begin() {
        for info in HEAP_INFO_BYTES {
            let (base, bytes) = (3 * ARENA_ALIGNMENT, 2 * PAGE_BYTES);
            let mut memory = TestMemory::default();
            memory.map(base, 3 * PAGE_BYTES);
            memory.write_u64(base, base + info);
            memory.write_u64(base + INFO_SIZE, bytes);
            let first = (base + info + ARENA_BYTES).next_multiple_of(ALIGNMENT);
            let lengths = [0x290, 64, bytes - (first - base) - 0x290 - 64];
            let data = write_chunks(&mut memory, first, &lengths, ARENA_FLAGS);
            assert_eq!(find(&memory, data[1] + 5), Some((data[1], data[1] + 56)));
            memory.write_u64(base + INFO_SIZE, bytes + PAGE_BYTES);
            assert_eq!(find(&memory, data[1]), None, "it ends elsewhere");
        }
    }

    #[test]
    fn a_chunk_with_pages_of_its_own_is_found_by_its_begin() {
        let mut memory = TestMemory::default();
        memory.map(HEAP, 4 * PAGE_BYTES);
        let chunk = HEAP + PAGE_BYTES;
        memory.write_u64(chunk + 8, (2 * PAGE_BYTES) | IS_MMAPPED);
        let whole = Some((chunk + HEADER_BYTES, chunk + 2 * PAGE_BYTES));
        assert_eq!(find(&memory, chunk + HEADER_BYTES), whole);
        assert_eq!(find(&memory, chunk + 2 * HEADER_BYTES), None);
        memory.write_u64(chunk + 8, (4 * PAGE_BYTES) | IS_MMAPPED);
        assert_eq!(find(&memory, chunk + HEADER_BYTES), None, "longer than its mapping");
        // What was left free in front of it to align it.
        memory.write_u64(chunk + 48, 48);
        memory.write_u64(chunk + 56, (PAGE_BYTES - 48) | IS_MMAPPED);
        assert_eq!(find(&memory, chunk + 64), Some((chunk + 64, chunk + PAGE_BYTES)));
    }

    /// The C library allocates memory of this test in an arena of the thread, and large blocks in
    /// mappings.
    #[test]
    fn allocations_of_this_process_are_found() {
        let small: Vec<Vec<u64>> = (1..200).map(|words| vec![7; words]).collect();
        let long = vec![7_u64; 1 << 20];
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let found = |words: &[u64]| {
            let begin = words.as_ptr() as u64;
            // Other tests allocate at the same time.
            let chunk = (0..100)
                .find_map(|_| MallocHeaps::new(&memory, &memory.maps().unwrap()).find(begin));
            let chunk = chunk.unwrap_or_default();
            chunk.start() == begin && chunk.bytes() >= 8 * words.len() as u64
        };
        assert!(small.iter().step_by(20).all(|words| found(words)));
        assert!(found(&long));
    }

    proptest! {
        #[test]
        fn garbage_neither_hangs_nor_crashes(
            words in vec((0..1024_u64, prop_oneof![any::<u64>(), 0..0x200_u64]), 0..60),
            asked in vec(0..2 * PAGE_BYTES, 8),
        ) {
            let mut memory = TestMemory::default();
            write_heap(&mut memory, &[0x290, 32, 64, 128, 4096]);
            for (at, word) in words {
                memory.write_u64(HEAP + 8 * at, word);
            }
            for offset in asked {
                if let Some((start, end)) = find(&memory, HEAP + offset) {
                    prop_assert!((start..end).contains(&(HEAP + offset)));
                    prop_assert!(end <= HEAP + 2 * PAGE_BYTES);
                }
            }
        }
    }
}
