//! Counts of made-up apps.

use proptest::prelude::*;

use super::made_up::{BASE, Handler, MadeUpApp};
use super::*;

const HANDLERS: [Handler; 3] = [Handler::Ring, Handler::Stack, Handler::LockFreeStack];

fn counted(app: MadeUpApp) -> Counts {
    counts(&app.start().0).unwrap()
}

#[test]
fn all_objects_of_a_pool_are_accounted_for() {
    for handler in HANDLERS {
        let mut app = MadeUpApp::new();
        app.pool("mb", 4095, 3000, &[0, 250, 0, 7], handler);
        let counts = counted(app);
        assert!(counts.problems.is_empty() && counts.rings.is_empty(), "{counts:?}");
        let [pool] = &counts.pools[..] else { panic!("{counts:?}") };
        assert_eq!((pool.name.as_str(), pool.size, pool.common), ("mb", 4095, Some(3000)));
        assert_eq!((&pool.caches, pool.cached()), (&[(1, 250), (3, 7)].into(), 257));
        assert_eq!(pool.in_use(), Some(4095 - 3257));
    }
}

#[test]
fn rings_of_the_app_are_counted_and_those_of_pools_are_not() {
    let mut app = MadeUpApp::new();
    app.pool("mb", 1023, 1023, &[], Handler::Ring);
    app.ring("backlog", 1024, 500);
    app.ring("empty", 64, 0);
    app.ring("full", 64, 63);
    let counts = counted(app);
    let rings = counts.rings.iter().map(|r| (r.name.as_str(), r.used, r.capacity));
    let expected = [("backlog", 500, 1023), ("empty", 0, 63), ("full", 63, 63)];
    assert_eq!(rings.collect::<Vec<_>>(), expected);
    assert!(counts.problems.is_empty() && !counts.outdated, "{counts:?}");
}

#[test]
fn free_objects_behind_an_unknown_handler_are_unknown() {
    let mut app = MadeUpApp::new();
    app.pool("mb", 1023, 0, &[5], Handler::Other);
    let counts = counted(app);
    let pool = &counts.pools[0];
    assert_eq!((pool.common, pool.in_use(), pool.cached()), (None, None, 5));
    assert!(matches!(&counts.problems[..], [XrayError::UnknownHandler { .. }]), "{counts:?}");
    assert!(!counts.outdated);
}

#[test]
fn more_free_objects_than_there_are_is_an_error_and_the_rest_is_counted() {
    let mut app = MadeUpApp::new();
    app.pool("mb", 100, 90, &[11], Handler::Ring);
    app.pool("other", 100, 90, &[10], Handler::Ring);
    let ring = app.ring("torn", 64, 60);
    app.put(ring + MadeUpApp::new().layout().ring.cons_tail, 500);
    app.ring("ring", 64, 60);
    let counts = counted(app);
    assert_eq!(counts.pools.iter().map(PoolCount::in_use).collect::<Vec<_>>(), [Some(0)]);
    assert_eq!(counts.rings.len(), 1);
    let problems: Vec<_> = counts.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "mempool mb is not plausible: its free objects do not fit into its 100",
        "ring torn is not plausible: its entries do not fit into its 63",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn what_is_torn_is_read_again() {
    let mut app = MadeUpApp::new();
    let layout = app.layout().clone();
    let (_, caches, ring) = app.pool("mb", 1000, 600, &[300, 300], Handler::Ring);
    let (target, running) = app.start();
    let mut pieces = 0;
    // The flush of a cache is complete when the second cache has been read for the second time.
    running.memory.before_read(move |_, memory| {
        pieces += 1;
        if pieces == 200 {
            memory.write_u32(caches + layout.cache.bytes + layout.cache.len, 50);
            memory.add_u32(ring + layout.ring.prod_tail, 20);
        }
        Ok(())
    });
    let counts = counts(&target).unwrap();
    assert_eq!(counts.pools[0].caches, [(0, 300), (1, 50)].into());
    assert_eq!((counts.pools[0].common, counts.pools[0].in_use()), (Some(620), Some(30)));
}

#[test]
fn a_pool_that_is_gone_is_told_and_its_free_list_is_no_ring() {
    let mut app = MadeUpApp::new();
    let (pool, ..) = app.pool("mb", 63, 63, &[], Handler::Ring);
    app.put(pool, 0);
    let ring = app.ring("gone", 64, 1);
    app.put(ring, 0);
    app.ring("there", 64, 2);
    let counts = counted(app);
    assert!(counts.outdated && counts.pools.is_empty());
    assert_eq!(counts.rings.iter().map(|ring| ring.used).collect::<Vec<_>>(), [2]);
    let problems: Vec<_> = counts.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "mempool MP_mb is not plausible: its name reads \"\"",
        "memzone RG_gone is not plausible: the name of its ring reads \"\"",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn rings_beside_one_that_is_no_longer_mapped_are_counted() {
    let mut app = MadeUpApp::new();
    app.ring("there", 64, 2);
    let (mut target, _) = app.start();
    let gone = Memzone { name: "RG_gone".into(), address: 0x7000, bytes: 512 };
    target.memzones.insert(0, gone);
    let counts = counts(&target).unwrap();
    assert_eq!((counts.rings.len(), counts.problems.len(), counts.outdated), (1, 1, true));
}

#[test]
fn caches_beyond_the_memzone_of_the_pool_are_refused() {
    let mut app = MadeUpApp::new();
    app.pool("mb", 63, 63, &[], Handler::Ring);
    let (mut target, _) = app.start();
    target.layout.max_lcore = 256;
    let counts = counts(&target).unwrap();
    assert!(counts.pools.is_empty(), "{counts:?}");
    assert!(counts.problems[0].to_string().contains("256 caches"), "{counts:?}");
}

proptest! {
    #[test]
    fn a_pool_at_rest_is_counted_exactly(
        size in 1..5000_u32,
        parts in proptest::collection::vec(0..512_u32, 0..128),
        handler in 0..HANDLERS.len(),
    ) {
        let mut left = size;
        let mut take = |part: u32| { let part = part.min(left); left -= part; part };
        let caches: Vec<u32> = parts.into_iter().map(&mut take).collect();
        let common = take(size / 2);
        let mut app = MadeUpApp::new();
        app.pool("mb", size, common, &caches, HANDLERS[handler]);
        let counts = counted(app);
        let pool = &counts.pools[0];
        prop_assert_eq!(pool.common, Some(u64::from(common)));
        prop_assert_eq!(pool.cached(), caches.iter().map(|len| u64::from(*len)).sum::<u64>());
        prop_assert_eq!(pool.in_use(), Some(u64::from(left)));
    }

    /// Objects move between a cache and the ring at any moment: the error of the count is at most
    /// the number of objects that moved while it was read.
    #[test]
    fn a_busy_pool_is_counted_to_within_what_moves(
        moves in proptest::collection::vec((0..150_usize, 0..4_u64, -32..32_i32), 0..6),
    ) {
        let mut app = MadeUpApp::new();
        let layout = app.layout().clone();
        let (_, caches, ring) = app.pool("mb", 4000, 2000, &[200; 4], Handler::Ring);
        let (target, running) = app.start();
        let moved: u64 = moves.iter().map(|(_, _, objects)| u64::from(objects.unsigned_abs())).sum();
        let mut pieces = 0;
        running.memory.before_read(move |_, memory| {
            pieces = (pieces + 1) % 150;
            for (_, lcore, objects) in moves.iter().filter(|(at, ..)| *at == pieces) {
                let cache = caches + lcore * layout.cache.bytes + layout.cache.len;
                let tail = if *objects < 0 { layout.ring.cons_tail } else { layout.ring.prod_tail };
                let old = memory.u32(cache);
                // A cache neither overflows nor runs empty.
                if (1..400).contains(&(old.wrapping_add_signed(-objects))) {
                    memory.add_u32(cache, -objects);
                    memory.add_u32(ring + tail, objects.abs());
                }
            }
            Ok(())
        });
        let in_use = counts(&target).unwrap().pools[0].in_use().unwrap();
        prop_assert!(in_use.abs_diff(1200) <= moved, "{in_use}, {moved} moved");
    }

    #[test]
    fn garbage_is_never_more_than_the_pool(words in proptest::collection::vec(any::<(u16, u32)>(), 0..40)) {
        let mut app = MadeUpApp::new();
        app.pool("mb", 4000, 2000, &[200; 4], Handler::Ring);
        app.ring("ring", 64, 3);
        let (target, running) = app.start();
        running.memory.before_read(move |_, memory| {
            let length = memory.region(BASE).len() as u64;
            for (at, word) in &words {
                memory.write_u32(BASE + u64::from(*at) * 4 % (length - 4), *word);
            }
            Ok(())
        });
        let counts = counts(&target).unwrap();
        for pool in &counts.pools {
            prop_assert!(pool.cached() + pool.common.unwrap_or_default() <= pool.size);
        }
        for ring in &counts.rings {
            prop_assert!(ring.used <= ring.capacity);
        }
        prop_assert!(!counts.problems.is_empty() || counts.pools.len() + counts.rings.len() == 2);
    }
}
