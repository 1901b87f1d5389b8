//! Structures of DPDK's libraries that keep mbufs: hashes and reorder buffers, which the EAL lists by name,
//! and tables of fragments, which are recognised by the numbers in their headers.

use std::collections::BTreeSet;

use super::Owned;
use super::fields::Fields;
use super::heap::{Element, Elements};
use super::page_tables::configuration;
use crate::address::{Address, AddressRange};
use crate::report::Holder;
use crate::target::XrayTarget;

/// Lists of the EAL whose structures begin with their name, and the library.
const LISTS: [(&str, &str); 2] = [("RTE_HASH", "rte_hash"), ("RTE_REORDER", "rte_reorder")];

/// `RTE_TAILQ_NAMESIZE`, and the length of the names in structures.
const NAME_BYTES: usize = 32;

/// Maximum plausible number of lists; `RTE_MAX_TAILQ` is 32.
const MOST_LISTS: u64 = 256;

/// Further structures of a list are not followed.
const MOST_STRUCTURES: usize = 1 << 16;

/// Bytes of a structure that are searched for pointers to its parts.
const MOST_SEARCHED: u64 = 1024;

/// `struct rte_ip_frag_tbl`, the same in all releases: numbers, then pointers into the table.
const FRAGMENTS: &str = "rte_ip_frag";
const ENTRY_MASK: u64 = 8;
const MAX_ENTRIES: u64 = 12;
const USED_ENTRIES: u64 = 16;
const BUCKET_ENTRIES: u64 = 20;
const ENTRIES: u64 = 24;
const BUCKETS: u64 = 28;
/// The entry that was used last, and the ends of the list of entries in use.
const POINTERS: [u64; 3] = [32, 40, 48];
const HEADER_BYTES: u64 = 128;
/// Bytes of an entry: with 4 fragments 192, with 8 or more up to 512.
const ENTRY_BYTES: std::ops::RangeInclusive<u64> = 96..=1024;

/// Smaller elements are no tables of fragments; of others at most this many are looked at.
const LEAST_TABLE_BYTES: u64 = 4096;
const MOST_TABLES: usize = 1 << 16;

/// The structures, and the elements of the heap that belong to them.
pub(super) fn tables(target: &XrayTarget, elements: &Elements) -> Vec<Owned> {
    let config = elements.heaps.iter().find_map(|heap| configuration(target, *heap));
    let named = config.map(|config| named(target, config, elements)).unwrap_or_default();
    let large = elements.iter().filter(|it| it.is_used && it.range.bytes() >= LEAST_TABLE_BYTES);
    let fragments = large.take(MOST_TABLES).filter(|element| is_fragment_table(target, element));
    let holder = || Holder::Structure { library: FRAGMENTS.to_owned(), name: None };
    let fragments = fragments.map(|element| Owned::new(element.range, holder()));
    named.into_iter().chain(fragments).collect()
}

/// The structures in the lists of this configuration.
fn named(target: &XrayTarget, config: u64, elements: &Elements) -> Vec<Owned> {
    let (layout, head) = (&target.layout.mem_config, &target.layout.tailq_head);
    let memory = target.memory.as_ref();
    let list = |number: u64| {
        let first = Address(config).plus(layout.tailq_head)?;
        let fields = Fields::read(memory, Address(first).element(number, head.bytes)?, head.bytes)?;
        let name = fields.name(head.name, NAME_BYTES)?;
        let (_, library) = LISTS.iter().find(|(list, _)| *list == name)?;
        Some((*library, fields.u64(head.first)?))
    };
    let lists = (0..layout.tailq_head_len.min(MOST_LISTS)).filter_map(list);
    let mut owned = Vec::new();
    for (library, first) in lists {
        for structure in structures(target, first) {
            owned.extend(parts(target, elements, library, structure).into_iter().flatten());
        }
    }
    owned
}

/// Addresses of the structures of a list, which may be circular in garbage.
fn structures(target: &XrayTarget, first: u64) -> BTreeSet<u64> {
    let (entry, memory) = (&target.layout.tailq_entry, target.memory.as_ref());
    let (mut structures, mut seen, mut next) = (BTreeSet::new(), BTreeSet::new(), first);
    while next != 0 && seen.len() < MOST_STRUCTURES && seen.insert(next) {
        let word = |offset| Fields::read(memory, Address(next).plus(offset)?, 8)?.u64(0);
        let Some((following, structure)) = word(entry.next).zip(word(entry.data)) else { break };
        structures.insert(structure);
        next = following;
    }
    structures
}

/// The element with a structure, and those to whose start it points; none if it has no name.
fn parts(
    target: &XrayTarget,
    elements: &Elements,
    library: &str,
    structure: u64,
) -> Option<Vec<Owned>> {
    let own = elements.find(structure)?;
    let bytes = own.range.split_at(structure).1.bytes().min(MOST_SEARCHED);
    let fields = Fields::read(target.memory.as_ref(), structure, bytes)?;
    let name = fields.name(0, NAME_BYTES)?;
    let holder = Holder::Structure { library: library.to_owned(), name: Some(name) };
    let begins = |word: u64| elements.find(word).filter(|element| element.range.start() == word);
    let is_zone = |element: &&Element| target.memzone_at(element.range.start()).is_some();
    let others = fields.words().filter_map(begins).filter(|element| !is_zone(element));
    let ranges: BTreeSet<AddressRange> = others.map(|it| it.range).chain([own.range]).collect();
    Some(ranges.into_iter().map(|range| Owned::new(range, holder.clone())).collect())
}

/// Whether all numbers of a table of fragments fit together, and into this element.
fn is_fragment_table(target: &XrayTarget, element: &Element) -> bool {
    let start = element.range.start();
    let check = || {
        let fields = Fields::read(target.memory.as_ref(), start, HEADER_BYTES)?;
        let (entries, each) = (fields.u32(ENTRIES)?, fields.u32(BUCKET_ENTRIES)?);
        let most = fields.u32(MAX_ENTRIES)?;
        let mask = entries.checked_sub(1)? & !each.checked_sub(1)?;
        let room = element.range.bytes().checked_sub(HEADER_BYTES)?;
        let inside = |offset: &u64| {
            let pointer = fields.u64(*offset)?;
            Some(pointer == 0 || element.range.contains(pointer))
        };
        let fits = each.is_power_of_two()
            && entries.is_power_of_two()
            && fields.u32(BUCKETS)? != 0
            && fields.u32(BUCKETS)?.checked_mul(each)? <= entries
            && fields.u32(ENTRY_MASK)? == mask
            && most > 0
            && most <= entries
            && fields.u32(USED_ENTRIES)? <= most
            && ENTRY_BYTES.contains(&room.checked_div(entries.into())?);
        let pointers = POINTERS.iter().map(inside).collect::<Option<Vec<_>>>()?;
        // The end of the list is never 0.
        Some(fits && pointers.iter().all(|inside| *inside) && fields.u64(POINTERS[2])? != 0)
    };
    check().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::holders::heap::tests::{HEAP, MadeHeap};
    use crate::layout::Layout;
    use crate::memzone::Memzone;

    const MAGIC: u32 = 19_820_526;
    /// Numbers of elements: a memzone, an entry of a list, a hash, its table, another, a table of fragments.
    const ZONE: usize = 0;
    const ENTRY: usize = 1;
    const HASH: usize = 2;
    const TABLE: usize = 3;
    const OTHER: usize = 4;
    const FRAGMENT: usize = 5;
    const FRAGMENT_ENTRIES: u32 = 32;

    /// The configuration is in front of the heap that it contains.
    fn made() -> MadeHeap {
        let layout = Layout::dpdk_22_11();
        let table_bytes = u64::from(FRAGMENT_ENTRIES) * 192 + HEADER_BYTES;
        let mut heap = MadeHeap::new(&[
            (64, true),
            (64, true),
            (256, true),
            (512, true),
            (512, true),
            (table_bytes, true),
        ]);
        let config = HEAP - layout.mem_config.malloc_heaps;
        let (data, memory) = (heap.data.clone(), &mut heap.memory);
        memory.map(config, layout.mem_config.malloc_heaps);
        memory.write_u32(config + layout.mem_config.magic, MAGIC);
        let list = config + layout.mem_config.tailq_head + 3 * layout.tailq_head.bytes;
        memory.write(list + layout.tailq_head.name, b"RTE_HASH\0");
        memory.write_u64(list + layout.tailq_head.first, data[ENTRY]);
        memory.write_u64(data[ENTRY] + layout.tailq_entry.data, data[HASH]);
        memory.write(data[HASH], b"flows\0");
        memory.write_u64(data[HASH] + 64, data[TABLE]);
        // Not its own: a pointer into an element, and a memzone.
        memory.write_u64(data[HASH] + 72, data[OTHER] + 16);
        memory.write_u64(data[HASH] + 80, data[ZONE]);
        let table = data[FRAGMENT];
        for (field, value) in [
            (ENTRY_MASK, FRAGMENT_ENTRIES - 4),
            (MAX_ENTRIES, 16),
            (USED_ENTRIES, 1),
            (BUCKET_ENTRIES, 4),
            (ENTRIES, FRAGMENT_ENTRIES),
            (BUCKETS, 4),
        ] {
            memory.write_u32(table + field, value);
        }
        memory.write_u64(table + POINTERS[2], table + POINTERS[1]);
        heap
    }

    fn found(heap: &MadeHeap) -> Vec<Owned> {
        let zone = Memzone { name: "zone".into(), address: heap.data[ZONE], bytes: 64 };
        let target = heap.target(vec![zone]);
        tables(&target, &Elements::read(&target))
    }

    fn holder(heap: &MadeHeap, element: usize) -> Option<String> {
        let found = found(heap);
        let owned = found.iter().find(|owned| owned.range.contains(heap.data[element] + 32));
        owned.map(|owned| owned.holder.to_string())
    }

    #[test]
    fn structures_of_libraries_have_what_they_point_to() {
        let heap = made();
        let hash = Some("rte_hash flows".to_owned());
        assert_eq!([holder(&heap, HASH), holder(&heap, TABLE)], [hash.clone(), hash]);
        assert_eq!(
            [holder(&heap, OTHER), holder(&heap, ZONE), holder(&heap, ENTRY)],
            [None, None, None]
        );
        assert_eq!(holder(&heap, FRAGMENT).as_deref(), Some("table of rte_ip_frag"));
    }

    #[test]
    fn a_table_whose_numbers_do_not_fit_is_none() {
        for (field, value) in [
            (ENTRY_MASK, 31),
            (MAX_ENTRIES, 33),
            (USED_ENTRIES, 17),
            (BUCKET_ENTRIES, 3),
            (ENTRIES, 64),
            (BUCKETS, 9),
        ] {
            let mut heap = made();
            heap.memory.write_u32(heap.data[FRAGMENT] + field, value);
            assert_eq!(holder(&heap, FRAGMENT), None, "{field}: {value}");
        }
        let mut heap = made();
        heap.memory.write_u64(heap.data[FRAGMENT] + POINTERS[0], 7);
        assert_eq!(holder(&heap, FRAGMENT), None);
    }

    proptest! {
        #[test]
        fn garbage_neither_hangs_nor_crashes(
            words in vec((0..6_usize, 0..32_u64, any::<u64>()), 0..40),
            links in vec((0..6_usize, 0..32_u64, 0..6_usize), 0..10),
        ) {
            let mut heap = made();
            for (element, at, word) in words {
                heap.memory.write_u64(heap.data[element] + 8 * at, word);
            }
            for (from, at, to) in links {
                heap.memory.write_u64(heap.data[from] + 8 * at, heap.data[to]);
            }
            let _ = found(&heap);
        }
    }
}
