//! Results of scans of an app: lost mbufs, and the holders of the others.

use std::collections::BTreeMap;

use serde::Serialize;

/// What the scans of one app found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanReport {
    /// Mbuf pools, by name.
    pub pools: Vec<PoolScan>,
    /// Scans of the whole memory.
    pub scans: u32,
    /// Bytes of memory that were searched in the last scan.
    pub scanned_bytes: u64,
    /// Time from the start of the first scan to the end of the last, milliseconds.
    pub duration_ms: u64,
    /// What could not be read, and why; a sentence each. The rest is valid.
    pub problems: Vec<String>,
}

/// One mbuf pool. `size = common + cached + held + lost + moving + not_judged`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolScan {
    /// Name.
    pub name: String,
    /// Mbufs that it has.
    pub size: u64,
    /// Free in the common part.
    pub common: u64,
    /// Free in the cache of each lcore; empty caches are left out.
    pub caches: BTreeMap<u32, u64>,
    /// In use, and referred to.
    pub held: u64,
    /// Unreachable in all scans, unchanged between them and not free meanwhile.
    pub lost: u64,
    /// In use, and neither proven to be lost nor found at a holder: they moved while the scans ran.
    pub moving: u64,
    /// In use, but it is unknown whether they are lost, for the reason in `not_judged_why`.
    pub not_judged: u64,
    /// Why; empty if all were judged.
    pub not_judged_why: Vec<String>,
    /// Who holds the mbufs of `held`, most first; the counts add up to it.
    pub holders: Vec<HolderCount>,
    /// The lost ones, by address; at most [`MOST_LISTED`].
    pub lost_mbufs: Vec<LostMbuf>,
}

/// Most lost mbufs of a pool that are listed; all are counted.
pub const MOST_LISTED: usize = 65_536;

/// An mbuf that nobody can reach any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostMbuf {
    /// Address of its `struct rte_mbuf` in the app.
    pub address: u64,
    /// Port that received it, as the mbuf says; `None` for 65535, which no port has.
    pub port: Option<u16>,
    /// `refcnt`.
    pub refcnt: u16,
    /// `nb_segs`.
    pub segments: u16,
    /// `pkt_len`.
    pub packet_bytes: u32,
    /// It was lost for at least so long, milliseconds.
    pub age_at_least_ms: u64,
}

/// How many mbufs of a pool one holder has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HolderCount {
    /// Who.
    pub holder: Holder,
    /// Mbufs. One that has several holders counts for the first of them in the order of [`Holder`].
    pub mbufs: u64,
}

/// Who refers to an mbuf.
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
    /// The memory of the driver of a port that belongs to none of its queues alone.
    PortDriver {
        /// Port number.
        port: u16,
    },
    /// A software ring (`rte_ring`).
    Ring {
        /// Name.
        name: String,
        /// Entries in use.
        used: u64,
        /// Usable entries.
        capacity: u64,
    },
    /// A memzone that is none of these.
    Memzone {
        /// Name.
        name: String,
    },
    /// A global or static variable.
    Global {
        /// Name of the variable; `None` without a symbol.
        symbol: Option<String>,
        /// Executable or library, without its directory.
        module: String,
        /// Where it is declared, as `file.c:14`, if there is debug information.
        place: Option<String>,
    },
    /// An element of the heap of the EAL (`rte_malloc()`).
    HeapElement {
        /// Its length.
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
    /// Another mbuf, whose chain it belongs to, or whose data it shares, and that is not held itself by
    /// any other holder.
    Mbuf,
    /// A mapping that is none of these.
    Mapping {
        /// Path or name of the mapping.
        path: String,
    },
}
