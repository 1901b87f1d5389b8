# SPDX-License-Identifier: BSD-3-Clause
"""Lcores: does every poll loop run, how much headroom does it have, what takes its CPU away?"""

from model import (CLOSED, GREEN, ORANGE, RED, YELLOW, above, bands, column, dashboard, drill,
                   heatmap, runbook, series, stat, table, words)

APP = drill("App: packets, losses, queues", "pmdscope-app")

VERDICT = ("Does every poll loop run?", [
    stat("Stopped loops", "Is a poll loop stopped or blocked? Lcores whose poll count does not "
         "increase.", "sum(rate(dpdk_lcore_polls_total{@lcore}[@]) == bool 0)",
         thresholds=above((1, RED)), empty="needs libpmdscope",
         links=[runbook("DpdkNoPolling")]),
    stat("Longest gap", "What was the longest gap between polls in the last window? A receive ring "
         "overflows in a gap longer than its descriptors divided by the packet rate.",
         "max(dpdk_lcore_poll_gap_window_max_seconds{@lcore})", "s",
         thresholds=above((0.001, YELLOW), (0.01, RED)), empty="needs libpmdscope",
         links=[APP, runbook("DpdkLcoreStalls")]),
    stat("Stalls", "How often do poll loops stall? Gaps above the stall threshold, all lcores.",
         "sum(rate(dpdk_lcore_stalls_total{@lcore}[@]))", "count:stalls/s",
         thresholds=above((0.001, YELLOW), (1, RED)), empty="needs libpmdscope",
         links=[APP, runbook("DpdkLcoreStalls")]),
    stat("CPU taken away", "Does something else run on the lcores' CPUs? Involuntary context "
         "switches, all lcores. On isolated CPUs it is 0.",
         "sum(rate(dpdk_lcore_involuntary_context_switches_total{@lcore}[@]))", "count:switches/s",
         thresholds=above((0.1, YELLOW), (10, RED)), empty="no lcore",
         links=[runbook("DpdkLcoreInterference")]),
    stat("Busiest lcore", "Which share of polls returns packets? Near 100 %, it is saturated.",
         "max(rate(dpdk_lcore_busy_polls_total{@lcore}[@]) / "
         "(rate(dpdk_lcore_polls_total{@lcore}[@]) > 0))", "percentunit", decimals=1,
         thresholds=above((0.8, YELLOW), (0.95, RED)), empty="needs libpmdscope", links=[APP]),
    stat("CPUs shared", "Does each telemetry request interrupt the data path? Apps "
         "whose control threads may run on the CPU of an lcore that polls.",
         "sum(dpdk_app_control_threads_share_lcore_cpu{@app})", thresholds=above((1, YELLOW)),
         empty="unknown", links=[runbook("DpdkControlThreadsShareLcoreCpu")]),
])

GAPS = ("Gaps between polls", [
    heatmap("Gaps between polls", "How regular are the loops? Gaps by length, all selected "
            "lcores. If the dark band moves up, the app got slower; points far above are stalls. "
            "Gaps under 1 µs are left out. Colours are logarithmic.",
            bands("dpdk_lcore_poll_gap_seconds", "lcore",
                  ["1e-06", "4e-06", "1.6e-05", "6.4e-05", "0.000256", "0.001024", "0.004096",
                   "0.016384", "0.065536", "0.262144", "1.048576", "+Inf"]), "s",
            empty="needs libpmdscope"),
    series("Longest gap in the last window", "Which lcore stalls, and when? Compare with "
           "missed packets: a gap in which the ring overflows loses packets.",
           [("topk(10, dpdk_lcore_poll_gap_window_max_seconds{@lcore})",
             "{{app}} lcore {{lcore}}")], "s", empty="needs libpmdscope",
           links=[APP, runbook("DpdkLcoreStalls")]),
    series("99.9th percentile of gaps", "How long are the longest regular loop iterations?",
           [("topk(10, histogram_quantile(0.999, sum by (@lcore+le) "
             "(rate(dpdk_lcore_poll_gap_seconds_bucket{@lcore}[@]))))",
             "{{app}} lcore {{lcore}}")],
           "s", empty="needs libpmdscope"),
    series("Stalls", "Which lcore stalls how often? With involuntary switches below: something "
           "else ran on its CPU. Without: the app itself took long.",
           [("topk(10, rate(dpdk_lcore_stalls_total{@lcore}[@]))", "{{app}} lcore {{lcore}}")],
           "count:stalls/s", line=above((0.1, ORANGE)), empty="needs libpmdscope",
           links=[runbook("DpdkLcoreStalls")]),
    series("Time since the last poll", "Is a loop blocked right now? As of the scrape; the "
           "clocks of host and Prometheus must be synchronized.",
           [("topk(10, clamp_min(timestamp(dpdk_lcore_last_poll_timestamp_seconds{@lcore}) - "
             "dpdk_lcore_last_poll_timestamp_seconds{@lcore}, 0))", "{{app}} lcore {{lcore}}")],
           "s", line=above((1, ORANGE), (5, RED)), empty="needs libpmdscope",
           links=[runbook("DpdkNoPolling")]),
])

WHO = ("Interference: what takes the CPU away", [
    series("Involuntary switches", "Which lcore loses its CPU? Each switch is a gap in polling: "
           "isolate the CPU, and move interrupts and other threads to other CPUs.",
           [("topk(10, rate(dpdk_lcore_involuntary_context_switches_total{@lcore}[@]))",
             "{{app}} lcore {{lcore}}")], "count:switches/s", line=above((1, ORANGE)),
           empty="no lcore",
           links=[runbook("DpdkLcoreInterference")]),
    series("Voluntary switches", "Which loop sleeps or waits for locks? 0 for a poll loop that "
           "never sleeps; the number of wakeups if it sleeps or uses interrupts by design.",
           [("topk(10, rate(dpdk_lcore_voluntary_context_switches_total{@lcore}[@]))",
             "{{app}} lcore {{lcore}}")], "count:switches/s", empty="no lcore"),
])

STOLEN = ("Stolen time: only of exporters that trace it (--interrupts)", [
    series("Stolen time by lcore and cause", "Which share of the time does something else have the "
           "CPU of an lcore, and what is it? pmdscope interrupts names the IRQ, softirq or thread. "
           "sleep: the thread itself slept or waited.",
           [("topk(10, rate(dpdk_lcore_stolen_seconds_total{@lcore}[@]))",
             "{{app}} lcore {{lcore}} {{cause}}")], "percentunit", line=above((0.01, ORANGE)),
           empty="not traced, or no event", links=[APP, runbook("DpdkLcoreStolen")]),
    series("Stolen events", "How often is the CPU of an lcore taken, and by what? On an isolated "
           "CPU, by the timer once a second at most.",
           [("topk(10, rate(dpdk_lcore_stolen_events_total{@lcore}[@]))",
             "{{app}} lcore {{lcore}} {{cause}}")], "count:events/s",
           empty="not traced, or no event", links=[APP, runbook("DpdkLcoreStolen")]),
    series("Longest stolen time", "For how long was the CPU of an lcore away at most, since tracing "
           "began? A receive ring overflows in a time longer than its descriptors divided by the "
           "packet rate.",
           [("topk(10, dpdk_lcore_stolen_longest_seconds{@lcore})",
             "{{app}} lcore {{lcore}} {{cause}}")], "s",
           empty="not traced, or no event", links=[APP, runbook("DpdkLcoreStolen")]),
    table("Tracing", "How is each app traced, what is missing, and what does tracing cost? Lost "
          "events: the stolen time is too low. Cost: share of the time of one CPU.",
          [("", "dpdk_lcore_tracing_info{@app}"),
           ("Lost events", "max by (@app) (rate(dpdk_lcore_tracing_lost_events_total{@app}[@]))"),
           ("Cost",
            "max by (@app) (rate(dpdk_lcore_tracing_overhead_seconds_total{@app}[@]))")],
          columns=[column("Lost events", "count:events/s", thresholds=above((0.001, YELLOW))),
                   column("Cost", "percentunit", decimals=2), column("missing", width=300)],
          first=("app", "instance", "method"), size=(12, 8), empty="not traced"),
], CLOSED)

WORK = ("Load: how much headroom is left", [
    series("Busy polls", "How much headroom does each lcore have?",
           [("topk(10, rate(dpdk_lcore_busy_polls_total{@lcore}[@]) / "
             "(rate(dpdk_lcore_polls_total{@lcore}[@]) > 0))", "{{app}} lcore {{lcore}}")],
           "percentunit", high=1, line=above((0.8, YELLOW), (0.95, RED)),
           empty="needs libpmdscope"),
    series("Polls", "How fast are the loops? A decrease at equal traffic: iterations take longer. "
           "The ten slowest.",
           [("bottomk(10, rate(dpdk_lcore_polls_total{@lcore}[@]))", "{{app}} lcore {{lcore}}")],
           "count:polls/s", empty="needs libpmdscope", links=[runbook("DpdkNoPolling")]),
    series("Packets", "How is the load distributed? An lcore far above the others does most of "
           "the work.",
           [("topk(10, rate(dpdk_lcore_packets_total{@lcore}[@]))", "{{app}} lcore {{lcore}}")],
           "pps", empty="needs libpmdscope",
           links=[APP, runbook("DpdkQueueImbalance")]),
    series("Packets per busy poll", "How full are the bursts? Near its burst size, the app is "
           "saturated.",
           [("topk(10, rate(dpdk_lcore_packets_total{@lcore}[@]) / "
             "(rate(dpdk_lcore_busy_polls_total{@lcore}[@]) > 0))", "{{app}} lcore {{lcore}}")],
           "none", decimals=1, empty="no packets"),
])

CYCLES = ("Busy cycles: only of apps that count them", [
    series("Busy cycles", "What share of its cycles does the app report as busy? Only for apps "
           "that register a callback for this (DPDK 23.03).",
           [("topk(10, rate(dpdk_lcore_busy_cycles_total{@lcore}[@]) / "
             "(rate(dpdk_lcore_cycles_total{@lcore}[@]) > 0))", "{{app}} lcore {{lcore}}")],
           "percentunit", high=1, line=above((0.8, YELLOW), (0.95, RED)),
           empty="no app reports cycles"),
    series("Busy cycles per packet", "What does a packet cost? An increase after a deployment is "
           "a regression.",
           [("topk(10, rate(dpdk_lcore_busy_cycles_total{@lcore}[@]) "
             "/ on (job, instance, app, lcore) (rate(dpdk_lcore_packets_total{@lcore}[@]) > 0))",
             "{{app}} lcore {{lcore}}")],
           "short", empty="no app reports cycles"),
], CLOSED)

PLACES = ("CPUs", [
    table("Lcores", "Do lcores share a CPU with each other or with others? Roles and CPUs.",
          [("", "dpdk_lcore_info{@lcore}")], columns=[column("cpus", width=200)],
          first=("app", "instance", "lcore"), empty="no lcore"),
    table("Clocks", "What is the TSC frequency of each app, and do its control threads share "
          "CPUs with lcores?",
          [("TSC", "max by (@app) (dpdk_app_tsc_hertz{@app})"),
           ("Shares CPUs",
            "max by (@app) (dpdk_app_control_threads_share_lcore_cpu{@app})")],
          columns=[column("TSC", "hertz"),
                   column("Shares CPUs", mappings=words(_0=("no", GREEN), _1=("yes", YELLOW)))],
          size=(24, 6), empty="no app",
          links=[runbook("DpdkControlThreadsShareLcoreCpu")]),
])

DASHBOARD = dashboard(
    "pmdscope-lcores", "DPDK / Lcores & Interference",
    "Does every poll loop run, how much headroom does it have, what takes its CPU away?",
    ["lcore"], [VERDICT, GAPS, WHO, STOLEN, WORK, PLACES, CYCLES])
