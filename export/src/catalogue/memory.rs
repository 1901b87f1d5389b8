//! Metrics of mempools, leaks, rings and heaps.

use super::metrics;

metrics! { POOL:
    MEMPOOL_OBJECTS = Gauge "dpdk_mempool_objects" ["app" "pool"]
        "Size of the mempool in objects.";
    MEMPOOL_INFO = Info "dpdk_mempool_info" ["app" "pool" "source"]
        "Source of the counts of the mempool. telemetry: DPDK; library: libpmdscope; xray: the \
         exporter, in the memory of the app. Absent if they are not counted.";
    MEMPOOL_OBJECTS_IN_USE = Gauge "dpdk_mempool_objects_in_use" ["app" "pool"]
        "Objects that are not free: posted to a NIC, queued, held by the app, or lost. At \
         dpdk_mempool_objects, no packets can be received. Absent for stock apps before DPDK \
         23.03 without --xray.";
    MEMPOOL_OBJECTS_COMMON = Gauge "dpdk_mempool_objects_common" ["app" "pool"]
        "Free objects that are available to any lcore.";
    MEMPOOL_CACHED_OBJECTS = Gauge "dpdk_mempool_cached_objects" ["app" "pool"]
        "Free objects in the caches of lcores. They are not available to other lcores, so an lcore \
         may find no free object before all are in use.";
    MEMPOOL_CACHE_SIZE_OBJECTS = Gauge "dpdk_mempool_cache_size_objects" ["app" "pool"]
        "Cache size per lcore; 0: no caches. A cache can hold 1.5 times as many objects.";
    MEMPOOL_ELEMENT_BYTES = Gauge "dpdk_mempool_element_bytes" ["app" "pool"]
        "Memory of one object, with header and trailer.";
    MEMPOOL_OBJECTS_IN_USE_WINDOW_MAX = Gauge "dpdk_mempool_objects_in_use_window_max" ["app" "pool"]
        "Maximum of objects in use in the last complete window of libpmdscope, or of reading every \
         100 ms with --xray, so peaks between scrapes are included. Use it to size pools.";
    MEMPOOL_EXHAUSTED_IN = Gauge "dpdk_mempool_exhausted_in_seconds" ["app" "pool"]
        "Time until the pool is empty at the current rate; present only while it drains steadily. \
         See dpdk_mbuf_leaked, then look for queues that fill. Needs five scrapes.";
    MEMPOOL_LCORE_CACHED_OBJECTS = Gauge "dpdk_mempool_lcore_cached_objects" ["app" "pool" "lcore"]
        "Free objects in the cache of one lcore; libpmdscope or --xray. Objects in caches of idle \
         lcores are not available to busy ones.";
}

metrics! { LEAK:
    MBUF_PLACED = Gauge "dpdk_mbuf_placed" ["app" "pool" "place"]
        "Where the mbufs of a pool are; the places add up to its size. leaked: proven to be lost; \
         held: held by the app; unplaced: in use at an unknown place, while the stamps are \
         disarmed.";
    MBUF_LEAKED = Gauge "dpdk_mbuf_leaked" ["app" "pool"]
        "Mbufs that are proven to be lost: the app holds them no more and did not free them. Above \
         0, the app has a bug: see dpdk_mbuf_leak_site_mbufs, or pmdscope leaks --explain.";
    MBUF_LEAKED_BYTES = Gauge "dpdk_mbuf_leaked_bytes" ["app" "pool"]
        "Memory of the lost mbufs.";
    MBUF_OLDEST_AGE = Gauge "dpdk_mbuf_oldest_age_seconds" ["app" "pool"]
        "Time since the oldest lost mbuf last moved: when the leak started. Present only while \
         mbufs of a known site are lost.";
    MBUF_LOST_AT_LEAST = Gauge "dpdk_mbuf_lost_at_least" ["app" "pool"]
        "Lower bound of lost mbufs while the pool is too empty to prove each loss. Above 0: \
         restart the app.";
    MBUF_DOUBLE_FREES = Counter "dpdk_mbuf_double_frees_total" ["app" "pool"]
        "Mbufs that were freed twice, as far as stamps detect it: two owners will write to one \
         buffer. A bug of the app; pmdscope leaks names the site.";
    MBUF_USE_AFTER_FREES = Counter "dpdk_mbuf_use_after_frees_total" ["app" "pool"]
        "Mbufs that were used after they were freed, as far as stamps detect it. A bug of the app \
         that corrupts packets; pmdscope leaks names the site.";
    MBUF_LEDGER_ARMED = Gauge "dpdk_mbuf_ledger_armed" ["app" "pool"]
        "1 while stamps are armed, so that losses have a site; 0: losses are only counted, and \
         stamps are armed when mbufs are missing.";
    MBUF_LEAK_SITE_MBUFS = Gauge "dpdk_mbuf_leak_site_mbufs" ["app" "pool" "site"]
        "Lost mbufs by their last owner: source line at level 2, queue or stage at level 1. Fix \
         the site with the highest value first; other is the sum of those beyond the limit.";
    STAGE_HELD_MBUFS = Gauge "dpdk_stage_held_mbufs" ["app" "stage"]
        "Mbufs that were last seen in this stage of the app. If it only grows, its queue fills, or \
         it loses mbufs.";
}

metrics! { RING:
    RING_CAPACITY_OBJECTS = Gauge "dpdk_ring_capacity_objects" ["app" "ring"]
        "Capacity of the software ring in objects. Rings need DPDK 24.03, libpmdscope or --xray.";
    RING_INFO = Info "dpdk_ring_info" ["app" "ring" "source"]
        "Source of the counts of the ring, as in dpdk_mempool_info.";
    RING_USED_OBJECTS = Gauge "dpdk_ring_used_objects" ["app" "ring"]
        "Objects in the ring. Near its capacity, the stage behind it is too slow, and enqueues \
         fail.";
    RING_USED_WINDOW_MAX_OBJECTS = Gauge "dpdk_ring_used_window_max_objects" ["app" "ring"]
        "Maximum of objects in the ring in the last complete window of libpmdscope, or of reading \
         every 100 ms with --xray, so peaks between scrapes are included. At the capacity, enqueues \
         failed.";
}

metrics! { HEAP:
    HEAP_SIZE = Gauge "dpdk_heap_size_bytes" ["app" "heap"]
        "Size of an EAL heap, usually one per NUMA node. All heap values are up to 10 s old, \
         because reading them blocks rte_malloc().";
    HEAP_ALLOCATED = Gauge "dpdk_heap_allocated_bytes" ["app" "heap"]
        "Allocated memory of the heap; up to 10 s old. If it only rises: rte_malloc() without \
         rte_free().";
    HEAP_FREE = Gauge "dpdk_heap_free_bytes" ["app" "heap"]
        "Free memory of the heap; up to 10 s old. The heap grows by hugepages if permitted.";
    HEAP_GREATEST_FREE = Gauge "dpdk_heap_greatest_free_bytes" ["app" "heap"]
        "Largest free block; up to 10 s old. Far below dpdk_heap_free_bytes, the heap is \
         fragmented, and a large allocation may fail.";
    HEAP_ALLOCATIONS = Gauge "dpdk_heap_allocations" ["app" "heap"]
        "Number of allocations; up to 10 s old. If it only rises: rte_malloc() without rte_free().";
}
