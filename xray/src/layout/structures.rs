//! The structures of DPDK that are read, and their members in the table.

/// Offsets in one structure of DPDK.
pub(super) trait Structure: Sized {
    /// Its name in C.
    const NAME: &'static str;

    /// Gets the offset of each member by its name in C, or its name in the table; the first unknown
    /// one is the error.
    fn new(offset: &dyn Fn(&str) -> Option<u64>) -> Result<Self, &'static str>;
}

macro_rules! structures {
    ($($(#[$doc:meta])* $layout:ident = $structure:literal { $($field:ident: $member:literal,)* })*) => {
        /// All structures, and their members.
        pub(crate) const STRUCTURES: &[(&str, &[&str])] = &[$(($structure, &[$($member),*])),*];

        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            #[allow(missing_docs)] // the members of DPDK's structure
            pub struct $layout {
                $(pub $field: u64,)*
            }

            impl Structure for $layout {
                const NAME: &'static str = $structure;

                fn new(offset: &dyn Fn(&str) -> Option<u64>) -> Result<Self, &'static str> {
                    Ok(Self { $($field: offset($member).ok_or($member)?,)* })
                }
            }
        )*
    };
}

structures! {
    /// Offsets in `struct rte_mempool`. The caches of the lcores begin at `bytes`, which includes
    /// the statistics of builds that have them: `stats_bytes` each, for `RTE_MAX_LCORE` lcores and
    /// `stats_more`.
    MempoolLayout = "rte_mempool" {
        name: "name",
        pool_data: "pool_data",
        pool_config: "pool_config",
        mz: "mz",
        flags: "flags",
        socket_id: "socket_id",
        size: "size",
        cache_size: "cache_size",
        elt_size: "elt_size",
        header_size: "header_size",
        trailer_size: "trailer_size",
        private_data_size: "private_data_size",
        ops_index: "ops_index",
        local_cache: "local_cache",
        populated_size: "populated_size",
        elt_list: "elt_list",
        nb_mem_chunks: "nb_mem_chunks",
        mem_list: "mem_list",
        bytes: "sizeof",
        stats_bytes: "stats.each",
        stats_more: "stats.more",
    }

    /// Offsets in `struct rte_mempool_cache`; `bytes` is the distance of the caches of two lcores.
    CacheLayout = "rte_mempool_cache" {
        size: "size",
        len: "len",
        objs: "objs",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mempool_memhdr`.
    MemhdrLayout = "rte_mempool_memhdr" {
        next: "next",
        mp: "mp",
        addr: "addr",
        iova: "iova",
        len: "len",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mempool_objhdr`, which directly precedes the object.
    ObjhdrLayout = "rte_mempool_objhdr" {
        next: "next",
        mp: "mp",
        iova: "iova",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mempool_ops`: a handler.
    MempoolOpsLayout = "rte_mempool_ops" {
        name: "name",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mempool_ops_table`: the variable `rte_mempool_ops_table`, an array of
    /// handlers, whose index is `ops_index` of a mempool.
    MempoolOpsTableLayout = "rte_mempool_ops_table" {
        num_ops: "num_ops",
        ops: "ops",
        ops_len: "ops.len",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_ring`; the entries begin at `bytes`. Head and tail are positions of
    /// entries in all synchronisation modes, except the head in RTS mode.
    RingLayout = "rte_ring" {
        name: "name",
        flags: "flags",
        memzone: "memzone",
        size: "size",
        mask: "mask",
        capacity: "capacity",
        prod_head: "prod.head",
        prod_tail: "prod.tail",
        prod_sync_type: "prod.sync_type",
        cons_head: "cons.head",
        cons_tail: "cons.tail",
        cons_sync_type: "cons.sync_type",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_stack`: `std_*` without, `lf_*` with the flag 1 (lock-free). The
    /// elements in use of a lock-free stack are a list that begins at `lf_top`.
    StackLayout = "rte_stack" {
        name: "name",
        memzone: "memzone",
        capacity: "capacity",
        flags: "flags",
        std_len: "stack_std.len",
        std_objs: "stack_std.objs",
        lf_top: "stack_lf.used.head.top",
        lf_count: "stack_lf.used.head.cnt",
        lf_len: "stack_lf.used.len",
        lf_elems: "stack_lf.elems",
    }

    /// Offsets in `struct rte_stack_lf_elem`.
    StackElementLayout = "rte_stack_lf_elem" {
        data: "data",
        next: "next",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mbuf`.
    MbufLayout = "rte_mbuf" {
        buf_addr: "buf_addr",
        data_off: "data_off",
        refcnt: "refcnt",
        nb_segs: "nb_segs",
        port: "port",
        ol_flags: "ol_flags",
        packet_type: "packet_type",
        pkt_len: "pkt_len",
        data_len: "data_len",
        buf_len: "buf_len",
        pool: "pool",
        next: "next",
        shinfo: "shinfo",
        priv_size: "priv_size",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mbuf_ext_shared_info`: an external buffer.
    SharedInfoLayout = "rte_mbuf_ext_shared_info" {
        free_cb: "free_cb",
        fcb_opaque: "fcb_opaque",
        refcnt: "refcnt",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_pktmbuf_pool_private`: the private data of a pool of mbufs.
    PktmbufPoolLayout = "rte_pktmbuf_pool_private" {
        data_room_size: "mbuf_data_room_size",
        priv_size: "mbuf_priv_size",
        flags: "flags",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_memzone`.
    MemzoneLayout = "rte_memzone" {
        name: "name",
        iova: "iova",
        addr: "addr",
        len: "len",
        hugepage_sz: "hugepage_sz",
        socket_id: "socket_id",
        flags: "flags",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_fbarray`: `len` elements of `elt_sz` bytes lie at `data`, followed by
    /// the mask of elements in use.
    FbarrayLayout = "rte_fbarray" {
        name: "name",
        count: "count",
        len: "len",
        elt_sz: "elt_sz",
        data: "data",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_tailq_head`.
    TailqHeadLayout = "rte_tailq_head" {
        first: "tailq_head",
        name: "name",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_tailq_entry`.
    TailqEntryLayout = "rte_tailq_entry" {
        next: "next",
        data: "data",
    }

    /// Offsets in `struct malloc_elem`: in front of each element of the heap of the EAL. The low three bits
    /// of `state` are 0 for free, 1 for busy, 2 for padding, of which `pad` bytes lead back to the element.
    MallocElemLayout = "malloc_elem" {
        heap: "heap",
        prev: "prev",
        next: "next",
        msl: "msl",
        state: "state",
        pad: "pad",
        size: "size",
        bytes: "sizeof",
    }

    /// Offsets in `struct malloc_heap`.
    MallocHeapLayout = "malloc_heap" {
        first: "first",
        last: "last",
        alloc_count: "alloc_count",
        socket_id: "socket_id",
        total_size: "total_size",
        name: "name",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_memseg_list`.
    MemsegListLayout = "rte_memseg_list" {
        base_va: "base_va",
        page_sz: "page_sz",
        socket_id: "socket_id",
        len: "len",
        external: "external",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_mem_config`: the start of the shared configuration file; `*_len` are lengths
    /// of its arrays.
    MemConfigLayout = "rte_mem_config" {
        magic: "magic",
        version: "version",
        memzones: "memzones",
        memsegs: "memsegs",
        memsegs_len: "memsegs.len",
        tailq_head: "tailq_head",
        tailq_head_len: "tailq_head.len",
        malloc_heaps: "malloc_heaps",
        malloc_heaps_len: "malloc_heaps.len",
        mem_cfg_addr: "mem_cfg_addr",
        bytes: "sizeof",
    }

    /// Offsets in `struct lcore_config`: the variable `lcore_config` is an array of them by lcore id.
    LcoreConfigLayout = "lcore_config" {
        thread_id: "thread_id",
        core_id: "core_id",
        core_role: "core_role",
        cpuset: "cpuset",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_eth_fp_ops`: the variable `rte_eth_fp_ops` is an array of them by port.
    EthFpOpsLayout = "rte_eth_fp_ops" {
        rx_pkt_burst: "rx_pkt_burst",
        rxq_data: "rxq.data",
        tx_pkt_burst: "tx_pkt_burst",
        txq_data: "txq.data",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_eth_dev`: the variable `rte_eth_devices` is an array of them by port.
    EthDevLayout = "rte_eth_dev" {
        data: "data",
        process_private: "process_private",
        post_rx_burst_cbs: "post_rx_burst_cbs",
        state: "state",
        bytes: "sizeof",
    }

    /// Offsets in `struct rte_eth_dev_data`. `rx_queues` and `tx_queues` point to arrays of pointers to
    /// queues.
    EthDevDataLayout = "rte_eth_dev_data" {
        name: "name",
        rx_queues: "rx_queues",
        tx_queues: "tx_queues",
        nb_rx_queues: "nb_rx_queues",
        nb_tx_queues: "nb_tx_queues",
        dev_private: "dev_private",
        port_id: "port_id",
        rx_queue_state: "rx_queue_state",
        tx_queue_state: "tx_queue_state",
        queue_states_len: "rx_queue_state.len",
        bytes: "sizeof",
    }

    /// Offsets in the content of the memzone `rte_eth_dev_data`; `data` is an array by port.
    EthDevSharedLayout = "eth_dev_shared" {
        data: "data",
    }
}
