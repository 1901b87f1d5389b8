//! The free mbufs of one pool, and their content.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::{SamplerCounts, read_all};
use crate::address::Address;
use crate::error::XrayError;
use crate::memory::{read_u32, read_u64};
use crate::target::{Pool, XrayTarget};

/// Bytes from the start of an mbuf that are read first: with `RTE_PKTMBUF_HEADROOM` of 128, they
/// contain 192 bytes of the packet.
const LOOK_BYTES: usize = 448;
/// Bytes of a packet that distinguish it from the previous one in the same mbuf.
const FINGERPRINT_BYTES: usize = 192;
/// Minimum and maximum number of mbufs on top of a cache that are read in a pass.
const DEPTH_MIN: usize = 8;
pub(super) const DEPTH_MAX: usize = 256;
/// Maximum number of mbufs of the common part that are looked at again.
const MOST_RECENT: usize = 4 * DEPTH_MAX;
/// Number of mbufs below the deepest changed one that are read too.
const DEPTH_MARGIN: usize = 8;
/// Shortest plausible frame: an Ethernet header.
const ETHERNET_BYTES: u32 = 14;
/// Longest plausible packet.
const MOST_PACKET_BYTES: u32 = 1 << 18;
/// Fingerprint of an mbuf without a packet.
pub(super) const EMPTY: u64 = 0;

#[derive(Debug)]
pub(super) struct SampledPool {
    pub(super) pool: Pool,
    /// Its common part, if that is an `rte_ring`.
    ring: Option<CommonRing>,
    /// Caches that have been in use.
    caches: Vec<LcoreCache>,
    /// Content of each mbuf when it was last read.
    pub(super) fingerprints: HashMap<u64, u64>,
    hasher: RandomState,
    pub(super) look_bytes: usize,
    /// An mbuf was the first of several segments: others may be later segments, whose data begins
    /// anywhere.
    pub(super) segmented: bool,
}

#[derive(Debug)]
struct CommonRing {
    address: u64,
    mask: u32,
    /// Producer tail at the previous pass.
    tail: u32,
}

#[derive(Debug)]
struct LcoreCache {
    address: u64,
    depth: usize,
}

/// A free mbuf, and the number of mbufs above it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeMbuf {
    pub(super) address: u64,
    cache: Option<usize>,
    place: usize,
}

/// Content of a free mbuf.
pub(super) enum MbufContent {
    Packet(PacketHeader),
    /// It was never used, or was freed without a packet.
    Empty,
    /// A packet that begins after the bytes read.
    BeyondLook,
    Implausible,
}

/// Values of the header of a free mbuf for its last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketHeader {
    pub(super) port: u16,
    /// Offset of the packet from the start of the mbuf.
    pub(super) begin: usize,
    pub(super) data_len: usize,
    pub(super) pkt_len: u32,
}

impl PacketHeader {
    /// Offset of the end of the bytes that distinguish it.
    fn fingerprint_end(&self) -> usize {
        self.begin.saturating_add(self.data_len.min(FINGERPRINT_BYTES))
    }
}

impl SampledPool {
    /// `None` for a pool whose objects are not mbufs.
    pub(super) fn new(target: &XrayTarget, pool: Pool) -> Result<Option<Self>, XrayError> {
        let (mbuf, object) = (&target.layout.mbuf, &target.layout.objhdr);
        let first = Address(pool.first_object_header).member(object.bytes)?;
        let element = usize::try_from(pool.element_bytes).unwrap_or_default();
        if pool.populated == 0
            || u64::from(pool.element_bytes) <= mbuf.bytes.saturating_add(ETHERNET_BYTES.into())
        {
            return Ok(None);
        }
        let owner = read_u64(&*target.memory, Address(first).member(mbuf.pool)?)?;
        if owner != pool.address {
            return Ok(None);
        }
        let mut sampled = Self {
            ring: CommonRing::of(target, &pool)?,
            caches: Vec::new(),
            fingerprints: HashMap::new(),
            hasher: RandomState::new(),
            look_bytes: LOOK_BYTES.min(element),
            segmented: false,
            pool,
        };
        sampled.find_caches(target)?;
        Ok(Some(sampled))
    }

    /// Adds the caches that hold mbufs and are not known yet.
    pub(super) fn find_caches(&mut self, target: &XrayTarget) -> Result<(), XrayError> {
        if self.pool.caches == 0 || self.pool.cache_size == 0 {
            return Ok(());
        }
        let layout = &target.layout.cache;
        let lcores = u64::from(target.layout.max_lcore);
        let first = Address(self.pool.caches);
        let members = |offset| {
            let members = (0..lcores).map(|lcore| first.member_of(lcore, layout.bytes, offset));
            members.collect::<Result<Vec<u64>, XrayError>>()
        };
        let (all, places) = (members(0)?, members(layout.len)?);
        let mut lengths = vec![0; places.len().saturating_mul(4)];
        target.memory.read_pieces(&places, &mut lengths)?;
        for (address, length) in all.into_iter().zip(lengths.chunks_exact(4)) {
            if length.iter().any(|byte| *byte != 0)
                && !self.caches.iter().any(|cache| cache.address == address)
            {
                self.caches.push(LcoreCache { address, depth: DEPTH_MAX });
            }
        }
        Ok(())
    }

    /// All free mbufs.
    pub(super) fn free_mbufs(&self, target: &XrayTarget) -> Result<Vec<FreeMbuf>, XrayError> {
        let mut all = self.cached(target, |_| usize::MAX, &mut SamplerCounts::default())?;
        if let Some(ring) = &self.ring {
            let (tail, held) = ring.state(target)?;
            all.extend(ring.newest(target, tail, held)?);
        }
        all.retain(|mbuf| is_address(mbuf.address));
        Ok(all)
    }

    /// The mbufs that were freed last.
    pub(super) fn newest(
        &mut self,
        target: &XrayTarget,
        wide: bool,
        counts: &mut SamplerCounts,
    ) -> Result<Vec<FreeMbuf>, XrayError> {
        let depth = |cache: &LcoreCache| if wide { DEPTH_MAX } else { cache.depth };
        let mut newest = self.cached(target, depth, counts)?;
        for cache in &mut self.caches {
            cache.depth = cache.depth.saturating_sub(cache.depth / 16).max(DEPTH_MIN);
        }
        if let Some(ring) = &mut self.ring {
            let (tail, held) = ring.state(target)?;
            let came = usize::try_from(tail.wrapping_sub(ring.tail)).unwrap_or(usize::MAX);
            ring.tail = tail;
            newest.extend(ring.newest(target, tail, held.min(came).min(DEPTH_MAX))?);
        }
        newest.retain(|mbuf| is_address(mbuf.address));
        Ok(newest)
    }

    /// The mbufs on top of the caches.
    fn cached(
        &self,
        target: &XrayTarget,
        depth: impl Fn(&LcoreCache) -> usize,
        counts: &mut SamplerCounts,
    ) -> Result<Vec<FreeMbuf>, XrayError> {
        let layout = &target.layout.cache;
        let bytes = usize::try_from(layout.bytes).unwrap_or_default();
        let objects = usize::try_from(layout.objs).unwrap_or_default();
        let most = bytes.saturating_sub(objects) / 8;
        let entries = most.min((self.pool.cache_size as usize).saturating_mul(2));
        let used = entries.saturating_mul(8).saturating_add(objects);
        let addresses: Vec<_> = self.caches.iter().map(|cache| cache.address).collect();
        let caches = read_all(target, &addresses, used, counts)?;
        let mut found = Vec::new();
        for (index, bytes) in caches.chunks_exact(used.max(1)).enumerate() {
            let length = usize::try_from(u32_at(bytes, layout.len)).unwrap_or_default();
            let entries = bytes[objects..].chunks_exact(8).take(length).rev();
            let top = entries.take(depth(&self.caches[index])).enumerate();
            found.extend(top.map(|(place, entry)| FreeMbuf {
                address: word(entry, 0),
                cache: Some(index),
                place,
            }));
        }
        Ok(found)
    }

    /// The mbufs that are free now.
    pub(super) fn still_free(
        &self,
        target: &XrayTarget,
        addresses: &[u64],
        counts: &mut SamplerCounts,
    ) -> Result<HashSet<u64>, XrayError> {
        let mut free: HashSet<_> =
            self.cached(target, |_| usize::MAX, counts)?.iter().map(|mbuf| mbuf.address).collect();
        if let Some(ring) =
            self.ring.as_ref().filter(|_| !addresses.iter().all(|at| free.contains(at)))
        {
            let (tail, held) = ring.state(target)?;
            let newest = ring.newest(target, tail, held.min(MOST_RECENT))?;
            free.extend(newest.iter().map(|mbuf| mbuf.address));
        }
        Ok(free)
    }

    /// Extends the read depth of a cache beyond its changes.
    pub(super) fn note_change(&mut self, mbuf: FreeMbuf) {
        if let Some(cache) = mbuf.cache.and_then(|cache| self.caches.get_mut(cache)) {
            cache.depth = cache.depth.max(mbuf.place.saturating_add(DEPTH_MARGIN)).min(DEPTH_MAX);
        }
    }

    pub(super) fn fingerprint(&self, bytes: &[u8], header: PacketHeader) -> u64 {
        self.hasher.hash_one(bytes.get(header.begin..header.fingerprint_end()))
    }

    pub(super) fn content(
        &mut self,
        target: &XrayTarget,
        address: u64,
        bytes: &[u8],
    ) -> MbufContent {
        let layout = &target.layout.mbuf;
        if word(bytes, layout.pool) == self.pool.address && u32_at(bytes, layout.pkt_len) == 0 {
            return MbufContent::Empty;
        }
        // Values of a freed mbuf.
        let free = u16_at(bytes, layout.refcnt) == 1
            && u16_at(bytes, layout.nb_segs) == 1
            && word(bytes, layout.next) == 0;
        let Some(header) = self.header(target, address, bytes).filter(|_| free) else {
            return MbufContent::Implausible;
        };
        // A fingerprint is always of the same bytes: they are read next time.
        let needed = header.fingerprint_end();
        if needed > bytes.len() {
            self.look_bytes = self.look_bytes.max(needed);
            return MbufContent::BeyondLook;
        }
        MbufContent::Packet(header)
    }

    /// The packet of a free mbuf; `None` if its values contradict each other.
    fn header(&mut self, target: &XrayTarget, address: u64, bytes: &[u8]) -> Option<PacketHeader> {
        let layout = &target.layout.mbuf;
        let short = |offset| u64::from(u16_at(bytes, offset));
        let buffer = word(bytes, layout.buf_addr).checked_sub(address)?;
        let (offset, room, data_len) =
            (short(layout.data_off), short(layout.buf_len), short(layout.data_len));
        let element_bytes = u64::from(self.pool.element_bytes);
        let pkt_len = u32_at(bytes, layout.pkt_len);
        let plausible = word(bytes, layout.pool) == self.pool.address
            && (layout.bytes..element_bytes).contains(&buffer)
            && Address(buffer).plus(room).is_some_and(|end| end <= element_bytes)
            && offset.saturating_add(data_len) <= room
            && (u64::from(ETHERNET_BYTES)..=u64::from(pkt_len)).contains(&data_len)
            && pkt_len <= MOST_PACKET_BYTES;
        self.segmented |= plausible && data_len < u64::from(pkt_len);
        let header = PacketHeader {
            port: u16_at(bytes, layout.port),
            begin: usize::try_from(Address(buffer).plus(offset)?).ok()?,
            data_len: usize::try_from(data_len).ok()?,
            pkt_len,
        };
        plausible.then_some(header)
    }
}

impl CommonRing {
    /// `None` if the pool keeps its mbufs in another structure.
    fn of(target: &XrayTarget, pool: &Pool) -> Result<Option<Self>, XrayError> {
        let layout = &target.layout.ring;
        let zone = target.memzone_at(pool.handler_data);
        if zone.is_none_or(|zone| zone.name != format!("RG_MP_{}", pool.name)) {
            return Ok(None);
        }
        let mask = read_u32(&*target.memory, Address(pool.handler_data).member(layout.mask)?)?;
        let mut ring = Self { address: pool.handler_data, mask, tail: 0 };
        ring.tail = ring.state(target)?.0;
        Ok(Some(ring))
    }

    /// Producer tail, and the number of mbufs.
    fn state(&self, target: &XrayTarget) -> Result<(u32, usize), XrayError> {
        let layout = &target.layout.ring;
        let mut words = [0; 8];
        let ring = Address(self.address);
        let places = [ring.member(layout.prod_tail)?, ring.member(layout.cons_head)?];
        target.memory.read_pieces(&places, &mut words)?;
        let (tail, consumed) = (u32_at(&words, 0), u32_at(&words, 4));
        let held = tail.wrapping_sub(consumed);
        Ok((tail, if held > self.mask { 0 } else { usize::try_from(held).unwrap_or_default() }))
    }

    /// This many mbufs before the producer tail, the newest first.
    fn newest(
        &self,
        target: &XrayTarget,
        tail: u32,
        most: usize,
    ) -> Result<Vec<FreeMbuf>, XrayError> {
        let slots = Address(Address(self.address).member(target.layout.ring.bytes)?);
        let slot = |back: u32| slots.member_of((tail.wrapping_sub(back) & self.mask).into(), 8, 0);
        let most = u32::try_from(most).unwrap_or(self.mask);
        let slots: Vec<_> = (1..=most).map(slot).collect::<Result<_, _>>()?;
        let mut bytes = vec![0; slots.len().saturating_mul(8)];
        if !slots.is_empty() {
            target.memory.read_pieces(&slots, &mut bytes)?;
        }
        let mbuf = |(place, entry)| FreeMbuf { address: word(entry, 0), cache: None, place };
        Ok(bytes.chunks_exact(8).enumerate().map(mbuf).collect())
    }
}

/// Caches are read while they change: words that are not addresses are left out.
fn is_address(word: u64) -> bool {
    word != 0 && word.is_multiple_of(8)
}

/// The bytes at an offset, with zeros beyond the end.
fn bytes_at<const N: usize>(bytes: &[u8], offset: u64) -> [u8; N] {
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    bytes.get(begin..).and_then(|rest| rest.first_chunk().copied()).unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], offset: u64) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, offset))
}

fn u32_at(bytes: &[u8], offset: u64) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, offset))
}

fn word(bytes: &[u8], offset: u64) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, offset))
}

/// A later segment has its own length, but rarely begins with an Ethernet header.
pub(super) fn is_ethernet(data: &[u8]) -> bool {
    let kind = |at: usize| data.get(at..)?.first_chunk().map(|kind| u16::from_be_bytes(*kind));
    let tags = [Some(0x8100), Some(0x88a8)];
    let mut at = 12;
    while at < 20 && tags.contains(&kind(at)) {
        at = at.saturating_add(4);
    }
    let payload = at.saturating_add(2);
    let version = data.get(payload).map(|byte| byte >> 4);
    match kind(at) {
        Some(0x0800) => version == Some(4),
        Some(0x86dd) => version == Some(6),
        Some(0x0806) => kind(payload) == Some(1),
        _ => false,
    }
}
