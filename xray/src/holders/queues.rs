//! Queues of ports: the structures to which the table of ports points, and the memory that belongs
//! to them. The structure of a queue points to the driver's tables and rings with its mbufs.
//!
//! Memory that is reached from one queue only belongs to that queue. Memory reached from several
//! queues of a port, or from the port's private data, belongs to its driver. Memory reached from
//! queues of several ports belongs to none of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Owned;
use super::fields::{Fields, words};
use super::heap::Elements;
use super::malloc::MallocHeaps;
use super::zones::queue_of_name;
use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::memory::Memory;
use crate::memzone::Memzone;
use crate::report::Holder;
use crate::target::XrayTarget;

/// The memzone of the table of ports.
const PORTS_ZONE: &str = "rte_eth_dev_data";

/// `RTE_ETH_NAME_MAX_LEN`, the same in all releases.
const NAME_BYTES: usize = 64;

/// Maximum plausible number of ports; `RTE_MAX_ETHPORTS` is 32 by default.
const MOST_PORTS: u64 = 4096;

/// `RTE_MAX_QUEUES_PER_PORT`.
const MOST_QUEUES: u16 = 4096;

/// Bytes that belong to the structure of a queue if the same element contains others.
const LEAST_STRUCTURE: u64 = 64;

/// Maximum number of pointers from the structure of a queue to its memory.
const MOST_STEPS: usize = 4;
/// How many of them may lead to a chunk of the C library's heap, which is not only used by drivers.
const MOST_STEPS_TO_CHUNK: usize = 2;
/// Maximum number of blocks of a queue.
const MOST_BLOCKS: usize = 512;
/// Bytes of a block that are searched for pointers.
const MOST_SEARCHED: u64 = 1 << 20;
/// The same for all queues together.
const MOST_SEARCHED_OF_ALL: u64 = 256 << 20;

/// A port, and the places where its driver keeps data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortQueues {
    pub(super) port: u16,
    /// Structures of its queues, by number; 0 for one that is not set up.
    pub(super) rx: Vec<u64>,
    pub(super) tx: Vec<u64>,
    /// The tables of these pointers.
    tables: [u64; 2],
    /// `dev_private`.
    private: u64,
}

/// The ports in the table. Ports that are not plausible are left out.
pub(super) fn ports(target: &XrayTarget) -> Vec<PortQueues> {
    let Some(zone) = target.memzones.iter().find(|zone| zone.name == PORTS_ZONE) else {
        return Vec::new();
    };
    let (begin, bytes) = (target.layout.eth_dev_shared.data, target.layout.eth_dev_data.bytes);
    let count = zone.bytes.saturating_sub(begin).checked_div(bytes).unwrap_or_default();
    let port = |port: u64| {
        let address = Address(Address(zone.address).plus(begin)?).element(port, bytes)?;
        PortQueues::read(target, u16::try_from(port).ok()?, address)
    };
    (0..count.min(MOST_PORTS)).filter_map(port).collect()
}

impl PortQueues {
    fn read(target: &XrayTarget, port: u16, address: u64) -> Option<Self> {
        let (memory, layout) = (target.memory.as_ref(), &target.layout.eth_dev_data);
        let fields = Fields::read(memory, address, layout.bytes)?;
        fields.name(layout.name, NAME_BYTES)?;
        let is_own = fields.u16(layout.port_id)? == port;
        let tables = [fields.u64(layout.rx_queues)?, fields.u64(layout.tx_queues)?];
        let counts = [fields.u16(layout.nb_rx_queues)?, fields.u16(layout.nb_tx_queues)?];
        let is_plausible = is_own && counts.iter().all(|count| *count <= MOST_QUEUES);
        let private = fields.u64(layout.dev_private)?;
        is_plausible.then(|| Self {
            port,
            rx: table(memory, tables[0], counts[0]),
            tx: table(memory, tables[1], counts[1]),
            tables,
            private,
        })
    }

    /// Whether the port has this queue, or has no queues at all because it is not configured.
    pub(super) fn has(&self, queue: &Holder) -> bool {
        match queue {
            Holder::RxQueue { queue, .. } => {
                self.rx.is_empty() || usize::from(*queue) < self.rx.len()
            }
            Holder::TxQueue { queue, .. } => {
                self.tx.is_empty() || usize::from(*queue) < self.tx.len()
            }
            _ => false,
        }
    }

    /// Its RX queues that are set up, with their structures.
    pub(super) fn rx_queues(&self) -> impl Iterator<Item = (u16, u64)> {
        numbered(&self.rx)
    }

    /// The structure of a TX queue that is set up.
    pub(super) fn tx_queue(&self, queue: u16) -> Option<u64> {
        self.tx.get(usize::from(queue)).copied().filter(|address| *address != 0)
    }

    /// The structure of each queue.
    fn structures(&self) -> impl Iterator<Item = (u64, Holder)> {
        let port = self.port;
        let rx = numbered(&self.rx).map(move |(queue, at)| (at, Holder::RxQueue { port, queue }));
        let tx = numbered(&self.tx).map(move |(queue, at)| (at, Holder::TxQueue { port, queue }));
        rx.chain(tx)
    }
}

fn numbered(table: &[u64]) -> impl Iterator<Item = (u16, u64)> {
    (0_u16..).zip(table.iter().copied()).filter(|(_, address)| *address != 0)
}

/// Empty if a part of it cannot be read.
fn table(memory: &dyn Memory, address: u64, count: u16) -> Vec<u64> {
    let fields = Fields::read(
        memory,
        address,
        AddressRange::of_elements(0, count.into(), 8).map_or(0, |it| it.bytes()),
    );
    fields.map(|fields| fields.words().collect()).unwrap_or_default()
}

/// Memory of queues and drivers: elements and chunks of heaps, and memzones without a known name.
pub(super) fn queue_memory(
    target: &XrayTarget,
    elements: &Elements,
    maps: &[Mapping],
    ports: &[PortQueues],
) -> Vec<Owned> {
    let malloc = MallocHeaps::new(target.memory.as_ref(), maps);
    let blocks = Blocks { elements, malloc };
    let mut search = QueueSearch::new(target, &blocks, ports);
    for port in ports {
        for (structure, queue) in port.structures() {
            search.follow(structure, &queue);
        }
    }
    search.owned(ports)
}

/// The pool whose address is in the structure of each receive queue: its driver allocates from that. Queues
/// whose structure has the addresses of several pools, or of none, are left out.
pub(super) fn feeding_pools(target: &XrayTarget, ports: &[PortQueues], pools: &[u64]) -> Feeds {
    let memory = target.memory.as_ref();
    let elements = Elements::read(target);
    let maps = memory.maps().unwrap_or_default();
    let blocks = Blocks { elements: &elements, malloc: MallocHeaps::new(memory, &maps) };
    let search = QueueSearch::new(target, &blocks, ports);
    let mut feeds = Feeds::new();
    for (structure, queue) in ports.iter().flat_map(PortQueues::structures) {
        let Holder::RxQueue { port, queue } = queue else { continue };
        let part = blocks.find(structure).and_then(|block| search.part(block, structure));
        let Some(part) = part else { continue };
        let fields = Fields::read(memory, part.start(), part.bytes());
        let words = fields.iter().flat_map(Fields::words);
        let named: BTreeSet<u64> = words.filter(|word| pools.contains(word)).collect();
        if let (Some(pool), 1) = (named.first(), named.len()) {
            feeds.insert((port, queue), *pool);
        }
    }
    feeds
}

/// Address of the pool that feeds each receive queue, by port and queue.
pub(super) type Feeds = BTreeMap<(u16, u16), u64>;

/// Memory allocated in one piece: an element of the EAL's heap, or a chunk of the C library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    range: AddressRange,
    is_chunk: bool,
}

impl Block {
    fn owned(&self, holder: &Holder) -> Owned {
        Owned::new(self.range, holder.clone())
    }
}

struct Blocks<'a> {
    elements: &'a Elements,
    malloc: MallocHeaps<'a>,
}

impl Blocks<'_> {
    /// The block in use that contains an address.
    fn find(&self, address: u64) -> Option<Block> {
        if let Some(element) = self.elements.find(address) {
            return Some(Block { range: element.range, is_chunk: false });
        }
        Some(Block { range: self.malloc.find(address)?, is_chunk: true })
    }
}

/// The queues that reach a block.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    One(Holder),
    Several,
}

impl Claim {
    fn joined(self, other: &Holder) -> Self {
        let Self::One(holder) = self else { return Self::Several };
        match (port(&holder), port(other)) {
            _ if holder == *other => Self::One(holder),
            (Some(one), Some(two)) if one == two => Self::One(Holder::PortDriver { port: one }),
            _ => Self::Several,
        }
    }
}

/// The port that the memory of a holder belongs to.
pub(super) fn port(holder: &Holder) -> Option<u16> {
    match holder {
        Holder::RxQueue { port, .. }
        | Holder::TxQueue { port, .. }
        | Holder::PortDriver { port } => Some(*port),
        _ => None,
    }
}

struct QueueSearch<'a> {
    memory: &'a dyn Memory,
    blocks: &'a Blocks<'a>,
    claims: BTreeMap<Block, Claim>,
    /// Structures of queues in one block, by address.
    structures: BTreeMap<Block, BTreeMap<u64, Holder>>,
    /// Blocks that belong to no queue, even if a queue points to them.
    closed: BTreeSet<Block>,
    searched: u64,
}

impl<'a> QueueSearch<'a> {
    fn new(target: &'a XrayTarget, blocks: &'a Blocks<'a>, ports: &[PortQueues]) -> Self {
        let named = target.memzones.iter().filter(|zone| is_named(zone));
        let own = ports.iter().flat_map(|port| [port.private, port.tables[0], port.tables[1]]);
        let closed = named.map(|zone| zone.address).chain(own);
        let mut structures: BTreeMap<Block, BTreeMap<u64, Holder>> = BTreeMap::new();
        for (structure, queue) in ports.iter().flat_map(PortQueues::structures) {
            if let Some(block) = blocks.find(structure) {
                structures.entry(block).or_default().insert(structure, queue);
            }
        }
        Self {
            memory: target.memory.as_ref(),
            blocks,
            claims: BTreeMap::new(),
            structures,
            closed: closed.filter_map(|address| blocks.find(address)).collect(),
            searched: 0,
        }
    }

    /// Claims the blocks that can be reached from a structure.
    fn follow(&mut self, structure: u64, queue: &Holder) {
        let Some(first) = self.blocks.find(structure) else { return };
        let alone = !self.closed.contains(&first)
            && self.structures.get(&first).is_some_and(|all| all.len() == 1);
        let mut seen = BTreeSet::from([first]);
        let mut waiting = VecDeque::new();
        if alone {
            self.claim(first, queue);
        }
        let Some(part) = self.part(first, structure) else { return };
        waiting.push_back((part, 0_usize));
        while let Some((part, steps)) = waiting.pop_front() {
            for target in self.pointers(&part) {
                let is_own = self.structures.contains_key(&target) || self.closed.contains(&target);
                let is_far = target.is_chunk && steps >= MOST_STEPS_TO_CHUNK;
                if is_own || is_far || seen.len() >= MOST_BLOCKS || !seen.insert(target) {
                    continue;
                }
                self.claim(target, queue);
                if steps < MOST_STEPS {
                    waiting.push_back((target.range, steps.saturating_add(1)));
                }
            }
        }
    }

    fn claim(&mut self, block: Block, queue: &Holder) {
        let claim = match self.claims.remove(&block) {
            Some(claim) => claim.joined(queue),
            None => Claim::One(queue.clone()),
        };
        self.claims.insert(block, claim);
    }

    /// The part of its block that belongs to a structure. If a block contains several, each ends
    /// where the next begins; the last is as long as the shortest of them.
    fn part(&self, block: Block, structure: u64) -> Option<AddressRange> {
        let all: Vec<u64> = self.structures.get(&block)?.keys().copied().collect();
        if all.len() == 1 && !self.closed.contains(&block) {
            return Some(block.range);
        }
        // They ascend.
        let distances = all.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let shortest = distances.min().unwrap_or(LEAST_STRUCTURE);
        let next = all.iter().find(|other| **other > structure).copied();
        let part = match next {
            Some(next) => AddressRange::from(structure..next),
            None => AddressRange::up_to_length(structure, shortest),
        };
        Some(part.intersection(&block.range))
    }

    /// Blocks to which words of this memory point.
    fn pointers(&mut self, part: &AddressRange) -> BTreeSet<Block> {
        let length = part.bytes().min(MOST_SEARCHED);
        let searched = self.searched.saturating_add(length);
        if searched > MOST_SEARCHED_OF_ALL {
            return BTreeSet::new();
        }
        self.searched = searched;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        if self.memory.read(part.start(), &mut bytes).is_err() {
            return BTreeSet::new();
        }
        words(&bytes).filter_map(|word| self.blocks.find(word)).collect()
    }

    fn owned(&self, ports: &[PortQueues]) -> Vec<Owned> {
        let claimed = self.claims.iter().filter_map(|(block, claim)| match claim {
            Claim::One(holder) => Some(block.owned(holder)),
            Claim::Several => None,
        });
        let mut owned: Vec<Owned> = claimed.collect();
        // In a block with several structures each of them gets its own part.
        for (block, structures) in &self.structures {
            if structures.len() > 1 || self.closed.contains(block) {
                owned.extend(structures.iter().filter_map(|(structure, queue)| {
                    Some(Owned::new(self.part(*block, *structure)?, queue.clone()))
                }));
            }
        }
        owned.extend(ports.iter().filter_map(|port| {
            let block = self.blocks.find(port.private)?;
            let is_free = !self.structures.contains_key(&block);
            is_free.then(|| block.owned(&Holder::PortDriver { port: port.port }))
        }));
        owned
    }
}

/// Memzones with a known name: not memory of a queue, or that of a known queue.
fn is_named(zone: &Memzone) -> bool {
    const BEGINS: [&str; 3] = ["MP_", "RG_", "rte_"];
    BEGINS.iter().any(|begin| zone.name.starts_with(begin)) || queue_of_name(&zone.name).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::holders::heap::tests::MadeHeap;
    use crate::holders::malloc::tests::write_heap;
    use crate::layout::Layout;

    static LAYOUT: LazyLock<Layout> = LazyLock::new(Layout::dpdk_22_11);
    /// Numbers of elements.
    const PORTS: usize = 0;
    const RX_TABLE: usize = 1;
    const TX_TABLE: usize = 2;
    const RX_QUEUES: [usize; 2] = [3, 4];
    const TX_QUEUE: usize = 5;
    const PRIVATE: usize = 6;
    const RING_ZONE: usize = 7;
    const FREE: usize = 8;
    // Elements 9 to 13 have no fixed purpose.

    /// Port 0 with two queues to receive and one to send.
    fn made() -> MadeHeap {
        let mut lengths = vec![(64 + 2 * LAYOUT.eth_dev_data.bytes, true)];
        lengths.extend([(256, true); 13]);
        lengths[FREE].1 = false;
        let mut heap = MadeHeap::new(&lengths);
        let (port, fields) = (heap.data[PORTS] + LAYOUT.eth_dev_shared.data, &LAYOUT.eth_dev_data);
        heap.memory.write(port + fields.name, b"net_made0\0");
        for (field, element) in [
            (fields.rx_queues, RX_TABLE),
            (fields.tx_queues, TX_TABLE),
            (fields.dev_private, PRIVATE),
        ] {
            heap.memory.write_u64(port + field, heap.data[element]);
        }
        heap.memory.write_u32(port + fields.nb_rx_queues, 2 | 1 << 16);
        for (table, number, queue) in
            [(RX_TABLE, 0, RX_QUEUES[0]), (RX_TABLE, 1, RX_QUEUES[1]), (TX_TABLE, 0, TX_QUEUE)]
        {
            // Drivers may point into the structure.
            heap.memory.write_u64(heap.data[table] + 8 * number, heap.data[queue] + 64);
        }
        heap
    }

    fn point(heap: &mut MadeHeap, from: usize, to: usize) {
        let at = heap.data[from] + 8 * to as u64;
        heap.memory.write_u64(at, heap.data[to] + 16);
    }

    fn holder(owned: &[Owned], address: u64) -> Option<Holder> {
        let owned = owned.iter().find(|owned| owned.range.contains(address));
        owned.map(|owned| owned.holder.clone())
    }

    fn queues(heap: &MadeHeap) -> Vec<Owned> {
        let zone = |name: &str, element: usize, bytes| Memzone {
            name: name.into(),
            address: heap.data[element],
            bytes,
        };
        let ports_bytes = 64 + 2 * LAYOUT.eth_dev_data.bytes;
        let target = heap
            .target(vec![zone(PORTS_ZONE, PORTS, ports_bytes), zone("RG_backlog", RING_ZONE, 256)]);
        let maps = target.memory.maps().unwrap();
        queue_memory(&target, &Elements::read(&target), &maps, &ports(&target))
    }

    #[test]
    fn what_one_queue_points_to_is_its_own() {
        let mut heap = made();
        for (from, to) in [
            (RX_QUEUES[0], 9),
            (9, 10),
            (RX_QUEUES[1], 11),
            (TX_QUEUE, 12),
            // Not its own: shared by two queues, of the port, a ring, or not in use.
            (RX_QUEUES[0], 13),
            (TX_QUEUE, 13),
            (RX_QUEUES[0], PRIVATE),
            (RX_QUEUES[0], RX_QUEUES[1]),
            (RX_QUEUES[0], RING_ZONE),
            (RX_QUEUES[0], FREE),
            (RX_QUEUES[0], RX_TABLE),
        ] {
            point(&mut heap, from, to);
        }
        let owned = queues(&heap);
        let of = |element: usize| holder(&owned, heap.data[element] + 200);
        let rx = |queue| Some(Holder::RxQueue { port: 0, queue });
        assert_eq!([of(RX_QUEUES[0]), of(9), of(10)], [rx(0), rx(0), rx(0)]);
        assert_eq!([of(RX_QUEUES[1]), of(11)], [rx(1), rx(1)]);
        let tx = Some(Holder::TxQueue { port: 0, queue: 0 });
        assert_eq!([of(TX_QUEUE), of(12)], [tx.clone(), tx]);
        let driver = Some(Holder::PortDriver { port: 0 });
        assert_eq!([of(13), of(PRIVATE)], [driver.clone(), driver]);
        assert_eq!([of(RING_ZONE), of(FREE), of(RX_TABLE), of(PORTS)], [None, None, None, None]);
    }

    #[test]
    fn structures_in_one_element_are_told_apart() {
        let mut heap = made();
        let both = heap.data[RX_QUEUES[0]];
        heap.memory.write_u64(heap.data[RX_TABLE], both + 64);
        heap.memory.write_u64(heap.data[RX_TABLE] + 8, both + 128);
        let owned = queues(&heap);
        let of = |offset| holder(&owned, both + offset);
        assert_eq!(of(127), Some(Holder::RxQueue { port: 0, queue: 0 }));
        assert_eq!(of(128), Some(Holder::RxQueue { port: 0, queue: 1 }));
        assert_eq!([of(0), of(192)], [None, None]);
    }

    /// Drivers may keep queues in memory of the C library.
    #[test]
    fn queues_in_malloc_memory_have_what_they_point_to() {
        let mut heap = made();
        let chunks = write_heap(&mut heap.memory, &[0x290, 96, 256, 64, 64, 64, 64, 96]);
        let [_, structure, near, far, too_far, of_app, of_both, other] = chunks[..8] else {
            panic!()
        };
        heap.memory.write_u64(heap.data[RX_TABLE], structure);
        for (at, to) in [
            (structure + 8, near),
            (near, far + 32),
            (far, too_far),
            (structure + 16, heap.data[9]),
            (structure + 24, of_both),
            // Also a queue in the heap of the EAL.
            (heap.data[RX_QUEUES[1]], other),
            (other, of_both),
        ] {
            heap.memory.write_u64(at, to);
        }
        let owned = queues(&heap);
        let rx = |queue| Some(Holder::RxQueue { port: 0, queue });
        let of = |address| holder(&owned, address);
        assert_eq!([of(structure), of(structure + 87)], [rx(0), rx(0)]);
        assert_eq!([of(near + 247), of(far), of(heap.data[9])], [rx(0), rx(0), rx(0)]);
        assert_eq!([of(other), of(of_both)], [rx(1), Some(Holder::PortDriver { port: 0 })]);
        assert_eq!([of(structure + 88), of(too_far), of(of_app)], [None, None, None]);
    }

    #[test]
    fn the_pool_in_the_structure_of_a_queue_feeds_it() {
        let mut heap = made();
        let pools = [heap.data[11], heap.data[12]];
        let write = |heap: &mut MadeHeap, queue: usize, at: u64, pool: u64| {
            let address = heap.data[RX_QUEUES[queue]] + at;
            heap.memory.write_u64(address, pool);
        };
        let fed = |heap: &MadeHeap| {
            let zone = Memzone {
                name: PORTS_ZONE.into(),
                address: heap.data[PORTS],
                bytes: 64 + 2 * LAYOUT.eth_dev_data.bytes,
            };
            let target = heap.target(vec![zone]);
            feeding_pools(&target, &ports(&target), &pools)
        };
        assert_eq!(fed(&heap), Feeds::new());
        write(&mut heap, 0, 0, pools[0]);
        write(&mut heap, 1, 184, pools[1]);
        assert_eq!(fed(&heap), [((0, 0), pools[0]), ((0, 1), pools[1])].into());
        // The structure of another queue in the same element is not part of it.
        let shared = heap.data[RX_QUEUES[0]];
        heap.memory.write_u64(heap.data[RX_TABLE] + 8, shared + 64);
        heap.memory.write_u64(shared + 72, pools[1]);
        heap.memory.write_u64(heap.data[RX_TABLE], shared);
        assert_eq!(fed(&heap), [((0, 0), pools[0]), ((0, 1), pools[1])].into());
        write(&mut heap, 0, 32, pools[1]);
        assert_eq!(fed(&heap), [((0, 1), pools[1])].into(), "one of two pools");
    }

    proptest! {
        #[test]
        fn garbage_neither_hangs_nor_crashes(
            pointers in vec((0..14_usize, 0..32_u64, 0..14_usize), 0..80),
            words in vec((0..14_usize, 0..40_u64, any::<u64>()), 0..20),
        ) {
            let mut heap = made();
            for (from, at, to) in pointers {
                heap.memory.write_u64(heap.data[from] + 8 * at, heap.data[to] + 8 * at);
            }
            for (element, at, word) in words {
                heap.memory.write_u64(heap.data[element] + 8 * at, word);
            }
            let owned = queues(&heap);
            prop_assert!(owned.iter().all(|owned| owned.range.end() <= 1 << 32));
        }
    }
}
