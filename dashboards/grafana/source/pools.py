# SPDX-License-Identifier: BSD-3-Clause
"""Pools and leaks: when is a pool empty, where are its mbufs, and who loses them?"""

from model import (ORANGE, RED, YELLOW, above, bars, below, column, dashboard, runbook, series,
                   stat, table)

VERDICT = ("Is there a leak? How long is left?", [
    stat("Leaked", "Are mbufs lost? Proven: nobody holds them and nobody freed them.",
         "sum(dpdk_mbuf_leaked{@pool})", thresholds=above((1, RED)), empty="no ledger",
         links=[runbook("DpdkMbufLeak")]),
    stat("Leaked memory", "How much memory do they take?", "sum(dpdk_mbuf_leaked_bytes{@pool})",
         "bytes", thresholds=above((1, RED)), empty="no ledger", links=[runbook("DpdkMbufLeak")]),
    stat("Leak began", "When did it begin? Time since the first of the lost mbufs last moved: "
         "look for a deployment or a change of traffic then.",
         "max(dpdk_mbuf_oldest_age_seconds{@pool})", "s", thresholds=above((0, RED)),
         empty="no leak", well=True, links=[runbook("DpdkMbufLeak")]),
    stat("First pool empty in", "How long until the app stops receiving, if it goes on so?",
         "min(dpdk_mempool_exhausted_in_seconds{@pool})", "s",
         thresholds=below(300, (None, RED), (60, ORANGE)), empty="none drains", well=True,
         links=[runbook("DpdkPoolDraining")]),
    stat("Fullest pool", "How full is the fullest pool?",
         "max(dpdk_mempool_objects_in_use{@pool} / dpdk_mempool_objects{@pool})", "percentunit",
         thresholds=above((0.9, YELLOW), (0.98, RED)), decimals=1, empty="no pool tells",
         links=[runbook("DpdkPoolNearlyFull")]),
    stat("Misused mbufs", "Does the app corrupt memory? Mbufs freed twice, or used after they were "
         "freed, in the time that is shown.",
         "sum(increase(dpdk_mbuf_double_frees_total{@pool}[$__range])) + "
         "sum(increase(dpdk_mbuf_use_after_frees_total{@pool}[$__range]))",
         thresholds=above((0.5, RED)), decimals=0, empty="no ledger",
         links=[runbook("DpdkDoubleFree"), runbook("DpdkUseAfterFree")]),
])

LEAKS = ("Who loses them", [
    table("Leak sites", "Which line of the app do I fix? Lost mbufs by the place that had them "
          "last, worst first: a source line at level 2, a queue or stage at level 1. `pmdscope "
          "leaks --write` on the host writes the lost packets themselves.",
          [("Lost", "dpdk_mbuf_leak_site_mbufs{@pool} > 0"),
           ("Growth", "deriv(dpdk_mbuf_leak_site_mbufs{@pool}[@]) "
            "and dpdk_mbuf_leak_site_mbufs{@pool} > 0")],
          columns=[column("Lost", "short", thresholds=above((1, RED))),
                   column("Growth", "cps", decimals=2, thresholds=above((0.001, RED)))],
          sort="Lost", empty="No mbuf is lost.", links=[runbook("DpdkMbufLeak")]),
    series("Lost mbufs", "Does it go on? Flat: whatever lost them has ended. Lower bound: the pool "
           "is too empty for proof of each, restart the app.",
           [("dpdk_mbuf_leaked{@pool}", "{{app}} {{pool}}"),
            ("dpdk_mbuf_lost_at_least{@pool} > 0", "{{app}} {{pool}} lower bound")],
           empty="no ledger", links=[runbook("DpdkMbufLeak")]),
    series("Growth of the sites", "Which sites lose mbufs now, and does that follow the traffic?",
           [("deriv(dpdk_mbuf_leak_site_mbufs{@pool}[@]) > 0", "{{app}} {{pool}} {{site}}")],
           "cps", empty="No site loses mbufs."),
    series("Freed twice, used after free", "Does the app corrupt memory, and when?",
           [("rate(dpdk_mbuf_double_frees_total{@pool}[@])", "freed twice {{app}} {{pool}}"),
            ("rate(dpdk_mbuf_use_after_frees_total{@pool}[@])",
             "used after free {{app}} {{pool}}")], "cps", line=above((0.001, RED)),
           empty="no ledger", links=[runbook("DpdkDoubleFree"), runbook("DpdkUseAfterFree")]),
    series("Stamps written", "Would a leak get a place now? 1: stamps are written; 0: losses are "
           "only counted, and stamps start when mbufs go missing.",
           [("dpdk_mbuf_ledger_armed{@pool}", "{{app}} {{pool}}")], "bool_on_off", high=1,
           empty="no ledger"),
])

WHERE = ("Where they are", [
    series("Mbufs by place", "Where are the mbufs of the chosen pools? The places add up to the "
           "size; choose one pool. A band that only grows is the culprit.",
           [("sum by (place) (dpdk_mbuf_placed{@pool})", "{{place}}")], stack=True,
           size=(12, 9), empty="no ledger"),
    series("Mbufs held by stage", "Which stage of the app holds them? One that only grows: its "
           "queue fills, or it loses them.",
           [("dpdk_stage_held_mbufs{@app}", "{{app}} {{stage}}")], stack=True, size=(12, 9),
           empty="the app marks no stages"),
])

LEVELS = ("How full", [
    series("In use", "Does any pool only rise? As a share of its size.",
           [("dpdk_mempool_objects_in_use{@pool} / dpdk_mempool_objects{@pool}",
             "{{app}} {{pool}}")], "percentunit", high=1,
           line=above((0.9, YELLOW), (0.98, RED)), empty="no pool tells (DPDK before 23.03)",
           links=[runbook("DpdkPoolNearlyFull")]),
    series("Empty in", "How long is left? Only while a pool drains steadily.",
           [("dpdk_mempool_exhausted_in_seconds{@pool}", "{{app}} {{pool}}")], "s",
           line=below(300, (None, RED), (60, ORANGE)), empty="No pool drains.",
           links=[runbook("DpdkPoolDraining")]),
    series("Most in use in the last window", "How large must the pool be? Peaks between scrapes "
           "are seen here.",
           [("dpdk_mempool_objects_in_use_window_max{@pool}", "{{app}} {{pool}}"),
            ("dpdk_mempool_objects{@pool}", "size of {{app}} {{pool}}")],
           empty="no pool tells"),
    series("Free objects", "Can every lcore get them? What lies in the caches of other lcores "
           "cannot be taken.",
           [("dpdk_mempool_objects_common{@pool}", "common {{app}} {{pool}}"),
            ("dpdk_mempool_cached_objects{@pool}", "cached {{app}} {{pool}}")], stack=True,
           empty="no pool tells"),
    bars("Cached by lcore", "Which lcore keeps them?",
         "dpdk_mempool_lcore_cached_objects{@pool} > 0", "short",
         legend="{{app}} {{pool}} lcore {{lcore}}", low=0, empty="No cache holds any."),
    table("Pools", "What are they made of? Memory is the element times the size.",
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
    series("Software rings", "Which stage is too slow? Most objects in the last window, as a share "
           "of the capacity; a full ring refuses objects.",
           [("dpdk_ring_used_window_max_objects{@app} / dpdk_ring_capacity_objects{@app}",
             "{{app}} {{ring}}")], "percentunit", high=1, line=above((0.8, ORANGE), (1, RED)),
           empty="no ring tells"),
    series("Software rings, now", "What waits between the stages?",
           [("dpdk_ring_used_objects{@app}", "{{app}} {{ring}}")], empty="no ring tells"),
    series("Heap in use", "Does rte_malloc() leak? Memory given out; a line that only rises is "
           "memory not freed.",
           [("dpdk_heap_allocated_bytes{@app}", "{{app}} {{heap}}"),
            ("dpdk_heap_size_bytes{@app}", "size of {{app}} {{heap}}")], "bytes",
           empty="no heap"),
    series("Heap: largest free piece", "Would a large allocation succeed? Far below what is free: "
           "fragmented.",
           [("dpdk_heap_greatest_free_bytes{@app}", "largest piece {{app}} {{heap}}"),
            ("dpdk_heap_free_bytes{@app}", "free {{app}} {{heap}}")], "bytes", empty="no heap"),
    series("Heap: pieces given out", "Does the number of allocations only rise?",
           [("dpdk_heap_allocations{@app}", "{{app}} {{heap}}")], empty="no heap"),
])

DASHBOARD = dashboard(
    "pmdscope-pools", "DPDK / Pools & Leaks",
    "When is a pool empty, where are its mbufs, and which line of the app loses them?",
    ["pool"], [VERDICT, LEAKS, WHERE, LEVELS, MEMORY])
