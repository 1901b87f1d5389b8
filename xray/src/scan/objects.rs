//! The objects of a mempool, and which of them an address lies in.

use std::collections::BTreeSet;
use std::ops::Range;

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
    /// Follows the pool's list of objects, and checks the pool pointer of each.
    ///
    /// # Errors
    /// If the memory cannot be read, or the list is not one of `pool.populated` objects in its chunks.
    pub(crate) fn read(target: &XrayTarget, pool: &Pool) -> Result<Self, XrayError> {
        let chunks = chunks(target, pool)?;
        check_room(target, pool, &chunks)?;
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

/// No more objects are believed than fit into memory that is mapped: a list of garbage may be long.
fn check_room(target: &XrayTarget, pool: &Pool, chunks: &[Range<u64>]) -> Result<(), XrayError> {
    let bytes: u128 = chunks.iter().map(|chunk| u128::from(chunk.end - chunk.start)).sum();
    let maps = target.memory.maps()?;
    let mapped: u128 = (maps.iter().filter(|mapping| mapping.readable))
        .map(|mapping| u128::from(mapping.end.saturating_sub(mapping.start)))
        .sum();
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

/// Objects that follow each other without a gap.
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
        let (slot_bytes, object_bytes) = (slot_bytes(pool), u64::from(pool.element_bytes));
        let mut run: Option<Run> = None;
        for address in &objects.addresses {
            let end = address.saturating_add(object_bytes);
            let number = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
            self.addresses.push(*address);
            match &mut run {
                Some(run)
                    if run.begin + (u64::from(number - run.first)) * slot_bytes == *address =>
                {
                    run.end = end;
                }
                _ => self.runs.extend(run.replace(Run {
                    begin: *address,
                    end,
                    slot_bytes,
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
