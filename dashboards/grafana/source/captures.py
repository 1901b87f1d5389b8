# SPDX-License-Identifier: BSD-3-Clause
"""Captures: which captures run, are they complete, and do they slow down the app?"""

from model import (RED, YELLOW, above, dashboard, drill, of_target, packets, ranked, runbook, series, stat)

APP = drill("App: packets, losses, queues", "pmdscope-app")
SESSIONS = "sum by (@app) (dpdk_capture_sessions{@app})"
MISSED = f"sum by (@app) ({packets('receive_missed')})"

VERDICT = ("Are the captures complete?", [
    stat("Captures", "How many captures are open? Each costs the lcores some cycles per packet.",
         "sum(dpdk_capture_sessions{@app})", size=(6, 4),
         empty="needs libpmdscope"),
    stat("Lost by captures", "Is a capture incomplete? Packets per second dropped by full capture "
         "rings. The app loses none.",
         "sum(rate(dpdk_capture_dropped_packets_total{@session}[@]))", "pps",
         thresholds=above((0.001, RED)), size=(6, 4), empty="no capture",
         links=[runbook("DpdkCaptureDrops")]),
    stat("Fullest ring", "How close is a capture to losing packets?",
         "max(dpdk_capture_ring_used_bytes{@session} / dpdk_capture_ring_bytes{@session})",
         "percentunit", thresholds=above((0.5, YELLOW), (0.9, RED)), size=(6, 4),
         empty="no capture", links=[runbook("DpdkCaptureDrops")]),
    stat("Memory not freed", "Did an lcore hang while a capture ended? Capture memory that cannot "
         "be freed because a stuck lcore might still use it.",
         "sum(dpdk_capture_abandoned_bytes{@app})", "bytes", thresholds=above((1, RED)),
         size=(6, 4), empty="needs libpmdscope", links=[runbook("DpdkCaptureMemoryAbandoned")]),
])

FLOW = ("Captured and lost packets", [
    series("Captured", "How many packets does each capture get?",
           [("topk(10, sum by (@session) (rate(dpdk_capture_packets_total{@session}[@])))",
             "{{app}} session {{session}}")], "pps", empty="no capture"),
    series("Lost", "Which capture is incomplete, and when? Use a more selective filter, or "
           "capture less of each packet.",
           [("topk(10, sum by (@session) (rate(dpdk_capture_dropped_packets_total{@session}[@])))",
             "{{app}} session {{session}}")], "pps", empty="no capture",
           links=[runbook("DpdkCaptureDrops")]),
    series("Filtered out", "How selective are the filters? They run in the app: packets that do "
           "not match are not copied.",
           [("topk(10, sum by (@session) (rate(dpdk_capture_filtered_packets_total{@session}[@])))",
             "{{app}} session {{session}}")], "pps", empty="no capture"),
    series("Share lost", "What share of the packets that match the filter is lost?",
           [("topk(10, sum by (@session) (rate(dpdk_capture_dropped_packets_total{@session}[@])) / "
             "(sum by (@session) (rate(dpdk_capture_dropped_packets_total{@session}[@])) + "
             "sum by (@session) (rate(dpdk_capture_packets_total{@session}[@])) > 0))",
             "{{app}} session {{session}}")], "percentunit", high=1,
           line=above((0.01, RED)), empty="no capture gets packets"),
])

RINGS = ("Capture rings", [
    series("Rings", "Does the capturing tool keep up? Unread data as a share of each lcore's ring.",
           [("topk(10, dpdk_capture_ring_used_bytes{@session} / dpdk_capture_ring_bytes{@session})",
             "{{app}} session {{session}} lcore {{lcore}}")], "percentunit", high=1,
           line=above((0.5, YELLOW), (0.9, RED)), empty="no capture"),
    series("Captured by lcore", "From which lcores are the captured packets?",
           [("topk(10, sum by (@lcore) (rate(dpdk_capture_packets_total{@session}[@])))",
             "{{app}} lcore {{lcore}}")], "pps", empty="no capture"),
])

COST = ("Cost for the app", [
    series("Captures and missed packets", "Do captures cause losses in the app? Sessions (left), "
           "and packets per second that the NIC missed (right). Apps with most captures come "
           "first.",
           ranked(f"topk(10, {SESSIONS} * 1e12 + {MISSED})",
                  (SESSIONS, "captures of {{app}}"), (MISSED, "missed by {{app}}")),
           overrides=[of_target("B", unit="pps", custom_axisPlacement="right")], empty="no app",
           links=[APP]),
    series("Longest gap between polls", "Do captures delay the poll loops?",
           [("topk(10, max by (@app) (dpdk_lcore_poll_gap_window_max_seconds{@app}))", "{{app}}")],
           "s",
           empty="needs libpmdscope",
           links=[drill("Lcores and interference", "pmdscope-lcores")]),
])

DASHBOARD = dashboard(
    "pmdscope-captures", "DPDK / Captures",
    "Which captures run, are they complete, and do they slow down the app?",
    ["session"], [VERDICT, FLOW, RINGS, COST])
