# SPDX-License-Identifier: BSD-3-Clause
"""Lcores: does every poll loop turn, how much time has it left, and who takes its CPU away?"""

from model import (GREEN, ORANGE, RED, YELLOW, above, dashboard, drill, heatmap, column, runbook,
                   series, stat, table, words)

APP = drill("App: packets, losses, queues", "pmdscope-app")

VERDICT = ("Does every poll loop turn?", [
    stat("Silent loops", "Is a poll loop dead or blocked? Lcores whose count of polls stands "
         "still.", "sum(rate(dpdk_lcore_polls_total{@lcore}[@]) == bool 0)",
         thresholds=above((1, RED)), empty="needs libpmdscope",
         links=[runbook("DpdkNoPolling")]),
    stat("Longest gap", "How long was the worst lcore away in the last window? A receive ring "
         "overflows in a gap longer than its descriptors divided by the packet rate.",
         "max(dpdk_lcore_poll_gap_window_max_seconds{@lcore})", "s",
         thresholds=above((0.001, YELLOW), (0.01, RED)), empty="needs libpmdscope",
         links=[APP, runbook("DpdkLcoreStalls")]),
    stat("Stalls", "How often are poll loops held up? Gaps above the stall threshold, all lcores.",
         "sum(rate(dpdk_lcore_stalls_total{@lcore}[@]))", "cps",
         thresholds=above((0.001, YELLOW), (1, RED)), empty="needs libpmdscope",
         links=[APP, runbook("DpdkLcoreStalls")]),
    stat("CPU taken away", "Does something else run on the lcores' CPUs? Involuntary context "
         "switches, all lcores. On isolated CPUs it is 0.",
         "sum(rate(dpdk_lcore_involuntary_context_switches_total{@lcore}[@]))", "cps",
         thresholds=above((0.1, YELLOW), (10, RED)), empty="no lcore",
         links=[runbook("DpdkLcoreInterference")]),
    stat("Busiest lcore", "Which share of its polls brings packets? Near 100 %, it has no time "
         "left.", "max(rate(dpdk_lcore_busy_polls_total{@lcore}[@]) / "
         "(rate(dpdk_lcore_polls_total{@lcore}[@]) > 0))", "percentunit", decimals=1,
         thresholds=above((0.8, YELLOW), (0.95, RED)), empty="needs libpmdscope", links=[APP]),
    stat("Control threads share CPUs", "Does each telemetry request interrupt the data path? Apps "
         "whose control threads may run on the CPU of an lcore that polls.",
         "sum(dpdk_app_control_threads_share_lcore_cpu{@app})", thresholds=above((1, YELLOW)),
         empty="not known", links=[runbook("DpdkControlThreadsShareLcoreCpu")]),
])

GAPS = ("Gaps between polls", [
    heatmap("Gaps between polls", "How regular are the loops? Gaps by length, all chosen lcores: "
            "a dark band that moves up is an app that got slower; specks far above are stalls.",
            "sum by (le) (increase(dpdk_lcore_poll_gap_seconds_bucket{@lcore}[@]))", "s",
            empty="needs libpmdscope"),
    series("Longest gap in the last window", "Which lcore is held up, and when? Compare with "
           "missed packets: a gap in which the ring overflows loses them.",
           [("dpdk_lcore_poll_gap_window_max_seconds{@lcore}", "{{app}} lcore {{lcore}}")], "s",
           empty="needs libpmdscope", links=[APP, runbook("DpdkLcoreStalls")]),
    series("99.9th percentile of gaps", "How long is a long turn of the loop, as a rule?",
           [("histogram_quantile(0.999, sum by (@lcore+le) "
             "(rate(dpdk_lcore_poll_gap_seconds_bucket{@lcore}[@])))", "{{app}} lcore {{lcore}}")],
           "s", empty="needs libpmdscope"),
    series("Stalls", "Which lcore is held up how often? With involuntary switches below: something "
           "else ran on its CPU. Without: the app did something long itself.",
           [("rate(dpdk_lcore_stalls_total{@lcore}[@])", "{{app}} lcore {{lcore}}")], "cps",
           line=above((0.1, ORANGE)), empty="needs libpmdscope",
           links=[runbook("DpdkLcoreStalls")]),
    series("Time since the last poll", "Is a loop stuck right now? By the time of the scrape; "
           "the clocks of host and Prometheus should agree.",
           [("clamp_min(timestamp(dpdk_lcore_last_poll_timestamp_seconds{@lcore}) - "
             "dpdk_lcore_last_poll_timestamp_seconds{@lcore}, 0)", "{{app}} lcore {{lcore}}")],
           "s", line=above((1, ORANGE), (5, RED)), empty="needs libpmdscope",
           links=[runbook("DpdkNoPolling")]),
])

WHO = ("Interference: who takes the CPU away", [
    series("Involuntary switches", "Which lcore loses its CPU to others? Each switch is a gap in "
           "polling: isolate the CPU, move interrupts and other threads elsewhere.",
           [("rate(dpdk_lcore_involuntary_context_switches_total{@lcore}[@])",
             "{{app}} lcore {{lcore}}")], "cps", line=above((1, ORANGE)), empty="no lcore",
           links=[runbook("DpdkLcoreInterference")]),
    series("Voluntary switches", "Which loop sleeps or waits for locks? A poll loop that never "
           "sleeps shows 0; one that uses interrupts or sleeps on purpose shows its wakes.",
           [("rate(dpdk_lcore_voluntary_context_switches_total{@lcore}[@])",
             "{{app}} lcore {{lcore}}")], "cps", empty="no lcore"),
])

WORK = ("Work: how much time is left", [
    series("Polls that brought packets", "How much headroom has each lcore?",
           [("rate(dpdk_lcore_busy_polls_total{@lcore}[@]) / "
             "(rate(dpdk_lcore_polls_total{@lcore}[@]) > 0)", "{{app}} lcore {{lcore}}")],
           "percentunit", high=1, line=above((0.8, YELLOW), (0.95, RED)),
           empty="needs libpmdscope"),
    series("Polls", "How fast do the loops turn? A fall at equal traffic: each turn does more.",
           [("rate(dpdk_lcore_polls_total{@lcore}[@])", "{{app}} lcore {{lcore}}")], "cps",
           empty="needs libpmdscope", links=[runbook("DpdkNoPolling")]),
    series("Packets", "How is the work shared? One lcore far above the others does the work of "
           "all.", [("rate(dpdk_lcore_packets_total{@lcore}[@])", "{{app}} lcore {{lcore}}")],
           "pps", stack=True, empty="needs libpmdscope",
           links=[APP, runbook("DpdkQueueImbalance")]),
    series("Packets per busy poll", "How full are the bursts? Near the app's burst size it is "
           "behind.",
           [("rate(dpdk_lcore_packets_total{@lcore}[@]) / "
             "(rate(dpdk_lcore_busy_polls_total{@lcore}[@]) > 0)", "{{app}} lcore {{lcore}}")],
           "none", decimals=1, empty="no packets"),
    series("Busy cycles", "What share of its time does the app itself call busy? Only of apps that "
           "register a callback for it (DPDK 23.03).",
           [("rate(dpdk_lcore_busy_cycles_total{@lcore}[@]) / "
             "(rate(dpdk_lcore_cycles_total{@lcore}[@]) > 0)", "{{app}} lcore {{lcore}}")],
           "percentunit", high=1, line=above((0.8, YELLOW), (0.95, RED)),
           empty="no app counts its cycles"),
    series("Busy cycles per packet", "What does a packet cost? A rise after a deployment is a "
           "regression.",
           [("rate(dpdk_lcore_busy_cycles_total{@lcore}[@]) / on (job, instance, app, lcore) "
             "(rate(dpdk_lcore_packets_total{@lcore}[@]) > 0)", "{{app}} lcore {{lcore}}")],
           "short", empty="no app counts its cycles"),
])

PLACES = ("Where they run", [
    table("Lcores", "Do two lcores share a CPU, or one with others? Roles and CPUs of all lcores.",
          [("", "dpdk_lcore_info{@lcore}")], columns=[], empty="no lcore"),
    table("Clocks", "At which frequency do the apps count cycles, and do their control threads "
          "stay off the lcores' CPUs?",
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
    "Does every poll loop turn, how much time has it left, and who takes its CPU away?",
    ["lcore"], [VERDICT, GAPS, WHO, WORK, PLACES])
