//! What the entries of rings are: mbufs, and of which pool.

use crate::address::Address;
use crate::counts::RingCount;
use crate::layout::Layout;
use crate::memory::read_u64;
use crate::memzone::Memzone;
use crate::target::{Pool, XrayTarget};

/// A ring with fewer entries is not looked into.
const LEAST_USED: u32 = 32;

/// Bytes of an entry of a ring of pointers; other rings are not looked into.
const POINTER: u64 = 8;

/// What the entries of a ring are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RingEntries {
    /// Mbufs of this pool; `None` for those of several.
    Mbufs(Option<String>),
    /// Something else.
    Other,
}

/// Looks at three of the newest entries of a ring; `None` if there are too few, if its entries are no
/// pointers, or if it cannot be read. Entries that are taken out meanwhile stay readable.
pub(crate) fn entries(
    target: &XrayTarget,
    ring: &RingCount,
    pools: &[Pool],
) -> Option<RingEntries> {
    let zone = target.memzone_at(ring.address).filter(|_| ring.used >= LEAST_USED.into())?;
    let slots = slots(&target.layout, zone, ring)?;
    let memory = target.memory.as_ref();
    let first = Address(ring.address).plus(target.layout.ring.bytes)?;
    let mut found = Vec::new();
    for back in [1, LEAST_USED / 2, LEAST_USED] {
        let slot = u64::from(ring.enqueued.wrapping_sub(back)).checked_rem(slots)?;
        let entry = read_u64(memory, Address(first).element(slot, POINTER)?).ok()?;
        let pool = Address(entry).plus(target.layout.mbuf.pool);
        let pool = pool.and_then(|member| read_u64(memory, member).ok());
        let pool = pools.iter().find(|known| Some(known.address) == pool);
        let Some(pool) = pool else { return Some(RingEntries::Other) };
        found.push(pool);
    }
    let same = found.windows(2).all(|pair| pair[0].address == pair[1].address);
    Some(RingEntries::Mbufs(found.first().filter(|_| same).map(|pool| pool.name.clone())))
}

/// Number of slots of a ring of pointers, which fill its memzone up to its alignment.
fn slots(layout: &Layout, zone: &Memzone, ring: &RingCount) -> Option<u64> {
    let slots = ring.capacity.checked_add(1)?.checked_next_power_of_two()?;
    let bytes = slots.checked_mul(POINTER)?;
    let room = zone.bytes.checked_sub(layout.ring.bytes)?;
    (bytes..bytes.checked_mul(2)?).contains(&room).then_some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::counts;
    use crate::counts::made_up::{BASE, Handler, MadeUpApp};

    /// Looks into a ring of 64 slots whose entries are these objects of pools.
    fn looked(used: u32, entry: impl Fn(u64, [u64; 2]) -> u64) -> Option<RingEntries> {
        let mut app = MadeUpApp::new();
        let layout = app.layout().clone();
        let pools = ["mb", "other"].map(|name| app.pool(name, 255, 0, &[], Handler::Ring).0);
        let mbufs = pools.map(|pool| app.object(layout.mbuf.bytes, layout.mbuf.pool, pool));
        let ring = app.ring("backlog", 64, used);
        for slot in 0..64 {
            app.put_u64(ring + layout.ring.bytes + 8 * slot, entry(slot, mbufs));
        }
        let (target, _) = app.start();
        let counts = counts(&target).unwrap();
        let pools: Vec<_> = target.pools().into_iter().flatten().collect();
        entries(&target, &counts.rings[0], &pools)
    }

    #[test]
    fn mbufs_in_a_ring_tell_their_pool() {
        let of = |pool: Option<&str>| Some(RingEntries::Mbufs(pool.map(str::to_owned)));
        assert_eq!(looked(63, |_, mbufs| mbufs[1]), of(Some("other")));
        let mixed = |slot: u64, mbufs: [u64; 2]| mbufs[usize::from(slot.is_multiple_of(2))];
        assert_eq!(looked(63, mixed), of(None));
        assert_eq!(looked(31, |_, mbufs| mbufs[1]), None, "too few");
        assert_eq!(looked(63, |_, _| BASE), Some(RingEntries::Other));
        assert_eq!(looked(63, |slot, _| slot), Some(RingEntries::Other), "not even addresses");
    }
}
