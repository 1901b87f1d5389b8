//! Results of scans of an app: lost mbufs, and the holders of the others.

use std::collections::BTreeMap;

use serde::Serialize;

/// Results of the scans of one app.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanReport {
    /// Mbuf pools, sorted by name.
    pub pools: Vec<PoolScan>,
    /// Number of scans of the whole memory.
    pub scans: u32,
    /// Memory that was searched in the last scan, bytes.
    pub scanned_bytes: u64,
    /// Time from the start of the first scan to the end of the last, milliseconds.
    pub duration_ms: u64,
    /// Data that could not be read, and why, one sentence each; the other data is valid.
    pub problems: Vec<String>,
}

/// One mbuf pool. `size` is the sum of `common`, all `caches`, `held`, `lost`, `moving` and `not_judged`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolScan {
    /// Name of the pool.
    pub name: String,
    /// Number of mbufs in the pool.
    pub size: u64,
    /// Free mbufs in the common part of the pool.
    pub common: u64,
    /// Free mbufs in the cache of each lcore; empty caches are left out.
    pub caches: BTreeMap<u32, u64>,
    /// Mbufs in use that something refers to.
    pub held: u64,
    /// Lost mbufs: unreachable in all scans, unchanged between them, and not free in the meantime.
    pub lost: u64,
    /// Mbufs in `lost` to which only blocks of `malloc()` refer that nothing reaches themselves.
    pub lost_in_blocks: u64,
    /// Mbufs in use that are neither proven to be lost nor found at a holder: they moved while the scans ran.
    pub moving: u64,
    /// Mbufs in use for which it is unknown whether they are lost, for the reasons in `not_judged_why`.
    pub not_judged: u64,
    /// Why mbufs could not be judged; empty if all were.
    pub not_judged_why: Vec<String>,
    /// Holders of the mbufs in `held`, most mbufs first; their counts add up to `held`.
    pub holders: Vec<HolderCount>,
    /// Lost mbufs, sorted by address; at most 65,536.
    pub lost_mbufs: Vec<LostMbuf>,
}

/// Most lost mbufs of a pool that are listed; all are counted.
pub const MOST_LISTED: usize = 65_536;

/// An mbuf that the app cannot reach any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostMbuf {
    /// Address of the `struct rte_mbuf` in the app.
    pub address: u64,
    /// Port that received the packet, from the field `port` of the mbuf; `None` for 65535, which no port has.
    pub port: Option<u16>,
    /// Reference count, from the field `refcnt`.
    pub refcnt: u16,
    /// Number of segments, from the field `nb_segs`.
    pub segments: u16,
    /// Length of the packet, from the field `pkt_len`, bytes.
    pub packet_bytes: u32,
    /// Minimum time for which the mbuf has been lost, milliseconds.
    pub age_at_least_ms: u64,
}

/// Number of mbufs of a pool that one holder has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HolderCount {
    /// Holder.
    pub holder: Holder,
    /// Number of mbufs. An mbuf that has several holders counts for the first of them in the order of
    /// [`Holder`].
    pub mbufs: u64,
}

/// What refers to an mbuf.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Holder {
    /// The memory of an RX queue of a port.
    RxQueue {
        /// Port number.
        port: u16,
        /// Number of the queue.
        queue: u16,
    },
    /// The memory of a TX queue of a port.
    TxQueue {
        /// Port number.
        port: u16,
        /// Number of the queue.
        queue: u16,
    },
    /// Memory of the driver of a port that belongs to no single queue.
    PortDriver {
        /// Port number.
        port: u16,
    },
    /// A software ring (`rte_ring`).
    Ring {
        /// Name of the ring.
        name: String,
        /// Number of entries in use.
        used: u64,
        /// Number of usable entries.
        capacity: u64,
    },
    /// A memzone that belongs to no queue, driver or ring.
    Memzone {
        /// Name of the memzone.
        name: String,
    },
    /// A structure of a DPDK library, such as a hash.
    Structure {
        /// Name of the library, such as `rte_hash`.
        library: String,
        /// Name that the app gave it; `None` for structures without names.
        name: Option<String>,
    },
    /// A global or static variable.
    Global {
        /// Name of the variable; `None` if it has no symbol.
        symbol: Option<String>,
        /// Executable or library that contains the variable, without its directory.
        module: String,
        /// Source line of the declaration, such as `file.c:14`; `None` without debug information.
        place: Option<String>,
    },
    /// An element of the heap of the EAL (`rte_malloc()`).
    HeapElement {
        /// Length of the element, bytes.
        bytes: u64,
        /// NUMA node, -1 if unknown.
        socket: i32,
    },
    /// The heap of the C library (`malloc()`), or another anonymous mapping.
    ProcessHeap,
    /// The stack of a thread.
    Stack {
        /// Name of the thread.
        thread: String,
    },
    /// The thread-local storage of a thread.
    ThreadLocal {
        /// Name of the thread.
        thread: String,
        /// Name of the variable; `None` if it is unknown.
        symbol: Option<String>,
    },
    /// Another mbuf of the same chain, or one that shares its data, that has no other holder itself.
    Mbuf,
    /// Another mapping of memory.
    Mapping {
        /// Path or name of the mapping.
        path: String,
    },
}
