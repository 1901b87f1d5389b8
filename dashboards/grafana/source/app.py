# SPDX-License-Identifier: BSD-3-Clause
"""App: packets (rate), losses by cause (errors), and how close to losing more (depth)."""

from model import (GREEN, ORANGE, RED, UP_DOWN, YELLOW, above, below, column, dashboard, drill,
                   heatmap, runbook, series, stat, states, table, words)

POOLS = drill("Pools and leaks", "pmdscope-pools")
LCORES = drill("Lcores and interference", "pmdscope-lcores")
FLEET = drill("Fleet", "pmdscope-fleet")

VERDICT = ("Is it losing packets?", [
    stat("Healthy", "Is there any finding? no: the timeline below says which; the same verdict as "
         "/ready.", "min(dpdk_app_healthy{@app})", thresholds=above(), size=(3, 4),
         mappings=words(_0=("no", RED), _1=("yes", GREEN)), empty="no app",
         links=[FLEET, runbook("DpdkAppUnhealthy")]),
    stat("Ports started", "Has the app all its ports? Ports started, of those that are expected, "
         "as a share.", "sum(dpdk_app_ports_started{@app}) / sum(dpdk_app_expected_ports{@app})",
         "percentunit", thresholds=below(1, (None, RED)), size=(3, 4), empty="no app",
         links=[runbook("DpdkAppNoPorts")]),
    stat("Missed", "Is the app too slow? Packets per second that the NIC dropped for want of a "
         "receive descriptor.",
         "sum(rate(dpdk_port_receive_missed_packets_total{@port}[@]))", "pps",
         thresholds=above((0.001, RED)), size=(3, 4), empty="no port",
         links=[LCORES, runbook("DpdkReceiveMissed")]),
    stat("Missed share", "How much of the traffic is lost at the NIC? Missed, of all that arrived.",
         "sum(rate(dpdk_port_receive_missed_packets_total{@port}[@])) / "
         "(sum(rate(dpdk_port_receive_missed_packets_total{@port}[@])) + "
         "sum(rate(dpdk_port_receive_packets_total{@port}[@])) > 0)", "percentunit",
         thresholds=above((0.000001, YELLOW), (0.01, RED)), size=(3, 4), decimals=3,
         empty="no traffic", links=[runbook("DpdkReceiveMissedMuch")]),
    stat("Errors", "Is the wire or the configuration broken? Packets received damaged, or failed "
         "to send, per second.",
         "sum(rate(dpdk_port_receive_errors_total{@port}[@])) + "
         "sum(rate(dpdk_port_transmit_errors_total{@port}[@]))", "pps",
         thresholds=above((0.001, ORANGE)), size=(3, 4), empty="no port"),
    stat("No mbuf", "Is a pool empty? Receives per second that found no free mbuf.",
         "sum(rate(dpdk_port_receive_mbuf_allocation_failures_total{@port}[@]))", "cps",
         thresholds=above((0.001, RED)), size=(3, 4), empty="no port",
         links=[POOLS, runbook("DpdkMbufAllocationFailures")]),
    stat("Deepest queue", "How close is the fullest receive ring to overflowing? Most packets that "
         "waited in the last window, as a share of the ring.",
         "max(dpdk_queue_receive_depth_window_max_packets{@port+queue} / "
         "dpdk_queue_receive_descriptors{@port+queue})", "percentunit",
         thresholds=above((0.5, YELLOW), (0.8, RED)), size=(3, 4), high=1,
         empty="driver does not tell", links=[LCORES, runbook("DpdkQueueNearlyFull")]),
    stat("First pool empty in", "How long until the app stops receiving?",
         "min(dpdk_mempool_exhausted_in_seconds{@app})", "s",
         thresholds=below(300, (None, RED), (60, ORANGE)), size=(3, 4),
         empty="none drains", well=True, links=[POOLS, runbook("DpdkPoolDraining")]),
    states("What is wrong", "Which findings, since when?", "dpdk_app_unhealthy_reason{@app} == 1",
           legend="{{app}} {{reason}}", mappings=words(_1=("wrong", RED)), size=(24, 6),
           empty="Nothing is wrong.", links=[runbook("DpdkAppUnhealthy")]),
])

RATE = ("Rate: what passes", [
    series("Packets by port", "What does the app receive (up) and send (down)? Both fall together "
           "when the sender stops; only the lower half falls when the app stops sending.",
           [("sum by (@port) (rate(dpdk_port_receive_packets_total{@port}[@]))",
             "rx {{app}} {{port}}"),
            ("-sum by (@port) (rate(dpdk_port_transmit_packets_total{@port}[@]))",
             "tx {{app}} {{port}}")], "pps", low=None, empty="no port"),
    series("Bits by port", "How much of the link is used? Compare with its speed in the table of "
           "ports below.",
           [("sum by (@port) (rate(dpdk_port_receive_bytes_total{@port}[@])) * 8",
             "rx {{app}} {{port}}"),
            ("-sum by (@port) (rate(dpdk_port_transmit_bytes_total{@port}[@])) * 8",
             "tx {{app}} {{port}}")], "bps", low=None, empty="the driver counts packets only"),
    series("Received by queue", "Does RSS spread the load? One queue far above the others is one "
           "lcore that does the work of all.",
           [("sum by (@port+queue) "
             "(rate(dpdk_queue_receive_packets_total{@port+queue}[@]))",
             "{{app}} {{port}} q{{queue}}")], "pps", stack=True, empty="no queue tells"),
    series("Sent by queue", "Do all lcores send? Packets that the app offered to each queue; of a "
           "stock app, those sent.",
           [("sum by (@port+queue) "
             "(rate(dpdk_queue_transmit_packets_total{@port+queue}[@]))",
             "{{app}} {{port}} q{{queue}}")], "pps", stack=True,
           empty="no queue tells"),
    series("Bits received by queue", "Which queue carries the bulk? libpmdscope estimates it from "
           "one burst of each 16.",
           [("sum by (@port+queue) "
             "(rate(dpdk_queue_receive_bytes_total{@port+queue}[@])) * 8",
             "{{app}} {{port}} q{{queue}}")], "bps", stack=True,
           empty="no queue tells"),
    series("Bits sent by queue", "Which queue carries the bulk of what is sent?",
           [("sum by (@port+queue) "
             "(rate(dpdk_queue_transmit_bytes_total{@port+queue}[@])) * 8",
             "{{app}} {{port}} q{{queue}}")], "bps", stack=True,
           empty="no queue tells"),
    states("Queue counters incomplete", "Can sums over queues be trusted? Ports of which "
           "some queues are not told, by the driver or by DPDK's telemetry.",
           "dpdk_queue_stats_truncated{@port}", legend="{{app}} {{port}}",
           mappings=words(_0=("complete", GREEN), _1=("incomplete", ORANGE)), size=(12, 8),
           empty="no port", links=[runbook("DpdkQueueStatsTruncated")]),
    series("Busiest queue against the mean of the others", "How uneven is it? 1 is even; from 3 on "
           "the busiest queue is the limit of the port.",
           [("max by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@])) / "
             "((sum by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@])) - "
             "max by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@]))) / "
             "(count by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@])) - 1 > 0))",
             "{{app}} {{port}}")], "none", line=above((3, ORANGE)),
           empty="no port with several queues", links=[runbook("DpdkQueueImbalance")]),
])

ERRORS = ("Errors: what is lost, and why", [
    series("Missed", "Which port drops packets because nobody polls it in time?",
           [("sum by (@port) (rate(dpdk_port_receive_missed_packets_total{@port}[@]))",
             "{{app}} {{port}}")], "pps", line=above((0.001, RED)), size=(8, 8), empty="no port",
           links=[LCORES, runbook("DpdkReceiveMissed")]),
    series("No mbuf to receive into", "Which port drops packets because a pool is empty?",
           [("sum by (@port) (rate(dpdk_port_receive_mbuf_allocation_failures_total{@port}[@]))",
             "{{app}} {{port}}")], "cps", line=above((0.001, RED)), size=(8, 8), empty="no port",
           links=[POOLS, runbook("DpdkMbufAllocationFailures")]),
    series("Damaged or not sent", "Is it the wire (rx) or the driver (tx)? A full transmit ring "
           "does not count here: the app sees that as a short burst.",
           [("sum by (@port) (rate(dpdk_port_receive_errors_total{@port}[@]))",
             "rx {{app}} {{port}}"),
            ("sum by (@port) (rate(dpdk_port_transmit_errors_total{@port}[@]))",
             "tx {{app}} {{port}}")], "pps", line=above((0.001, ORANGE)), size=(8, 8),
           empty="no port"),
    series("Losses by the driver's own names", "Which stage of the NIC drops? Extended counters "
           "that the configuration allows and that move.",
           [("rate(dpdk_port_xstat{@port}[@]) > 0", "{{app}} {{port}} {{name}}")], "cps",
           empty="No counter of losses moves."),
    series("Receive errors by queue", "Which queue is it? Not every driver tells.",
           [("sum by (@port+queue) (rate(dpdk_queue_receive_errors_total{@port+queue}[@]))",
             "{{app}} {{port}} q{{queue}}")], "pps", empty="the driver does not tell"),
])

DEPTH = ("Depth: how close to losing more", [
    series("Receive ring filled", "How much of each receive ring was filled at "
           "its worst? A ring that is full is a packet missed.",
           [("dpdk_queue_receive_depth_window_max_packets{@port+queue} / "
             "dpdk_queue_receive_descriptors{@port+queue}", "{{app}} {{port}} q{{queue}}")],
           "percentunit", high=1, line=above((0.5, YELLOW), (0.8, RED)),
           empty="the driver does not tell", links=[runbook("DpdkQueueNearlyFull")]),
    series("Packets waiting", "What waits in the receive rings, at worst in the last window and in "
           "the last sample? Also of drivers that do not tell how long their rings are.",
           [("dpdk_queue_receive_depth_window_max_packets{@port+queue}",
             "most {{app}} {{port}} q{{queue}}"),
            ("dpdk_queue_receive_depth_packets{@port+queue}",
             "last {{app}} {{port}} q{{queue}}")], "short", empty="the driver does not tell"),
    heatmap("Packets waiting when a burst began", "How deep are the receive rings, as a rule "
            "and at worst? Compare buckets above 0 with each other only: empty polls all count, "
            "others by sample.",
            "sum by (le) (increase(dpdk_queue_receive_depth_bucket{@port+queue}[@]))", "short",
            empty="switch on queue_histograms in the exporter's configuration"),
    series("Polls that brought packets", "How much headroom has each queue? Near 100 %, the lcore "
           "has no time to spare; 0 with a link up: nothing arrives.",
           [("1 - rate(dpdk_queue_empty_polls_total{@port+queue}[@]) / "
             "(rate(dpdk_queue_polls_total{@port+queue}[@]) > 0)",
             "{{app}} {{port}} q{{queue}}")], "percentunit", high=1,
           line=above((0.9, ORANGE)), empty="needs libpmdscope"),
    series("Packets per burst, 95th percentile", "Does the app take all it could? Bursts that are "
           "full had more waiting.",
           [("histogram_quantile(0.95, sum by (@port+queue+le) "
             "(rate(dpdk_queue_burst_packets_bucket{@port+queue}[@])))",
             "{{app}} {{port}} q{{queue}}")], "short",
           empty="switch on queue_histograms in the exporter's configuration"),
])

INVENTORY = ("What is there", [
    table("Ports", "Are the right ports there, up, on the right NUMA node, at the right speed?", [
        ("", "dpdk_port_info{@port}"),
        ("Started", "max by (@port) (dpdk_port_started{@port})"),
        ("Link", "max by (@port) (dpdk_port_link_up{@port})"),
        ("Speed", "max by (@port) "
         "(dpdk_port_link_speed_bytes_per_second{@port}) * 8"),
        ("MTU", "max by (@port) (dpdk_port_mtu_bytes{@port})"),
        ("Rx queues", "max by (@port) (dpdk_port_receive_queues{@port})"),
        ("Tx queues", "max by (@port) (dpdk_port_transmit_queues{@port})"),
        ("Promiscuous", "max by (@port) (dpdk_port_promiscuous{@port})"),
    ], columns=[
        column("Started", mappings=words(_0=("no", RED), _1=("yes", GREEN))),
        column("Link", mappings=UP_DOWN), column("Speed", "bps"), column("MTU", "bytes"),
        column("Promiscuous", mappings=words(_0="no", _1="yes")),
    ], empty="The app has no ports.", links=[runbook("DpdkPortStopped")]),
    states("Links", "Which link was down, and when?", "dpdk_port_link_up{@port}",
           legend="{{app}} {{port}}", mappings=UP_DOWN, size=(24, 6),
           empty="no driver tells", links=[runbook("DpdkLinkDown")]),
    table("Devices of the app's arguments", "Is each NIC that the app's arguments name bound to a "
          "driver that DPDK can use?",
          [("", "dpdk_pci_device_info{@app}"),
           ("Wrong driver", "max by (@bdf) (dpdk_pci_device_driver_mismatch{@app})")],
          columns=[column("Wrong driver", mappings=words(_0=("no", GREEN), _1=("yes", RED)))],
          size=(12, 7), empty="The arguments name no PCI device.",
          links=[runbook("DpdkWrongDriver")]),
    table("Process", "Which build of what runs, at which level of instrumentation, and since when?",
          [("", "dpdk_app_info{@app}"),
           ("Started", "max by (@app) (dpdk_app_start_timestamp_seconds{@app}) * 1000"),
           ("Last answer",
            "max by (@app) (dpdk_app_last_seen_timestamp_seconds{@app}) * 1000"),
           ("Secondaries", "max by (@app) (dpdk_app_secondary_processes{@app})")],
          columns=[column("Started", "dateTimeFromNow"),
                   column("Last answer", "dateTimeFromNow")], size=(12, 7), empty="no app"),
])

DASHBOARD = dashboard(
    "pmdscope-app", "DPDK / App", "Does the app get, pass on or lose packets, and why?",
    ["port", "queue"], [VERDICT, RATE, ERRORS, DEPTH, INVENTORY])
