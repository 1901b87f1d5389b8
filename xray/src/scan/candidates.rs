//! Unreachable mbufs, until one of them turns up.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use crate::error::XrayError;

use super::blocks::LostBlocks;
use super::pass::{Free, Pass, Scanner};
use super::references::{HEADROOM_BYTES, read_each};
use super::searched::Part;

/// Bytes of the packet that must not change either, if it begins at the usual offset.
const DATA_BYTES: u64 = 64;

/// Bytes of the data buffer that must not change.
const HEAD_BYTES: u64 = HEADROOM_BYTES + DATA_BYTES;

/// Maximum number of mbufs per read.
const MBUFS_PER_READ: usize = 1024;

/// An mbuf in use without references.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    object: u32,
    /// Hash of its header and the start of its packet.
    content: u64,
}

/// Mbufs that were unreachable, unchanged and not free in each check since the first scan.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    /// By the numbers of their objects.
    mbufs: Vec<Candidate>,
    /// References in these do not count.
    lost_blocks: LostBlocks,
    since: Instant,
}

impl Candidates {
    /// The mbufs that the first pass did not reach.
    pub(super) fn new(scanner: &Scanner<'_>, pass: &Pass) -> Result<Self, XrayError> {
        let objects = 0..u32::try_from(scanner.pools.index.len()).unwrap_or(u32::MAX);
        let unreachable: Vec<u32> = objects.filter(|object| pass.is_unreachable(*object)).collect();
        let contents = contents(scanner, &unreachable)?;
        let candidates = unreachable.into_iter().zip(contents);
        let candidates = candidates.map(|(object, content)| Candidate { object, content });
        Ok(Self {
            mbufs: candidates.collect(),
            lost_blocks: pass.lost_blocks.clone(),
            since: pass.ended,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mbufs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.mbufs.len()
    }

    pub(super) fn contains(&self, object: u32) -> bool {
        self.mbufs.binary_search_by_key(&object, |candidate| candidate.object).is_ok()
    }

    /// Time since which they are unreachable.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Drops mbufs that the pass reached, that were free, or that have changed.
    pub(super) fn confirm(&mut self, scanner: &Scanner<'_>, pass: &Pass) -> Result<(), XrayError> {
        self.mbufs.retain(|candidate| pass.is_unreachable(candidate.object));
        self.lost_blocks.clone_from(&pass.lost_blocks);
        self.drop_changed(scanner)
    }

    /// The same with a quick check of the memory in which references move fast.
    pub(super) fn look(&mut self, scanner: &Scanner<'_>, parts: &[Part]) -> Result<(), XrayError> {
        let (reached, free) = scanner.quick_look(parts, &self.lost_blocks)?;
        let lost = |object| free.get(object) == Free::No && !reached.is_reached(object);
        self.mbufs.retain(|candidate| lost(candidate.object));
        self.drop_changed(scanner)
    }

    fn drop_changed(&mut self, scanner: &Scanner<'_>) -> Result<(), XrayError> {
        let objects: Vec<u32> = self.mbufs.iter().map(|candidate| candidate.object).collect();
        let mut contents = contents(scanner, &objects)?.into_iter();
        self.mbufs.retain(|candidate| contents.next() == Some(candidate.content));
        Ok(())
    }
}

/// A hash of the content of each mbuf, in the same order.
fn contents(scanner: &Scanner<'_>, objects: &[u32]) -> Result<Vec<u64>, XrayError> {
    let mut contents = Vec::with_capacity(objects.len());
    let index = &scanner.pools.index;
    for pool in &scanner.pools.judged {
        let begin = objects.partition_point(|object| *object < pool.objects.start);
        let end = objects.partition_point(|object| *object < pool.objects.end);
        let bytes = pool.head_bytes(HEAD_BYTES).max(1);
        for mbufs in objects[begin..end].chunks(MBUFS_PER_READ) {
            let addresses: Vec<u64> = mbufs.iter().map(|mbuf| index.address(*mbuf)).collect();
            let heads = read_each(&*scanner.target.memory, &addresses, bytes)?;
            contents.extend(heads.chunks_exact(bytes).map(|head| {
                let mut hasher = DefaultHasher::new();
                head.hash(&mut hasher);
                hasher.finish()
            }));
        }
    }
    Ok(contents)
}
