//! Rings that ports of the driver `net_af_xdp` share with the kernel. Their entries are offsets of
//! mbufs in the memory of their pool (the umem of the socket), not pointers.
//!
//! The structures of the driver are private, but their first members have not changed since 21.11.
//! They are used only if each word fits: rings are in the mappings of a socket for their purpose,
//! and pool and umem point to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Owned;
use super::fields::Fields;
use super::queues::PortQueues;
use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::memory::{Memory, read_u32};
use crate::report::Holder;
use crate::target::{XrayTarget, is_ring_size};

/// Prefix of the memzone names of mempools.
const POOL_ZONE: &str = "MP_";

/// Prefix of the path of the mapping of a ring.
const SOCKET: &str = "socket:[";

/// A ring of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingKind {
    /// Offset of its mapping: `XDP_PGOFF_*` and `XDP_UMEM_PGOFF_*`.
    offset: u64,
    /// Size of an entry: `struct xdp_desc`, or only an offset.
    entry_bytes: u64,
}

const RX: RingKind = RingKind { offset: 0, entry_bytes: 16 };
const TX: RingKind = RingKind { offset: 0x8000_0000, entry_bytes: 16 };
const FILL: RingKind = RingKind { offset: 0x1_0000_0000, entry_bytes: 8 };
const COMPLETION: RingKind = RingKind { offset: 0x1_8000_0000, entry_bytes: 8 };

/// `struct xsk_ring_prod` and `struct xsk_ring_cons` of libxdp: both have the same members.
const RING_BYTES: u64 = 48;
const RING_MASK: u64 = 8;
const RING_SIZE: u64 = 12;
const RING_PRODUCER: u64 = 16;
const RING_CONSUMER: u64 = 24;
const RING_ENTRIES: u64 = 32;

/// The structure of a queue begins with its ring, then the umem. In that of an RX queue the socket
/// and the mempool follow; its other two rings are somewhere after them.
const QUEUE_UMEM: u64 = 48;
const QUEUE_POOL: u64 = 64;
const QUEUE_BYTES: u64 = 512;
const OTHER_RINGS: Range<u64> = QUEUE_POOL + 8..QUEUE_BYTES - RING_BYTES;

/// `mb_pool` and `buffer` of the umem.
const UMEM_POOL: u64 = 24;
const UMEM_BUFFER: u64 = 32;
const UMEM_BYTES: u64 = 48;

/// Maximum plausible number of entries of a ring.
const MOST_ENTRIES: u32 = 1 << 16;

/// How often the ends of a ring are read again if they contradict each other.
const MOST_READS: usize = 3;

/// Bits of an entry that are the offset of the buffer; the others may contain that of the packet in
/// it.
const BUFFER_MASK: u64 = (1 << 48) - 1;

/// The `AF_XDP` sockets of an app's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AfXdpSockets {
    rings: Vec<Ring>,
    /// The ports that use each mempool, by the address of the pool.
    ports: BTreeMap<u64, BTreeSet<u16>>,
    /// A socket of the app does not belong to any of them.
    has_others: bool,
}

/// A ring and what its entries mean.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ring {
    producer: u64,
    consumer: u64,
    entries: AddressRange,
    size: u32,
    entry_bytes: u64,
    /// Start of the mapping that contains it.
    mapping: u64,
    umem: Umem,
    owner: Holder,
}

/// Memory that is shared with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Umem {
    pool: u64,
    /// Added to an offset to get the address of an mbuf.
    first_mbuf: u64,
}

/// A mempool whose mbufs the kernel may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelPool {
    /// Address of its `struct rte_mempool`.
    pub(crate) address: u64,
    /// Ports that use it.
    pub(crate) ports: BTreeSet<u16>,
}

impl AfXdpSockets {
    /// The sockets of these ports.
    pub(super) fn of_ports(target: &XrayTarget, ports: &[PortQueues], maps: &[Mapping]) -> Self {
        let sockets: Vec<&Mapping> =
            maps.iter().filter(|mapping| mapping.path.starts_with(SOCKET)).collect();
        let mut found = Self::default();
        if sockets.is_empty() {
            return found;
        }
        let reader = Reader { target, sockets: &sockets };
        for port in ports {
            for (queue, structure) in port.rx_queues() {
                let Some((umem, rings)) = reader.rx_queue(structure, port.port, queue) else {
                    continue;
                };
                found.ports.entry(umem.pool).or_default().insert(port.port);
                found.rings.extend(rings);
                let tx = port.tx_queue(queue);
                let tx = tx.and_then(|at| reader.tx_queue(at, umem, port.port, queue));
                found.rings.extend(tx);
            }
        }
        let is_known = |fill: &Mapping| found.rings.iter().any(|ring| ring.mapping == fill.start);
        let mut fill_rings = sockets.iter().filter(|mapping| mapping.offset == FILL.offset);
        found.has_others = fill_rings.any(|fill| !is_known(fill));
        found
    }

    /// Mempools whose mbufs the kernel may hold.
    pub(crate) fn pools(&self) -> impl Iterator<Item = KernelPool> {
        let pools = self.ports.iter();
        pools.map(|(address, ports)| KernelPool { address: *address, ports: ports.clone() })
    }

    /// Whether the app has a socket without one of these pools: the kernel may then hold any mbuf.
    pub(crate) fn has_others(&self) -> bool {
        self.has_others
    }

    /// The memory of the rings.
    pub(super) fn owned(&self) -> Vec<Owned> {
        let owned = |ring: &Ring| Owned::new(ring.entries, ring.owner.clone());
        self.rings.iter().map(owned).collect()
    }

    /// The current entries of the rings: addresses of the entries, and of their mbufs. A ring that
    /// cannot be read (not all kernels allow it) has none.
    pub(crate) fn entries(&self, memory: &dyn Memory) -> Vec<(u64, u64)> {
        self.rings.iter().filter_map(|ring| ring.live(memory)).flatten().collect()
    }
}

impl Ring {
    fn live(&self, memory: &dyn Memory) -> Option<Vec<(u64, u64)>> {
        let (first, count) = self.window(memory)?;
        let (begin, bytes) = (self.entries.start(), self.entries.bytes());
        let entries = Fields::read_large(memory, begin, bytes)?;
        let entry = |place: u32| {
            let slot = first.wrapping_add(place).checked_rem(self.size)?;
            let at = Address(begin).element(slot.into(), self.entry_bytes)?;
            let buffer = entries.u64(self.entries.offset(at)?)? & BUFFER_MASK;
            Some((at, Address(self.umem.first_mbuf).plus(buffer)?))
        };
        Some((0..count).filter_map(entry).collect())
    }

    /// The first entry and the number of entries; all entries if its ends move too fast.
    fn window(&self, memory: &dyn Memory) -> Option<(u32, u32)> {
        for _ in 0..MOST_READS {
            let consumer = read_u32(memory, self.consumer).ok()?;
            let count = read_u32(memory, self.producer).ok()?.wrapping_sub(consumer);
            if count <= self.size {
                return Some((consumer, count));
            }
        }
        Some((0, self.size))
    }
}

struct Reader<'a> {
    target: &'a XrayTarget,
    sockets: &'a [&'a Mapping],
}

impl Reader<'_> {
    /// The umem of an RX queue, and its rings: received, to be filled, sent.
    fn rx_queue(&self, structure: u64, port: u16, queue: u16) -> Option<(Umem, Vec<Ring>)> {
        let fields = self.structure(structure)?;
        let umem = self.umem(fields.u64(QUEUE_UMEM)?, fields.u64(QUEUE_POOL)?)?;
        let (rx, tx) = (Holder::RxQueue { port, queue }, Holder::TxQueue { port, queue });
        let behind = |kind: RingKind, owner: &Holder| {
            let mut places = OTHER_RINGS.step_by(8);
            places.find_map(|at| self.ring(&fields, at, kind, umem, owner))
        };
        let received = self.ring(&fields, 0, RX, umem, &rx)?;
        let rings = vec![received, behind(FILL, &rx)?, behind(COMPLETION, &tx)?];
        Some((umem, rings))
    }

    fn tx_queue(&self, structure: u64, umem: Umem, port: u16, queue: u16) -> Option<Ring> {
        let fields = self.structure(structure)?;
        self.ring(&fields, 0, TX, umem, &Holder::TxQueue { port, queue })
    }

    /// The readable part of a structure of unknown length.
    fn structure(&self, address: u64) -> Option<Fields> {
        let read = |bytes| Fields::read(self.target.memory.as_ref(), address, bytes);
        read(QUEUE_BYTES).or_else(|| read(QUEUE_BYTES / 2))
    }

    fn umem(&self, address: u64, pool: u64) -> Option<Umem> {
        let memory = self.target.memory.as_ref();
        let mut pools = self.target.memzones.iter().filter(|zone| zone.name.starts_with(POOL_ZONE));
        pools.find(|zone| zone.address == pool)?;
        let header = Address(pool).plus(self.target.layout.mempool.header_size)?;
        let header = u64::from(read_u32(memory, header).ok()?);
        let fields = Fields::read(memory, address, UMEM_BYTES)?;
        let first_mbuf = Address(fields.u64(UMEM_BUFFER)?).plus(header)?;
        (fields.u64(UMEM_POOL)? == pool).then_some(Umem { pool, first_mbuf })
    }

    /// The ring that this part of a structure describes; it is contained in one mapping of a
    /// socket.
    fn ring(
        &self,
        fields: &Fields,
        at: u64,
        kind: RingKind,
        umem: Umem,
        owner: &Holder,
    ) -> Option<Ring> {
        let ring = Address(at);
        let size = fields.u32(ring.plus(RING_SIZE)?)?;
        let producer = fields.u64(ring.plus(RING_PRODUCER)?)?;
        let consumer = fields.u64(ring.plus(RING_CONSUMER)?)?;
        let entries = fields.u64(ring.plus(RING_ENTRIES)?)?;
        let mapping = self.sockets.iter().find(|mapping| mapping.contains(producer))?;
        let entries = AddressRange::of_elements(entries, size.into(), kind.entry_bytes)?;
        let fits = is_ring_size(size, fields.u32(ring.plus(RING_MASK)?)?)
            && size <= MOST_ENTRIES
            && mapping.offset == kind.offset
            && mapping.contains(consumer)
            && AddressRange::from(*mapping).contains_all(&entries);
        fits.then(|| Ring {
            producer,
            consumer,
            entries,
            size,
            entry_bytes: kind.entry_bytes,
            mapping: mapping.start,
            umem,
            owner: owner.clone(),
        })
    }
}
