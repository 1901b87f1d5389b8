# SPDX-License-Identifier: BSD-3-Clause
"""App: packets (rate), losses by cause (errors), and how close to losing more (depth)."""

from model import (CLOSED, GREEN, NONE_DRAINS, ORANGE, RED, UP_DOWN, YELLOW, above, bands, below,
                   column, dashboard, drill, first_empty, heatmap, packets, ranked, runbook, series, stat,
                   states, summed, table, words)

POOLS = drill("Pools and leaks", "pmdscope-pools")
LCORES = drill("Lcores and interference", "pmdscope-lcores")
FLEET = drill("Fleet", "pmdscope-fleet")


def by_port(counter):
    """Rate of a counter of ports, by port."""
    return f"sum by (@port) (rate(dpdk_port_{counter}_total{{@port}}[@]))"


def by_queue(counter):
    """Rate of a counter of queues, by queue."""
    return f"sum by (@port+queue) (rate(dpdk_queue_{counter}_total{{@port+queue}}[@]))"


VERDICT = ("Is it losing packets?", [
    stat("Healthy", "Is the app healthy? If not, the timeline below shows its findings. Same as "
         "/ready.", "min(dpdk_app_healthy{@app})", thresholds=above(), size=(3, 4),
         mappings=words(_0=("no", RED), _1=("yes", GREEN)), empty="no app",
         links=[FLEET, runbook("DpdkAppUnhealthy")]),
    stat("Ports started", "Does the app have all its ports? Started ports as a share of expected "
         "ports.", "sum(dpdk_app_ports_started{@app}) / sum(dpdk_app_expected_ports{@app})",
         "percentunit", thresholds=below(1, (None, RED)), size=(3, 4), empty="no app",
         links=[runbook("DpdkAppNoPorts")]),
    stat("Missed", "Is the app too slow? Packets per second that the NIC dropped because no "
         "receive descriptor was free.",
         f"sum({packets('receive_missed', 'port')})", "pps",
         thresholds=above((0.001, RED)), size=(3, 4), empty="no port",
         links=[LCORES, runbook("DpdkReceiveMissed")]),
    stat("Missed share", "How much traffic is lost at the NIC? Missed packets as a share of all.",
         f"sum({packets('receive_missed', 'port')}) / "
         f"(sum({packets('receive_missed', 'port')}) + sum({packets('receive', 'port')}) > 0)",
         "percentunit",
         thresholds=above((0.000001, YELLOW), (0.01, RED)), size=(3, 4), decimals=3,
         empty="no traffic", links=[runbook("DpdkReceiveMissedMuch")]),
    stat("Errors", "Is the link or the configuration broken? Receive and transmit errors per "
         "second.",
         "sum(rate(dpdk_port_receive_errors_total{@port}[@])) + "
         "sum(rate(dpdk_port_transmit_errors_total{@port}[@]))", "pps",
         thresholds=above((0.001, ORANGE)), size=(3, 4), empty="no port"),
    stat("No mbuf", "Is a pool empty? Mbuf allocation failures per second.",
         "sum(rate(dpdk_port_receive_mbuf_allocation_failures_total{@port}[@]))",
         "count:failures/s", thresholds=above((0.001, RED)), size=(3, 4), empty="no port",
         links=[POOLS, runbook("DpdkMbufAllocationFailures")]),
    stat("Deepest queue", "How close is the fullest receive ring to overflowing? Maximum depth in "
         "the last window as a share of the ring.",
         "max(dpdk_queue_receive_depth_window_max_packets{@port+queue} / "
         "dpdk_queue_receive_descriptors{@port+queue})", "percentunit",
         thresholds=above((0.5, YELLOW), (0.8, RED)), size=(3, 4), high=1,
         empty="not reported", links=[LCORES, runbook("DpdkQueueNearlyFull")]),
    stat("Pool empty in", "How long until the app stops receiving? 0: a pool is at least 98 % "
         "full.", first_empty("app"), "s",
         thresholds=below(300, (None, RED), (60, ORANGE)), size=(3, 4), mappings=[NONE_DRAINS],
         empty="not reported", links=[POOLS, runbook("DpdkPoolDraining")]),
    states("What is wrong", "Which findings, since when?", "dpdk_app_unhealthy_reason{@app} == 1",
           legend="{{app}} {{reason}}", mappings=words(_1=("wrong", RED)), size=(24, 6),
           empty="Nothing is wrong.", links=[runbook("DpdkAppUnhealthy")]),
])

RATE = ("Rate: packets and bytes", [
    series("Packets by port", "What does the app receive (up) and send (down)? If the sender "
           "stops, both fall; if the app stops sending, only the lower half falls.",
           summed((by_port("receive_packets"), "rx {{app}} {{port}}"),
                  (by_port("transmit_packets"), "tx {{app}} {{port}}")), "pps", mirror="B",
           empty="no port"),
    series("Bits by port", "How much of the link is used? Compare with the link speed in the "
           "table of ports below.",
           summed((by_port("receive_bytes") + " * 8", "rx {{app}} {{port}}"),
                  (by_port("transmit_bytes") + " * 8", "tx {{app}} {{port}}")), "bps", mirror="B",
           empty="the driver counts packets only"),
    series("Received by queue", "Does RSS distribute the load? If one queue is far above the "
           "others, one lcore does most of the work.",
           [(f"topk(10, {by_queue('receive_packets')})", "{{app}} {{port}} q{{queue}}")], "pps",
           empty="no queue counters"),
    series("Sent by queue", "Do all lcores send? Packets that the driver took.",
           [(f"topk(10, {by_queue('transmit_packets')})", "{{app}} {{port}} q{{queue}}")], "pps",
           empty="no counters of transmit queues"),
    series("Offered and refused by queue", "Does the driver take what the app offers? Packets that "
           "are offered again count again, so that refused packets need not be lost. Queues with "
           "refused packets come first.",
           ranked(f"topk(10, {by_queue('transmit_refused_packets')} * 1000 + "
                  f"{by_queue('transmit_offered_packets')} "
                  f"or {by_queue('transmit_offered_packets')})",
                  (by_queue("transmit_refused_packets"), "refused {{app}} {{port}} q{{queue}}"),
                  (by_queue("transmit_offered_packets"), "offered {{app}} {{port}} q{{queue}}")),
           "pps", size=(24, 8),
           empty="needs libpmdscope",
           links=[runbook("DpdkTransmitRefused"), runbook("DpdkTransmitStuck")]),
    series("Busiest queue, as multiple of the others' mean", "How uneven is it? 1 is even; from 3 "
           "on the busiest queue limits the port.",
           [("topk(10, max by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@])) / "
             "((sum by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@])) - "
             "max by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@]))) / "
             "(count by (@port) (rate(dpdk_queue_receive_packets_total{@port}[@])) - 1 > 0)))",
             "{{app}} {{port}}")], "none", line=above((3, ORANGE)), size=(24, 7),
           empty="no port with several queues", links=[runbook("DpdkQueueImbalance")]),
])

ERRORS = ("Errors: losses by cause", [
    series("Missed", "Which port drops packets because it is not polled in time?",
           [(f"topk(10, {by_port('receive_missed_packets')})", "{{app}} {{port}}")], "pps",
           size=(8, 8), empty="no port",
           links=[LCORES, runbook("DpdkReceiveMissed")]),
    series("Mbuf allocation failures", "Which port drops packets because a pool is empty?",
           [(f"topk(10, {by_port('receive_mbuf_allocation_failures')})",
             "{{app}} {{port}}")], "count:failures/s", size=(8, 8), empty="no port",
           links=[POOLS, runbook("DpdkMbufAllocationFailures")]),
    series("Receive and transmit errors", "Is it the link (rx) or the driver (tx)? A full "
           "transmit ring is not an error: rte_eth_tx_burst() then returns less.",
           summed((by_port("receive_errors"), "rx {{app}} {{port}}"),
                  (by_port("transmit_errors"), "tx {{app}} {{port}}")), "pps", size=(8, 8),
           empty="no port"),
    series("Discards and errors by place", "Where on their way are packets lost: before the queues "
           "(wire, mac, nic), at them, in the driver, or when sent? From the driver's own counters.",
           [("topk(10, sum by (@port+place+reason) (rate(dpdk_port_discards_total{@port}[@])) > 0)",
             "{{app}} {{port}} {{place}} {{reason}}")], "pps", size=(24, 8),
           empty="No such counter increases.", links=[runbook("DpdkReceiveDiscards")]),
    series("Driver counters of losses", "Which stage of the NIC drops packets? Extended "
           "counters that the configuration selects and that increase.",
           [("topk(10, rate(dpdk_port_xstat{@port}[@]) > 0)", "{{app}} {{port}} {{name}}")],
           "count:events/s", size=(24, 8), empty="No such counter increases."),
    series("Causes of missed packets", "Why does the NIC miss packets? 1 while a cause is "
           "found; pmdscope check has its numbers.",
           [("topk(10, max by (@port+cause) (dpdk_port_missed_cause{@port}) > 0)",
             "{{app}} {{port}} {{cause}}")], "none", size=(24, 7), empty="No packet is missed.",
           links=[LCORES, runbook("DpdkReceiveMissed")]),
])

DEPTH = ("Depth: how close to losses", [
    series("Receive ring filled", "How full was each receive ring at most? "
           "A full ring misses packets.",
           [("topk(10, dpdk_queue_receive_depth_window_max_packets{@port+queue} / "
             "dpdk_queue_receive_descriptors{@port+queue})", "{{app}} {{port}} q{{queue}}")],
           "percentunit", high=1, line=above((0.5, YELLOW), (0.8, RED)),
           empty="not reported by the driver", links=[runbook("DpdkQueueNearlyFull")]),
    series("Busy polls", "How much headroom does each queue have? Near 100 %, the lcore "
           "is saturated; 0 with the link up: no packets arrive.",
           [("topk(10, 1 - rate(dpdk_queue_empty_polls_total{@port+queue}[@]) / "
             "(rate(dpdk_queue_polls_total{@port+queue}[@]) > 0))",
             "{{app}} {{port}} q{{queue}}")], "percentunit", high=1,
           line=above((0.9, ORANGE)), empty="needs libpmdscope"),
])

DETAILS = ("Queues: bytes, errors and packets waiting", [
    series("Bits received by queue", "Which queue carries most bytes? libpmdscope estimates them "
           "from one of 16 bursts.",
           [(f"topk(10, {by_queue('receive_bytes')} * 8)", "{{app}} {{port}} q{{queue}}")], "bps",
           empty="no queue counters"),
    series("Bits sent by queue", "Which queue sends most bytes?",
           [(f"topk(10, {by_queue('transmit_bytes')} * 8)", "{{app}} {{port}} q{{queue}}")], "bps",
           empty="no queue counters"),
    series("Receive errors by queue", "Which queue is it? Not every driver counts them.",
           [(f"topk(10, {by_queue('receive_errors')})", "{{app}} {{port}} q{{queue}}")], "pps",
           empty="not reported by the driver"),
    series("Packets waiting", "How many packets wait in the receive rings, at most in the last "
           "window and in the last sample? Also for drivers that do not report the ring size.",
           ranked("topk(10, dpdk_queue_receive_depth_window_max_packets{@port+queue})",
                  ("dpdk_queue_receive_depth_window_max_packets{@port+queue}",
                   "max {{app}} {{port}} q{{queue}}"),
                  ("dpdk_queue_receive_depth_packets{@port+queue}",
                   "last {{app}} {{port}} q{{queue}}")), "short",
           empty="not reported by the driver"),
    states("Queue counters incomplete", "Can sums over queues be trusted? Ports of which the "
           "driver or DPDK's telemetry does not report all queues.",
           "dpdk_queue_stats_truncated{@port}", legend="{{app}} {{port}}",
           mappings=words(_0=("complete", GREEN), _1=("incomplete", ORANGE)), size=(24, 6),
           empty="no port", links=[runbook("DpdkQueueStatsTruncated")]),
], CLOSED)

HISTOGRAMS = ("Histograms of queues: only with queue_histograms", [
    heatmap("Packets waiting at the start of a burst", "How deep are the receive rings, usually "
            "and at most? Polls of empty rings are left out; the others are sampled. Colours are "
            "logarithmic.",
            bands("dpdk_queue_receive_depth", "port+queue",
                  ["0", "1", "3", "7", "15", "31", "63", "127", "255", "511", "1023", "2047",
                   "+Inf"]), "short",
            empty="enable queue_histograms in the exporter's configuration"),
    series("Packets per burst, 95th percentile", "Does the app receive all waiting packets? "
           "If bursts are full, more packets were waiting.",
           [("topk(10, ceil(histogram_quantile(0.95, sum by (@port+queue+le) "
             "(rate(dpdk_queue_burst_packets_bucket{@port+queue}[@])))))",
             "{{app}} {{port}} q{{queue}}")], "short", size=(24, 8), decimals=0,
           empty="enable queue_histograms in the exporter's configuration"),
], CLOSED)

LINKS = ("Links", [
    states("Links", "Which link was down, and when?", "dpdk_port_link_up{@port}",
           legend="{{app}} {{port}}", mappings=UP_DOWN, size=(24, 6),
           empty="not reported", links=[runbook("DpdkLinkDown")]),
])

INVENTORY = ("Inventory: ports, devices, process", [
    table("Ports", "Are the ports present and up, on the right NUMA node, at the right speed?", [
        ("", "dpdk_port_info{@port}"),
        ("Started", "max by (@port) (dpdk_port_started{@port})"),
        ("Link", "max by (@port) (dpdk_port_link_up{@port})"),
        ("Speed", "max by (@port) "
         "(dpdk_port_link_speed_bytes_per_second{@port}) * 8"),
        ("MTU, bytes", "max by (@port) (dpdk_port_mtu_bytes{@port})"),
        ("Rx queues", "max by (@port) (dpdk_port_receive_queues{@port})"),
        ("Tx queues", "max by (@port) (dpdk_port_transmit_queues{@port})"),
        ("Promiscuous", "max by (@port) (dpdk_port_promiscuous{@port})"),
    ], columns=[
        column("Started", mappings=words(_0=("no", RED), _1=("yes", GREEN))),
        column("Link", mappings=UP_DOWN), column("Speed", "bps"), column("MTU, bytes", "none"),
        column("Promiscuous", mappings=words(_0="no", _1="yes")),
    ], empty="The app has no ports.", links=[runbook("DpdkPortStopped")]),
    table("Devices of the app's arguments", "Is each NIC that the app's arguments name bound to a "
          "driver that DPDK can use?",
          [("", "dpdk_pci_device_info{@app}"),
           ("Wrong driver", "max by (@bdf) (dpdk_pci_device_driver_mismatch{@app})")],
          columns=[column("Wrong driver", mappings=words(_0=("no", GREEN), _1=("yes", RED)))],
          size=(24, 6), empty="The arguments name no PCI device.",
          links=[runbook("DpdkWrongDriver")]),
    table("Process", "Which program and version runs, at which level, and since when?",
          [("", "dpdk_app_info{@app}"),
           ("Started", "max by (@app) (dpdk_app_start_timestamp_seconds{@app}) * 1000"),
           ("Last answer",
            "max by (@app) (dpdk_app_last_seen_timestamp_seconds{@app}) * 1000"),
           ("Secondaries", "max by (@app) (dpdk_app_secondary_processes{@app})")],
          columns=[column("Started", "dateTimeFromNow"),
                   column("Last answer", "dateTimeFromNow"), column("exe", width=300)],
          first=("app", "instance", "exe", "level"), size=(24, 7), empty="no app"),
], CLOSED)

DASHBOARD = dashboard(
    "pmdscope-app", "DPDK / App", "Does the app receive, forward or lose packets, and why?",
    ["port", "queue"], [VERDICT, RATE, ERRORS, DEPTH, LINKS, DETAILS, HISTOGRAMS, INVENTORY])
