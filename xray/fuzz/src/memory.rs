//! The memory of an app with arbitrary content that changes while it is read.

use std::sync::Arc;
use std::time::Duration;

use pmdscope_xray::{
    Counts, Memory, PacketSampler, PoolScan, ScanReport, ScanSettings, XrayTarget, counts, packet,
    scan,
};

use crate::made_up_app::{self, Handler};
use crate::patches::Patch;

/// Passes of the sampler.
const PASSES: u32 = 3;

/// A byte for the handler of the pool, then changes of the memory.
pub fn memory(input: &[u8]) {
    let Some((kind, patches)) = input.split_first() else { return };
    let handler = match kind % 3 {
        0 => Handler::Ring,
        1 => Handler::Stack,
        _ => Handler::LockFreeStack,
    };
    read_all(made_up_app::memory(handler, Patch::all(patches)));
}

/// Results of X-ray for this memory.
#[derive(Debug, Default)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests show that the sound app is read whole"))]
pub(crate) struct Found {
    pub(crate) counts: Option<Counts>,
    pub(crate) report: Option<ScanReport>,
    pub(crate) samples: bool,
}

/// Runs all of X-ray, and checks that the numbers add up.
pub(crate) fn read_all(memory: Arc<dyn Memory>) -> Found {
    let Ok(target) = XrayTarget::open_memory(memory) else { return Found::default() };
    let counts = counts(&target).ok();
    for pool in counts.iter().flat_map(|counts| &counts.pools) {
        assert!(pool.in_use().is_none_or(|used| used <= pool.size), "{pool:?}");
    }
    let settings = ScanSettings { interval: Duration::ZERO, ..ScanSettings::default() };
    let report = scan(&target, &settings, &mut |_| {}).ok();
    for pool in report.iter().flat_map(|report| &report.pools) {
        assert_eq!(parts(pool), pool.size, "{pool:?}");
        for mbuf in &pool.lost_mbufs {
            let _ = packet(&target, mbuf);
        }
    }
    let mut sampler = PacketSampler::new(target, u32::MAX).ok();
    if let Some(sampler) = &mut sampler {
        let show = &mut |packet: pmdscope_xray::SampledPacket<'_>| {
            assert!(packet.data.len() <= packet.len as usize, "{packet:?}");
        };
        let _ = (0..PASSES).try_for_each(|_| sampler.pass(show));
    }
    Found { counts, report, samples: sampler.is_some() }
}

/// Each mbuf of a pool counts once.
fn parts(pool: &PoolScan) -> u64 {
    let cached: u64 = pool.caches.values().sum();
    pool.common + cached + pool.held + pool.lost + pool.moving + pool.not_judged
}

#[cfg(test)]
pub(crate) mod tests {
    use pmdscope_xray::Holder;

    use super::*;
    use crate::made_up_app::OBJECTS;

    /// Otherwise the fuzzer would see only refusals.
    #[test]
    fn an_unchanged_app_is_read_as_a_whole() {
        for handler in [Handler::Ring, Handler::Stack, Handler::LockFreeStack] {
            whole(&read_all(made_up_app::memory(handler, Vec::new())));
        }
    }

    pub(crate) fn whole(found: &Found) {
        let counts = found.counts.as_ref().unwrap();
        assert!(counts.problems.is_empty(), "{counts:?}");
        assert_eq!((counts.pools[0].in_use(), counts.rings[0].used), (Some(OBJECTS - 8), 3));
        let report = found.report.as_ref().unwrap();
        assert_eq!(report.problems, [] as [String; 0]);
        let pool = &report.pools[0];
        assert_eq!((pool.common, pool.held, pool.lost), (6, 8, 8));
        let of = |wanted| pool.holders.iter().find(|count| count.holder == wanted).map(|c| c.mbufs);
        assert_eq!(of(Holder::RxQueue { port: 0, queue: 0 }), Some(3), "{:?}", pool.holders);
        assert!(found.samples);
    }

    #[test]
    fn any_bytes_end_in_a_report_or_an_error() {
        memory(&[]);
        let mut word = 1_u32;
        for length in 0..200 {
            let bytes = (0..length).map(|_| {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                word.to_be_bytes()[0]
            });
            memory(&bytes.collect::<Vec<u8>>());
        }
    }
}
