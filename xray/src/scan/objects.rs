//! The objects of a mempool, and which of them an address lies in.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Mapping;
use crate::error::XrayError;
use crate::target::{Field, Pool, XrayTarget};

/// Most object headers of one read: `IOV_MAX` of Linux.
const MOST_PER_READ: usize = 1024;

/// Object headers of the first read, and of those behind one that was not where it was expected.
const FEW_PER_READ: usize = 8;

/// The objects of one mempool.
#[derive(Clone, Debug)]
pub(crate) struct PoolObjects {
    /// Addresses of the objects (not of their headers), ascending.
    pub(crate) addresses: Vec<u64>,
    /// Chunks of memory that hold them.
    pub(crate) chunks: Vec<Range<u64>>,
}

impl PoolObjects {
    /// Follows the pool's list of objects, and checks the pool pointer of each. `mapped` is what
    /// [`mapped_bytes`] says.
    ///
    /// # Errors
    /// If the memory cannot be read, or the list is not one of `pool.populated` objects in its chunks.
    pub(crate) fn read(target: &XrayTarget, pool: &Pool, mapped: u128) -> Result<Self, XrayError> {
        let chunks = chunks(target, pool)?;
        check_room(pool, &chunks, mapped)?;
        let mut addresses = ObjectList { target, pool, chunks: &chunks }.addresses()?;
        addresses.sort_unstable();
        let apart = |pair: &[u64]| pair[1] - pair[0] >= u64::from(pool.element_bytes.max(1));
        if !addresses.windows(2).all(apart) {
            return Err(torn(pool, "two of its objects overlap"));
        }
        Ok(Self { addresses, chunks })
    }
}

pub(super) fn torn(pool: &Pool, why: impl Into<String>) -> XrayError {
    XrayError::implausible(format!("mempool {}", pool.name), why)
}

/// The memory of a pool, ascending. A list of garbage may go in circles.
fn chunks(target: &XrayTarget, pool: &Pool) -> Result<Vec<Range<u64>>, XrayError> {
    let layout = &target.layout.memhdr;
    let (mut chunks, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next = pool.first_chunk;
    let mut header = vec![0; usize::try_from(layout.bytes).unwrap_or_default()];
    while next != 0 {
        target.memory.read(next, &mut header)?;
        let field = |offset| Field { bytes: &header, offset }.u64();
        let (begin, bytes) = (field(layout.addr), field(layout.len));
        match begin.checked_add(bytes) {
            Some(end) if begin > 0 && bytes > 0 && seen.insert(next) => chunks.push(begin..end),
            _ => return Err(torn(pool, format!("a chunk of {bytes} bytes at {begin:#x}"))),
        }
        next = field(layout.next);
    }
    if chunks.len() != pool.chunks as usize {
        let why = format!("it has {} chunks, and tells {}", chunks.len(), pool.chunks);
        return Err(torn(pool, why));
    }
    chunks.sort_unstable_by_key(|chunk| chunk.start);
    if !chunks.windows(2).all(|pair| pair[0].end <= pair[1].start) {
        return Err(torn(pool, "two of its chunks overlap"));
    }
    Ok(chunks)
}

/// Bytes that the app can read.
pub(super) fn mapped_bytes(maps: &[Mapping]) -> u128 {
    (maps.iter().filter(|mapping| mapping.readable))
        .map(|mapping| u128::from(mapping.end.saturating_sub(mapping.start)))
        .sum()
}

/// No more objects are believed than fit into memory that is mapped: a list of garbage may be long.
fn check_room(pool: &Pool, chunks: &[Range<u64>], mapped: u128) -> Result<(), XrayError> {
    let bytes: u128 = chunks.iter().map(|chunk| u128::from(chunk.end - chunk.start)).sum();
    let needed = u128::from(slot_bytes(pool)) * u128::from(pool.populated);
    if bytes > mapped || needed > bytes + u128::from(slot_bytes(pool)) {
        let why = format!("{} objects in {bytes} bytes", pool.populated);
        return Err(torn(pool, why));
    }
    Ok(())
}

/// The list of object headers of a pool.
struct ObjectList<'a> {
    target: &'a XrayTarget,
    pool: &'a Pool,
    chunks: &'a [Range<u64>],
}

/// Where the headers of a list are expected: in rows without a gap, each as long as the one before it, for
/// no object lies across the end of a page.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Bytes from one header to the next in a row.
    slot: u64,
    /// Headers of a row; 0 while that is not known.
    row: u64,
    /// Bytes from the last header of a row to the first of the next.
    gap: u64,
    /// Headers of the present row that were read.
    in_row: u64,
}

impl Expected {
    /// The header behind `header`, which is counted as read.
    fn after(&mut self, header: u64) -> Option<u64> {
        if self.in_row + 1 == self.row {
            self.in_row = 0;
            return header.checked_add(self.gap);
        }
        self.in_row += 1;
        header.checked_add(self.slot)
    }

    /// The list went on elsewhere; `read` headers of the row were read.
    fn learn(&mut self, last: u64, next: u64, read: u64) {
        if Some(next) == last.checked_add(self.slot) {
            *self = Self { row: 0, in_row: read, ..*self };
        } else {
            *self = Self { row: read, gap: next.saturating_sub(last), in_row: 0, ..*self };
        }
    }
}

impl ObjectList<'_> {
    fn addresses(&self) -> Result<Vec<u64>, XrayError> {
        let populated = self.pool.populated as usize;
        let mut addresses = Vec::with_capacity(populated.min(1 << 20));
        let mut next = self.pool.first_object_header;
        let mut expected = Expected { slot: slot_bytes(self.pool), row: 0, gap: 0, in_row: 0 };
        let mut most = FEW_PER_READ;
        while next != 0 && addresses.len() < populated {
            let wanted = most.min(populated - addresses.len());
            let before = addresses.len();
            next = self.follow(next, wanted, &mut expected, &mut addresses)?;
            let as_expected = addresses.len() - before == wanted;
            most = if as_expected { (most * 2).min(MOST_PER_READ) } else { FEW_PER_READ };
        }
        if next != 0 || addresses.len() != populated {
            let why = format!("its list has {} of {populated} objects", addresses.len());
            return Err(torn(self.pool, why));
        }
        Ok(addresses)
    }

    /// Reads headers from `first` on, as far as they are where they are expected; returns where the list
    /// goes on.
    fn follow(
        &self,
        first: u64,
        most: usize,
        expected: &mut Expected,
        addresses: &mut Vec<u64>,
    ) -> Result<u64, XrayError> {
        let layout = &self.target.layout.objhdr;
        let headers = self.expected_headers(first, most, *expected)?;
        let bytes = usize::try_from(layout.bytes).unwrap_or_default().max(1);
        let mut read = vec![0; headers.len() * bytes];
        self.target.memory.read_pieces(&headers, &mut read)?;
        let word = |header: &[u8], offset: u64| {
            let begin = usize::try_from(offset).unwrap_or(usize::MAX);
            header.get(begin..).and_then(|rest| rest.first_chunk()).map(|w| u64::from_le_bytes(*w))
        };
        let mut next = first;
        for (address, header) in headers.iter().zip(read.chunks_exact(bytes)) {
            if word(header, layout.mp) != Some(self.pool.address) {
                let why = format!("the object header at {address:#x} is of another pool");
                return Err(torn(self.pool, why));
            }
            addresses.push(address.saturating_add(layout.bytes));
            next = word(header, layout.next).unwrap_or_default();
            let read_of_row = expected.in_row + 1;
            if expected.after(*address) != Some(next) {
                expected.learn(*address, next, read_of_row);
                break;
            }
        }
        Ok(next)
    }

    /// Up to `most` headers from `first` on, as far as they are in the pool's memory.
    fn expected_headers(
        &self,
        first: u64,
        most: usize,
        mut expected: Expected,
    ) -> Result<Vec<u64>, XrayError> {
        let mut headers = vec![first];
        let mut chunk = self.chunk_of(first)?;
        let (mut last, objhdr) = (first, self.target.layout.objhdr.bytes);
        while headers.len() < most {
            let Some(next) = expected.after(last) else { break };
            if !chunk.contains(&next) {
                let Ok(other) = self.chunk_of(next) else { break };
                chunk = other;
            }
            if chunk.end - next < objhdr {
                break;
            }
            headers.push(next);
            last = next;
        }
        Ok(headers)
    }

    fn chunk_of(&self, header: u64) -> Result<&Range<u64>, XrayError> {
        let behind = self.chunks.partition_point(|chunk| chunk.start <= header);
        let chunk = self.chunks[..behind].last().filter(|chunk| chunk.contains(&header));
        chunk.ok_or_else(|| {
            torn(self.pool, format!("an object header at {header:#x} outside its memory"))
        })
    }
}

/// Bytes from one object to the next where there is no gap.
fn slot_bytes(pool: &Pool) -> u64 {
    let bytes = [pool.header_bytes, pool.element_bytes, pool.trailer_bytes];
    bytes.into_iter().map(u64::from).sum::<u64>().max(1)
}

/// Objects that follow each other at the same distance: without a gap, or each in a page of its own.
#[derive(Clone, Debug)]
struct Run {
    begin: u64,
    end: u64,
    slot_bytes: u64,
    object_bytes: u64,
    /// Number of the first object.
    first: u32,
}

/// The objects of several pools, numbered pool by pool in the order of their addresses, and which of them
/// an address lies in.
///
/// An object is what the app knows of it: for an mbuf the `struct rte_mbuf`, its private area and its data
/// buffer. The object header in front of it, which the pool's own list points to, does not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectIndex {
    runs: Vec<Run>,
    addresses: Vec<u64>,
    low: u64,
    span: u64,
}

impl ObjectIndex {
    /// Of these pools, whose chunks do not overlap.
    pub(crate) fn new<'a>(pools: impl Iterator<Item = (&'a Pool, &'a PoolObjects)>) -> Self {
        let mut index = Self::default();
        pools.for_each(|(pool, objects)| index.add(pool, objects));
        index.runs.sort_unstable_by_key(|run| run.begin);
        let (first, last) = (index.runs.first(), index.runs.last());
        index.low = first.map_or(0, |run| run.begin);
        index.span = last.map_or(0, |run| run.end) - index.low;
        index
    }

    fn add(&mut self, pool: &Pool, objects: &PoolObjects) {
        let object_bytes = u64::from(pool.element_bytes);
        let mut run: Option<Run> = None;
        let mut chunks = objects.chunks.iter().map(|chunk| chunk.end).peekable();
        for address in &objects.addresses {
            // Between two chunks there may be another pool.
            while chunks.next_if(|end| end <= address).is_some() {
                self.runs.extend(run.take());
            }
            let end = address.saturating_add(object_bytes);
            let number = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
            self.addresses.push(*address);
            match &mut run {
                // The second object says how far apart they are.
                Some(run) if number - run.first == 1 => {
                    (run.slot_bytes, run.end) = (address - run.begin, end);
                }
                Some(run)
                    if run.begin + u64::from(number - run.first) * run.slot_bytes == *address =>
                {
                    run.end = end;
                }
                _ => self.runs.extend(run.replace(Run {
                    begin: *address,
                    end,
                    slot_bytes: slot_bytes(pool),
                    object_bytes,
                    first: number,
                })),
            }
        }
        self.runs.extend(run);
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Address of an object.
    pub(crate) fn address(&self, object: u32) -> u64 {
        self.addresses.get(object as usize).copied().unwrap_or_default()
    }

    /// Whether the address may lie in an object: the quick test of each word.
    #[inline]
    pub(crate) fn may_contain(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.span
    }

    /// Whether any of these words may be such an address: all of them are tested without a branch.
    pub(crate) fn may_contain_any(&self, words: &[[u8; 8]]) -> bool {
        // Its highest bit is set for a word that may.
        let may_contain = |word: &[u8; 8]| {
            let offset = u64::from_le_bytes(*word).wrapping_sub(self.low);
            offset.wrapping_sub(self.span) & !offset
        };
        words.iter().fold(0, |any, word| any | may_contain(word)) >> 63 != 0
    }

    /// The object in which an address lies.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let behind = self.runs.partition_point(|run| run.begin <= address);
        let run = self.runs[..behind].last().filter(|run| address < run.end)?;
        let (place, within) =
            ((address - run.begin) / run.slot_bytes, (address - run.begin) % run.slot_bytes);
        (within < run.object_bytes).then(|| run.first + u32::try_from(place).unwrap_or_default())
    }

    /// The object that begins at an address.
    pub(crate) fn find_begin(&self, address: u64) -> Option<u32> {
        self.find(address).filter(|object| self.address(*object) == address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scan::free::PoolHandler;
    use crate::scan::made_up::MadeUpApp;

    const OBJECT_BYTES: u64 = 300;
    const SLOT_BYTES: u64 = 448;

    /// Chunks of a pool: pages, objects in each page, and whether memory of the other pool comes next.
    fn chunks() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        prop::collection::vec((1..6_u64, 1..=9_u64, any::<bool>()), 1..8)
    }

    /// Two pools whose chunks lie between each other.
    fn pools(chunks: &[(u64, u64, bool)]) -> [PoolObjects; 2] {
        let mut pools = [(); 2].map(|()| PoolObjects { addresses: vec![], chunks: vec![] });
        let mut page = 0x10_0000;
        let mut number = 0;
        for (pages, per_page, other) in chunks {
            let pool = &mut pools[number];
            pool.chunks.push(page..page + pages * 4096);
            for _ in 0..*pages {
                let objects = (0..*per_page).map(|object| page + 64 + object * SLOT_BYTES);
                pool.addresses.extend(objects);
                page += 4096;
            }
            number ^= usize::from(*other);
        }
        pools
    }

    proptest! {
        #[test]
        fn an_address_is_found_in_its_object_and_nowhere_else(chunks in chunks()) {
            let app = MadeUpApp::new(1, PoolHandler::Ring);
            let mut pool = app.target.pools().remove(0).unwrap();
            (pool.header_bytes, pool.element_bytes, pool.trailer_bytes) = (64, 300, 84);
            let pools = pools(&chunks);
            let index = ObjectIndex::new(pools.iter().map(|objects| (&pool, objects)));
            let all: Vec<u64> = pools.iter().flat_map(|pool| &pool.addresses).copied().collect();
            prop_assert_eq!(index.len(), all.len());
            for (number, begin) in (0..).zip(&all) {
                prop_assert_eq!(index.address(number), *begin);
                let places = [0, 1, OBJECT_BYTES - 1, OBJECT_BYTES, SLOT_BYTES - 1];
                let found = places.map(|offset| index.find(begin + offset));
                prop_assert_eq!(found, [Some(number), Some(number), Some(number), None, None]);
                prop_assert_eq!(index.find(begin - 1), None);
                prop_assert_eq!(index.find_begin(*begin), Some(number));
                prop_assert_eq!(index.find_begin(begin + 1), None);
            }
        }

        #[test]
        fn many_words_are_tested_as_each_of_them(
            low in any::<u64>(),
            span in 0..=u64::MAX >> 1,
            words in prop::collection::vec(any::<u64>(), 1..4),
            near in prop::collection::vec(-2..=2_i64, 0..4),
        ) {
            let index = ObjectIndex { low, span, ..ObjectIndex::default() };
            let ends = near.iter().flat_map(|near| [low, low.wrapping_add(span)].map(|end| end.wrapping_add_signed(*near)));
            let words: Vec<u64> = words.into_iter().chain(ends).collect();
            for some in words.chunks(2).chain([&words[..]]) {
                let bytes: Vec<[u8; 8]> = some.iter().map(|word| word.to_le_bytes()).collect();
                let any = some.iter().any(|word| index.may_contain(*word));
                prop_assert_eq!(index.may_contain_any(&bytes), any);
            }
        }
    }
}
