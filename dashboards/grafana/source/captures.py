# SPDX-License-Identifier: BSD-3-Clause
"""Captures: who captures, is anything missing from it, and does it weigh on the app?"""

from model import (ORANGE, RED, YELLOW, above, dashboard, drill, runbook, series, stat)

APP = drill("App: packets, losses, queues", "pmdscope-app")

VERDICT = ("Is anything missing from the captures?", [
    stat("Captures", "Who is capturing? Sessions that copy packets now; each costs the lcores some "
         "cycles per packet.", "sum(dpdk_capture_sessions{@app})", size=(6, 4),
         empty="needs libpmdscope"),
    stat("Missing from captures", "Is a capture incomplete? Packets per second that found its ring "
         "full. The app lost none.",
         "sum(rate(dpdk_capture_dropped_packets_total{@session}[@]))", "pps",
         thresholds=above((0.001, RED)), size=(6, 4), empty="no capture",
         links=[runbook("DpdkCaptureDrops")]),
    stat("Fullest ring", "How close is a capture to losing packets?",
         "max(dpdk_capture_ring_used_bytes{@session} / dpdk_capture_ring_bytes{@session})",
         "percentunit", thresholds=above((0.5, YELLOW), (0.9, RED)), size=(6, 4),
         empty="no capture", links=[runbook("DpdkCaptureDrops")]),
    stat("Memory given up", "Did an lcore hang while a capture ended? Capture memory that cannot "
         "be freed because a stuck lcore might still use it.",
         "sum(dpdk_capture_abandoned_bytes{@app})", "bytes", thresholds=above((1, RED)),
         size=(6, 4), empty="needs libpmdscope", links=[runbook("DpdkCaptureMemoryAbandoned")]),
])

FLOW = ("What they get", [
    series("Captured", "How much does each capture get?",
           [("sum by (@session) (rate(dpdk_capture_packets_total{@session}[@]))",
             "{{app}} session {{session}}")], "pps", empty="no capture"),
    series("Missing", "Which capture is incomplete, and when? Filter more, or capture shorter "
           "packets.",
           [("sum by (@session) (rate(dpdk_capture_dropped_packets_total{@session}[@]))",
             "{{app}} session {{session}}")], "pps", line=above((0.001, RED)),
           empty="no capture", links=[runbook("DpdkCaptureDrops")]),
    series("Refused by the filter", "How selective are the filters? They run in the app: what they "
           "refuse is not copied.",
           [("sum by (@session) (rate(dpdk_capture_filtered_packets_total{@session}[@]))",
             "{{app}} session {{session}}")], "pps", empty="no capture"),
    series("Share missing", "How much of what passed the filter is missing?",
           [("sum by (@session) (rate(dpdk_capture_dropped_packets_total{@session}[@])) / "
             "(sum by (@session) (rate(dpdk_capture_dropped_packets_total{@session}[@])) + "
             "sum by (@session) (rate(dpdk_capture_packets_total{@session}[@])) > 0)",
             "{{app}} session {{session}}")], "percentunit", high=1,
           line=above((0.000001, ORANGE), (0.01, RED)), empty="no capture that gets packets"),
])

RINGS = ("Between lcores and tool", [
    series("Rings", "Does the tool keep up? Written and not yet read, as a share of each lcore's "
           "ring.",
           [("dpdk_capture_ring_used_bytes{@session} / dpdk_capture_ring_bytes{@session}",
             "{{app}} session {{session}} lcore {{lcore}}")], "percentunit", high=1,
           line=above((0.5, YELLOW), (0.9, RED)), empty="no capture"),
    series("Captured by lcore", "Which lcores feed the captures?",
           [("sum by (@lcore) (rate(dpdk_capture_packets_total{@session}[@]))",
             "{{app}} lcore {{lcore}}")], "pps", stack=True, empty="no capture"),
])

COST = ("What they cost the app", [
    series("Captures and missed packets", "Does capturing make the app lose packets? Sessions, "
           "and packets that the NIC missed, per second.",
           [("sum by (@app) (dpdk_capture_sessions{@app})", "captures of {{app}}"),
            ("sum by (@app) (rate(dpdk_port_receive_missed_packets_total{@app}[@]))",
             "missed by {{app}}, pps")], empty="no app", links=[APP]),
    series("Longest gap between polls", "Does capturing hold up the poll loops?",
           [("max by (@app) (dpdk_lcore_poll_gap_window_max_seconds{@app})", "{{app}}")], "s",
           empty="needs libpmdscope",
           links=[drill("Lcores and interference", "pmdscope-lcores")]),
])

DASHBOARD = dashboard(
    "pmdscope-captures", "DPDK / Captures",
    "Who captures, is anything missing from it, and does it weigh on the app?",
    ["session"], [VERDICT, FLOW, RINGS, COST])
