//! Generated memory configurations, valid and broken.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::test_memory::TestMemory;
use pmdscope_telemetry::host::maps::Mapping;

const CONFIG: u64 = 0x1_0000_0000;
const DATA: u64 = 0x2_0000_0000;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A memzone with its index in the array: index, name, address, bytes.
pub(crate) type ZoneElement<'a> = (usize, &'a str, u64, u64);

/// An array of memzones, and its elements, which are at `data`.
pub(crate) fn zone_array(
    data: u64,
    elements: u32,
    zones: &[ZoneElement<'_>],
) -> ([u8; ARRAY_BYTES], Vec<u8>) {
    let mut array = [0; ARRAY_BYTES];
    put(&mut array, 0, &ARRAY_NAME);
    put(&mut array, 64, &u32::try_from(zones.len()).unwrap().to_le_bytes());
    put(&mut array, 68, &elements.to_le_bytes());
    put(&mut array, 72, &72_u32.to_le_bytes());
    put(&mut array, 80, &data.to_le_bytes());
    let words = elements.div_ceil(64);
    let mask = mask_offset(elements);
    let mut bytes = vec![0; mask + 8 + words as usize * 8];
    put(&mut bytes, mask, &words.to_le_bytes());
    for (index, name, address, length) in zones {
        put(&mut bytes, index * 72, name.as_bytes());
        put(&mut bytes, index * 72 + 40, &address.to_le_bytes());
        put(&mut bytes, index * 72 + 48, &length.to_le_bytes());
        bytes[mask + 8 + index / 8] |= 1 << (index % 8);
    }
    (array, bytes)
}

/// Offset of the mask of elements in use from their start, without its length.
pub(crate) fn mask_offset(elements: u32) -> usize {
    elements as usize * 72
}

/// A configuration at [`CONFIG`] with the memzones of these numbers.
fn pieces(elements: u32, zones: &[ZoneElement<'_>]) -> TestMemory {
    let mut config = vec![0; 8192];
    put(&mut config, 0, &MAGIC.to_le_bytes());
    put(&mut config, 4, &0x160b_0b63_u32.to_le_bytes());
    let (array, data) = zone_array(DATA, elements, zones);
    put(&mut config, 40, &array);
    let mut memory = TestMemory::default();
    memory.insert(CONFIG, config);
    memory.insert(DATA, data);
    memory
}

fn find(pieces: &TestMemory) -> Result<MemoryConfig, XrayError> {
    MemoryConfig::find(pieces)
}

fn why(pieces: &TestMemory) -> String {
    find(pieces).unwrap_err().to_string()
}

#[test]
fn memzones_in_use_are_found_by_address() {
    let pieces = pieces(100, &[(0, "RG_b", 0x9000, 64), (99, "MP_a", 0x1000, 0x2000)]);
    let config = find(&pieces).unwrap();
    assert_eq!((config.address, config.version.as_str()), (CONFIG, "DPDK 22.11.11"));
    let zones: Vec<_> =
        config.memzones.iter().map(|zone| (zone.name.as_str(), zone.address)).collect();
    assert_eq!(zones, [("MP_a", 0x1000), ("RG_b", 0x9000)]);
}

#[test]
fn memzones_are_read_again_where_they_were() {
    let before = pieces(100, &[(0, "MP_a", 0x1000, 64)]);
    let array = find(&before).unwrap().array;
    let mut now = pieces(100, &[(0, "MP_a", 0x1000, 64), (7, "RG_b", 0x9000, 64)]);
    let names = |zones: Vec<Memzone>| zones.into_iter().map(|zone| zone.name).collect::<Vec<_>>();
    assert_eq!(names(MemoryConfig::memzones_in(&now, array).unwrap()), ["MP_a", "RG_b"]);
    now.write(CONFIG + 40, b"another\0");
    let why = MemoryConfig::memzones_in(&now, array).unwrap_err().to_string();
    assert!(why.contains("somewhere else"), "{why}");
}

#[test]
fn a_release_candidate_is_told() {
    let mut pieces = pieces(64, &[]);
    pieces.write(CONFIG + 4, &0x1703_0002_u32.to_le_bytes());
    assert_eq!(find(&pieces).unwrap().version, "DPDK 23.03.0-rc2");
}

#[test]
fn memory_without_a_configuration_is_told() {
    let starting = {
        let mut pieces = pieces(64, &[]);
        pieces.write(CONFIG, &[0; 4]);
        pieces
    };
    assert!(why(&starting).contains("its EAL is not initialised yet"), "{}", why(&starting));
    let mut twice = pieces(64, &[]);
    twice.insert(CONFIG + (1 << 20), twice.region(CONFIG).to_vec());
    assert!(why(&twice).contains("2 of them are there"), "{}", why(&twice));
}

#[test]
fn memzones_that_contradict_each_other_are_refused() {
    let refused = |pieces: TestMemory, reason: &str| {
        let why = why(&pieces);
        assert!(why.contains(reason), "{why}");
    };
    let long = "x".repeat(32);
    refused(pieces(64, &[(3, &long, 0x1000, 1)]), "number 3 has no valid name or address");
    refused(pieces(64, &[(0, "MP_a", u64::MAX - 4, 8)]), "number 0");
    refused(pieces(64, &[(0, "a", 0x1000, 0x100), (1, "b", 0x10ff, 1)]), "a and b overlap");
    let mut words = pieces(64, &[]);
    words.write(DATA + 64 * 72, &[9]);
    refused(words, "9 words for 64 elements");
}

/// An app that was stopped while it reserved or freed memzones.
#[test]
fn memzones_that_are_not_whole_are_left_out() {
    let zones =
        [(0, "", 0x1000, 8), (1, "MP_a", 0, 8), (2, "MP_b", 0x2000, 0), (3, "c", 0x3000, 8)];
    let config = find(&pieces(64, &zones)).unwrap();
    assert_eq!(config.memzones.iter().map(|zone| zone.address).collect::<Vec<_>>(), [0x3000]);
}

/// Memory whose memzones change at each of the first reads.
#[derive(Debug)]
struct Changing {
    pieces: TestMemory,
    changes: AtomicU64,
}

impl Memory for Changing {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        self.pieces.read(address, buffer)?;
        let left = self.changes.load(Ordering::Relaxed);
        // Searches read in chunks, and the array is read as it is.
        if address == DATA && left > 0 && buffer.len() == self.pieces.region(DATA).len() - 1 {
            self.changes.store(left - 1, Ordering::Relaxed);
            put(buffer, 40, &(0x1000 + left * 0x1000).to_le_bytes());
        }
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        self.pieces.maps()
    }
}

#[test]
fn memzones_that_change_are_read_until_they_hold_still() {
    let find = |changes| {
        let mut pieces = pieces(64, &[(0, "MP_a", 0x1000, 0x100)]);
        let mut data = pieces.remove(DATA);
        data.push(0);
        pieces.insert(DATA, data);
        MemoryConfig::find(&Changing { pieces, changes: AtomicU64::new(changes) })
    };
    for changes in [1, u64::from(ATTEMPTS) - 1] {
        assert_eq!(find(changes).unwrap().memzones[0].address, 0x1000, "{changes} changes");
    }
    let error = find(100).unwrap_err().to_string();
    assert!(error.contains("they changed each of 5 times"), "{error}");
}

#[test]
fn holes_in_a_mapping_are_left_out() {
    let mut pieces = pieces(64, &[(0, "MP_a", 0x1000, 1)]);
    let mut memory = vec![0; 4096];
    memory.extend(pieces.remove(CONFIG));
    pieces.insert(CONFIG - 4096, memory);
    assert!(find(&pieces).is_ok());
    let gone = search::find_word(&TestMemory::default(), &(0..3 << 20).into(), ARRAY_NAME).unwrap();
    assert!(gone.is_empty());
}

proptest! {
    /// Garbage in the configuration or its array results in the same memzones, other plausible
    /// ones, or an error, but never in a panic or excessive memory.
    #[test]
    fn garbage_is_refused_or_plausible(
        piece in 0_usize..2,
        garbage in prop::collection::vec((0_usize..5000, any::<u8>()), 1..40),
    ) {
        let mut pieces = pieces(64, &[(0, "MP_a", 0x1000, 0x100), (5, "RG_b", 0x3000, 8)]);
        for (at, byte) in garbage {
            // Most of it hits the structure.
            let (begin, length) = [(CONFIG, 136), (DATA, pieces.region(DATA).len())][piece];
            pieces.write(begin + (at % length) as u64, &[byte]);
        }
        if let Ok(config) = find(&pieces) {
            for zone in &config.memzones {
                prop_assert!(!zone.name.is_empty() && zone.address > 0);
                prop_assert!(zone.address + zone.bytes < MOST_ADDRESS);
            }
        }
    }
}
