# SPDX-License-Identifier: BSD-3-Clause
"""Pools and leaks: when will a pool be empty, where are its mbufs, which line loses them?"""

from model import (ORANGE, RED, YELLOW, above, bars, below, column, dashboard, runbook, series,
                   stat, table)

VERDICT = ("Is there a leak? How long is left?", [
    stat("Leaked", "Are mbufs lost? Proven: the app holds them no more and did not free them.",
         "sum(dpdk_mbuf_leaked{@pool})", thresholds=above((1, RED)), empty="no ledger",
         links=[runbook("DpdkMbufLeak")]),
    stat("Leaked memory", "How much memory do the lost mbufs take?",
         "sum(dpdk_mbuf_leaked_bytes{@pool})",
         "bytes", thresholds=above((1, RED)), empty="no ledger", links=[runbook("DpdkMbufLeak")]),
    stat("Leak started", "When did the leak start? Time since the oldest lost mbuf last moved: "
         "look for a deployment or a change in traffic at that time.",
         "max(dpdk_mbuf_oldest_age_seconds{@pool})", "s", thresholds=above((0, RED)),
         empty="no leak", well=True, links=[runbook("DpdkMbufLeak")]),
    stat("First pool empty in", "How long until the app stops receiving, at the current rate?",
         "min(dpdk_mempool_exhausted_in_seconds{@pool})", "s",
         thresholds=below(300, (None, RED), (60, ORANGE)), empty="no pool drains", well=True,
         links=[runbook("DpdkPoolDraining")]),
    stat("Fullest pool", "How full is the fullest pool?",
         "max(dpdk_mempool_objects_in_use{@pool} / dpdk_mempool_objects{@pool})", "percentunit",
         thresholds=above((0.9, YELLOW), (0.98, RED)), decimals=1, empty="not reported",
         links=[runbook("DpdkPoolNearlyFull")]),
    stat("Misused mbufs", "Does the app corrupt memory? Mbufs freed twice or used after they were "
         "freed, in the selected time range.",
         "sum(increase(dpdk_mbuf_double_frees_total{@pool}[$__range])) + "
         "sum(increase(dpdk_mbuf_use_after_frees_total{@pool}[$__range]))",
         thresholds=above((0.5, RED)), decimals=0, empty="no ledger",
         links=[runbook("DpdkDoubleFree"), runbook("DpdkUseAfterFree")]),
])

LEAKS = ("Leak sites and misuse", [
    table("Leak sites", "Which line of the app must be fixed? Lost mbufs by their last owner, "
          "worst first: a source line at level 2, a queue or stage at level 1. `pmdscope "
          "leaks --write` on the host saves the lost packets.",
          [("Lost", "dpdk_mbuf_leak_site_mbufs{@pool} > 0"),
           ("Growth", "deriv(dpdk_mbuf_leak_site_mbufs{@pool}[@]) "
            "and dpdk_mbuf_leak_site_mbufs{@pool} > 0")],
          columns=[column("Lost", "short", thresholds=above((1, RED))),
                   column("Growth", "cps", decimals=2, thresholds=above((0.001, RED)))],
          sort="Lost", empty="No mbuf is lost.", links=[runbook("DpdkMbufLeak")]),
    series("Lost mbufs", "Does the leak continue? Flat: it has stopped. Lower bound: the pool is "
           "too empty to prove each loss, restart the app.",
           [("dpdk_mbuf_leaked{@pool}", "{{app}} {{pool}}"),
            ("dpdk_mbuf_lost_at_least{@pool} > 0", "{{app}} {{pool}} lower bound")],
           empty="no ledger", links=[runbook("DpdkMbufLeak")]),
    series("Growth of the sites", "Which sites lose mbufs now? Do losses follow the traffic?",
           [("deriv(dpdk_mbuf_leak_site_mbufs{@pool}[@]) > 0", "{{app}} {{pool}} {{site}}")],
           "cps", empty="No site loses mbufs."),
    series("Freed twice, used after free", "Does the app corrupt memory, and when?",
           [("rate(dpdk_mbuf_double_frees_total{@pool}[@])", "freed twice {{app}} {{pool}}"),
            ("rate(dpdk_mbuf_use_after_frees_total{@pool}[@])",
             "used after free {{app}} {{pool}}")], "cps", line=above((0.001, RED)),
           empty="no ledger", links=[runbook("DpdkDoubleFree"), runbook("DpdkUseAfterFree")]),
    series("Stamps armed", "Would a leak have a site now? 1: stamps are armed; 0: losses are "
           "only counted, and stamps are armed when mbufs are missing.",
           [("dpdk_mbuf_ledger_armed{@pool}", "{{app}} {{pool}}")], "bool_on_off", high=1,
           empty="no ledger"),
])

WHERE = ("Where the mbufs are", [
    series("Mbufs by place", "Where are the mbufs of the selected pool? The places add up to the "
           "pool size. A band that only grows is the cause.",
           [("sum by (place) (dpdk_mbuf_placed{@pool})", "{{place}}")], stack=True,
           size=(12, 9), empty="no ledger"),
    series("Mbufs held by stage", "Which stage of the app holds mbufs? If one only grows, its "
           "queue fills, or it loses mbufs.",
           [("dpdk_stage_held_mbufs{@app}", "{{app}} {{stage}}")], stack=True, size=(12, 9),
           empty="the app defines no stages"),
])

LEVELS = ("Usage", [
    series("In use", "Does the use of a pool only rise? As a share of its size.",
           [("dpdk_mempool_objects_in_use{@pool} / dpdk_mempool_objects{@pool}",
             "{{app}} {{pool}}")], "percentunit", high=1,
           line=above((0.9, YELLOW), (0.98, RED)), empty="not reported (DPDK before 23.03)",
           links=[runbook("DpdkPoolNearlyFull")]),
    series("Empty in", "How long until a pool is empty? Only while it drains steadily.",
           [("dpdk_mempool_exhausted_in_seconds{@pool}", "{{app}} {{pool}}")], "s",
           line=below(300, (None, RED), (60, ORANGE)), empty="No pool drains.",
           links=[runbook("DpdkPoolDraining")]),
    series("Maximum use in the last window", "How large must the pool be? Includes peaks between "
           "scrapes.",
           [("dpdk_mempool_objects_in_use_window_max{@pool}", "{{app}} {{pool}}"),
            ("dpdk_mempool_objects{@pool}", "size of {{app}} {{pool}}")],
           empty="not reported"),
    series("Free objects", "Are they available to every lcore? Objects in the cache of an lcore "
           "are not available to others.",
           [("dpdk_mempool_objects_common{@pool}", "common {{app}} {{pool}}"),
            ("dpdk_mempool_cached_objects{@pool}", "cached {{app}} {{pool}}")], stack=True,
           empty="not reported"),
    bars("Cached by lcore", "Which lcore caches objects?",
         "dpdk_mempool_lcore_cached_objects{@pool} > 0", "short",
         legend="{{app}} {{pool}} lcore {{lcore}}", low=0, empty="All caches are empty."),
    table("Pools", "How large are the pools? Memory is element size times pool size.",
          [("Size", "sum by (@pool) (dpdk_mempool_objects{@pool})"),
           ("In use", "sum by (@pool) (dpdk_mempool_objects_in_use{@pool})"),
           ("Cache limit",
            "sum by (@pool) (dpdk_mempool_cache_size_objects{@pool})"),
           ("Element", "sum by (@pool) (dpdk_mempool_element_bytes{@pool})"),
           ("Memory", "sum by (@pool) "
            "(dpdk_mempool_element_bytes{@pool} * dpdk_mempool_objects{@pool})")],
          columns=[column("Element", "bytes"), column("Memory", "bytes")], size=(12, 8),
          sort="Memory", empty="no pool"),
])

MEMORY = ("Rings and heaps", [
    series("Software rings", "Which stage is too slow? Maximum use in the last window as a share "
           "of the capacity; enqueues to a full ring fail.",
           [("dpdk_ring_used_window_max_objects{@app} / dpdk_ring_capacity_objects{@app}",
             "{{app}} {{ring}}")], "percentunit", high=1, line=above((0.8, ORANGE), (1, RED)),
           empty="not reported"),
    series("Software rings, now", "How many objects wait between stages?",
           [("dpdk_ring_used_objects{@app}", "{{app}} {{ring}}")], empty="not reported"),
    series("Heap in use", "Is there a leak of rte_malloc() memory? If allocated memory only rises, "
           "it is not freed.",
           [("dpdk_heap_allocated_bytes{@app}", "{{app}} {{heap}}"),
            ("dpdk_heap_size_bytes{@app}", "size of {{app}} {{heap}}")], "bytes",
           empty="no heap"),
    series("Heap: largest free block", "Would a large allocation succeed? If far below the free "
           "memory, the heap is fragmented.",
           [("dpdk_heap_greatest_free_bytes{@app}", "largest block {{app}} {{heap}}"),
            ("dpdk_heap_free_bytes{@app}", "free {{app}} {{heap}}")], "bytes", empty="no heap"),
    series("Heap: allocations", "Does the number of allocations only rise?",
           [("dpdk_heap_allocations{@app}", "{{app}} {{heap}}")], empty="no heap"),
])

DASHBOARD = dashboard(
    "pmdscope-pools", "DPDK / Pools & Leaks",
    "When will a pool be empty, where are its mbufs, and which line of the app loses them?",
    ["pool"], [VERDICT, LEAKS, WHERE, LEVELS, MEMORY])
