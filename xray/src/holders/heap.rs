//! The heap of the EAL (`rte_malloc()`): elements in the order of their addresses, each with a
//! header in front that points to its neighbours. It is found through memzones, which are elements
//! of it.
//!
//! The app allocates during the walk, and its memory may contain anything: a header is used only if
//! its neighbour points to it, and addresses always ascend.

use std::collections::BTreeSet;

use super::fields::Fields;
use crate::address::AddressRange;
use crate::layout::{Layout, MallocElemLayout};
use crate::memory::Memory;
use crate::target::XrayTarget;

/// The state is a bit field of three bits; other fields share its word.
const STATE_MASK: u32 = 7;
const STATE_FREE: u32 = 0;
const STATE_BUSY: u32 = 1;
/// Precedes data that had to be aligned; its pad leads back to the header.
const STATE_PAD: u32 = 2;

/// Elements begin and end at cache lines.
const ALIGNMENT: u64 = 64;

/// Maximum number of elements in a walk, so that garbage cannot make it endless.
const MOST_ELEMENTS: usize = 1 << 22;
/// Maximum plausible bytes of one element: no host has more memory.
const MOST_BYTES: u64 = 1 << 40;

/// How often a header is read again if its neighbour does not point to it, because the app was
/// changing it.
const MOST_READS: usize = 3;

/// Number of walks through a heap whose links are broken.
const MOST_WALKS: usize = 3;

/// Higher socket numbers are not plausible: external heaps get the numbers after the NUMA nodes.
const MOST_SOCKETS: u32 = 4096;

/// A piece of memory of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// What its user may use.
    pub(super) range: AddressRange,
    /// NUMA node; a higher number for memory that the app itself brought.
    pub(super) socket: i32,
    /// It is in use.
    pub(super) is_used: bool,
}

/// All elements, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements {
    list: Vec<Element>,
    /// Addresses of the heaps' structures.
    pub(super) heaps: BTreeSet<u64>,
    /// The walk led from the start of each heap to its end.
    pub(super) is_whole: bool,
}

impl Elements {
    /// The elements of the heaps that contain these memzones.
    pub(super) fn read(target: &XrayTarget) -> Self {
        let reader = Reader { memory: target.memory.as_ref(), layout: &target.layout };
        let zones = target.memzones.iter();
        let anchors: Vec<Header> =
            zones.filter_map(|zone| reader.header_of_data(zone.address)).collect();
        let heaps: BTreeSet<u64> = anchors.iter().map(|header| header.heap).collect();
        let anchors: BTreeSet<u64> = anchors.iter().map(|header| header.address).collect();
        let mut elements = Self { is_whole: true, ..Self::default() };
        for heap in &heaps {
            let walk = Walk::best_of(reader, *heap, &anchors);
            elements.is_whole &= walk.is_whole;
            elements.list.extend(walk.elements());
        }
        elements.list.sort_unstable_by_key(|element| element.range);
        elements.heaps = heaps;
        elements
    }

    /// The element in use that contains an address.
    pub(super) fn find(&self, address: u64) -> Option<&Element> {
        let behind = self.list.partition_point(|element| element.range.start() <= address);
        let element = self.list.get(behind.checked_sub(1)?)?;
        (element.is_used && element.range.contains(address)).then_some(element)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Element> {
        self.list.iter()
    }
}

/// The values of a header that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    address: u64,
    /// Start of its data, if it has no pad.
    data: u64,
    /// Address after the element.
    end: u64,
    heap: u64,
    previous: u64,
    next: u64,
    state: u32,
    pad: u32,
}

/// Reads headers of one build of DPDK.
#[derive(Clone, Copy)]
struct Reader<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
}

impl Reader<'_> {
    fn elem(&self) -> &MallocElemLayout {
        &self.layout.malloc_elem
    }

    /// `None` if it is not plausible.
    fn header(&self, address: u64) -> Option<Header> {
        let elem = self.elem();
        let fields = Fields::read(self.memory, address, elem.bytes)?;
        let header = Header {
            address,
            data: address.checked_add(elem.bytes)?,
            heap: fields.u64(elem.heap)?,
            previous: fields.u64(elem.prev)?,
            next: fields.u64(elem.next)?,
            state: fields.u32(elem.state)? & STATE_MASK,
            pad: fields.u32(elem.pad)?,
            end: address.checked_add(fields.u64(elem.size)?)?,
        };
        header.is_plausible().then_some(header)
    }

    /// The header of the element in use that has its data at this address.
    fn header_of_data(&self, data: u64) -> Option<Header> {
        let elem = self.elem();
        let address = data.checked_sub(elem.bytes)?;
        let fields = Fields::read(self.memory, address, elem.bytes)?;
        let is_pad = fields.u32(elem.state)? & STATE_MASK == STATE_PAD;
        let pad = if is_pad { u64::from(fields.u32(elem.pad)?) } else { 0 };
        self.header(address.checked_sub(pad)?).filter(|header| header.state == STATE_BUSY)
    }
}

impl Header {
    fn is_plausible(&self) -> bool {
        let is_aligned = |value: u64| value.is_multiple_of(ALIGNMENT);
        let pad = if self.state == STATE_BUSY { u64::from(self.pad) } else { 0 };
        let fits = self.end.checked_sub(self.data);
        let fits = fits.is_some_and(|data| (pad..=MOST_BYTES).contains(&data));
        fits && is_aligned(self.address)
            && is_aligned(self.end)
            && self.heap != 0
            && [STATE_FREE, STATE_BUSY].contains(&self.state)
            && self.previous < self.address
            && (self.next == 0 || self.next >= self.end)
    }

    fn element(&self, socket: i32) -> Element {
        let is_used = self.state == STATE_BUSY;
        let pad = if is_used { u64::from(self.pad) } else { 0 };
        // It was checked that the pad fits.
        let (_, range) =
            AddressRange::from(self.data..self.end).split_at(self.data.saturating_add(pad));
        Element { range, socket, is_used }
    }
}

/// A walk through one heap.
struct Walk<'a> {
    reader: Reader<'a>,
    heap: u64,
    socket: i32,
    headers: Vec<Header>,
    is_whole: bool,
}

impl<'a> Walk<'a> {
    /// Repeats the walk: the app may have changed the heap during one.
    fn best_of(reader: Reader<'a>, heap: u64, anchors: &BTreeSet<u64>) -> Self {
        let mut best = Self::of(reader, heap, anchors);
        for _ in 1..MOST_WALKS {
            if best.is_whole {
                break;
            }
            let other = Self::of(reader, heap, anchors);
            if other.is_whole || other.headers.len() > best.headers.len() {
                best = other;
            }
        }
        best
    }

    fn of(reader: Reader<'a>, heap: u64, anchors: &BTreeSet<u64>) -> Self {
        let layout = &reader.layout.malloc_heap;
        let fields = Fields::read(reader.memory, heap, layout.bytes);
        let socket = fields.as_ref().and_then(|fields| fields.u32(layout.socket_id));
        let socket = socket.filter(|socket| *socket < MOST_SOCKETS);
        let first = fields.and_then(|fields| fields.u64(layout.first));
        let mut walk = Self {
            reader,
            heap,
            socket: socket.and_then(|socket| i32::try_from(socket).ok()).unwrap_or(-1),
            headers: Vec::new(),
            is_whole: true,
        };
        walk.run(first.unwrap_or_default(), anchors);
        walk
    }

    fn run(&mut self, first: u64, anchors: &BTreeSet<u64>) {
        let mut anchors = anchors.iter();
        let (mut address, mut previous) = (first, Some(0));
        while self.headers.len() < MOST_ELEMENTS {
            if let Some(header) = self.header(address, previous) {
                self.headers.push(header);
                (address, previous) = (header.next, Some(header.address));
                if address == 0 {
                    return;
                }
                continue;
            }
            // Memzones are elements that do not change: the walk continues at the next one.
            self.is_whole = false;
            let end = self.trusted_end();
            let Some(anchor) = anchors.find(|anchor| **anchor >= end) else { return };
            (address, previous) = (*anchor, None);
        }
        self.is_whole = false;
    }

    /// End of the known part of the last element.
    fn trusted_end(&self) -> u64 {
        self.headers.last().map_or(0, |header| header.end)
    }

    /// The header at an address, if it belongs to this heap, and its neighbour is the previous one.
    fn header(&self, address: u64, previous: Option<u64>) -> Option<Header> {
        let fits = |header: &Header| {
            header.heap == self.heap
                && previous.is_none_or(|previous| header.previous == previous)
                && address >= self.trusted_end()
        };
        let read = |_| self.reader.header(address).filter(fits);
        (0..MOST_READS).find_map(read)
    }

    fn elements(&self) -> impl Iterator<Item = Element> {
        self.headers.iter().map(|header| header.element(self.socket))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::memzone::Memzone;
    use crate::test_memory::TestMemory;

    /// `struct malloc_elem` of DPDK 22.11.
    const HEADER_BYTES: u64 = 128;

    /// A generated heap: consecutive elements with these data lengths and states.
    #[derive(Debug)]
    pub(in crate::holders) struct MadeHeap {
        pub(in crate::holders) memory: TestMemory,
        /// Addresses of the data.
        pub(in crate::holders) data: Vec<u64>,
    }

    pub(in crate::holders) const HEAP: u64 = 0x10_0000;
    const FIRST: u64 = 0x20_0000;

    impl MadeHeap {
        pub(in crate::holders) fn new(elements: &[(u64, bool)]) -> Self {
            let mut memory = TestMemory::default();
            let lengths = elements.iter().map(|(data, _)| data + HEADER_BYTES);
            memory.map(HEAP, 0x1000);
            memory.map(FIRST, lengths.sum());
            memory.write_u64(HEAP + Layout::dpdk_22_11().malloc_heap.first, FIRST);
            memory.write_u32(HEAP + Layout::dpdk_22_11().malloc_heap.socket_id, 1);
            let (mut at, mut previous, mut data) = (FIRST, 0, Vec::new());
            for (index, (length, is_used)) in elements.iter().enumerate() {
                let end = at + HEADER_BYTES + length;
                let next = if index + 1 < elements.len() { end } else { 0 };
                let fields = [
                    HEAP,
                    previous,
                    next,
                    0,
                    0,
                    0,
                    u64::from(*is_used) | 0xabc0,
                    length + HEADER_BYTES,
                ];
                for (field, value) in fields.into_iter().enumerate() {
                    memory.write_u64(at + 8 * field as u64, value);
                }
                data.push(at + HEADER_BYTES);
                (previous, at) = (at, end);
            }
            Self { memory, data }
        }

        pub(in crate::holders) fn target(&self, zones: Vec<Memzone>) -> XrayTarget {
            XrayTarget::new(Arc::new(self.memory.clone()), Layout::dpdk_22_11(), zones)
        }

        fn elements(&self, zones: &[usize]) -> Elements {
            Elements::read(&self.target(self.zones(zones)))
        }

        fn zones(&self, indices: &[usize]) -> Vec<Memzone> {
            let zone = |index: &usize| Memzone {
                name: format!("zone{index}"),
                address: self.data[*index],
                bytes: 64,
            };
            indices.iter().map(zone).collect()
        }
    }

    #[test]
    fn elements_are_found_from_any_memzone() {
        let heap = MadeHeap::new(&[(64, true), (4096, true), (128, false), (192, true)]);
        for zone in [0, 1, 3] {
            let elements = heap.elements(&[zone]);
            assert!(elements.is_whole);
            let second = elements.find(heap.data[1] + 4095).unwrap();
            assert_eq!((second.range.bytes(), second.socket), (4096, 1));
            assert_eq!(elements.find(heap.data[1] + 4096), None, "the header of the next");
            assert_eq!(elements.find(heap.data[2]), None, "free");
            assert_eq!(elements.iter().filter(|element| !element.is_used).count(), 1);
        }
        // A free element does not count as a memzone.
        assert_eq!(heap.elements(&[2]).iter().count(), 0);
    }

    #[test]
    fn aligned_data_begins_behind_its_pad() {
        let mut heap = MadeHeap::new(&[(64, true), (1024, true)]);
        let header = heap.data[1] - HEADER_BYTES;
        heap.memory.write_u32(header + Layout::dpdk_22_11().malloc_elem.pad, 256);
        heap.memory.write_u32(header + 256 + Layout::dpdk_22_11().malloc_elem.state, STATE_PAD);
        heap.memory.write_u32(header + 256 + Layout::dpdk_22_11().malloc_elem.pad, 256);
        let zone = Memzone { name: "aligned".into(), address: heap.data[1] + 256, bytes: 64 };
        let elements = Elements::read(&heap.target(vec![zone]));
        let element = elements.find(heap.data[1] + 256);
        assert_eq!(element.map(|element| element.range.bytes()), Some(768));
        assert_eq!(elements.find(heap.data[1]), None);
    }

    #[test]
    fn a_broken_link_loses_only_what_lies_before_the_next_memzone() {
        let mut heap = MadeHeap::new(&[(64, true), (64, true), (64, true), (64, true), (64, true)]);
        heap.memory.write_u64(
            heap.data[1] - HEADER_BYTES + Layout::dpdk_22_11().malloc_elem.next,
            u64::MAX,
        );
        let elements = heap.elements(&[0, 3]);
        assert!(!elements.is_whole);
        let found = heap.data.iter().map(|data| elements.find(*data).is_some());
        assert_eq!(found.collect::<Vec<_>>(), [true, true, false, true, true]);
    }

    proptest! {
        #[test]
        fn garbage_neither_hangs_nor_crashes(
            writes in vec((0..40_u64, 0..16_u64, prop_oneof![any::<u64>(), 0..0x100_u64, Just(HEAP)]), 0..60),
            links in vec((0..12_usize, 0..16_u64, 0..12_usize), 0..8),
        ) {
            let mut heap = MadeHeap::new(&[(64, true); 12]);
            for (line, field, value) in writes {
                heap.memory.write_u64(FIRST + 64 * line + 8 * (field % 8), value);
            }
            for (at, field, to) in links {
                let to = heap.data[to] - HEADER_BYTES;
                heap.memory.write_u64(heap.data[at] - HEADER_BYTES + 8 * (field % 8), to);
            }
            let elements = heap.elements(&[0, 2, 5, 11]);
            let list: Vec<_> = elements.iter().collect();
            prop_assert!(list.windows(2).all(|pair| pair[0].range <= pair[1].range));
        }
    }
}
