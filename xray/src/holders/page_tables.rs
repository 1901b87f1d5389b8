//! Tables of the EAL with the addresses of all its pages. They do not refer to mbufs, although many
//! mbufs begin at a page or contain its start.

use std::collections::BTreeSet;

use super::fields::Fields;
use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::target::XrayTarget;

/// The first word of the configuration that processes share.
const MAGIC: u32 = 19_820_526;

/// Maximum plausible number of page lists and of heaps.
const MOST_LISTS: u64 = 1024;

/// Prefix of the names of the tables' files.
const TABLE_FILE: &str = "fbarray_";

/// Finds the tables by the names of their files, or, for an app without files, through the shared
/// configuration, which contains the heaps.
pub(super) fn page_tables(
    target: &XrayTarget,
    maps: &[Mapping],
    heaps: &BTreeSet<u64>,
) -> Vec<AddressRange> {
    let is_table = |mapping: &&Mapping| {
        mapping.path.rsplit('/').next().is_some_and(|file| file.starts_with(TABLE_FILE))
    };
    let files = maps.iter().filter(is_table).map(AddressRange::from);
    let config = heaps.iter().find_map(|heap| configuration(target, *heap));
    files.chain(config.into_iter().flat_map(|config| tables(target, config))).collect()
}

/// The shared configuration that contains this heap.
pub(super) fn configuration(target: &XrayTarget, heap: u64) -> Option<u64> {
    let (config, each) = (&target.layout.mem_config, target.layout.malloc_heap.bytes);
    let address = |index: u64| heap.checked_sub(Address(config.malloc_heaps).element(index, each)?);
    let is_config = |address: &u64| {
        let fields = Fields::read(target.memory.as_ref(), *address, 8);
        fields.and_then(|fields| fields.u32(config.magic)) == Some(MAGIC)
    };
    (0..config.malloc_heaps_len.min(MOST_LISTS)).filter_map(address).find(is_config)
}

fn tables(target: &XrayTarget, config: u64) -> Vec<AddressRange> {
    let (layout, array) = (&target.layout.mem_config, &target.layout.fbarray);
    let list = target.layout.memseg_list.bytes;
    let table = |index: u64| {
        // The array is at the end of the list.
        let first = Address(config).plus(layout.memsegs)?;
        let behind = Address(Address(first).element(index, list)?).plus(list)?;
        let address = behind.checked_sub(array.bytes)?;
        let fields = Fields::read(target.memory.as_ref(), address, array.bytes)?;
        let (data, pages) = (fields.u64(array.data)?, u64::from(fields.u32(array.len)?));
        let table = AddressRange::of_elements(data, pages, fields.u32(array.elt_sz)?.into())?;
        (data != 0).then_some(table)
    };
    (0..layout.memsegs_len.min(MOST_LISTS)).filter_map(table).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layout::Layout;
    use crate::test_memory::TestMemory;

    const CONFIG: u64 = 0x40_0000;

    #[test]
    fn tables_are_found_by_their_files_and_by_the_configuration() {
        let layout = Layout::dpdk_22_11();
        let (config, array) = (&layout.mem_config, &layout.fbarray);
        let mut memory = TestMemory::default();
        memory.map(CONFIG, config.bytes);
        memory.write_u32(CONFIG + config.magic, MAGIC);
        let second = CONFIG + config.memsegs + 2 * layout.memseg_list.bytes - array.bytes;
        memory.write_u64(second + array.data, 0x50_0000);
        memory.write_u32(second + array.len, 100);
        memory.write_u32(second + array.elt_sz, 48);
        let target = XrayTarget::new(Arc::new(memory), layout.clone(), Vec::new());
        let of_file = |path: &str| Mapping {
            start: 0x1000,
            end: 0x2000,
            path: path.to_owned(),
            ..Mapping::default()
        };
        let maps =
            [of_file("/run/dpdk/rte/fbarray_memseg-2048k-0-0"), of_file("/run/dpdk/rte/config")];
        // The heap of the third socket.
        let heap = CONFIG + config.malloc_heaps + 2 * layout.malloc_heap.bytes;
        let found = |heap| page_tables(&target, &maps, &BTreeSet::from([heap]));
        let file = AddressRange::from(0x1000..0x2000);
        assert_eq!(found(heap), [file, (0x50_0000..0x50_0000 + 4800).into()]);
        // The same for a heap that is not at its place.
        assert_eq!(found(heap + 8), [file]);
        assert_eq!(found(0), [file]);
    }
}
