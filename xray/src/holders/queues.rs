//! Queues of ports: the structures to which the table of ports points, and the memory that belongs to
//! them. Drivers keep the mbufs of a queue in tables and rings to which its structure points.
//!
//! What is reached from one queue alone is its own. What several queues of a port reach, or the port's
//! private data, belongs to its driver; what queues of several ports reach to none of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Owned;
use super::heap::{Element, Elements};
use crate::memory::{Memory, read_array};
use crate::report::Holder;
use crate::target::{Memzone, XrayTarget};

/// The memzone of the table of ports.
const PORTS_ZONE: &str = "rte_eth_dev_data";

/// What precedes the table: at most a cache line.
const PORTS_HEAD: u64 = 64;

/// `RTE_MAX_ETHPORTS` as DPDK is configured unless somebody changes it.
const MOST_PORTS: u64 = 32;

/// `struct rte_eth_dev_data`, the same in DPDK 21.11 to 25.11.
const PORT_READ: usize = 104;
const PORT_NAME_BYTES: usize = 64;
const PORT_RX_QUEUES: usize = 64;
const PORT_TX_QUEUES: usize = 72;
const PORT_RX_COUNT: usize = 80;
const PORT_TX_COUNT: usize = 82;
const PORT_PRIVATE: usize = 96;

/// `RTE_MAX_QUEUES_PER_PORT`.
const MOST_QUEUES: u16 = 1024;

/// How many pointers lead from the structure of a queue to the last of its memory.
const MOST_STEPS: usize = 4;
/// Most elements that a queue has.
const MOST_ELEMENTS: usize = 512;
/// What of an element is searched for pointers.
const MOST_SEARCHED: u64 = 1 << 20;
/// The same of all queues.
const MOST_SEARCHED_OF_ALL: u64 = 256 << 20;

/// A port and where its driver keeps its data.
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

/// The ports of the table. One that is not plausible is left out.
pub(super) fn ports(target: &XrayTarget) -> Vec<PortQueues> {
    let memory = target.memory.as_ref();
    let Some(zone) = target.memzones.iter().find(|zone| zone.name == PORTS_ZONE) else {
        return Vec::new();
    };
    let bytes = zone.bytes.saturating_sub(PORTS_HEAD) / MOST_PORTS;
    let port = |port: u16| {
        let address = zone.address.checked_add(PORTS_HEAD + u64::from(port) * bytes)?;
        PortQueues::read(memory, port, address)
    };
    (0..32).filter_map(port).collect()
}

impl PortQueues {
    fn read(memory: &dyn Memory, port: u16, address: u64) -> Option<Self> {
        let data: [u8; PORT_READ] = read_array(memory, address).ok()?;
        let name = data.get(..PORT_NAME_BYTES)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        let is_name = end > 0 && name[..end].iter().all(u8::is_ascii_graphic);
        let tables = [word(&data, PORT_RX_QUEUES)?, word(&data, PORT_TX_QUEUES)?];
        let counts = [count(&data, PORT_RX_COUNT)?, count(&data, PORT_TX_COUNT)?];
        let is_plausible = is_name && counts.iter().all(|count| *count <= MOST_QUEUES);
        is_plausible.then(|| Self {
            port,
            rx: table(memory, tables[0], counts[0]),
            tx: table(memory, tables[1], counts[1]),
            tables,
            private: word(&data, PORT_PRIVATE).unwrap_or_default(),
        })
    }

    /// Whether it has this queue, or no queues at all: it is not configured.
    pub(super) fn has(&self, queue: &Holder) -> bool {
        match queue {
            Holder::RxQueue { queue, .. } => self.rx.is_empty() || usize::from(*queue) < self.rx.len(),
            Holder::TxQueue { queue, .. } => self.tx.is_empty() || usize::from(*queue) < self.tx.len(),
            _ => false,
        }
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

/// Nothing if any of it cannot be read.
fn table(memory: &dyn Memory, address: u64, count: u16) -> Vec<u64> {
    let mut bytes = vec![0; usize::from(count) * size_of::<u64>()];
    match memory.read(address, &mut bytes) {
        Ok(()) => words(&bytes).collect(),
        Err(_) => Vec::new(),
    }
}

/// Elements of the heap that belong to queues and drivers, and their memzones that no name tells.
pub(super) fn queue_memory(
    target: &XrayTarget,
    elements: &Elements,
    ports: &[PortQueues],
) -> Vec<Owned> {
    let mut search = QueueSearch::new(target, elements, ports);
    for port in ports {
        for (structure, queue) in port.structures() {
            search.follow(structure, &queue);
        }
    }
    search.owned(ports)
}

/// Who reaches an element.
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

fn port(holder: &Holder) -> Option<u16> {
    match holder {
        Holder::RxQueue { port, .. }
        | Holder::TxQueue { port, .. }
        | Holder::PortDriver { port } => Some(*port),
        _ => None,
    }
}

struct QueueSearch<'a> {
    memory: &'a dyn Memory,
    elements: &'a Elements,
    /// By the number of the element.
    claims: BTreeMap<usize, Claim>,
    /// Structures of queues in one element, by address.
    structures: BTreeMap<usize, BTreeMap<u64, Holder>>,
    /// What belongs to no queue, whoever points to it.
    closed: BTreeSet<usize>,
    searched: u64,
}

impl<'a> QueueSearch<'a> {
    fn new(target: &'a XrayTarget, elements: &'a Elements, ports: &[PortQueues]) -> Self {
        let named = target.memzones.iter().filter(|zone| is_named(zone));
        let own = ports.iter().flat_map(|port| [port.private, port.tables[0], port.tables[1]]);
        let closed = named.map(|zone| zone.address).chain(own);
        let mut structures: BTreeMap<usize, BTreeMap<u64, Holder>> = BTreeMap::new();
        for (structure, queue) in ports.iter().flat_map(PortQueues::structures) {
            if let Some(element) = elements.find(structure) {
                structures.entry(element).or_default().insert(structure, queue);
            }
        }
        Self {
            memory: target.memory.as_ref(),
            elements,
            claims: BTreeMap::new(),
            structures,
            closed: closed.filter_map(|address| elements.find(address)).collect(),
            searched: 0,
        }
    }

    /// Claims what can be reached from a structure.
    fn follow(&mut self, structure: u64, queue: &Holder) {
        let Some(first) = self.elements.find(structure) else { return };
        let alone = !self.closed.contains(&first)
            && self.structures.get(&first).is_some_and(|all| all.len() == 1);
        let mut seen = BTreeSet::from([first]);
        let mut waiting = VecDeque::new();
        if alone {
            self.claim(first, queue);
        }
        let Some(part) = self.part(first, structure) else { return };
        waiting.push_back((part, 0));
        while let Some(((start, end), steps)) = waiting.pop_front() {
            for target in self.pointers(start, end) {
                let is_own = self.structures.contains_key(&target) || self.closed.contains(&target);
                if is_own || seen.len() >= MOST_ELEMENTS || !seen.insert(target) {
                    continue;
                }
                self.claim(target, queue);
                if let Some(element) = self.elements.get(target).filter(|_| steps < MOST_STEPS) {
                    waiting.push_back(((element.start, element.end), steps + 1));
                }
            }
        }
    }

    fn claim(&mut self, element: usize, queue: &Holder) {
        let claim = match self.claims.remove(&element) {
            Some(claim) => claim.joined(queue),
            None => Claim::One(queue.clone()),
        };
        self.claims.insert(element, claim);
    }

    /// What of its element belongs to a structure. Where several lie in one, each ends where the next
    /// begins; the last is as long as the shortest of them.
    fn part(&self, element: usize, structure: u64) -> Option<(u64, u64)> {
        let Element { start, end, .. } = *self.elements.get(element)?;
        let all: Vec<u64> = self.structures.get(&element)?.keys().copied().collect();
        if all.len() == 1 && !self.closed.contains(&element) {
            return Some((start, end));
        }
        let shortest = all.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(PORTS_HEAD);
        let next = all.iter().find(|other| **other > structure).copied();
        let part_end = next.unwrap_or(structure.saturating_add(shortest)).min(end);
        Some((structure, part_end))
    }

    /// Elements to which words of this memory point.
    fn pointers(&mut self, start: u64, end: u64) -> Vec<usize> {
        let length = end.saturating_sub(start).min(MOST_SEARCHED);
        if self.searched.saturating_add(length) > MOST_SEARCHED_OF_ALL {
            return Vec::new();
        }
        self.searched += length;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        if self.memory.read(start, &mut bytes).is_err() {
            return Vec::new();
        }
        let found: BTreeSet<usize> =
            words(&bytes).filter_map(|word| self.elements.find(word)).collect();
        found.into_iter().collect()
    }

    fn owned(&self, ports: &[PortQueues]) -> Vec<Owned> {
        let whole = |element: usize, holder: &Holder| {
            let element = self.elements.get(element)?;
            Some(Owned { start: element.start, end: element.end, holder: holder.clone() })
        };
        let claimed = self.claims.iter().filter_map(|(element, claim)| match claim {
            Claim::One(holder) => whole(*element, holder),
            Claim::Several => None,
        });
        let mut owned: Vec<Owned> = claimed.collect();
        // In front of what lies in them, and begin before it: only the parts between are left.
        for (element, structures) in &self.structures {
            if structures.len() > 1 || self.closed.contains(element) {
                owned.extend(structures.iter().filter_map(|(structure, queue)| {
                    let (start, end) = self.part(*element, *structure)?;
                    Some(Owned { start, end, holder: queue.clone() })
                }));
            }
        }
        owned.extend(ports.iter().filter_map(|port| {
            let element = self.elements.find(port.private)?;
            let is_free = !self.structures.contains_key(&element);
            is_free.then(|| whole(element, &Holder::PortDriver { port: port.port })).flatten()
        }));
        owned
    }
}

/// Memzones of which the name tells what they are: no memory of a queue, or that of a known one.
fn is_named(zone: &Memzone) -> bool {
    const BEGINS: [&str; 3] = ["MP_", "RG_", "rte_"];
    BEGINS.iter().any(|begin| zone.name.starts_with(begin))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes))
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn count(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}
