//! Metrics of lcores, and of captures, which run on them.

use super::metrics;

metrics! { LCORE:
    LCORE_INFO = Info "dpdk_lcore_info" ["app" "lcore" "role" "cpus" "tid"]
        "Where an lcore's thread may run. Two lcores on one CPU, or a CPU that others use too, lose \
         packets; see dpdk_lcore_involuntary_context_switches_total.";
    LCORE_BUSY_CYCLES = Counter "dpdk_lcore_busy_cycles_total" ["app" "lcore"]
        "Cycles with work, as the app itself counts them (rte_lcore_register_usage_cb()); DPDK 23.03. \
         Divide its rate by that of dpdk_lcore_cycles_total for utilisation.";
    LCORE_CYCLES = Counter "dpdk_lcore_cycles_total" ["app" "lcore"]
        "All cycles, as the app itself counts them; DPDK 23.03.";
    LCORE_POLLS = Counter "dpdk_lcore_polls_total" ["app" "lcore"]
        "Turns of the poll loop; libpmdscope only. Flat: the loop has ended or is blocked.";
    LCORE_BUSY_POLLS = Counter "dpdk_lcore_busy_polls_total" ["app" "lcore"]
        "Of dpdk_lcore_polls_total, those that brought a packet. Near all of them: the lcore is \
         saturated.";
    LCORE_PACKETS = Counter "dpdk_lcore_packets_total" ["app" "lcore"]
        "Packets that the lcore received; libpmdscope only. One lcore far above the others does the \
         work of all.";
    LCORE_POLL_GAP = Histogram "dpdk_lcore_poll_gap_seconds" ["app" "lcore"]
        "Time between two turns of the poll loop; libpmdscope only. A receive ring overflows in a gap \
         longer than its descriptors divided by the packet rate. No sum is counted.";
    LCORE_POLL_GAP_WINDOW_MAX = Gauge "dpdk_lcore_poll_gap_window_max_seconds" ["app" "lcore"]
        "Longest gap between two turns in the last complete window of libpmdscope, so that one between \
         two scrapes is seen.";
    LCORE_STALLS = Counter "dpdk_lcore_stalls_total" ["app" "lcore"]
        "Gaps between two turns above the stall threshold; libpmdscope only. If involuntary context \
         switches rise as well, something else ran on the CPU; if not, the app did something long.";
    LCORE_LAST_POLL = Gauge "dpdk_lcore_last_poll_timestamp_seconds" ["app" "lcore"]
        "When the lcore last polled; libpmdscope only. More than a second ago: the loop has ended or is \
         blocked.";
    LCORE_VOLUNTARY_CONTEXT_SWITCHES =
        Counter "dpdk_lcore_voluntary_context_switches_total" ["app" "lcore"]
        "Times that the lcore's thread gave up its CPU: it slept or waited for a lock, which a poll loop \
         should not.";
    LCORE_INVOLUNTARY_CONTEXT_SWITCHES =
        Counter "dpdk_lcore_involuntary_context_switches_total" ["app" "lcore"]
        "Times that the CPU was taken away from the lcore's thread: each is a gap in polling. Isolate \
         the CPU (isolcpus, cpusets), and move interrupts and control threads elsewhere.";
}

metrics! { CAPTURE:
    CAPTURE_SESSIONS = Gauge "dpdk_capture_sessions" ["app"]
        "Captures that copy packets now. Each costs the lcores some cycles per packet.";
    CAPTURE_PACKETS = Counter "dpdk_capture_packets_total" ["app" "session" "lcore"]
        "Packets that the lcore gave to a capture.";
    CAPTURE_DROPPED_PACKETS = Counter "dpdk_capture_dropped_packets_total" ["app" "session" "lcore"]
        "Packets missing from a capture because its ring was full; the app lost none. Filter more, or \
         capture shorter packets.";
    CAPTURE_FILTERED_PACKETS = Counter "dpdk_capture_filtered_packets_total" ["app" "session" "lcore"]
        "Packets that the capture's filter refused.";
    CAPTURE_RING_BYTES = Gauge "dpdk_capture_ring_bytes" ["app" "session" "lcore"]
        "Size of the ring between lcore and capturing tool.";
    CAPTURE_RING_USED_BYTES = Gauge "dpdk_capture_ring_used_bytes" ["app" "session" "lcore"]
        "Written and not yet read. Near the size: packets will be missing from the capture.";
    CAPTURE_ABANDONED_BYTES = Gauge "dpdk_capture_abandoned_bytes" ["app"]
        "Capture memory given up because a stuck lcore might still use it. Above 0: some lcore hung \
         while a capture ended.";
}
