//! The heap of the EAL (`rte_malloc()`): elements in the order of their addresses, each with a header in
//! front that points to its neighbours. Memzones are elements of it, by which it is found.
//!
//! The app allocates while the heap is walked, and its memory may hold anything: only a header that its
//! neighbour points to is believed, and addresses only ever grow.

use std::collections::BTreeSet;

use crate::memory::{Memory, read_array};
use crate::target::Memzone;

/// `struct malloc_elem`, the same in DPDK 21.11 to 25.11.
const HEADER_BYTES: u64 = 128;
/// What of it is read.
const HEADER_READ: usize = 64;
const ELEMENT_HEAP: usize = 0;
const ELEMENT_PREVIOUS: usize = 8;
const ELEMENT_NEXT: usize = 16;
const ELEMENT_STATE: usize = 48;
const ELEMENT_PAD: usize = 52;
const ELEMENT_SIZE: usize = 56;

/// The state is a bit field of three bits; others share its word.
const STATE_MASK: u32 = 7;
const STATE_FREE: u32 = 0;
const STATE_BUSY: u32 = 1;
/// Stands before data that had to be aligned; its pad leads back to the header.
const STATE_PAD: u32 = 2;

/// `struct malloc_heap`, the same in DPDK 21.11 to 25.11.
const HEAP_READ: usize = 136;
const HEAP_FIRST: usize = 112;
const HEAP_SOCKET: usize = 132;

/// Elements begin and end at cache lines.
const ALIGNMENT: u64 = 64;

/// Most elements of a heap that are walked: garbage must not keep the walk for ever.
const MOST_ELEMENTS: usize = 1 << 22;

/// How often a header is read again, when its neighbour does not point to it: the app was changing it.
const MOST_READS: usize = 3;

/// Sockets above are of no DPDK: external heaps get the numbers behind the NUMA nodes.
const MOST_SOCKETS: u32 = 4096;

/// A piece of memory of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// First address that its user may use.
    pub(super) start: u64,
    /// Address behind the last.
    pub(super) end: u64,
    /// NUMA node; a higher number for memory that the app itself brought.
    pub(super) socket: i32,
    /// Somebody uses it.
    pub(super) is_used: bool,
}

/// All elements, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements {
    list: Vec<Element>,
    /// The walk found its way from the begin of each heap to its end.
    pub(super) is_whole: bool,
}

impl Elements {
    /// Of the heaps in which these memzones lie.
    pub(super) fn read(memory: &dyn Memory, memzones: &[Memzone]) -> Self {
        let anchors: BTreeSet<u64> =
            memzones.iter().filter_map(|zone| header_of(memory, zone.address)).collect();
        let heaps: BTreeSet<u64> =
            anchors.iter().filter_map(|anchor| Some(Header::read(memory, *anchor)?.heap)).collect();
        let mut elements = Self { list: Vec::new(), is_whole: !heaps.is_empty() };
        for heap in heaps {
            let walk = Walk::of(memory, heap, &anchors);
            elements.is_whole &= walk.is_whole;
            elements.list.extend(walk.elements());
        }
        elements.list.sort_unstable_by_key(|element| element.start);
        elements
    }

    /// The number of the one in use that has an address.
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        let behind = self.list.partition_point(|element| element.start <= address);
        let index = behind.checked_sub(1)?;
        let element = self.list.get(index)?;
        (element.is_used && address < element.end).then_some(index)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Element> {
        self.list.get(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Element> {
        self.list.iter()
    }
}

/// What of a header is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    address: u64,
    heap: u64,
    previous: u64,
    next: u64,
    state: u32,
    pad: u32,
    size: u64,
}

impl Header {
    /// `None` if it cannot be one.
    fn read(memory: &dyn Memory, address: u64) -> Option<Self> {
        let bytes: [u8; HEADER_READ] = read_array(memory, address).ok()?;
        let header = Self {
            address,
            heap: word(&bytes, ELEMENT_HEAP)?,
            previous: word(&bytes, ELEMENT_PREVIOUS)?,
            next: word(&bytes, ELEMENT_NEXT)?,
            state: half(&bytes, ELEMENT_STATE)? & STATE_MASK,
            pad: half(&bytes, ELEMENT_PAD)?,
            size: word(&bytes, ELEMENT_SIZE)?,
        };
        header.is_plausible().then_some(header)
    }

    fn is_plausible(&self) -> bool {
        let aligned = |value: u64| value.is_multiple_of(ALIGNMENT);
        let Some(end) = self.address.checked_add(self.size) else { return false };
        let data = self.size.checked_sub(HEADER_BYTES);
        self.state <= STATE_PAD
            && aligned(self.address)
            && aligned(self.size)
            && self.heap != 0
            && data.is_some_and(|data| self.state == STATE_PAD || self.state_fits(data))
            && self.previous < self.address
            && (self.next == 0 || self.next >= end)
    }

    fn state_fits(&self, data: u64) -> bool {
        self.state == STATE_FREE || u64::from(self.pad) <= data
    }

    fn element(&self, socket: i32) -> Element {
        let is_used = self.state == STATE_BUSY;
        let pad = if is_used { u64::from(self.pad) } else { 0 };
        Element {
            start: self.address + HEADER_BYTES + pad,
            end: self.address + self.size,
            socket,
            is_used,
        }
    }
}

/// The header of the element that has its data at this address.
fn header_of(memory: &dyn Memory, data: u64) -> Option<u64> {
    let address = data.checked_sub(HEADER_BYTES)?;
    let bytes: [u8; HEADER_READ] = read_array(memory, address).ok()?;
    let is_pad = half(&bytes, ELEMENT_STATE)? & STATE_MASK == STATE_PAD;
    let pad = if is_pad { u64::from(half(&bytes, ELEMENT_PAD)?) } else { 0 };
    let address = address.checked_sub(pad)?;
    let header = Header::read(memory, address)?;
    (header.state == STATE_BUSY).then_some(address)
}

/// The way through one heap.
struct Walk<'a> {
    memory: &'a dyn Memory,
    heap: u64,
    socket: i32,
    headers: Vec<Header>,
    is_whole: bool,
}

impl<'a> Walk<'a> {
    fn of(memory: &'a dyn Memory, heap: u64, anchors: &BTreeSet<u64>) -> Self {
        let bytes: Option<[u8; HEAP_READ]> = read_array(memory, heap).ok();
        let socket = bytes.and_then(|bytes| half(&bytes, HEAP_SOCKET));
        let socket = socket.filter(|socket| *socket < MOST_SOCKETS);
        let first = bytes.and_then(|bytes| word(&bytes, HEAP_FIRST));
        let mut walk = Self {
            memory,
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
            // Memzones are elements that stay: the walk goes on at the next of them.
            self.is_whole = false;
            let end = self.trusted_end();
            let Some(anchor) = anchors.find(|anchor| **anchor >= end) else { return };
            (address, previous) = (*anchor, None);
        }
        self.is_whole = false;
    }

    /// Behind what is known of the last element.
    fn trusted_end(&self) -> u64 {
        self.headers.last().map_or(0, |header| header.address + header.size)
    }

    /// The header at an address, if it is of this heap, and its neighbour is the one before.
    fn header(&self, address: u64, previous: Option<u64>) -> Option<Header> {
        let fits = |header: &Header| {
            header.heap == self.heap
                && header.state != STATE_PAD
                && previous.is_none_or(|previous| header.previous == previous)
                && address >= self.trusted_end()
        };
        let read = |_| Header::read(self.memory, address).filter(fits);
        (0..MOST_READS).find_map(read)
    }

    fn elements(&self) -> impl Iterator<Item = Element> {
        self.headers.iter().map(|header| header.element(self.socket))
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::holders::made_memory::MadeMemory;

    /// A made heap: elements one after another, of these lengths of data and states.
    #[derive(Debug)]
    pub(in crate::holders) struct MadeHeap {
        pub(in crate::holders) memory: MadeMemory,
        /// Addresses of the data.
        pub(in crate::holders) data: Vec<u64>,
    }

    pub(in crate::holders) const HEAP: u64 = 0x10_0000;
    const FIRST: u64 = 0x20_0000;

    impl MadeHeap {
        pub(in crate::holders) fn new(elements: &[(u64, bool)]) -> Self {
            let mut memory = MadeMemory::default();
            let lengths = elements.iter().map(|(data, _)| data + HEADER_BYTES);
            memory.map(HEAP, 0x1000);
            memory.map(FIRST, lengths.sum());
            memory.write(HEAP + HEAP_FIRST as u64, FIRST);
            memory.write_half(HEAP + HEAP_SOCKET as u64, 1);
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
                    memory.write(at + 8 * field as u64, value);
                }
                data.push(at + HEADER_BYTES);
                (previous, at) = (at, end);
            }
            Self { memory, data }
        }

        pub(in crate::holders) fn zones(&self, indices: &[usize]) -> Vec<Memzone> {
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
            let elements = Elements::read(&heap.memory, &heap.zones(&[zone]));
            assert!(elements.is_whole);
            let element = |address| elements.find(address).and_then(|index| elements.get(index));
            let second = element(heap.data[1] + 4095).unwrap();
            assert_eq!((second.end - second.start, second.socket), (4096, 1));
            assert_eq!(element(heap.data[1] + 4096), None, "the header of the next");
            assert_eq!(element(heap.data[2]), None, "free");
            assert_eq!(elements.iter().filter(|element| !element.is_used).count(), 1);
        }
        // A free element is no memzone.
        assert_eq!(Elements::read(&heap.memory, &heap.zones(&[2])), Elements::default());
    }

    #[test]
    fn aligned_data_begins_behind_its_pad() {
        let mut heap = MadeHeap::new(&[(64, true), (1024, true)]);
        let header = heap.data[1] - HEADER_BYTES;
        heap.memory.write_half(header + ELEMENT_PAD as u64, 256);
        heap.memory.write_half(header + 256 + ELEMENT_STATE as u64, STATE_PAD);
        heap.memory.write_half(header + 256 + ELEMENT_PAD as u64, 256);
        let zone = Memzone { name: "aligned".into(), address: heap.data[1] + 256, bytes: 64 };
        let elements = Elements::read(&heap.memory, &[zone]);
        let element = elements.find(heap.data[1] + 256).and_then(|index| elements.get(index));
        assert_eq!(element.map(|element| element.end - element.start), Some(768));
        assert_eq!(elements.find(heap.data[1]), None);
    }

    #[test]
    fn a_broken_link_loses_only_what_lies_before_the_next_memzone() {
        let mut heap = MadeHeap::new(&[(64, true), (64, true), (64, true), (64, true), (64, true)]);
        heap.memory.write(heap.data[1] - HEADER_BYTES + ELEMENT_NEXT as u64, u64::MAX);
        let elements = Elements::read(&heap.memory, &heap.zones(&[0, 3]));
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
                heap.memory.write(FIRST + 64 * line + 8 * (field % 8), value);
            }
            for (at, field, to) in links {
                let to = heap.data[to] - HEADER_BYTES;
                heap.memory.write(heap.data[at] - HEADER_BYTES + 8 * (field % 8), to);
            }
            let elements = Elements::read(&heap.memory, &heap.zones(&[0, 2, 5, 11]));
            let list: Vec<_> = elements.iter().collect();
            prop_assert!(list.windows(2).all(|pair| pair[0].start <= pair[1].start));
            prop_assert!(list.iter().all(|element| element.start <= element.end));
        }
    }
}
