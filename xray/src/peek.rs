//! Samples the packets of an app from its free mbufs.
//!
//! A freed mbuf keeps its header and data until it is allocated again, and pools allocate the mbuf
//! that was freed last first. So the mbufs on top of the lcores' caches, and the newest in the
//! common ring, contain the latest packets, complete and as the app freed them. Mbufs in use are
//! left out: a NIC writes data before its driver writes the length, and two equal reads do not show
//! that.

mod pool;

use crate::error::XrayError;
use crate::target::XrayTarget;

use self::pool::{DEPTH_MAX, EMPTY, FreeMbuf, MbufContent, PacketHeader, SampledPool, is_ethernet};

/// One pass in this many reads the maximum number of mbufs, and checks caches that were not in use
/// before.
const WIDE_PASS: u64 = 64;
/// Maximum number of consecutive passes that fail because an address is not mapped.
const MOST_FAILED_PASSES: u32 = 1000;
/// The port of an mbuf that was not received.
const NO_PORT: u16 = u16::MAX;

/// A packet that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPacket<'a> {
    /// Port that received it; `None` for packets made by the app.
    pub port: Option<u16>,
    /// Its length, bytes.
    pub len: u32,
    /// The captured bytes of its first segment.
    pub data: &'a [u8],
}

/// Counters of a sampler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerCounts {
    /// Passes over all pools.
    pub passes: u64,
    /// Mbufs that were examined.
    pub looked_at: u64,
    /// Packets that were shown.
    pub packets: u64,
    /// Dropped: they changed while they were read, or the app allocated them meanwhile.
    pub torn: u64,
    /// Dropped: the values of their mbufs contradict each other, or they may be a following segment.
    pub implausible: u64,
    /// Bytes read from the app.
    pub bytes: u64,
}

/// Samples the packets of all mbuf pools of an app. Not to be used by several threads at a time.
#[derive(Debug)]
pub struct PacketSampler {
    target: XrayTarget,
    pools: Vec<SampledPool>,
    snaplen: usize,
    counts: SamplerCounts,
    /// Consecutive passes that failed.
    failed_passes: u32,
}

impl PacketSampler {
    /// Samples all mbuf pools; `snaplen` is the maximum number of bytes kept per packet. Packets
    /// that are in free mbufs at this time are older, and are never shown.
    ///
    /// # Errors
    /// If the app has no mbuf pool that can be read.
    pub fn new(target: XrayTarget, snaplen: u32) -> Result<Self, XrayError> {
        let mut pools = Vec::new();
        let mut failure = None;
        for pool in target.pools() {
            match pool.and_then(|pool| SampledPool::new(&target, pool)) {
                Ok(pool) => pools.extend(pool),
                Err(error) => failure = Some(error),
            }
        }
        let none = || XrayError::implausible("the app".to_owned(), "no mbuf pool".to_owned());
        if pools.is_empty() {
            return Err(failure.unwrap_or_else(none));
        }
        let snaplen = usize::try_from(snaplen).unwrap_or(usize::MAX);
        let counts = SamplerCounts::default();
        let mut sampler = Self { target, pools, snaplen, counts, failed_passes: 0 };
        for index in 0..sampler.pools.len() {
            let all = sampler.pools[index].free_mbufs(&sampler.target)?;
            for some in all.chunks(DEPTH_MAX) {
                sampler.sample(index, some, None)?;
            }
        }
        sampler.counts = SamplerCounts::default();
        Ok(sampler)
    }

    /// Names of the pools.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().map(|pool| pool.pool.name.as_str())
    }

    /// Current counters.
    pub fn counts(&self) -> SamplerCounts {
        self.counts
    }

    /// Reads the mbufs that were freed last once, and shows the packets that were not shown before.
    ///
    /// # Errors
    /// If the app has ended or may no longer be read.
    pub fn pass(&mut self, show: &mut dyn FnMut(SampledPacket<'_>)) -> Result<(), XrayError> {
        let wide = self.counts.passes.is_multiple_of(WIDE_PASS);
        count(&mut self.counts.passes, 1);
        for index in 0..self.pools.len() {
            match self.pass_of_pool(index, wide, show) {
                Ok(()) => self.failed_passes = 0,
                // A cache changed while it was read: one of its words is not the address of an
                // mbuf.
                Err(XrayError::NotMapped { .. }) if self.failed_passes < MOST_FAILED_PASSES => {
                    self.failed_passes = self.failed_passes.saturating_add(1);
                    count(&mut self.counts.torn, 1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pass_of_pool(
        &mut self,
        index: usize,
        wide: bool,
        show: &mut dyn FnMut(SampledPacket<'_>),
    ) -> Result<(), XrayError> {
        let pool = &mut self.pools[index];
        if wide {
            pool.find_caches(&self.target)?;
        }
        let newest = pool.newest(&self.target, wide, &mut self.counts)?;
        self.sample(index, &newest, Some(show))
    }

    /// Reads free mbufs, remembers their content, and shows new packets if that is wanted.
    fn sample(
        &mut self,
        index: usize,
        mbufs: &[FreeMbuf],
        show: Option<&mut dyn FnMut(SampledPacket<'_>)>,
    ) -> Result<(), XrayError> {
        let Self { target, pools, counts, .. } = self;
        let pool = &mut pools[index];
        let addresses: Vec<_> = mbufs.iter().map(|mbuf| mbuf.address).collect();
        let length = pool.look_bytes;
        let looked = read_all(target, &addresses, length, counts)?;
        count(&mut counts.looked_at, mbufs.len());
        let mut changed = Vec::new();
        for (mbuf, bytes) in mbufs.iter().zip(looked.chunks_exact(length)) {
            let header = match pool.content(target, mbuf.address, bytes) {
                MbufContent::Packet(header) => header,
                MbufContent::Empty => {
                    pool.fingerprints.entry(mbuf.address).or_insert(EMPTY);
                    continue;
                }
                MbufContent::BeyondLook => continue,
                MbufContent::Implausible => {
                    count(&mut counts.implausible, usize::from(show.is_some()));
                    continue;
                }
            };
            let fingerprint = pool.fingerprint(bytes, header);
            match pool.fingerprints.get(&mbuf.address) {
                Some(before) if *before == fingerprint => {}
                Some(_) if show.is_some() => {
                    changed.push(ChangedMbuf { mbuf: *mbuf, header, fingerprint, looked: bytes });
                }
                _ => _ = pool.fingerprints.insert(mbuf.address, fingerprint),
            }
        }
        match show {
            Some(show) if !changed.is_empty() => self.show(index, &changed, show),
            _ => Ok(()),
        }
    }

    /// Shows new packets of mbufs, unless they change before they are read again in full. Parts
    /// that were not in the first read are read twice.
    fn show(
        &mut self,
        index: usize,
        changed: &[ChangedMbuf<'_>],
        show: &mut dyn FnMut(SampledPacket<'_>),
    ) -> Result<(), XrayError> {
        let Self { target, pools, snaplen, counts, .. } = self;
        let pool = &mut pools[index];
        let end = |one: &ChangedMbuf<'_>| {
            one.header.begin.saturating_add(one.header.data_len.min(*snaplen))
        };
        let addresses: Vec<_> = changed.iter().map(|one| one.mbuf.address).collect();
        let length = changed.first().map_or(0, |one| one.looked.len());
        let size = changed.iter().map(end).max().unwrap_or(0).max(length);
        let first = (size > length).then(|| read_all(target, &addresses, size, counts));
        let first = first.transpose()?;
        let second = read_all(target, &addresses, size, counts)?;
        let free = pool.still_free(target, &addresses, counts)?;
        let mut before = first.iter().flat_map(|first| first.chunks_exact(size.max(1)));
        for (one, again) in changed.iter().zip(second.chunks_exact(size.max(1))) {
            let before = before.next().unwrap_or(one.looked);
            let same = again.starts_with(one.looked) && again[..end(one)] == before[..end(one)];
            if !same || !free.contains(&one.mbuf.address) {
                count(&mut counts.torn, 1);
                continue;
            }
            let known = pool.fingerprints.insert(one.mbuf.address, one.fingerprint);
            // A cache that changed while it was read may contain an mbuf twice.
            if known == Some(one.fingerprint) {
                continue;
            }
            pool.note_change(one.mbuf);
            let data = &again[one.header.begin..end(one)];
            if pool.segmented && !is_ethernet(data) {
                count(&mut counts.implausible, 1);
                continue;
            }
            count(&mut counts.packets, 1);
            let port = Some(one.header.port).filter(|port| *port != NO_PORT);
            show(SampledPacket { port, len: one.header.pkt_len, data });
        }
        Ok(())
    }
}

fn count(counter: &mut u64, more: usize) {
    *counter = counter.saturating_add(more as u64);
}

/// An mbuf whose content has changed since it was last read.
struct ChangedMbuf<'a> {
    mbuf: FreeMbuf,
    header: PacketHeader,
    fingerprint: u64,
    /// Its first bytes.
    looked: &'a [u8],
}

/// Reads pieces of the same length.
fn read_all(
    target: &XrayTarget,
    addresses: &[u64],
    length: usize,
    counts: &mut SamplerCounts,
) -> Result<Vec<u8>, XrayError> {
    let mut bytes = vec![0; addresses.len().saturating_mul(length)];
    target.memory.read_pieces(addresses, &mut bytes)?;
    count(&mut counts.bytes, bytes.len());
    Ok(bytes)
}

#[cfg(test)]
mod tests;
