//! The objects of a mempool, and the object that contains an address.

use std::collections::BTreeSet;

use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::field::Field;
use crate::target::{Pool, XrayTarget};

use super::free::FreeLists;

/// Maximum number of object headers per read: `IOV_MAX` of Linux.
const MOST_PER_READ: usize = 1024;

/// Object headers of the first read, and of reads after an object that was not at the expected
/// address.
const FEW_PER_READ: usize = 8;

/// The objects of one mempool.
#[derive(Clone, Debug)]
pub(crate) struct PoolObjects {
    /// Addresses of the objects (not of their headers), ascending.
    pub(crate) addresses: Vec<u64>,
    /// Chunks of memory that contain them.
    pub(crate) chunks: Vec<AddressRange>,
}

impl PoolObjects {
    /// Follows the pool's list of objects, and checks the pool pointer of each. Reading a header
    /// takes as long as reading 2 KiB in one piece, so headers of free objects are skipped where
    /// the list of objects continues in equal steps. `mapped` is the result of [`mapped_bytes`].
    ///
    /// # Errors
    /// If the memory cannot be read, or the list is not one of `pool.populated` objects in its chunks.
    pub(crate) fn read(target: &XrayTarget, pool: &Pool, mapped: u128) -> Result<Self, XrayError> {
        let chunks = chunks(target, pool)?;
        check_room(pool, &chunks, mapped)?;
        let free = FreeLists::read(target, pool).map(|free| free.sorted()).unwrap_or_default();
        let addresses = |free: &[u64]| {
            let list = ObjectList { target, pool, chunks: &chunks, free };
            list.addresses().and_then(|addresses| ascending(pool, addresses))
        };
        let addresses = match addresses(&free) {
            Err(XrayError::Implausible { .. }) if !free.is_empty() => addresses(&[])?,
            addresses => addresses?,
        };
        Ok(Self { addresses, chunks })
    }
}

/// Sorts objects, which must not overlap.
fn ascending(pool: &Pool, mut addresses: Vec<u64>) -> Result<Vec<u64>, XrayError> {
    addresses.sort_unstable();
    let bytes = u64::from(pool.element_bytes.max(1));
    let apart = |pair: &[u64]| Address(pair[0]).plus(bytes).is_some_and(|end| end <= pair[1]);
    if addresses.windows(2).all(apart) {
        Ok(addresses)
    } else {
        Err(torn(pool, "two of its objects overlap"))
    }
}

pub(super) fn torn(pool: &Pool, why: impl Into<String>) -> XrayError {
    XrayError::implausible(format!("mempool {}", pool.name), why)
}

/// The memory of a pool, ascending. A garbage list may be circular.
fn chunks(target: &XrayTarget, pool: &Pool) -> Result<Vec<AddressRange>, XrayError> {
    let layout = &target.layout.memhdr;
    let (mut chunks, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next = pool.first_chunk;
    let mut header = vec![0; usize::try_from(layout.bytes).unwrap_or_default()];
    while next != 0 {
        target.memory.read(next, &mut header)?;
        let field = |offset| Field { bytes: &header, offset }.u64();
        let (begin, bytes) = (field(layout.addr), field(layout.len));
        match AddressRange::of_length(begin, bytes) {
            Some(chunk) if begin > 0 && bytes > 0 && seen.insert(next) => chunks.push(chunk),
            _ => return Err(torn(pool, format!("a chunk of {bytes} bytes at {begin:#x}"))),
        }
        next = field(layout.next);
    }
    if chunks.len() != pool.chunks as usize {
        let why = format!("it has {} chunks, but reports {}", chunks.len(), pool.chunks);
        return Err(torn(pool, why));
    }
    chunks.sort_unstable();
    if chunks.windows(2).any(|pair| pair[0].overlaps(&pair[1])) {
        return Err(torn(pool, "two of its chunks overlap"));
    }
    Ok(chunks)
}

/// Bytes that the app can read.
pub(super) fn mapped_bytes(maps: &[Mapping]) -> u128 {
    (maps.iter().filter(|mapping| mapping.readable))
        .map(|mapping| u128::from(AddressRange::from(mapping).bytes()))
        .fold(0, u128::saturating_add)
}

/// Limits the number of objects to those that fit into mapped memory, as a garbage list may be
/// long.
fn check_room(pool: &Pool, chunks: &[AddressRange], mapped: u128) -> Result<(), XrayError> {
    let bytes = chunks.iter().map(|chunk| u128::from(chunk.bytes()));
    let bytes = bytes.fold(0, u128::saturating_add);
    let slot = u128::from(slot_bytes(pool));
    // The last object may lack its trailer.
    let needed = slot.saturating_mul(u128::from(pool.populated)).saturating_sub(slot);
    if bytes > mapped || needed > bytes {
        let why = format!("{} objects in {bytes} bytes", pool.populated);
        return Err(torn(pool, why));
    }
    Ok(())
}

/// The list of object headers of a pool.
struct ObjectList<'a> {
    target: &'a XrayTarget,
    pool: &'a Pool,
    chunks: &'a [AddressRange],
    /// Objects that need not be read, ascending, from a list of free objects.
    free: &'a [u64],
}

/// Content of the header of an object.
#[derive(Clone, Copy, Debug)]
struct ObjectHeader {
    pool: u64,
    next: u64,
}

/// Expected addresses of the headers of a list: rows without a gap, each as long as the previous
/// one, as no object crosses the end of a page.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Bytes from one header to the next in a row.
    slot: u64,
    /// Headers of a row; 0 while it is unknown.
    row: u64,
    /// Bytes from the last header of a row to the first of the next.
    gap: u64,
    /// Headers of the present row that were read.
    in_row: u64,
}

impl Expected {
    /// The expected header after `header`, which is counted as read.
    fn after(&mut self, header: u64) -> Option<u64> {
        self.in_row = self.in_row.saturating_add(1);
        if self.in_row == self.row {
            self.in_row = 0;
            return Address(header).plus(self.gap);
        }
        Address(header).plus(self.slot)
    }

    /// The list continued elsewhere, after `read` headers of the row were read.
    fn learn(&mut self, last: u64, next: u64, read: u64) {
        if Some(next) == Address(last).plus(self.slot) {
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
        let left = |addresses: &Vec<u64>| populated.saturating_sub(addresses.len());
        let mut next = self.pool.first_object_header;
        let mut expected = Expected { slot: slot_bytes(self.pool), row: 0, gap: 0, in_row: 0 };
        let mut most = FEW_PER_READ;
        while next != 0 && left(&addresses) > 0 {
            let before = left(&addresses);
            let wanted = most.min(before);
            next = self.follow(next, wanted, &mut expected, &mut addresses)?;
            let as_expected = before.saturating_sub(left(&addresses)) == wanted;
            let more = most.saturating_mul(2).min(MOST_PER_READ);
            most = if as_expected { more } else { FEW_PER_READ };
        }
        if next != 0 || addresses.len() != populated {
            let why = format!("its list has {} of {populated} objects", addresses.len());
            return Err(torn(self.pool, why));
        }
        Ok(addresses)
    }

    /// Reads headers, beginning at `first`, as long as they are at the expected addresses; returns
    /// where the list continues.
    fn follow(
        &self,
        first: u64,
        most: usize,
        expected: &mut Expected,
        addresses: &mut Vec<u64>,
    ) -> Result<u64, XrayError> {
        let headers = self.expected_headers(first, most, *expected)?;
        let read = self.read_needed(&headers)?;
        // The previous object, if its header was not read, and what was expected there.
        let mut unread = None;
        let mut next = first;
        for (address, header) in headers.iter().zip(read) {
            let (at, header) = match (header, unread.take()) {
                (Some(header), Some((last, before))) if header.pool != self.pool.address => {
                    // After the last object the list continues elsewhere, as its header says.
                    *expected = before;
                    (last, self.read_headers(&[last])?.first().copied())
                }
                (header, _) => {
                    addresses.push(address.saturating_add(self.target.layout.objhdr.bytes));
                    (*address, header)
                }
            };
            let before = *expected;
            let follows = expected.after(at);
            let Some(header) = header else {
                unread = Some((at, before));
                continue;
            };
            if header.pool != self.pool.address {
                let why = format!("the object header at {at:#x} is of another pool");
                return Err(torn(self.pool, why));
            }
            next = header.next;
            if follows != Some(next) {
                expected.learn(at, next, before.in_row.saturating_add(1));
                break;
            }
            if at != *address {
                break;
            }
        }
        Ok(next)
    }

    /// The headers, except those of free objects. The last one is always read: it shows where the
    /// list continues.
    fn read_needed(&self, headers: &[u64]) -> Result<Vec<Option<ObjectHeader>>, XrayError> {
        let object = |header: u64| header.saturating_add(self.target.layout.objhdr.bytes);
        let first = headers.first().map_or(0, |header| object(*header));
        let mut free = self.free[self.free.partition_point(|free| *free < first)..].iter();
        let mut is_free = |header: &u64| {
            while free.as_slice().first().is_some_and(|free| *free < object(*header)) {
                free.next();
            }
            free.as_slice().first() == Some(&object(*header))
        };
        let mut left_out: Vec<bool> = headers.iter().map(&mut is_free).collect();
        if let Some(last) = left_out.last_mut() {
            *last = false;
        }
        let needed = headers.iter().zip(&left_out).filter(|(_, left_out)| !**left_out);
        let needed: Vec<u64> = needed.map(|(header, _)| *header).collect();
        let mut read = self.read_headers(&needed)?.into_iter();
        Ok(left_out.into_iter().map(|left_out| if left_out { None } else { read.next() }).collect())
    }

    fn read_headers(&self, headers: &[u64]) -> Result<Vec<ObjectHeader>, XrayError> {
        let layout = &self.target.layout.objhdr;
        let bytes = usize::try_from(layout.bytes).unwrap_or_default().max(1);
        let mut read = vec![0; headers.len().saturating_mul(bytes)];
        self.target.memory.read_pieces(headers, &mut read)?;
        let header = |header| {
            let word = |offset| Field { bytes: header, offset }.u64();
            ObjectHeader { pool: word(layout.mp), next: word(layout.next) }
        };
        Ok(read.chunks_exact(bytes).map(header).collect())
    }

    /// Up to `most` headers, beginning at `first`, as long as they are in the pool's memory.
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
            if !chunk.contains(next) {
                let Ok(other) = self.chunk_of(next) else { break };
                chunk = other;
            }
            if chunk.split_at(next).1.bytes() < objhdr {
                break;
            }
            headers.push(next);
            last = next;
        }
        Ok(headers)
    }

    fn chunk_of(&self, header: u64) -> Result<&AddressRange, XrayError> {
        let behind = self.chunks.partition_point(|chunk| chunk.start() <= header);
        let chunk = self.chunks[..behind].last().filter(|chunk| chunk.contains(header));
        chunk.ok_or_else(|| {
            torn(self.pool, format!("an object header at {header:#x} outside its memory"))
        })
    }
}

/// Distance of two objects without a gap between them.
fn slot_bytes(pool: &Pool) -> u64 {
    let bytes = [pool.header_bytes, pool.element_bytes, pool.trailer_bytes];
    bytes.into_iter().map(u64::from).fold(0, u64::saturating_add).max(1)
}

/// Objects that follow each other at the same distance: without a gap, or each in a separate page.
#[derive(Clone, Debug)]
struct Run {
    range: AddressRange,
    slot_bytes: u64,
    object_bytes: u64,
    /// Number of the first object.
    first: u32,
}

impl Run {
    /// Takes the object with this number, if it follows at the distance of the others.
    fn takes(&mut self, number: u32, object: AddressRange) -> bool {
        let begin = Address(self.range.start());
        let place = number.saturating_sub(self.first);
        // The second object determines the distance.
        if let (1, Some(distance)) = (place, Address(object.start()).minus(begin.0)) {
            self.slot_bytes = distance;
        }
        let follows = begin.element(place.into(), self.slot_bytes) == Some(object.start());
        if follows {
            self.range = AddressRange::from(begin.0..object.end());
        }
        follows
    }
}

/// The objects of several pools, numbered pool by pool in the order of their addresses, and the
/// object that contains an address.
///
/// An object is the part that the app uses: for an mbuf the `struct rte_mbuf`, its private area and
/// its data buffer. The object header in front of it, which the pool's own list points to, does not
/// count.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectIndex {
    runs: Vec<Run>,
    addresses: Vec<u64>,
    /// From the first object to the last.
    whole: AddressRange,
}

impl ObjectIndex {
    /// Index of the objects of these pools, whose chunks do not overlap.
    pub(crate) fn new<'a>(pools: impl Iterator<Item = (&'a Pool, &'a PoolObjects)>) -> Self {
        let mut index = Self::default();
        pools.for_each(|(pool, objects)| index.add(pool, objects));
        index.runs.sort_unstable_by_key(|run| run.range);
        if let (Some(first), Some(last)) = (index.runs.first(), index.runs.last()) {
            index.whole = AddressRange::from(first.range.start()..last.range.end());
        }
        index
    }

    fn add(&mut self, pool: &Pool, objects: &PoolObjects) {
        let object_bytes = u64::from(pool.element_bytes);
        let mut run: Option<Run> = None;
        let mut chunks = objects.chunks.iter().map(AddressRange::end).peekable();
        for address in &objects.addresses {
            // There may be another pool between two chunks.
            while chunks.next_if(|end| end <= address).is_some() {
                self.runs.extend(run.take());
            }
            let object = AddressRange::up_to_length(*address, object_bytes);
            let number = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
            self.addresses.push(*address);
            let is_next = run.as_mut().is_some_and(|run| run.takes(number, object));
            if !is_next {
                let (slot_bytes, first) = (slot_bytes(pool), number);
                let next = Run { range: object, slot_bytes, object_bytes, first };
                self.runs.extend(run.replace(next));
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

    /// Whether the address may be in an object: the quick test of each word.
    #[inline]
    pub(crate) fn may_contain(&self, address: u64) -> bool {
        self.whole.contains(address)
    }

    /// Whether any of these words may be such an address: all of them are tested without a branch.
    pub(crate) fn may_contain_any(&self, words: &[[u8; 8]]) -> bool {
        let (low, span) = (self.whole.start(), self.whole.bytes());
        // Its highest bit is set if the word may be such an address.
        let may_contain = |word: &[u8; 8]| {
            let offset = u64::from_le_bytes(*word).wrapping_sub(low);
            offset.wrapping_sub(span) & !offset
        };
        // Only made-up pools are so far apart that this bit has another meaning.
        span >> 63 != 0 || words.iter().fold(0, |any, word| any | may_contain(word)) >> 63 != 0
    }

    /// The object that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let behind = self.runs.partition_point(|run| run.range.start() <= address);
        let run = self.runs[..behind].last()?;
        let offset = run.range.offset(address)?;
        let place = u32::try_from(offset.checked_div(run.slot_bytes)?).ok()?;
        let within = offset.checked_rem(run.slot_bytes)?;
        (within < run.object_bytes).then(|| run.first.saturating_add(place))
    }

    /// The object that begins at an address.
    pub(crate) fn find_begin(&self, address: u64) -> Option<u32> {
        self.find(address).filter(|object| self.address(*object) == address)
    }
}

#[cfg(test)]
mod tests;
