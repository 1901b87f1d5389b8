//! Layouts are recognised in generated memory, and compared with the installed headers.

#![allow(clippy::cast_possible_truncation)] // made-up memory of some kilobytes

use super::*;
use crate::memory::read_u32;
use crate::test_memory::{ChangingMemory, TestMemory};

const MACHINES: [Machine; 3] = [Machine::X86, Machine::Arm64Line64, Machine::Arm64Line128];

/// All releases of the table.
fn releases() -> Vec<Release> {
    let (first, last) = table::releases().unwrap();
    let releases = (first.0..=last.0).flat_map(|year| [3, 7, 11].map(|month| (year, month)));
    releases.filter(|release| (first..=last).contains(release)).collect()
}

/// The layout from the table alone.
fn of(release: Release, machine: Machine, build: Build) -> Result<Layout, String> {
    Layout::of(release, machine, build, &Offsets::new())
}

fn builds() -> impl Iterator<Item = Build> {
    let no_iova = |build: Build| [build, Build { no_iova: true, ..build }];
    Build::OF_POOLS.into_iter().flat_map(no_iova)
}

#[test]
fn every_release_has_every_structure_on_every_machine() {
    assert_eq!(table::releases(), Some(((21, 11), (26, 7))));
    assert_eq!(releases().len(), 15);
    for release in releases() {
        for machine in MACHINES {
            for build in builds() {
                let layout = of(release, machine, build);
                layout.unwrap_or_else(|why| panic!("{release:?} {machine:?} {build:?}: {why}"));
            }
        }
    }
}

#[test]
fn the_build_is_recognised_by_a_mempool() {
    for release in releases() {
        for machine in MACHINES {
            for build in builds() {
                for max_lcore in [1, 128] {
                    let layout = of(release, machine, build).unwrap();
                    let layout = layout.with_max_lcore(max_lcore);
                    let app = MadeUpApp::new(&layout, machine);
                    let selected = app.select().unwrap();
                    assert_eq!(selected, layout, "{release:?} {machine:?} {build:?} {max_lcore}");
                }
            }
        }
    }
}

#[test]
fn an_app_without_mempools_has_the_usual_build() {
    let mut app = MadeUpApp::new(&Layout::dpdk_22_11(), Machine::X86);
    app.memzones.clear();
    assert_eq!(app.select().unwrap(), Layout::dpdk_22_11());
}

#[test]
fn a_mempool_without_caches_and_objects_is_one() {
    let mut app = MadeUpApp::new(&Layout::dpdk_22_11(), Machine::X86);
    let pool = &Layout::dpdk_22_11().mempool;
    app.write(POOL + pool.cache_size, &[0; 4]);
    for offset in [pool.populated_size, pool.elt_list, pool.nb_mem_chunks, pool.mem_list] {
        app.write(POOL + offset, &[0; 4]);
    }
    app.set_pool_bytes(pool.bytes + PRIVATE_BYTES);
    assert_eq!(app.select().unwrap(), Layout::dpdk_22_11());
}

#[test]
fn one_mempool_of_several_may_be_broken() {
    let mut app = MadeUpApp::new(&Layout::dpdk_22_11(), Machine::X86);
    let broken = Memzone { name: "MP_broken".to_owned(), address: 0x10, bytes: 64 };
    app.memzones.insert(0, broken);
    assert_eq!(app.select().unwrap(), Layout::dpdk_22_11());
}

#[test]
fn an_unknown_layout_is_refused_with_the_reason() {
    // As if a member had been added to each structure.
    let mut patched = Layout::dpdk_22_11();
    patched.cache.bytes += 64;
    assert_refused(&patched, "caches of 8256 bytes do not fill");
    let mut patched = Layout::dpdk_22_11();
    patched.mempool.local_cache += 8;
    assert_refused(&patched, "its caches are at");
    let mut patched = Layout::dpdk_22_11();
    patched.mempool.bytes += 64;
    assert_refused(&patched, "64 bytes too many for no statistics");
    let mut patched = Layout::dpdk_22_11();
    patched.ring.bytes += 128;
    assert_refused(&patched, "its ring of 64 entries does not fill 1024 bytes");
    let mut patched = Layout::dpdk_22_11();
    patched.mbuf.pool += 8;
    assert_refused(&patched, "an mbuf of the pool at 0x0");
    let mut patched = Layout::dpdk_22_11();
    patched.objhdr.bytes += 16;
    assert_refused(&patched, "an mbuf of the pool at");
}

#[test]
fn debug_information_is_preferred_and_the_table_fills_the_rest() {
    let mut patched = Layout::dpdk_22_11();
    patched.objhdr = ObjhdrLayout { next: 0, mp: 16, iova: 24, bytes: 24 };
    let app = MadeUpApp::new(&patched, Machine::X86);
    assert!(app.select().is_err());
    let debug: Offsets = [("next", 0), ("mp", 16), ("iova", 24), ("sizeof", 24)]
        .map(|(member, offset)| (("rte_mempool_objhdr", member), offset))
        .into();
    let select =
        |app: &MadeUpApp, version| Layout::select_with(&debug, version, &app.memory, &app.memzones);
    assert_eq!(select(&app, "DPDK 22.11.3").unwrap(), patched);
    // Debug information of another DPDK than the app's.
    let stock = MadeUpApp::new(&Layout::dpdk_22_11(), Machine::X86);
    assert_eq!(select(&stock, "DPDK 22.11.3").unwrap(), Layout::dpdk_22_11());
    let why = select(&app, "DPDK 29.11.0").unwrap_err().to_string();
    assert!(why.contains("releases 21.11 to 26.07 are known"), "{why}");
}

fn assert_refused(patched: &Layout, expected: &str) {
    let why = MadeUpApp::new(patched, Machine::X86).select().unwrap_err().to_string();
    assert!(why.starts_with("the layout of DPDK 22.11.3 in this app is not known: "), "{why}");
    assert!(why.contains(expected), "{why}");
}

#[test]
fn programs_of_other_machines_are_refused() {
    for (class, machine, expected) in [(1, 3, "not a 64-bit program"), (2, 243, "ELF machine 243")]
    {
        let mut app = MadeUpApp::new(&Layout::dpdk_22_11(), Machine::X86);
        app.write(ELF + 4, &[class]);
        app.write(ELF + 18, &[machine]);
        let why = app.select().unwrap_err().to_string();
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn without_rights_that_is_the_reason() {
    let app = MadeUpApp::new(&Layout::dpdk_22_11(), Machine::X86);
    let memory = ChangingMemory::from(app.memory);
    memory.before_read(|_, _| Err(XrayError::Ended { pid: 7 }));
    let selected = Layout::select("DPDK 22.11.3", &memory, &app.memzones);
    assert!(matches!(selected, Err(XrayError::Ended { pid: 7 })));
}

/// Whatever value one word of the structures has, no wrong layout is selected.
#[test]
fn a_corrupted_word_is_refused_or_harmless() {
    let (mut refused, mut harmless) = (0, 0);
    for build in builds().step_by(3) {
        let layout = of((24, 11), Machine::X86, build).unwrap().with_max_lcore(4);
        let mut app = MadeUpApp::new(&layout, Machine::X86);
        for address in app.words() {
            let right = read_u32(&app.memory, address).unwrap();
            for wrong in [0, 1, right ^ 0x80, u32::MAX] {
                app.write(address, &wrong.to_le_bytes());
                match app.select() {
                    Ok(selected) => {
                        assert_eq!(selected, layout, "{build:?}: {wrong:#x} at {address:#x}");
                        harmless += 1;
                    }
                    Err(XrayError::UnknownLayout { .. }) => refused += 1,
                    Err(why) => panic!("{why}"),
                }
            }
            app.write(address, &right.to_le_bytes());
        }
    }
    assert!(refused > 100 && harmless > 100, "{refused} refused, {harmless} harmless");
}

/// Addresses of the generated structures.
const ELF: u64 = 0x40_0000;
const MEMZONE: u64 = 0x10_0000;
const POOL: u64 = 0x1000_0000;
const RING: u64 = 0x2000_0000;
const MEMHDR: u64 = 0x3000_0000;
const CHUNK: u64 = 0x4000_0000;

const PRIVATE_BYTES: u64 = 64;
const OBJECTS: u32 = 9;
const RING_SIZE: u32 = 64;
const DATA_ROOM: u16 = 256;
const PRIV_SIZE: u16 = 16;
const CACHE_SIZE: u32 = 32;

/// The memory of an app that has one mempool of mbufs.
#[derive(Debug)]
struct MadeUpApp {
    release: Release,
    memory: TestMemory,
    memzones: Vec<Memzone>,
}

impl MadeUpApp {
    fn new(layout: &Layout, machine: Machine) -> Self {
        let pool = &layout.mempool;
        let pool_bytes =
            pool.bytes + u64::from(layout.max_lcore) * layout.cache.bytes + PRIVATE_BYTES;
        let zone = |name: &str, address, bytes| Memzone { name: name.to_owned(), address, bytes };
        let ring_bytes = layout.ring.bytes + 8 * u64::from(RING_SIZE);
        let memzones = vec![
            zone("MP_made_up", POOL, pool_bytes),
            zone("RG_MP_made_up", RING, ring_bytes),
            zone("MP_made_up_0", CHUNK, 0x10_0000),
        ];
        let mut app = Self { release: layout.release, memory: TestMemory::default(), memzones };
        app.memory.map(ELF, 64);
        app.write(ELF, b"\x7fELF\x02");
        app.write(ELF + 18, &[if machine == Machine::X86 { 62 } else { 183 }, 0]);
        app.memory.map(MEMZONE, layout.memzone.bytes);
        app.write(MEMZONE + layout.memzone.name, b"MP_made_up");
        app.write(MEMZONE + layout.memzone.addr, &POOL.to_le_bytes());
        app.memory.map(POOL, pool_bytes);
        app.write_pool(layout);
        app.write_ring(layout, ring_bytes);
        app.write_objects(layout);
        app.set_pool_bytes(pool_bytes);
        app
    }

    fn write_pool(&mut self, layout: &Layout) {
        let pool = &layout.mempool;
        let header_bytes = layout.objhdr.bytes.next_multiple_of(64);
        let element_bytes = layout.mbuf.bytes + u64::from(PRIV_SIZE) + u64::from(DATA_ROOM);
        self.write(POOL + pool.name, b"made_up");
        self.u64(POOL + pool.mz, MEMZONE);
        self.u64(POOL + pool.pool_data, RING);
        self.u64(POOL + pool.local_cache, POOL + pool.bytes);
        self.u64(POOL + pool.elt_list, CHUNK + header_bytes - layout.objhdr.bytes);
        self.u64(POOL + pool.mem_list, MEMHDR);
        for (member, value) in [
            (pool.size, OBJECTS),
            (pool.populated_size, OBJECTS),
            (pool.cache_size, CACHE_SIZE),
            (pool.nb_mem_chunks, 1),
            (pool.private_data_size, PRIVATE_BYTES as u32),
            (pool.header_size, header_bytes as u32),
            (pool.elt_size, element_bytes as u32),
        ] {
            self.write(POOL + member, &value.to_le_bytes());
        }
        let private = pool.bytes + u64::from(layout.max_lcore) * layout.cache.bytes;
        let private = POOL + private;
        self.write(private + layout.pktmbuf_pool.data_room_size, &DATA_ROOM.to_le_bytes());
        self.write(private + layout.pktmbuf_pool.priv_size, &PRIV_SIZE.to_le_bytes());
        for lcore in 0..u64::from(layout.max_lcore) {
            let cache = POOL + pool.bytes + lcore * layout.cache.bytes;
            self.write(cache + layout.cache.size, &CACHE_SIZE.to_le_bytes());
            self.write(cache + layout.cache.len, &3_u32.to_le_bytes());
        }
    }

    fn write_ring(&mut self, layout: &Layout, bytes: u64) {
        let ring = &layout.ring;
        self.memory.map(RING, bytes);
        self.write(RING + ring.name, b"MP_made_up");
        for (member, value) in [
            (ring.size, RING_SIZE),
            (ring.mask, RING_SIZE - 1),
            (ring.capacity, OBJECTS),
            (ring.prod_tail, 5),
            (ring.cons_tail, 5_u32.wrapping_sub(OBJECTS)),
        ] {
            self.write(RING + member, &value.to_le_bytes());
        }
    }

    fn write_objects(&mut self, layout: &Layout) {
        let (memhdr, objhdr, mbuf) = (&layout.memhdr, &layout.objhdr, &layout.mbuf);
        self.memory.map(MEMHDR, memhdr.bytes);
        self.u64(MEMHDR + memhdr.mp, POOL);
        self.u64(MEMHDR + memhdr.addr, CHUNK);
        let header_bytes = objhdr.bytes.next_multiple_of(64);
        let each = header_bytes + mbuf.bytes + u64::from(PRIV_SIZE) + u64::from(DATA_ROOM) + 48;
        self.u64(MEMHDR + memhdr.len, each * u64::from(OBJECTS));
        self.memory.map(CHUNK, each * u64::from(OBJECTS));
        for number in 0..u64::from(OBJECTS) {
            let object = CHUNK + number * each + header_bytes;
            let header = object - objhdr.bytes;
            let last = number + 1 == u64::from(OBJECTS);
            self.u64(header + objhdr.next, if last { 0 } else { header + each });
            self.u64(header + objhdr.mp, POOL);
            if objhdr.bytes == 32 {
                self.u64(header + 24, 0xf2ee_f2ee_dadd_2e55);
            }
            let buffer = object + mbuf.bytes + u64::from(PRIV_SIZE);
            self.u64(object + mbuf.buf_addr, buffer);
            if mbuf.next != 8 {
                self.u64(object + 8, buffer ^ 0xff_0000_0000);
            }
            self.u64(object + mbuf.pool, POOL);
            self.write(object + mbuf.buf_len, &DATA_ROOM.to_le_bytes());
            self.write(object + mbuf.priv_size, &PRIV_SIZE.to_le_bytes());
        }
    }

    fn set_pool_bytes(&mut self, bytes: u64) {
        self.memzones[0].bytes = bytes;
        self.u64(MEMZONE + Layout::dpdk_22_11().memzone.len, bytes);
    }

    fn u64(&mut self, address: u64, value: u64) {
        self.memory.write_u64(address, value);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes);
    }

    /// Addresses of all words of 32 bits that are not 0.
    fn words(&self) -> Vec<u64> {
        let words = |(begin, bytes): (u64, &[u8])| {
            let words = (begin..).step_by(4).zip(bytes.chunks_exact(4));
            let set = words.filter(|(_, word)| word.iter().any(|byte| *byte != 0));
            set.map(|(address, _)| address).collect::<Vec<_>>()
        };
        self.memory.regions().flat_map(words).collect()
    }

    fn select(&self) -> Result<Layout, XrayError> {
        self.select_of(&format!("DPDK {}.{:02}.3", self.release.0, self.release.1))
    }

    fn select_of(&self, version: &str) -> Result<Layout, XrayError> {
        Layout::select(version, &self.memory, &self.memzones)
    }
}
