//! Scans of an app whose memory is generated, and of garbage.

use std::time::Duration;

use proptest::prelude::*;

use super::made_up::{self, MadeUpApp, PRIVATE_BYTES};
use super::*;
use crate::report::{Holder, LostMbuf, PoolScan};

pub(super) fn settings() -> ScanSettings {
    ScanSettings { interval: Duration::ZERO, ..ScanSettings::default() }
}

fn scan_of(app: &MadeUpApp) -> PoolScan {
    let report = scan(&app.target, &settings(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, [] as [String; 0]);
    let [pool] = report.pools.try_into().unwrap();
    pool
}

fn lost(pool: &PoolScan) -> Vec<u64> {
    let object = |mbuf: &LostMbuf| (0..200).find(|o| MadeUpApp::mbuf(*o) == mbuf.address).unwrap();
    pool.lost_mbufs.iter().map(object).collect()
}

fn parts(pool: &PoolScan) -> u64 {
    let cached: u64 = pool.caches.values().sum();
    pool.common + cached + pool.held + pool.lost + pool.moving + pool.not_judged
}

/// Fate of an mbuf in a generated app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Common,
    Cached(u64),
    Queued,
    Held,
    HeldInside(u64),
    LeftInRing,
    LeftInCache,
    NextOfBefore,
    SharesBefore,
    InPacketOfBefore,
    Forgotten,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Common),
        2 => (0..5_u64).prop_map(Fate::Cached),
        1 => Just(Fate::Queued),
        1 => Just(Fate::Held),
        1 => (1..640_u64).prop_map(Fate::HeldInside),
        1 => Just(Fate::LeftInRing),
        1 => Just(Fate::LeftInCache),
        2 => Just(Fate::NextOfBefore),
        1 => Just(Fate::SharesBefore),
        1 => Just(Fate::InPacketOfBefore),
        2 => Just(Fate::Forgotten),
    ]
}

/// The expected result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    common: u64,
    caches: std::collections::BTreeMap<u32, u64>,
    lost: Vec<u64>,
    by_mbuf: u64,
    queued: u64,
}

/// Makes an app with these mbufs; "before" means the mbuf with the previous number.
fn make(fates: &[Fate], app: &mut MadeUpApp) -> Expected {
    let layout = app.target.layout.mbuf.clone();
    let (mut common, mut queued) = (Vec::new(), Vec::new());
    let mut expected = Expected::default();
    let mut before_is_held = false;
    for (object, fate) in (0..).zip(fates) {
        let mbuf = MadeUpApp::mbuf(object);
        let before = object.checked_sub(1).map(MadeUpApp::mbuf);
        let mut held = false;
        match (*fate, before) {
            (Fate::Common, _) => common.push(object),
            (Fate::Cached(lcore), _) => {
                app.free_to_cache(lcore, object);
                *expected.caches.entry(u32::try_from(lcore).unwrap()).or_default() += 1;
            }
            (Fate::Queued, _) if queued.len() < 32 => {
                queued.push(object);
                held = true;
            }
            (Fate::Held | Fate::Queued, _) => {
                app.keep(mbuf);
                held = true;
            }
            (Fate::HeldInside(offset), _) => {
                app.keep(mbuf + offset);
                held = true;
            }
            (Fate::LeftInRing, _) => app.leave_in_ring(&[(40, object)]),
            (Fate::NextOfBefore, Some(before)) => {
                app.set(before + layout.next, mbuf);
                held = before_is_held;
                expected.by_mbuf += u64::from(held);
            }
            (Fate::SharesBefore, Some(before)) => {
                // An indirect mbuf: its holder also holds the buffer, but not vice versa.
                app.set(mbuf + layout.buf_addr, before + 192);
            }
            (Fate::InPacketOfBefore, Some(_)) => {
                app.set(MadeUpApp::buffer(object - 1) + 128, mbuf);
            }
            _ => {}
        }
        let free = matches!(fate, Fate::Common | Fate::Cached(_));
        if !held && !free {
            expected.lost.push(object);
        }
        before_is_held = held;
    }
    app.free_to_ring(&common);
    app.enqueue(&queued);
    expected.common = common.len() as u64;
    expected.queued = queued.len() as u64;
    expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_mbuf_counts_once_and_as_what_it_is(fates in prop::collection::vec(fate(), 1..180)) {
        let mut app = MadeUpApp::new(fates.len() as u64, PoolHandler::Ring);
        let expected = make(&fates, &mut app);
        let pool = scan_of(&app);
        prop_assert_eq!(pool.size, fates.len() as u64);
        prop_assert_eq!(parts(&pool), pool.size);
        prop_assert_eq!(pool.holders.iter().map(|holder| holder.mbufs).sum::<u64>(), pool.held);
        let of = |wanted: fn(&Holder) -> bool| {
            let holders = pool.holders.iter().filter(|count| wanted(&count.holder));
            holders.map(|count| count.mbufs).sum::<u64>()
        };
        let found = Expected {
            common: pool.common,
            caches: pool.caches.clone(),
            lost: lost(&pool),
            by_mbuf: of(|holder| *holder == Holder::Mbuf),
            queued: of(|holder| matches!(holder, Holder::Ring { .. })),
        };
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn garbage_ends_in_a_report_or_an_error(
        fates in prop::collection::vec(fate(), 1..60),
        garbage in prop::collection::vec((0..0x2d_0000_u64 / 8, any::<u64>()), 0..40),
        wild in prop::collection::vec((0..0x400_u64, 0..0x2d_0000_u64 / 8), 0..40),
    ) {
        let mut app = MadeUpApp::new(fates.len() as u64, PoolHandler::Ring);
        make(&fates, &mut app);
        // Garbage at random addresses, and words of the pool's header and objects that point into
        // the memory.
        for (word, value) in garbage {
            app.set(0x1_0000_0000 + word * 8, value);
        }
        for (word, pointer) in wild {
            let area = if word % 2 == 0 { 0x1_0000_0000 } else { made_up::OBJECTS };
            app.set(area + word / 2 * 8, 0x1_0000_0000 + pointer * 8);
        }
        if let Ok(report) = scan(&app.target, &settings(), &mut |_| {}) {
            for pool in &report.pools {
                prop_assert_eq!(parts(pool), pool.size);
                for mbuf in &pool.lost_mbufs {
                    let _ = packet(&app.target, mbuf);
                }
            }
        }
    }
}

#[test]
fn stacks_are_walked() {
    for lock_free in [false, true] {
        let mut app = MadeUpApp::new(100, PoolHandler::Stack);
        app.free_to_stack(&(0..90).collect::<Vec<_>>(), lock_free);
        (90..98).for_each(|object| {
            app.keep(MadeUpApp::mbuf(object));
        });
        let pool = scan_of(&app);
        assert_eq!((pool.common, pool.held, lost(&pool)), (90, 8, vec![98, 99]));
    }
}

#[test]
fn a_stack_that_does_not_end_is_torn() {
    let app = MadeUpApp::new(100, PoolHandler::Stack);
    app.free_to_stack(&[1, 2, 3], true);
    let stack = &app.target.layout.stack;
    let first = app.target.pools()[0].as_ref().unwrap().handler_data + stack.lf_elems;
    app.set(first + 8, first); // its own successor
    let error = FreeObjects::read(&app.target, app.target.pools()[0].as_ref().unwrap());
    assert!(error.unwrap_err().to_string().contains("does not end"));
    let report = scan(&app.target, &settings(), &mut |_| {}).unwrap();
    assert_eq!(report.pools[0].lost, 0, "{report:?}");
    assert!(!report.problems.is_empty());
}

#[test]
fn a_pool_of_another_handler_is_not_judged() {
    let mut app = MadeUpApp::new(100, PoolHandler::Unknown);
    app.free_to_cache(2, 7);
    let pool = scan_of(&app);
    assert_eq!((pool.caches[&2], pool.not_judged, pool.lost), (1, 99, 0));
    assert!(pool.not_judged_why[0].contains("rte_stack"));
}

#[test]
fn memory_of_another_process_holds_nothing() {
    let app = MadeUpApp::new(10, PoolHandler::Ring);
    app.set(made_up::GUEST + 8192, MadeUpApp::mbuf(4));
    assert_eq!(scan_of(&app).lost, 10);
    // The same in a file of the app's own.
    let mut maps = app.memory.mappings();
    maps.last_mut().unwrap().path = "/dev/hugepages/rtemap_7".to_owned();
    drop(maps);
    assert_eq!(scan_of(&app).held, 1);
}

#[test]
fn drivers_that_keep_offsets_are_not_judged() {
    let app = MadeUpApp::new(10, PoolHandler::Ring);
    let fill_ring = crate::Mapping {
        start: 0x2_0000_0000,
        end: 0x2_0001_0000,
        path: "socket:[4711]".to_owned(),
        offset: 1 << 32,
        ..crate::Mapping::default()
    };
    app.memory.mappings().push(fill_ring);
    let pool = scan_of(&app);
    assert_eq!((pool.lost, pool.not_judged), (0, 10));
    assert!(pool.not_judged_why[0].contains("AF_XDP"));
}

#[test]
fn an_mbuf_that_moves_ahead_of_the_search_is_not_lost() {
    let mut app = MadeUpApp::new(10, PoolHandler::Ring);
    let (low, high) = (app.keep(MadeUpApp::mbuf(3)), made_up::HEAP + 0x8000);
    // The reference is at the higher address while the lower one is read, and at the lower one
    // afterwards; only some scans find it.
    let mut reads = 0_u32;
    app.before_read(move |address, memory| {
        if (made_up::HEAP..made_up::GUEST).contains(&address) {
            reads += 1;
            let (here, there) = if reads.is_multiple_of(2) { (low, high) } else { (high, low) };
            let value = if reads.is_multiple_of(3) { MadeUpApp::mbuf(3) } else { 0 };
            memory.write_u64(here, value);
            memory.write_u64(there, 0);
        }
        Ok(())
    });
    let pool = scan_of(&app);
    assert!(!lost(&pool).contains(&3), "{pool:?}");
    assert_eq!(pool.lost, 9);
}

#[test]
fn an_mbuf_that_changes_or_was_free_is_not_lost() {
    let app = MadeUpApp::new(10, PoolHandler::Ring);
    let header = app.target.layout.mempool.name + 0x1_0000_0000;
    let mut scans = 0_u64;
    app.before_read(move |address, memory| {
        if address == header {
            scans += 1;
        }
        if address == made_up::HEAP {
            scans += 1;
        }
        // The first bytes of its packet.
        memory.write_u64(MadeUpApp::buffer(5) + 128, scans);
        Ok(())
    });
    let pool = scan_of(&app);
    assert!(!lost(&pool).contains(&5), "{:?}", lost(&pool));
    assert_eq!(parts(&pool), 10);
}

#[test]
fn an_app_that_ends_is_an_error() {
    let app = MadeUpApp::new(10, PoolHandler::Ring);
    app.before_read(|address, _| {
        if (made_up::HEAP..made_up::GUEST).contains(&address) {
            return Err(XrayError::Ended { pid: 4711 });
        }
        Ok(())
    });
    let error = scan(&app.target, &settings(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, XrayError::Ended { pid: 4711 }));
}

#[test]
fn external_buffers_are_followed_where_they_are_valid() {
    let mut app = MadeUpApp::new(10, PoolHandler::Ring);
    let layout = app.target.layout.mbuf.clone();
    app.keep(MadeUpApp::mbuf(0));
    app.keep(MadeUpApp::mbuf(1));
    // Both have shared information in the buffer of another mbuf, but only the first has the flag.
    app.set(MadeUpApp::mbuf(0) + layout.shinfo, MadeUpApp::buffer(2) + 200);
    app.set(MadeUpApp::mbuf(0) + layout.ol_flags, 1 << 61);
    app.set(MadeUpApp::mbuf(1) + layout.shinfo, MadeUpApp::buffer(3) + 200);
    app.set(MadeUpApp::buffer(2) + 208, MadeUpApp::mbuf(4)); // argument of its callback
    assert_eq!(lost(&scan_of(&app)), [3, 5, 6, 7, 8, 9]);
}

#[test]
fn private_data_and_headroom_are_followed() {
    let mut app = MadeUpApp::new(10, PoolHandler::Ring);
    app.keep(MadeUpApp::mbuf(0));
    app.set(MadeUpApp::buffer(0) - PRIVATE_BYTES, MadeUpApp::mbuf(1));
    app.set(MadeUpApp::buffer(1) + 64, MadeUpApp::mbuf(2));
    app.set(MadeUpApp::buffer(2) + 128, MadeUpApp::mbuf(3)); // its packet
    assert_eq!(lost(&scan_of(&app)), [3, 4, 5, 6, 7, 8, 9]);
}

/// With physical addresses as IOVA, that of one mbuf may be the virtual address of another.
#[test]
fn addresses_for_devices_are_not_followed() {
    let mut app = MadeUpApp::new(10, PoolHandler::Ring);
    let iova = app.target.layout.mbuf.buf_iova().unwrap();
    app.keep(MadeUpApp::mbuf(0));
    app.set(MadeUpApp::mbuf(0) + iova, MadeUpApp::buffer(1));
    assert_eq!(scan_of(&app).lost, 9);
    // In builds without it, the next mbuf of a chain is there.
    app.target.layout.mbuf.next = iova;
    assert_eq!(scan_of(&app).lost, 8);
}

#[test]
fn packets_are_read_over_their_segments() {
    let app = MadeUpApp::new(10, PoolHandler::Ring);
    let layout = app.target.layout.mbuf.clone();
    for (object, text) in [(0, b"first "), (1, b"second")] {
        app.set_bytes(MadeUpApp::buffer(object) + 128, text);
        app.set_u16(MadeUpApp::mbuf(object) + layout.data_len, 6);
    }
    app.set(MadeUpApp::mbuf(0) + layout.next, MadeUpApp::mbuf(1));
    let mbuf = LostMbuf { address: MadeUpApp::mbuf(0), ..LostMbuf::default() };
    assert_eq!(packet(&app.target, &mbuf).unwrap(), b"first second");
    // A circular chain ends.
    app.set(MadeUpApp::mbuf(1) + layout.next, MadeUpApp::mbuf(0));
    assert!(packet(&app.target, &mbuf).unwrap().len() <= MOST_PACKET_BYTES);
    app.set_u16(MadeUpApp::mbuf(1) + layout.data_len, 200);
    assert!(matches!(packet(&app.target, &mbuf), Err(XrayError::Implausible { .. })));
}

#[test]
fn memory_of_the_pool_is_no_reference_to_its_objects() {
    let app = MadeUpApp::new(60, PoolHandler::Ring);
    // The list of objects leads from header to header, and the pool contains its ends.
    assert_eq!(scan_of(&app).lost, 60);
}
