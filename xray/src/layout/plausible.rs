//! Compares a layout with the mempools of an app, to exclude layouts that do not match its memory.

use std::collections::BTreeSet;

use super::{BUF_IOVA, Layout};
use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::memory::{Memory, read_array, read_u16, read_u32, read_u64};
use crate::memzone::Memzone;
use crate::target::is_ring_size;

/// Prefix of the memzone names of mempools.
const POOL_ZONE: &str = "MP_";

/// `RTE_MEMZONE_NAMESIZE`, the same in all releases; the names of pools, rings and stacks are not longer.
const NAME_BYTES: usize = 32;

/// The largest plausible `RTE_MAX_LCORE`.
const MOST_LCORES: u64 = 4096;

/// Number of chunks and objects of a pool that are checked.
const SAMPLES: usize = 64;

/// How often a pool is read again if its values contradict each other, as they may have changed
/// meanwhile.
const ATTEMPTS: usize = 8;

/// `RTE_MEMPOOL_HEADER_COOKIE1` and `2`: follow the object header in builds with cookies.
const COOKIES: [u64; 2] = [0xbadb_adba_dadd_2e55, 0xf2ee_f2ee_dadd_2e55];

/// The object header without a cookie.
const HEADER_WITHOUT_COOKIE: u64 = 24;

/// The shortest page.
const PAGE_BITS: u32 = 12;

/// The longest cache line, to which the length of memzones is rounded up.
const LINE_MOST: u64 = 128;

/// Properties of the build that a pool shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolEvidence {
    /// `RTE_MAX_LCORE`; `None` for a pool without caches and statistics.
    pub(super) max_lcore: Option<u32>,
    /// Its mbufs have no `buf_iova`; `None` for a pool without mbufs.
    pub(super) no_iova: Option<bool>,
}

impl PoolEvidence {
    /// Adds the properties that another pool shows; an error if they contradict.
    pub(super) fn join(&mut self, other: &Self) -> Result<(), String> {
        if let (Some(one), Some(other)) = (self.max_lcore, other.max_lcore)
            && one != other
        {
            return Err(format!("one mempool has caches of {one} lcores, another of {other}"));
        }
        if let (Some(one), Some(other)) = (self.no_iova, other.no_iova)
            && one != other
        {
            return Err("only some mbufs have an IO address".to_owned());
        }
        self.max_lcore = self.max_lcore.or(other.max_lcore);
        self.no_iova = self.no_iova.or(other.no_iova);
        Ok(())
    }
}

/// The memzones of mempools; names of memzones with their chunks begin with `MP_` as well.
pub(super) fn pool_zones(memzones: &[Memzone]) -> impl Iterator<Item = &Memzone> {
    let names: BTreeSet<&str> = memzones.iter().map(|zone| zone.name.as_str()).collect();
    memzones.iter().filter(move |zone| {
        let chunk_of = zone.name.rsplit_once('_').filter(|(_, number)| {
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        });
        zone.name.starts_with(POOL_ZONE) && chunk_of.is_none_or(|(pool, _)| !names.contains(pool))
    })
}

/// Properties of the build that the pool in a memzone shows, if it has this layout.
///
/// # Errors
/// [`XrayError::Implausible`] if it is not, and those of [`Memory::read`].
pub(super) fn evidence(
    layout: &Layout,
    memory: &dyn Memory,
    memzones: &[Memzone],
    zone: &Memzone,
) -> Result<PoolEvidence, XrayError> {
    let pool = PoolReader { layout, memory, memzones, zone };
    let mut last = pool.evidence();
    for _ in 1..ATTEMPTS {
        if !matches!(last, Err(XrayError::Implausible { .. } | XrayError::NotMapped { .. })) {
            break;
        }
        last = pool.evidence();
    }
    last
}

/// Reads a pool with a layout that may be wrong.
struct PoolReader<'a> {
    layout: &'a Layout,
    memory: &'a dyn Memory,
    memzones: &'a [Memzone],
    zone: &'a Memzone,
}

impl PoolReader<'_> {
    fn evidence(&self) -> Result<PoolEvidence, XrayError> {
        self.memzone_points_back()?;
        let max_lcore = self.lcores()?;
        let chunks = self.chunks()?;
        let objects = self.objects(&chunks)?;
        self.cookies(&objects)?;
        let no_iova = self.mbufs(&objects)?;
        self.ring()?;
        Ok(PoolEvidence { max_lcore, no_iova })
    }

    fn expect(&self, holds: bool, why: impl FnOnce() -> String) -> Result<(), XrayError> {
        if holds { Ok(()) } else { Err(self.implausible(why())) }
    }

    fn implausible(&self, why: String) -> XrayError {
        XrayError::implausible(format!("mempool {}", self.zone.name), why)
    }

    fn u32(&self, offset: u64) -> Result<u32, XrayError> {
        read_u32(self.memory, self.at(self.zone.address, offset)?)
    }

    fn u64(&self, offset: u64) -> Result<u64, XrayError> {
        read_u64(self.memory, self.at(self.zone.address, offset)?)
    }

    fn u32_of_each(
        &self,
        structures: impl Iterator<Item = u64>,
        offset: u64,
    ) -> Result<Vec<u32>, XrayError> {
        let addresses = structures.map(|address| self.at(address, offset));
        let addresses: Vec<u64> = addresses.collect::<Result<_, _>>()?;
        let mut bytes = vec![0; addresses.len().saturating_mul(4)];
        self.memory.read_pieces(&addresses, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|word| u32_at(word, 0)).collect())
    }

    fn at(&self, base: u64, offset: u64) -> Result<u64, XrayError> {
        let why = || self.implausible(format!("it points to {base:#x}"));
        Address(base).plus(offset).ok_or_else(why)
    }

    fn text(&self, address: u64) -> Result<String, XrayError> {
        let bytes: [u8; NAME_BYTES] = read_array(self.memory, address)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Checks its name and its memzone: name, address and length of the memzone that contains it.
    fn memzone_points_back(&self) -> Result<(), XrayError> {
        let (pool, memzone) = (&self.layout.mempool, &self.layout.memzone);
        let name = self.text(self.at(self.zone.address, pool.name)?)?;
        self.expect(self.zone.name.strip_prefix(POOL_ZONE) == Some(&name), || {
            format!("its name reads {name:?}")
        })?;
        let mz = self.u64(pool.mz)?;
        let name = self.text(self.at(mz, memzone.name)?)?;
        let address = read_u64(self.memory, self.at(mz, memzone.addr)?)?;
        let bytes = read_u64(self.memory, self.at(mz, memzone.len)?)?;
        let same = (name.as_str(), address, bytes)
            == (self.zone.name.as_str(), self.zone.address, self.zone.bytes);
        self.expect(same, || format!("its memzone reads {name:?}, {bytes} bytes at {address:#x}"))
    }

    /// Header, caches and private data fill the memzone, which gives the number of caches.
    fn lcores(&self) -> Result<Option<u32>, XrayError> {
        let pool = &self.layout.mempool;
        let cache_size = u64::from(self.u32(pool.cache_size)?);
        let private_bytes = u64::from(self.u32(pool.private_data_size)?);
        let caches = self.u64(pool.local_cache)?;
        let header = caches.checked_sub(self.zone.address).filter(|bytes| *bytes >= pool.bytes);
        let header =
            header.ok_or_else(|| self.implausible(format!("its caches are at {caches:#x}")))?;
        let behind = header.saturating_sub(pool.bytes);
        let statistics = self.elements(behind, pool.stats_bytes, "statistics")?;
        let of_statistics = statistics.map(|count| count.saturating_sub(pool.stats_more));
        let behind = self.zone.bytes.checked_sub(header).and_then(|b| b.checked_sub(private_bytes));
        let behind = behind
            .ok_or_else(|| self.implausible(format!("private data of {private_bytes} bytes")))?;
        let cache_bytes = if cache_size == 0 { 0 } else { self.layout.cache.bytes };
        let of_caches = self.elements(behind, cache_bytes, "caches")?;
        if let (Some(one), Some(other)) = (of_statistics, of_caches) {
            self.expect(one == other, || format!("statistics of {one} lcores, {other} caches"))?;
        }
        let lcores = of_caches.or(of_statistics);
        if let Some(lcores) = of_caches {
            self.caches(caches, lcores, cache_size)?;
        }
        Ok(lcores.and_then(|lcores| u32::try_from(lcores).ok()))
    }

    /// Number of elements that fill this many bytes, if there are any.
    fn elements(&self, total: u64, each: u64, what: &str) -> Result<Option<u64>, XrayError> {
        if each == 0 {
            self.expect(total == 0, || format!("{total} bytes too many for no {what}"))?;
            return Ok(None);
        }
        let count = total.checked_div(each).unwrap_or_default();
        let fill = total.is_multiple_of(each) && (1..=MOST_LCORES).contains(&count);
        self.expect(fill, || format!("{what} of {each} bytes do not fill {total} bytes"))?;
        Ok(Some(count))
    }

    /// Checks that each cache has the size that the pool states, and holds no more than it can.
    fn caches(&self, first: u64, lcores: u64, cache_size: u64) -> Result<(), XrayError> {
        let layout = &self.layout.cache;
        let room = layout.bytes.saturating_sub(layout.objs) / 8;
        self.expect(cache_size <= room, || format!("a cache size of {cache_size}"))?;
        let caches = (0..lcores).map(|lcore| Address(first).member_of(lcore, layout.bytes, 0));
        let caches: Vec<u64> = caches.collect::<Result<_, _>>()?;
        let sizes = self.u32_of_each(caches.iter().copied(), layout.size)?;
        let lens = self.u32_of_each(caches.iter().copied(), layout.len)?;
        for (size, len) in sizes.into_iter().zip(lens) {
            let holds = u64::from(size) == cache_size && u64::from(len) <= room;
            self.expect(holds, || format!("a cache reads {len} of {size} objects"))?;
        }
        Ok(())
    }

    /// The first chunks of memory.
    fn chunks(&self) -> Result<Vec<AddressRange>, XrayError> {
        let (pool, layout) = (&self.layout.mempool, &self.layout.memhdr);
        let count = usize::try_from(self.u32(pool.nb_mem_chunks)?).unwrap_or(usize::MAX);
        let (mut chunks, mut memhdr) = (Vec::new(), self.u64(pool.mem_list)?);
        while memhdr != 0 && chunks.len() < SAMPLES {
            let mp = read_u64(self.memory, self.at(memhdr, layout.mp)?)?;
            self.expect(mp == self.zone.address, || format!("a chunk of the pool at {mp:#x}"))?;
            let address = read_u64(self.memory, self.at(memhdr, layout.addr)?)?;
            let bytes = read_u64(self.memory, self.at(memhdr, layout.len)?)?;
            self.expect(address != 0 && bytes != 0, || format!("a chunk of {bytes} bytes"))?;
            let chunk = AddressRange::of_length(address, bytes);
            chunks.push(chunk.ok_or_else(|| self.implausible("a chunk that wraps".to_owned()))?);
            memhdr = read_u64(self.memory, self.at(memhdr, layout.next)?)?;
        }
        let read = chunks.len();
        self.expect(read == count.min(SAMPLES), || format!("{read} of {count} chunks"))?;
        Ok(chunks)
    }

    /// The headers of the first objects, each of which points to the pool.
    fn objects(&self, chunks: &[AddressRange]) -> Result<Vec<u64>, XrayError> {
        let (pool, layout) = (&self.layout.mempool, &self.layout.objhdr);
        let (size, populated) = (self.u32(pool.size)?, self.u32(pool.populated_size)?);
        self.expect(populated <= size, || format!("{populated} of {size} objects"))?;
        let count = usize::try_from(populated).unwrap_or(usize::MAX).min(SAMPLES);
        let header_bytes = u64::from(self.u32(pool.header_size)?);
        self.expect(header_bytes >= layout.bytes, || {
            format!("object headers of {header_bytes} bytes")
        })?;
        let (mut headers, mut header) = (Vec::new(), self.u64(pool.elt_list)?);
        self.expect(count > 0 || header == 0, || {
            format!("no objects, and the first at {header:#x}")
        })?;
        while header != 0 && headers.len() < count {
            let mp = read_u64(self.memory, self.at(header, layout.mp)?)?;
            self.expect(mp == self.zone.address, || format!("an object of the pool at {mp:#x}"))?;
            let inside = |chunk: &AddressRange| chunk.contains(header);
            let known = chunks.len() < SAMPLES;
            self.expect(!known || chunks.iter().any(inside), || {
                format!("an object at {header:#x}, in none of its chunks")
            })?;
            headers.push(header);
            header = read_u64(self.memory, self.at(header, layout.next)?)?;
        }
        let read = headers.len();
        self.expect(read == count, || format!("{read} of {populated} objects"))?;
        Ok(headers)
    }

    /// Checks that there are cookies exactly if the object header of the layout has one.
    fn cookies(&self, headers: &[u64]) -> Result<(), XrayError> {
        let expected = self.layout.objhdr.bytes > HEADER_WITHOUT_COOKIE;
        for header in headers {
            let word = read_u64(self.memory, self.at(*header, HEADER_WITHOUT_COOKIE)?)?;
            self.expect(COOKIES.contains(&word) == expected, || {
                format!("{word:#x} where its object headers have or lack a cookie")
            })?;
        }
        Ok(())
    }

    /// Checks that mbufs point to the pool. Returns whether they lack `buf_iova`: `next` is then in
    /// its place, and 0 in a free mbuf, while an IO address would have the same offset in a page as
    /// the address of the buffer.
    fn mbufs(&self, headers: &[u64]) -> Result<Option<bool>, XrayError> {
        let mbuf = &self.layout.mbuf;
        let objects = headers.iter().map(|header| self.at(*header, self.layout.objhdr.bytes));
        let objects = objects.collect::<Result<Vec<_>, _>>()?;
        for object in &objects {
            let pool = read_u64(self.memory, self.at(*object, mbuf.pool)?)?;
            if pool != self.zone.address {
                let others = !self.has_mbufs_by_size()?;
                self.expect(others, || format!("an mbuf of the pool at {pool:#x}"))?;
                return Ok(None);
            }
        }
        let (mut with_iova, mut without) = (0_u32, 0_u32);
        for object in &objects {
            let buffer = read_u64(self.memory, self.at(*object, mbuf.buf_addr)?)?;
            let priv_size = read_u16(self.memory, self.at(*object, mbuf.priv_size)?)?;
            let own = buffer == self.at(self.at(*object, mbuf.bytes)?, priv_size.into())?;
            match read_u64(self.memory, self.at(*object, BUF_IOVA)?)? {
                0 if own => without = without.saturating_add(1),
                iova if own && (iova ^ buffer).trailing_zeros() >= PAGE_BITS => {
                    with_iova = with_iova.saturating_add(1);
                }
                _ => {}
            }
        }
        Ok((!objects.is_empty()).then_some(without > with_iova))
    }

    /// Whether the private data of the pool show that its objects have the size of mbufs.
    fn has_mbufs_by_size(&self) -> Result<bool, XrayError> {
        let (pool, private) = (&self.layout.mempool, &self.layout.pktmbuf_pool);
        let private_bytes = u64::from(self.u32(pool.private_data_size)?);
        if private_bytes < private.bytes {
            return Ok(false);
        }
        // At the end of the memzone, whatever precedes it.
        let begin = self.zone.bytes.saturating_sub(private_bytes);
        let begin = self.at(self.zone.address, begin)?;
        let data_room = read_u16(self.memory, self.at(begin, private.data_room_size)?)?;
        let priv_size = read_u16(self.memory, self.at(begin, private.priv_size)?)?;
        let bytes = self.layout.mbuf.bytes.saturating_add(priv_size.into());
        let bytes = bytes.saturating_add(data_room.into());
        Ok(data_room > 0 && bytes == u64::from(self.u32(pool.elt_size)?))
    }

    /// The ring of a pool whose handler is one of the rings: consistent sizes, and no more entries
    /// than it has room for.
    fn ring(&self) -> Result<(), XrayError> {
        let (pool, ring) = (&self.layout.mempool, &self.layout.ring);
        let name = format!("RG_{}", self.zone.name);
        let data = self.u64(pool.pool_data)?;
        let zone = self.memzones.iter().find(|zone| zone.name == name && zone.address == data);
        let Some(zone) = zone else { return Ok(()) };
        // Read in one piece, as the tails move.
        let mut header = vec![0; usize::try_from(ring.bytes).unwrap_or_default()];
        self.memory.read(zone.address, &mut header)?;
        let u32 = |offset| u32_at(&header, offset);
        let (size, mask, capacity) = (u32(ring.size), u32(ring.mask), u32(ring.capacity));
        let sizes = is_ring_size(size, mask) && capacity <= mask;
        self.expect(sizes, || {
            format!("its ring reads size {size}, mask {mask}, capacity {capacity}")
        })?;
        let slots = AddressRange::of_elements(ring.bytes, size.into(), 8);
        let rest = slots.and_then(|slots| zone.bytes.checked_sub(slots.end()));
        let fills = rest.is_some_and(|rest| rest < LINE_MOST);
        self.expect(fills, || {
            format!("its ring of {size} entries does not fill {} bytes", zone.bytes)
        })?;
        let used = u32(ring.prod_tail).wrapping_sub(u32(ring.cons_tail));
        self.expect(used <= capacity, || format!("{used} of {capacity} entries in its ring"))
    }
}

/// The word at an offset; 0 beyond the end.
fn u32_at(bytes: &[u8], offset: u64) -> u32 {
    let word = usize::try_from(offset).ok().and_then(|begin| bytes.get(begin..)?.first_chunk());
    u32::from_le_bytes(word.copied().unwrap_or_default())
}
