//! Numbers of the modules' thread-local storage.
//!
//! The C library (glibc) numbers modules that have thread-local storage. The number is in the
//! private part of `struct link_map`, where it depends on the release. Next to it are the sizes and
//! the alignment of the storage, which are also in the module's file. An offset at which they are
//! right for each module of the app is used, if it is the only one.

use std::collections::BTreeSet;

use super::fields::Fields;
use super::modules::{Module, TlsSegment};
use crate::address::{Address, AddressRange};
use crate::memory::Memory;

/// `DT_DEBUG`, with which the executable points to the list of modules.
const DT_DEBUG: u64 = 21;
/// Bytes of an entry of a dynamic section, and most of all entries.
const ENTRY_BYTES: u64 = 16;
const MOST_BYTES: u64 = 128 * ENTRY_BYTES;

/// The public members: `r_map` of `struct r_debug`, `l_ld` and `l_next` of `struct link_map`.
const FIRST_MAP: u64 = 8;
const MAP_DYNAMIC: u64 = 16;
const MAP_NEXT: u64 = 24;
/// Range of bytes searched after them: enough in all releases.
const PRIVATE_BEGIN: u64 = 40;
const MAP_BYTES: u64 = 2048;

/// Offsets relative to the size of the initial storage: total size, alignment, number of the
/// module.
const BLOCK_BYTES: u64 = 8;
const ALIGNMENT: u64 = 16;
const NUMBER: u64 = 40;

/// Maximum number of modules, and the largest number of one.
const MOST_MODULES: usize = 4096;
const MOST_NUMBER: u64 = 1024;

/// Gives modules the numbers of their thread-local storage, if all of them are certain.
pub(super) fn number_thread_locals(memory: &dyn Memory, modules: &mut [Module]) {
    let numbers = numbers(memory, modules).unwrap_or_default();
    for (module, number) in numbers {
        if let Some(locals) = modules.get_mut(module).and_then(|module| module.tls.as_mut()) {
            locals.number = Some(number);
        }
    }
}

/// Indices of modules with thread-local storage in the list, and their numbers.
fn numbers(memory: &dyn Memory, modules: &[Module]) -> Option<Vec<(usize, u64)>> {
    let first = modules.iter().find_map(|module| first_map(memory, module.dynamic?))?;
    let mut found = Vec::new();
    for (dynamic, fields) in link_maps(memory, first) {
        let of_module = modules.iter().position(|module| module.dynamic == Some(dynamic));
        let Some(place) = of_module else { continue };
        if let Some(locals) = &modules[place].tls {
            found.push((place, &locals.segment, fields));
        }
    }
    let parts: Vec<(&TlsSegment, &Fields)> =
        found.iter().map(|(_, segment, fields)| (*segment, fields)).collect();
    let numbers = numbers_of(&parts)?;
    Some(found.iter().map(|(place, ..)| *place).zip(numbers).collect())
}

/// The first element of the list of modules, if this is the dynamic section of the executable.
fn first_map(memory: &dyn Memory, dynamic: u64) -> Option<u64> {
    // The section may end a few entries before the mapped memory does.
    let sizes = [MOST_BYTES, MOST_BYTES / 2, MOST_BYTES / 4];
    let read = |bytes: u64| Fields::read(memory, dynamic, bytes);
    let fields = sizes.into_iter().find_map(read)?;
    let entries = AddressRange::from(0..MOST_BYTES).chunks(ENTRY_BYTES);
    let mut entries = entries.map_while(|entry| {
        let value = Address(entry.start()).plus(8)?;
        fields.u64(entry.start()).zip(fields.u64(value)).filter(|(tag, _)| *tag != 0)
    });
    let (_, debug) = entries.find(|(tag, debug)| *tag == DT_DEBUG && *debug != 0)?;
    let first = Fields::read(memory, Address(debug).plus(FIRST_MAP)?, 8)?.u64(0)?;
    (first != 0).then_some(first)
}

/// The dynamic section of each module, and the readable part of its structure.
fn link_maps(memory: &dyn Memory, first: u64) -> Vec<(u64, Fields)> {
    let (mut maps, mut seen, mut next) = (Vec::new(), BTreeSet::new(), first);
    while next != 0 && maps.len() < MOST_MODULES && seen.insert(next) {
        // The last structure of a heap may end earlier.
        let read = |bytes| Fields::read(memory, next, bytes);
        let Some(fields) = read(MAP_BYTES).or_else(|| read(MAP_BYTES / 2)) else { break };
        let links = fields.u64(MAP_DYNAMIC).zip(fields.u64(MAP_NEXT));
        let Some((dynamic, following)) = links else { break };
        maps.push((dynamic, fields));
        next = following;
    }
    maps
}

/// The number of each, in the same order; `None` if no offset fits all of them, or several do.
fn numbers_of(parts: &[(&TlsSegment, &Fields)]) -> Option<Vec<u64>> {
    let number = |at: u64, segment: &TlsSegment, fields: &Fields| {
        let fits = fields.u64(at)? == segment.file_bytes
            && fields.u64(Address(at).plus(BLOCK_BYTES)?)? == segment.bytes
            && fields.u64(Address(at).plus(ALIGNMENT)?)? == segment.alignment;
        let number = fields.u64(Address(at).plus(NUMBER)?)?;
        (fits && (1..=MOST_NUMBER).contains(&number)).then_some(number)
    };
    let numbers = |at: u64| {
        let each = parts.iter().map(|(segment, fields)| number(at, segment, fields));
        let numbers: Vec<u64> = each.collect::<Option<_>>()?;
        let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
        (distinct.len() == numbers.len()).then_some(numbers)
    };
    let mut fitting = (PRIVATE_BEGIN..MAP_BYTES).step_by(8).filter_map(numbers);
    let only = fitting.next()?;
    fitting.next().is_none().then_some(only)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::TestMemory;

    const MAPS: u64 = 0x10_0000;
    const PRIVATE: u64 = 1048;

    fn segment(bytes: u64) -> TlsSegment {
        TlsSegment { file_bytes: bytes / 2, bytes, alignment: 16 }
    }

    /// Three modules, numbered from 1 on.
    fn made(segments: &[TlsSegment]) -> TestMemory {
        let mut memory = TestMemory::default();
        memory.map(MAPS, 0x4000);
        for (place, segment) in (0..).zip(segments) {
            let at = MAPS + 0x1000 * place;
            let next = if place + 1 < segments.len() as u64 { at + 0x1000 } else { 0 };
            memory.write_u64(at + MAP_DYNAMIC, 0x1000 + place);
            memory.write_u64(at + MAP_NEXT, next);
            for (offset, value) in [
                (0, segment.file_bytes),
                (BLOCK_BYTES, segment.bytes),
                (ALIGNMENT, segment.alignment),
                (NUMBER, place + 1),
            ] {
                memory.write_u64(at + PRIVATE + offset, value);
            }
        }
        memory
    }

    fn numbers_in(memory: &TestMemory, segments: &[TlsSegment]) -> Option<Vec<u64>> {
        let maps = link_maps(memory, MAPS);
        let parts: Vec<_> = segments.iter().zip(maps.iter().map(|(_, fields)| fields)).collect();
        assert_eq!(parts.len(), segments.len());
        numbers_of(&parts)
    }

    #[test]
    fn numbers_stand_where_all_sizes_fit() {
        let segments = [segment(64), segment(4096), segment(8)];
        let mut memory = made(&segments);
        assert_eq!(numbers_in(&memory, &segments), Some(vec![1, 2, 3]));
        // One of them twice.
        memory.write_u64(MAPS + 0x1000 + PRIVATE + NUMBER, 1);
        assert_eq!(numbers_in(&memory, &segments), None);
    }

    #[test]
    fn what_fits_at_two_places_is_not_believed() {
        let segments = [segment(64)];
        let mut memory = made(&segments);
        for (offset, value) in [(0, 32), (BLOCK_BYTES, 64), (ALIGNMENT, 16), (NUMBER, 7)] {
            memory.write_u64(MAPS + 512 + offset, value);
        }
        assert_eq!(numbers_in(&memory, &segments), None);
        // A list that goes in circles ends.
        memory.write_u64(MAPS + MAP_NEXT, MAPS);
        assert_eq!(link_maps(&memory, MAPS).len(), 1);
    }
}
