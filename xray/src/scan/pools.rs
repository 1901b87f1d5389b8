//! The mbuf pools of an app that a scan judges.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::layout::MbufLayout;
use crate::memory::{read_array, read_u16, read_u32, read_u64};
use crate::target::{Pool, XrayTarget};

use super::free::PoolHandler;
use super::objects::{ObjectIndex, PoolObjects, mapped_bytes, torn};

/// `struct rte_pktmbuf_pool_private`: length of the data buffer, length of the private area, flags.
const PRIVATE_BYTES: u32 = 8;

/// A mempool of mbufs.
#[derive(Clone, Debug)]
pub(super) struct MbufPool {
    pub(super) pool: Pool,
    pub(super) mbuf: MbufLayout,
    /// `priv_size`: bytes between the `struct rte_mbuf` and its data buffer.
    pub(super) private_bytes: u64,
    /// Numbers of its objects in the [`ObjectIndex`].
    pub(super) objects: Range<u32>,
    /// Memory of its objects.
    pub(super) chunks: Vec<AddressRange>,
}

impl MbufPool {
    /// Bytes from the start of an mbuf to its data buffer.
    pub(super) fn data_offset(&self) -> u64 {
        self.mbuf.bytes.saturating_add(self.private_bytes)
    }

    /// Bytes of an mbuf up to `beyond` bytes of its data buffer, if it is so long.
    pub(super) fn head_bytes(&self, beyond: u64) -> usize {
        let bytes = self.data_offset().saturating_add(beyond);
        let bytes = bytes.min(u64::from(self.pool.element_bytes));
        usize::try_from(bytes & !7).unwrap_or_default()
    }

    /// Header and caches: they contain only free objects or stale addresses.
    pub(super) fn header(&self, target: &XrayTarget) -> AddressRange {
        AddressRange::up_to_length(self.pool.address, header_bytes(target, &self.pool))
    }
}

/// The pools of a scan.
#[derive(Debug, Default)]
pub(super) struct MbufPools {
    /// Pools that can be judged, in the order of their objects' numbers.
    pub(super) judged: Vec<MbufPool>,
    pub(super) index: ObjectIndex,
    /// Pools of mbufs that cannot be judged: their free objects are not known.
    pub(super) unknown_handler: Vec<Pool>,
    /// Pools that could not be read, and why.
    pub(super) failed: Vec<(Pool, XrayError)>,
    pub(super) problems: Vec<String>,
}

impl MbufPools {
    /// Reads all pools of an app, except those without mbufs.
    pub(super) fn read(target: &XrayTarget) -> Result<Self, XrayError> {
        let mut pools = Self::default();
        let mut objects = Vec::new();
        let mapped = mapped_bytes(&target.memory.maps()?);
        for pool in target.pools() {
            match pool {
                Ok(pool) => objects.extend(pools.add(target, pool, mapped)?),
                Err(error) => pools.problems.push(error.to_string()),
            }
        }
        let all = pools.judged.iter().map(|pool| &pool.pool).zip(&objects);
        pools.index = ObjectIndex::new(all);
        Ok(pools)
    }

    fn add(
        &mut self,
        target: &XrayTarget,
        pool: Pool,
        mapped: u128,
    ) -> Result<Option<PoolObjects>, XrayError> {
        let Some(private_bytes) = fatal(mbuf_private_bytes(target, &pool))?.unwrap_or(None) else {
            return Ok(None);
        };
        if PoolHandler::of(target, &pool) == PoolHandler::Unknown {
            self.unknown_handler.push(pool);
            return Ok(None);
        }
        let objects = match fatal(PoolObjects::read(target, &pool, mapped))? {
            Ok(objects) if self.overlaps(&objects) => {
                let error = torn(&pool, "it shares memory with another pool");
                self.failed.push((pool, error));
                return Ok(None);
            }
            Ok(objects) => objects,
            Err(error) => {
                self.failed.push((pool, error));
                return Ok(None);
            }
        };
        let first = self.judged.last().map_or(0, |pool| pool.objects.end);
        let count = u32::try_from(objects.addresses.len()).unwrap_or_default();
        self.judged.push(MbufPool {
            mbuf: target.layout.mbuf.clone(),
            private_bytes,
            objects: first..first.saturating_add(count),
            chunks: objects.chunks.clone(),
            pool,
        });
        Ok(Some(objects))
    }
}

impl MbufPools {
    /// Pools that have changed or were freed since they were read, by index.
    pub(super) fn changed(&self, target: &XrayTarget) -> BTreeSet<usize> {
        let now: Vec<Pool> = target.pools().into_iter().flatten().collect();
        let judged = self.judged.iter().enumerate();
        judged.filter(|(_, pool)| !now.contains(&pool.pool)).map(|(place, _)| place).collect()
    }

    fn overlaps(&self, objects: &PoolObjects) -> bool {
        let known = || self.judged.iter().flat_map(|pool| &pool.chunks);
        objects.chunks.iter().any(|chunk| known().any(|known| known.overlaps(chunk)))
    }
}

/// The outer error means that the app as a whole can no longer be read. Others concern one pool.
pub(super) fn fatal<T>(result: Result<T, XrayError>) -> Result<Result<T, XrayError>, XrayError> {
    match result {
        Err(error @ (XrayError::Ended { .. } | XrayError::NotAllowed { .. })) => Err(error),
        result => Ok(result),
    }
}

/// Bytes before the private data of a pool, which follows the caches, if the pool has some.
fn header_bytes(target: &XrayTarget, pool: &Pool) -> u64 {
    let (header, cache) = (target.layout.mempool.bytes, target.layout.cache.bytes);
    let caches = if pool.cache_size > 0 { u64::from(target.layout.max_lcore) } else { 0 };
    header.saturating_add(caches.saturating_mul(cache))
}

/// The `priv_size` of the mbufs of a pool; `None` if its objects are not mbufs. An mbuf refers to
/// its pool.
pub(super) fn mbuf_private_bytes(
    target: &XrayTarget,
    pool: &Pool,
) -> Result<Option<u64>, XrayError> {
    let (memory, layout) = (&*target.memory, &target.layout.mbuf);
    let room = u64::from(pool.element_bytes).checked_sub(layout.bytes);
    let (Some(room), false) = (room, pool.first_object_header == 0) else {
        return Ok(None);
    };
    let first = Address(pool.first_object_header).member(target.layout.objhdr.bytes)?;
    let is_mbuf = read_u64(memory, Address(first).member(layout.pool)?)? == pool.address;
    if !is_mbuf || pool.private_bytes < PRIVATE_BYTES {
        return Ok(None);
    }
    let private: [u8; 8] =
        read_array(memory, Address(pool.address).member(header_bytes(target, pool))?)?;
    let data = u64::from(u16::from_le_bytes([private[0], private[1]]));
    let private = u64::from(u16::from_le_bytes([private[2], private[3]]));
    Ok((data.saturating_add(private) <= room).then_some(private))
}

/// Fields of an mbuf that identify it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MbufFields {
    pub(super) port: u16,
    pub(super) refcnt: u16,
    pub(super) segments: u16,
    pub(super) packet_bytes: u32,
}

impl MbufFields {
    pub(super) fn read(target: &XrayTarget, address: u64) -> Result<Self, XrayError> {
        let (memory, layout) = (&*target.memory, &target.layout.mbuf);
        let mbuf = Address(address);
        Ok(Self {
            port: read_u16(memory, mbuf.member(layout.port)?)?,
            refcnt: read_u16(memory, mbuf.member(layout.refcnt)?)?,
            segments: read_u16(memory, mbuf.member(layout.nb_segs)?)?,
            packet_bytes: read_u32(memory, mbuf.member(layout.pkt_len)?)?,
        })
    }
}
