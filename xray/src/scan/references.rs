//! The mark phase: finds all references to mbufs in the app's memory, and follows those from mbuf to mbuf.

use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::holders::{HolderId, HolderMap};
use crate::memory::Memory;

use super::blocks::{HeapReference, MOST_REFERENCES};
use super::objects::ObjectIndex;
use super::pools::MbufPool;
use super::searched::Part;

/// Bytes per read, which fit into the CPU cache until they are examined.
const CHUNK_BYTES: u64 = 256 << 10;

/// Words that are tested at a time, as hardly any refers to an mbuf.
const WORDS_PER_TEST: usize = 32;
const WORD_BYTES: u64 = 8;
const BYTES_PER_TEST: u64 = WORDS_PER_TEST as u64 * WORD_BYTES;

/// Smallest part that is tried when a larger one cannot be read.
const PAGE_BYTES: u64 = 4096;

/// Maximum number of mbufs per read.
const MBUFS_PER_READ: usize = 1024;

/// Bytes in front of a packet that are searched: `RTE_PKTMBUF_HEADROOM` by default.
pub(super) const HEADROOM_BYTES: u64 = 128;

/// `RTE_MBUF_F_EXTERNAL`: `shinfo` is valid.
const EXTERNAL: u64 = 1 << 61;

/// `struct rte_mbuf_ext_shared_info` up to the argument of its callback, which often is an mbuf.
const SHARED_INFO_BYTES: usize = 24;

/// How an object was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reach {
    /// Not at all.
    #[default]
    Unreached,
    /// From another mbuf only.
    FromMbuf,
    /// From a word in memory with this owner, or with a later one in the order of owners.
    From(HolderId),
    /// By a secondary process only, with this index in the list of them.
    FromSecondary(u32),
}

/// How each object was reached, by its number.
#[derive(Clone, Debug)]
pub(super) struct Reached(Vec<Reach>);

impl Reached {
    pub(super) fn new(objects: usize) -> Self {
        Self(vec![Reach::Unreached; objects])
    }

    pub(super) fn get(&self, object: u32) -> Reach {
        self.0.get(object as usize).copied().unwrap_or_default()
    }

    pub(super) fn is_reached(&self, object: u32) -> bool {
        self.get(object) != Reach::Unreached
    }

    /// Of two holders the first in their order counts; a holder takes precedence over other ways.
    pub(super) fn add(&mut self, object: u32, reach: Reach) {
        if let Some(known) = self.0.get_mut(object as usize) {
            match (*known, reach) {
                (Reach::From(known), Reach::From(found)) if known <= found => {}
                (Reach::Unreached, _) | (_, Reach::From(_)) => *known = reach,
                _ => {}
            }
        }
    }
}

/// Counters of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Searched {
    /// Bytes that were examined.
    pub(super) bytes: u64,
    /// Bytes that could not be read, as the app has freed them meanwhile.
    pub(super) unreadable: u64,
    /// Bytes of shared files that may have content but could not be read.
    pub(super) unknown: u64,
}

/// Finds the object, or another piece of memory, into which a word points.
pub(super) trait WordIndex {
    /// Whether it may point into one: the quick test of each word.
    fn may_contain(&self, word: u64) -> bool;

    /// Whether any of these words may.
    fn may_contain_any(&self, words: &[[u8; 8]]) -> bool;

    /// The number of the one into which it points.
    fn find(&self, word: u64) -> Option<u32>;
}

impl WordIndex for ObjectIndex {
    fn may_contain(&self, word: u64) -> bool {
        Self::may_contain(self, word)
    }

    fn may_contain_any(&self, words: &[[u8; 8]]) -> bool {
        Self::may_contain_any(self, words)
    }

    fn find(&self, word: u64) -> Option<u32> {
        Self::find(self, word)
    }
}

/// Calls `found(address of the word, object)` for each aligned word in `parts` that points into an
/// object. `progress` gets the bytes of the parts done so far.
pub(super) fn search<I: WordIndex>(
    memory: &dyn Memory,
    parts: &[Part],
    index: &I,
    found: &mut dyn FnMut(u64, u32),
    progress: &mut dyn FnMut(u64),
) -> Result<Searched, XrayError> {
    let mut search =
        Search { memory, index, found, buffer: Vec::new(), searched: Searched::default() };
    let mut done = 0_u64;
    for part in joined(parts) {
        let presence = memory.present(part)?;
        let searched = &mut search.searched;
        searched.unknown = searched.unknown.saturating_add(presence.unknown_bytes);
        for chunk in presence.parts.iter().flat_map(|present| present.chunks(CHUNK_BYTES)) {
            search.chunk(chunk)?;
            progress(done.saturating_add(chunk.end().saturating_sub(part.start())));
        }
        done = done.saturating_add(part.bytes());
        progress(done);
    }
    Ok(search.searched)
}

/// Joins neighbours: each mapping of a hugepage is a separate part.
fn joined(parts: &[Part]) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        if !joined.last_mut().is_some_and(|last| last.join(part)) {
            joined.push(*part);
        }
    }
    joined
}

struct Search<'a, I> {
    memory: &'a dyn Memory,
    index: &'a I,
    found: &'a mut dyn FnMut(u64, u32),
    buffer: Vec<u8>,
    searched: Searched,
}

impl<I: WordIndex> Search<'_, I> {
    /// If a chunk cannot be read, its halves are tried, as only a part of it may have been freed.
    fn chunk(&mut self, chunk: AddressRange) -> Result<(), XrayError> {
        let bytes = chunk.bytes();
        self.buffer.resize(usize::try_from(bytes).unwrap_or_default(), 0);
        match self.memory.read(chunk.start(), &mut self.buffer) {
            Ok(()) => {
                self.words(&chunk);
                self.searched.bytes = self.searched.bytes.saturating_add(bytes);
                Ok(())
            }
            Err(XrayError::NotMapped { .. }) if bytes > PAGE_BYTES => {
                let (first, second) = chunk.halves(WORD_BYTES);
                self.chunk(first)?;
                self.chunk(second)
            }
            Err(XrayError::NotMapped { .. }) => {
                self.searched.unreadable = self.searched.unreadable.saturating_add(bytes);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The words of the chunk that was read.
    fn words(&mut self, chunk: &AddressRange) {
        let (words, _) = self.buffer.as_chunks::<8>();
        for (words, range) in words.chunks(WORDS_PER_TEST).zip(chunk.chunks(BYTES_PER_TEST)) {
            if !self.index.may_contain_any(words) {
                continue;
            }
            for (word, at) in words.iter().zip(range.chunks(WORD_BYTES)) {
                let value = u64::from_le_bytes(*word);
                if self.index.may_contain(value)
                    && let Some(object) = self.index.find(value)
                {
                    (self.found)(at.start(), object);
                }
            }
        }
    }
}

/// Marks the objects that words of the app's memory refer to, except those in the heap of the C library, which
/// become `of_heap`.
pub(super) fn mark(
    memory: &dyn Memory,
    parts: &[Part],
    index: &ObjectIndex,
    holders: &HolderMap,
    (reached, of_heap): (&mut Reached, &mut Vec<HeapReference>),
    progress: &mut dyn FnMut(u64),
) -> Result<Searched, XrayError> {
    let mut found = |address, object| {
        if !holders.can_refer(address) {
            return;
        }
        let holder = holders.id(address);
        if holders.is_process_heap(holder) && of_heap.len() < MOST_REFERENCES {
            of_heap.push((address, object));
        } else {
            reached.add(object, Reach::From(holder));
        }
    };
    search(memory, parts, index, &mut found, progress)
}

/// Follows references from mbufs that are reached and in use to other mbufs: chains, indirect
/// mbufs, external buffers, and words in the private area, the dynamic fields and the headroom. The
/// data of packets is not followed.
pub(super) fn follow(
    memory: &dyn Memory,
    pools: &[MbufPool],
    index: &ObjectIndex,
    in_use: &dyn Fn(u32) -> bool,
    reached: &mut Reached,
) -> Result<(), XrayError> {
    let objects = || (0..u32::try_from(index.len()).unwrap_or(u32::MAX)).filter(|o| in_use(*o));
    let mut todo: Vec<u32> = objects().filter(|object| reached.is_reached(*object)).collect();
    while !todo.is_empty() {
        let mut next = Vec::new();
        let mut found = |object: u32| {
            if !reached.is_reached(object) {
                reached.add(object, Reach::FromMbuf);
                if in_use(object) {
                    next.push(object);
                }
            }
        };
        for pool in pools {
            let begin = todo.partition_point(|object| *object < pool.objects.start);
            let end = todo.partition_point(|object| *object < pool.objects.end);
            for mbufs in todo[begin..end].chunks(MBUFS_PER_READ) {
                follow_mbufs(memory, pool, index, mbufs, &mut found)?;
            }
        }
        next.sort_unstable();
        todo = next;
    }
    Ok(())
}

fn follow_mbufs(
    memory: &dyn Memory,
    pool: &MbufPool,
    index: &ObjectIndex,
    mbufs: &[u32],
    found: &mut dyn FnMut(u32),
) -> Result<(), XrayError> {
    let addresses: Vec<u64> = mbufs.iter().map(|mbuf| index.address(*mbuf)).collect();
    let bytes = pool.head_bytes(HEADROOM_BYTES).max(1);
    let mut shared = Vec::new();
    let heads = read_each(memory, &addresses, bytes)?;
    for ((mbuf, address), head) in mbufs.iter().zip(&addresses).zip(heads.chunks_exact(bytes)) {
        let head = Head { pool, bytes: head, address: *address };
        for word in head.references() {
            found_in(index, *mbuf, word, found);
        }
        shared.extend(head.shared_info().filter(|info| index.find(*info).is_some()));
    }
    for word in read_each(memory, &shared, SHARED_INFO_BYTES)?.as_chunks::<8>().0 {
        found_in(index, u32::MAX, u64::from_le_bytes(*word), found);
    }
    Ok(())
}

fn found_in(index: &ObjectIndex, this: u32, word: u64, found: &mut dyn FnMut(u32)) {
    if index.may_contain(word)
        && let Some(object) = index.find(word)
        && object != this
    {
        found(object);
    }
}

/// The start of an mbuf as it was read: header, private area, headroom.
struct Head<'a> {
    pool: &'a MbufPool,
    bytes: &'a [u8],
    address: u64,
}

impl Head<'_> {
    fn word(&self, offset: u64) -> u64 {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let word = self.bytes.get(begin..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Words that may be references. A stale `shinfo` is not one, nor is the packet, nor the address that
    /// devices use: physical addresses are as large as the virtual ones of the EAL.
    fn references(&self) -> impl Iterator<Item = u64> {
        let layout = &self.pool.mbuf;
        let data = self.pool.data_offset();
        let own = Address(self.address).plus(data) == Some(self.word(layout.buf_addr));
        let data_offset = self.word(layout.data_off) & 0xffff;
        let end = if own { data.saturating_add(data_offset) } else { data };
        let stale = self.shared_info().is_none().then_some(layout.shinfo);
        let before = AddressRange::from(0..end.min(self.bytes.len() as u64)).whole(WORD_BYTES);
        let offsets = before.chunks(WORD_BYTES).map(|word| word.start());
        let iova = layout.buf_iova();
        let refers = move |offset: &u64| Some(*offset) != stale && Some(*offset) != iova;
        offsets.filter(refers).map(|offset| self.word(offset))
    }

    fn shared_info(&self) -> Option<u64> {
        let layout = &self.pool.mbuf;
        (self.word(layout.ol_flags) & EXTERNAL != 0).then(|| self.word(layout.shinfo))
    }
}

/// `bytes` bytes from each address, one after the other; zeros where they cannot be read.
pub(super) fn read_each(
    memory: &dyn Memory,
    addresses: &[u64],
    bytes: usize,
) -> Result<Vec<u8>, XrayError> {
    let mut buffer = vec![0; addresses.len().saturating_mul(bytes)];
    match memory.read_pieces(addresses, &mut buffer) {
        Err(XrayError::NotMapped { .. }) => {
            for (address, piece) in addresses.iter().zip(buffer.chunks_exact_mut(bytes.max(1))) {
                match memory.read(*address, piece) {
                    Err(XrayError::NotMapped { .. }) => piece.fill(0),
                    result => result?,
                }
            }
        }
        result => result?,
    }
    Ok(buffer)
}
