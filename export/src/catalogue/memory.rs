//! Metrics of mempools, leaks, rings and heaps.

use super::metrics;

metrics! { POOL:
    MEMPOOL_OBJECTS = Gauge "dpdk_mempool_objects" ["app" "pool"]
        "Objects of the mempool: its size.";
    MEMPOOL_OBJECTS_IN_USE = Gauge "dpdk_mempool_objects_in_use" ["app" "pool"]
        "Objects that are not free: posted to a NIC, queued, held by the app, or lost. At \
         dpdk_mempool_objects nothing can be received. Absent for stock apps before DPDK 23.03.";
    MEMPOOL_OBJECTS_COMMON = Gauge "dpdk_mempool_objects_common" ["app" "pool"]
        "Free objects that any lcore can take.";
    MEMPOOL_CACHED_OBJECTS = Gauge "dpdk_mempool_cached_objects" ["app" "pool"]
        "Free objects in caches of single lcores: other lcores cannot take these, so a pool can run dry \
         for one lcore before all is in use.";
    MEMPOOL_CACHE_SIZE_OBJECTS = Gauge "dpdk_mempool_cache_size_objects" ["app" "pool"]
        "Limit of each lcore's cache, 0 without caches. A cache can hold half as much again.";
    MEMPOOL_ELEMENT_BYTES = Gauge "dpdk_mempool_element_bytes" ["app" "pool"]
        "Memory of one object, with header and trailer.";
    MEMPOOL_OBJECTS_IN_USE_WINDOW_MAX = Gauge "dpdk_mempool_objects_in_use_window_max" ["app" "pool"]
        "Most objects in use in the last complete window of libpmdscope, so that a peak between two \
         scrapes is seen. Size pools by this.";
    MEMPOOL_EXHAUSTED_IN = Gauge "dpdk_mempool_exhausted_in_seconds" ["app" "pool"]
        "Time until the pool is empty if it goes on as now; present only while it drains steadily. Look \
         at dpdk_mbuf_leaked, then at queues that fill. Five scrapes are needed to tell.";
    MEMPOOL_LCORE_CACHED_OBJECTS = Gauge "dpdk_mempool_lcore_cached_objects" ["app" "pool" "lcore"]
        "Free objects in the cache of one lcore; libpmdscope only. Caches of lcores that do not work \
         keep objects from those that do.";
}

metrics! { LEAK:
    MBUF_PLACED = Gauge "dpdk_mbuf_placed" ["app" "pool" "place"]
        "Where the mbufs of a pool are; the places add up to its size. leaked: lost for good; held: with \
         the app; unplaced: in use, place not known while the ledger is not armed.";
    MBUF_LEAKED = Gauge "dpdk_mbuf_leaked" ["app" "pool"]
        "Mbufs that are proven to be lost: nobody holds them and nobody freed them. Above 0 is a bug of \
         the app: see dpdk_mbuf_leak_site_mbufs, or pmdscope leaks --explain.";
    MBUF_LEAKED_BYTES = Gauge "dpdk_mbuf_leaked_bytes" ["app" "pool"]
        "Memory of the lost mbufs.";
    MBUF_OLDEST_AGE = Gauge "dpdk_mbuf_oldest_age_seconds" ["app" "pool"]
        "Time since the first of the lost mbufs was last seen to move: when the leak began. Present only \
         while mbufs of a known site are lost.";
    MBUF_LOST_AT_LEAST = Gauge "dpdk_mbuf_lost_at_least" ["app" "pool"]
        "Lower bound of lost mbufs while the pool is too empty for proof of each. Above 0: it is lost \
         for good, restart the app.";
    MBUF_DOUBLE_FREES = Counter "dpdk_mbuf_double_frees_total" ["app" "pool"]
        "Mbufs that were freed twice, as far as stamps revealed: two owners will write into one buffer. \
         A bug of the app; pmdscope leaks names the place.";
    MBUF_USE_AFTER_FREES = Counter "dpdk_mbuf_use_after_frees_total" ["app" "pool"]
        "Mbufs that were used after they were freed, as far as stamps revealed. A bug of the app that \
         corrupts packets; pmdscope leaks names the place.";
    MBUF_LEDGER_ARMED = Gauge "dpdk_mbuf_ledger_armed" ["app" "pool"]
        "1 while stamps are written, so that losses get a place; 0: they are only counted, and stamps \
         start when mbufs go missing.";
    MBUF_LEAK_SITE_MBUFS = Gauge "dpdk_mbuf_leak_site_mbufs" ["app" "pool" "site"]
        "Lost mbufs by the place in the app that had them last: source line at level 2, queue or stage at \
         level 1. The site to fix first is the highest; other sums up those beyond the limit.";
    STAGE_HELD_MBUFS = Gauge "dpdk_stage_held_mbufs" ["app" "stage"]
        "Mbufs that were last seen in this stage of the app. One stage that only grows: its queue fills, \
         or it loses them.";
}

metrics! { RING:
    RING_CAPACITY_OBJECTS = Gauge "dpdk_ring_capacity_objects" ["app" "ring"]
        "Objects that fit into the software ring. Rings: DPDK 24.03 or libpmdscope.";
    RING_USED_OBJECTS = Gauge "dpdk_ring_used_objects" ["app" "ring"]
        "Objects in the ring. Near its capacity: the stage behind it is too slow, and enqueues fail.";
    RING_USED_WINDOW_MAX_OBJECTS = Gauge "dpdk_ring_used_window_max_objects" ["app" "ring"]
        "Most objects in the ring in the last complete window of libpmdscope, so that a peak between two \
         scrapes is seen. At the capacity: enqueues failed.";
}

metrics! { HEAP:
    HEAP_SIZE = Gauge "dpdk_heap_size_bytes" ["app" "heap"]
        "Memory of an EAL heap, mostly one per NUMA node. All heap values are up to 10 s old, because \
         reading them holds up rte_malloc().";
    HEAP_ALLOCATED = Gauge "dpdk_heap_allocated_bytes" ["app" "heap"]
        "Of these, given out; up to 10 s old. Only ever rising: rte_malloc() without rte_free().";
    HEAP_FREE = Gauge "dpdk_heap_free_bytes" ["app" "heap"]
        "Of these, free; up to 10 s old. The heap grows by hugepages where it may.";
    HEAP_GREATEST_FREE = Gauge "dpdk_heap_greatest_free_bytes" ["app" "heap"]
        "Largest free piece; up to 10 s old. Far below dpdk_heap_free_bytes: fragmented, and a large \
         allocation fails though there is memory.";
    HEAP_ALLOCATIONS = Gauge "dpdk_heap_allocations" ["app" "heap"]
        "Pieces that are given out; up to 10 s old. Only ever rising: rte_malloc() without rte_free().";
}
