# SPDX-License-Identifier: BSD-3-Clause
"""Pools and leaks: when will a pool be empty, where are its mbufs, which line loses them?"""

from model import (CLOSED, GREEN, NONE_DRAINS, ORANGE, RED, YELLOW, above, bars, below, column,
                   dashboard, first_empty, of_target, ranked, runbook, series, stat, summed, table,
                   words)

# The pool that lost most of its mbufs, otherwise the fullest one, at the end of the time range: a
# stack of several pools, perhaps of several apps, would not show the places of any of them.
WORST = ("topk(1, (dpdk_mempool_objects_in_use{@pool} @ end() + "
         "10 * dpdk_mbuf_leaked{@pool} @ end()) / dpdk_mempool_objects{@pool} @ end())")

VERDICT = ("Is there a leak? How long is left?", [
    stat("Leaked", "Are mbufs lost? Proven: the app holds them no more and did not free them.",
         "sum(dpdk_mbuf_leaked{@pool})", thresholds=above((1, RED)), empty="no ledger",
         links=[runbook("DpdkMbufLeak")]),
    stat("Leaked memory", "How much memory do the lost mbufs take?",
         "sum(dpdk_mbuf_leaked_bytes{@pool})",
         "bytes", thresholds=above((1, RED)), empty="no ledger", links=[runbook("DpdkMbufLeak")]),
    stat("Leak started", "When did the leak start? Time since the oldest lost mbuf last moved: "
         "look for a deployment or a change in traffic at that time.",
         "max(dpdk_mbuf_oldest_age_seconds{@pool} or (dpdk_mbuf_leaked{@pool} == 0) - 1)", "s",
         thresholds=above((0, RED)), mappings=words(**{"-1": ("no leak", GREEN)}),
         empty="unknown", links=[runbook("DpdkMbufLeak")]),
    stat("Pool empty in", "How long until the app stops receiving, at the current rate? 0: a pool "
         "is at least 98 % full.", first_empty("pool"), "s",
         thresholds=below(300, (None, RED), (60, ORANGE)), mappings=[NONE_DRAINS],
         empty="not reported", links=[runbook("DpdkPoolDraining")]),
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
                   column("Growth", "count:mbufs/s", decimals=2, thresholds=above((0.001, RED))),
                   column("site", width=480)],
          first=("site", "app", "instance", "pool"), sort=("-Lost",), empty="No mbuf is lost.",
          links=[runbook("DpdkMbufLeak")]),
    series("Lost mbufs", "Does the leak continue? Flat: it has stopped. Lower bound: the pool is "
           "too empty to prove each loss, restart the app.",
           ranked("topk(10, dpdk_mbuf_leaked{@pool} + dpdk_mbuf_lost_at_least{@pool})",
                  ("dpdk_mbuf_leaked{@pool}", "{{app}} {{pool}}"),
                  ("dpdk_mbuf_lost_at_least{@pool} > 0", "{{app}} {{pool}} lower bound")),
           empty="no ledger", links=[runbook("DpdkMbufLeak")]),
    series("Growth of the sites", "Which sites lose mbufs now? Do losses follow the traffic?",
           [("topk(10, deriv(dpdk_mbuf_leak_site_mbufs{@pool}[@]) > 0)",
             "{{app}} {{pool}} {{site}}")], "count:mbufs/s", empty="No site loses mbufs."),
    series("Freed twice, used after free", "Does the app corrupt memory, and when?",
           summed(("rate(dpdk_mbuf_double_frees_total{@pool}[@])", "freed twice {{app}} {{pool}}"),
                  ("rate(dpdk_mbuf_use_after_frees_total{@pool}[@])",
                   "used after free {{app}} {{pool}}")), "count:mbufs/s",
           empty="no ledger", links=[runbook("DpdkDoubleFree"), runbook("DpdkUseAfterFree")]),
    series("Stamps armed", "Would a leak have a site now? 1: stamps are armed; 0: losses are "
           "only counted, and stamps are armed when mbufs are missing.",
           [("topk(10, dpdk_mbuf_ledger_armed{@pool})", "{{app}} {{pool}}")], "bool_on_off", high=1,
           empty="no ledger"),
])

WHERE = ("Where the mbufs are", [
    series("Mbufs by place", "Where are the mbufs of the pool that lost most, or else of the "
           "fullest? The places add up to the pool size. A band that only grows is the cause.",
           ranked("on (job, instance, app, pool) " + WORST,
                  ('dpdk_mbuf_placed{@pool, place="leaked"}', "{{place}}: {{app}} {{pool}}"),
                  ('dpdk_mbuf_placed{@pool, place!="leaked"}', "{{place}}: {{app}} {{pool}}")),
           stack=True, size=(12, 11),
           overrides=[of_target("A", color={"mode": "fixed", "fixedColor": RED},
                                custom_fillOpacity=100)], empty="no ledger"),
    series("Mbufs held by stage", "Which stage of the app holds mbufs? If one only grows, its "
           "queue fills, or it loses mbufs.",
           [("topk(10, dpdk_stage_held_mbufs{@app})", "{{app}} {{stage}}")], size=(12, 11),
           empty="the app defines no stages"),
])

LEVELS = ("Usage", [
    series("In use", "Does the use of a pool only rise? The ten fullest, as a share of their size.",
           [("topk(10, dpdk_mempool_objects_in_use{@pool} / dpdk_mempool_objects{@pool})",
             "{{app}} {{pool}}")], "percentunit", high=1,
           line=above((0.9, YELLOW), (0.98, RED)), empty="not reported (DPDK before 23.03, without --xray)",
           links=[runbook("DpdkPoolNearlyFull")]),
    series("Empty in", "How long until a pool is empty? The ten that are empty first; only while "
           "they drain steadily.",
           [("bottomk(10, dpdk_mempool_exhausted_in_seconds{@pool})", "{{app}} {{pool}}")], "s",
           line=below(300, (None, RED), (60, ORANGE)), empty="No pool drains.",
           links=[runbook("DpdkPoolDraining")]),
    series("Maximum use in the last window", "How large must the pool be? Includes peaks between "
           "scrapes. The ten fullest.",
           ranked("topk(10, dpdk_mempool_objects_in_use_window_max{@pool} / "
                  "dpdk_mempool_objects{@pool})",
                  ("dpdk_mempool_objects_in_use_window_max{@pool}", "{{app}} {{pool}}"),
                  ("dpdk_mempool_objects{@pool}", "size of {{app}} {{pool}}")),
           empty="not reported"),
    series("Free objects", "Are they available to every lcore? Objects in the cache of an lcore "
           "are not available to others. The ten pools with the smallest share that is available.",
           ranked("bottomk(10, dpdk_mempool_objects_common{@pool} / dpdk_mempool_objects{@pool})",
                  ("dpdk_mempool_objects_common{@pool}", "common {{app}} {{pool}}"),
                  ("dpdk_mempool_cached_objects{@pool}", "cached {{app}} {{pool}}")),
           empty="not reported"),
])

DETAILS = ("Pools: sizes and caches", [
    bars("Cached by lcore", "Which lcores cache most objects?",
         "topk(10, dpdk_mempool_lcore_cached_objects{@pool} > 0)", "short",
         legend="{{app}} {{pool}} lcore {{lcore}}", low=0, size=(24, 8),
         empty="All caches are empty."),
    table("Pools", "How large are the pools? Memory is element size times pool size; source is who "
          "counted: xray is the exporter, in the memory of the app.",
          [("", "dpdk_mempool_info{@pool}"),
           ("Size", "sum by (@pool) (dpdk_mempool_objects{@pool})"),
           ("In use", "sum by (@pool) (dpdk_mempool_objects_in_use{@pool})"),
           ("Cache limit",
            "sum by (@pool) (dpdk_mempool_cache_size_objects{@pool})"),
           ("Element", "sum by (@pool) (dpdk_mempool_element_bytes{@pool})"),
           ("Memory", "sum by (@pool) "
            "(dpdk_mempool_element_bytes{@pool} * dpdk_mempool_objects{@pool})")],
          columns=[column("Element", "bytes"), column("Memory", "bytes")],
          first=("app", "instance", "pool"), sort=("-Memory",), empty="no pool"),
], CLOSED)

RINGS = ("Software rings: only of apps that have some with a name", [
    series("Software rings", "Which stage is too slow? Maximum use in the last window as a share "
           "of the capacity; enqueues to a full ring fail.",
           [("topk(10, dpdk_ring_used_window_max_objects{@app} / dpdk_ring_capacity_objects{@app})",
             "{{app}} {{ring}}")], "percentunit", high=1, line=above((0.8, ORANGE), (1, RED)),
           empty="not reported"),
    series("Software rings, now", "How many objects wait between stages?",
           [("topk(10, dpdk_ring_used_objects{@app})", "{{app}} {{ring}}")], empty="not reported"),
    table("Rings", "How large are the rings, and who counted? Source as for pools.",
          [("", "dpdk_ring_info{@app}"),
           ("Capacity", "sum by (@ring) (dpdk_ring_capacity_objects{@app})"),
           ("Used", "sum by (@ring) (dpdk_ring_used_objects{@app})")],
          columns=[], first=("app", "instance", "ring"), sort=("-Capacity",), size=(24, 7),
          empty="not reported"),
], CLOSED)

HEAPS = ("Heaps: memory of rte_malloc()", [
    series("Heap in use", "Is there a leak of rte_malloc() memory? If allocated memory only rises, "
           "it is not freed.",
           ranked("topk(10, dpdk_heap_allocated_bytes{@app})",
                  ("dpdk_heap_allocated_bytes{@app}", "{{app}} {{heap}}"),
                  ("dpdk_heap_size_bytes{@app}", "size of {{app}} {{heap}}")), "bytes",
           empty="no heap"),
    series("Heap: largest free block", "Would a large allocation succeed? If far below the free "
           "memory, the heap is fragmented. The ten that are most fragmented.",
           ranked("bottomk(10, dpdk_heap_greatest_free_bytes{@app} / dpdk_heap_free_bytes{@app})",
                  ("dpdk_heap_greatest_free_bytes{@app}", "largest block {{app}} {{heap}}"),
                  ("dpdk_heap_free_bytes{@app}", "free {{app}} {{heap}}")), "bytes",
           empty="no heap"),
    series("Heap: allocations", "Does the number of allocations only rise?",
           [("topk(10, dpdk_heap_allocations{@app})", "{{app}} {{heap}}")], empty="no heap"),
], CLOSED)

DASHBOARD = dashboard(
    "pmdscope-pools", "DPDK / Pools & Leaks",
    "When will a pool be empty, where are its mbufs, and which line of the app loses them?",
    ["pool"], [VERDICT, LEAKS, WHERE, LEVELS, DETAILS, RINGS, HEAPS])
