//! Where the fields of DPDK's structures are: offsets in bytes, by release and build options.

/// Offsets of one build of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Year and month of the release.
    pub release: (u16, u16),
    /// `RTE_MAX_LCORE`: caches of a mempool.
    pub max_lcore: u32,
    /// `struct rte_mempool`.
    pub mempool: MempoolLayout,
    /// `struct rte_mempool_cache`.
    pub cache: CacheLayout,
    /// `struct rte_ring`.
    pub ring: RingLayout,
    /// `struct rte_mbuf`.
    pub mbuf: MbufLayout,
    /// `struct rte_mempool_memhdr`: a chunk of memory of a mempool.
    pub memhdr: MemhdrLayout,
    /// `struct rte_mempool_objhdr`: in front of each object.
    pub objhdr: ObjhdrLayout,
}

/// Offsets in `struct rte_mempool`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of DPDK
pub struct MempoolLayout {
    pub name: u64,
    pub pool_data: u64,
    pub flags: u64,
    pub socket_id: u64,
    pub size: u64,
    pub cache_size: u64,
    pub elt_size: u64,
    pub header_size: u64,
    pub trailer_size: u64,
    pub private_data_size: u64,
    pub ops_index: u64,
    pub local_cache: u64,
    pub populated_size: u64,
    pub elt_list: u64,
    pub nb_mem_chunks: u64,
    pub mem_list: u64,
    pub bytes: u64,
}

/// Offsets in `struct rte_mempool_cache`; `bytes` is the distance of the caches of two lcores.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of DPDK
pub struct CacheLayout {
    pub size: u64,
    pub len: u64,
    pub objs: u64,
    pub bytes: u64,
}

/// Offsets in `struct rte_ring`; the entries begin at `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of DPDK
pub struct RingLayout {
    pub name: u64,
    pub flags: u64,
    pub size: u64,
    pub mask: u64,
    pub capacity: u64,
    pub prod_head: u64,
    pub prod_tail: u64,
    pub cons_head: u64,
    pub cons_tail: u64,
    pub bytes: u64,
}

/// Offsets in `struct rte_mbuf`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of DPDK
pub struct MbufLayout {
    pub buf_addr: u64,
    pub data_off: u64,
    pub refcnt: u64,
    pub nb_segs: u64,
    pub port: u64,
    pub ol_flags: u64,
    pub packet_type: u64,
    pub pkt_len: u64,
    pub data_len: u64,
    pub buf_len: u64,
    pub pool: u64,
    pub next: u64,
    pub shinfo: u64,
    pub bytes: u64,
}

/// Offsets in `struct rte_mempool_memhdr`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of DPDK
pub struct MemhdrLayout {
    pub next: u64,
    pub addr: u64,
    pub len: u64,
    pub bytes: u64,
}

/// Offsets in `struct rte_mempool_objhdr`, which lies directly in front of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields of DPDK
pub struct ObjhdrLayout {
    pub next: u64,
    pub mp: u64,
    pub bytes: u64,
}

impl Layout {
    /// DPDK 22.11 on x86-64, with 128 lcores.
    pub const DPDK_22_11: Self = Self {
        release: (22, 11),
        max_lcore: 128,
        mempool: MempoolLayout {
            name: 0,
            pool_data: 32,
            flags: 56,
            socket_id: 60,
            size: 64,
            cache_size: 68,
            elt_size: 72,
            header_size: 76,
            trailer_size: 80,
            private_data_size: 84,
            ops_index: 88,
            local_cache: 96,
            populated_size: 104,
            elt_list: 112,
            nb_mem_chunks: 128,
            mem_list: 136,
            bytes: 192,
        },
        cache: CacheLayout { size: 0, len: 8, objs: 64, bytes: 8256 },
        ring: RingLayout {
            name: 0,
            flags: 32,
            size: 48,
            mask: 52,
            capacity: 56,
            prod_head: 128,
            prod_tail: 132,
            cons_head: 256,
            cons_tail: 260,
            bytes: 384,
        },
        mbuf: MbufLayout {
            buf_addr: 0,
            data_off: 16,
            refcnt: 18,
            nb_segs: 20,
            port: 22,
            ol_flags: 24,
            packet_type: 32,
            pkt_len: 36,
            data_len: 40,
            buf_len: 54,
            pool: 56,
            next: 64,
            shinfo: 80,
            bytes: 128,
        },
        memhdr: MemhdrLayout { next: 0, addr: 16, len: 32, bytes: 56 },
        objhdr: ObjhdrLayout { next: 0, mp: 8, bytes: 24 },
    };
}
