//! Scans of a generated app with a port of `net_af_xdp`.

use proptest::collection::vec;
use proptest::prelude::*;

use super::made_up::{GUEST, HEAP, MadeUpApp, OBJECTS, POOL};
use super::tests::settings;
use super::*;
use crate::layout::Layout;
use crate::memzone::Memzone;
use crate::report::{Holder, PoolScan};
use crate::{Mapping, PoolHandler};

const PORTS: u64 = HEAP + 0x4000;
const TABLES: u64 = HEAP + 0x8000;
const RX_QUEUE: u64 = HEAP + 0x9000;
const TX_QUEUE: u64 = HEAP + 0x9800;
const UMEM: u64 = HEAP + 0xa000;
const OTHER_POOL: u64 = HEAP + 0xb000;
/// Mappings of the socket, in the order of `RINGS`, and the offset of their entries.
const SOCKET: u64 = GUEST;
const RING_BYTES: u64 = 0x400;
const ENTRIES: u64 = 64;
const SLOTS: u32 = 16;
/// Offset of the mapping, offset of the ring's description, bytes of an entry.
const RINGS: [(u64, u64, u64); 4] = [
    (0, RX_QUEUE, 16),
    (0x8000_0000, TX_QUEUE, 16),
    (0x1_0000_0000, RX_QUEUE + 96, 8),
    (0x1_8000_0000, RX_QUEUE + 144, 8),
];
const RX: usize = 0;
const TX: usize = 1;
const FILL: usize = 2;
const COMPLETION: usize = 3;

/// Port 0 with a queue in each direction; there are no other references to the ten mbufs.
fn made(pool: u64) -> MadeUpApp {
    let mut app = MadeUpApp::new(10, PoolHandler::Ring);
    let layout = Layout::dpdk_22_11();
    let bytes = layout.eth_dev_shared.data + layout.eth_dev_data.bytes;
    app.target.memzones.push(Memzone { name: "rte_eth_dev_data".into(), address: PORTS, bytes });
    let other = Memzone { name: "MP_other".into(), address: OTHER_POOL, bytes: 4096 };
    app.target.memzones.push(other);
    let (port, fields) = (PORTS + layout.eth_dev_shared.data, &layout.eth_dev_data);
    app.set_bytes(port + fields.name, b"net_af_xdp0\0");
    app.set(port + fields.rx_queues, TABLES);
    app.set(port + fields.tx_queues, TABLES + 8);
    app.set_u16(port + fields.nb_rx_queues, 1);
    app.set_u16(port + fields.nb_tx_queues, 1);
    app.set(TABLES, RX_QUEUE);
    app.set(TABLES + 8, TX_QUEUE);
    for (address, value) in [
        (RX_QUEUE + 48, UMEM),
        (RX_QUEUE + 64, pool),
        (TX_QUEUE + 48, UMEM),
        (UMEM + 24, pool),
        (UMEM + 32, OBJECTS),
    ] {
        app.set(address, value);
    }
    for (number, (offset, described, _)) in (0..).zip(RINGS) {
        let start = SOCKET + number * RING_BYTES;
        app.set_u32(described + 8, SLOTS - 1);
        app.set_u32(described + 12, SLOTS);
        for (member, value) in [(16, start), (24, start + 4), (32, start + ENTRIES)] {
            app.set(described + member, value);
        }
        let path = "socket:[4711]".to_owned();
        let mapping =
            Mapping { start, end: start + RING_BYTES, path, offset, ..Mapping::default() };
        app.memory.mappings().push(mapping);
    }
    app
}

/// Puts mbufs into a ring whose indices have wrapped.
fn fill(app: &MadeUpApp, ring: usize, mbufs: &[u64]) {
    let (start, (.., entry_bytes)) = (SOCKET + ring as u64 * RING_BYTES, RINGS[ring]);
    let first = u32::MAX - 1;
    let last = first.wrapping_add(u32::try_from(mbufs.len()).unwrap());
    app.set_u32(start, last);
    app.set_u32(start + 4, first);
    for (place, mbuf) in (0_u32..).zip(mbufs) {
        let slot = u64::from(first.wrapping_add(place) % SLOTS);
        // The header of the object precedes it.
        let offset = MadeUpApp::mbuf(*mbuf) - OBJECTS - 64;
        let packet = if entry_bytes == 16 { 320_u64 << 48 } else { 0 };
        app.set(start + ENTRIES + slot * entry_bytes, offset | packet);
    }
}

fn scan_of(app: &MadeUpApp) -> PoolScan {
    let report = scan(&app.target, &settings(), &mut |_| {}).unwrap();
    report.pools.into_iter().find(|pool| pool.name == "pkts").unwrap()
}

#[test]
fn mbufs_in_rings_of_the_kernel_are_held_by_their_queue() {
    let app = made(POOL);
    fill(&app, FILL, &[1, 2, 3, 4]);
    fill(&app, RX, &[5, 6]);
    fill(&app, TX, &[7]);
    fill(&app, COMPLETION, &[8, 9]);
    // Consumed; the entry remains.
    app.set_u32(SOCKET + FILL as u64 * RING_BYTES + 4, 0);
    let pool = scan_of(&app);
    assert_eq!((pool.held, pool.lost, pool.not_judged), (7, 0, 3), "{pool:?}");
    let held = |holder: &Holder| {
        let of = pool.holders.iter().find(|count| count.holder == *holder);
        of.map_or(0, |count| count.mbufs)
    };
    assert_eq!(held(&Holder::RxQueue { port: 0, queue: 0 }), 4);
    assert_eq!(held(&Holder::TxQueue { port: 0, queue: 0 }), 3);
    assert!(pool.not_judged_why[0].contains("AF_XDP ports (0)"), "{:?}", pool.not_judged_why);
}

#[test]
fn pools_of_no_socket_are_judged() {
    let app = made(OTHER_POOL);
    let pool = scan_of(&app);
    assert_eq!((pool.lost, pool.not_judged), (10, 0), "{pool:?}");
    // A socket of which nothing more is known may hold any mbuf.
    let fill_ring = Mapping {
        start: GUEST + 0x1000,
        end: GUEST + 0x2000,
        path: "socket:[4712]".to_owned(),
        offset: 1 << 32,
        ..Mapping::default()
    };
    app.memory.mappings().push(fill_ring);
    let pool = scan_of(&app);
    assert_eq!((pool.lost, pool.not_judged), (0, 10), "{pool:?}");
}

proptest! {
    #[test]
    fn garbage_is_not_judged(
        words in vec((0..0x400_u64, prop_oneof![any::<u64>(), GUEST..GUEST + 4096]), 1..20),
        entries in vec((0..0x200_u64, any::<u64>()), 0..40),
        broken in 0..RINGS.len(),
    ) {
        let app = made(POOL);
        fill(&app, FILL, &[1, 2, 3]);
        for (at, word) in words {
            app.set(RX_QUEUE + 8 * at % 0x2000, word);
        }
        for (at, word) in entries {
            app.set(SOCKET + 8 * at, word);
        }
        app.set_u32(RINGS[broken].1 + 12, 15);
        let pool = scan_of(&app);
        let parts = pool.common + pool.held + pool.moving + pool.not_judged;
        prop_assert_eq!((pool.lost, parts), (0, 10));
    }
}
