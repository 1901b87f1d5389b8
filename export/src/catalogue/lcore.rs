//! Metrics of lcores, of time stolen from them, and of captures, which run on them.

use super::metrics;

metrics! { LCORE:
    LCORE_INFO = Info "dpdk_lcore_info" ["app" "lcore" "role" "cpus" "tid"]
        "CPUs on which the thread of an lcore may run. Two lcores on one CPU, or a CPU shared with \
         other threads, lose packets; see dpdk_lcore_involuntary_context_switches_total.";
    LCORE_BUSY_CYCLES = Counter "dpdk_lcore_busy_cycles_total" ["app" "lcore"]
        "Busy cycles, as reported by the app (rte_lcore_register_usage_cb()); DPDK 23.03. Divide \
         its rate by that of dpdk_lcore_cycles_total for utilisation.";
    LCORE_CYCLES = Counter "dpdk_lcore_cycles_total" ["app" "lcore"]
        "All cycles, as reported by the app; DPDK 23.03.";
    LCORE_POLLS = Counter "dpdk_lcore_polls_total" ["app" "lcore"]
        "Iterations of the poll loop; libpmdscope only. Flat: the loop has ended or is blocked.";
    LCORE_BUSY_POLLS = Counter "dpdk_lcore_busy_polls_total" ["app" "lcore"]
        "Iterations of the poll loop that received packets. Near dpdk_lcore_polls_total, the lcore \
         is saturated.";
    LCORE_PACKETS = Counter "dpdk_lcore_packets_total" ["app" "lcore"]
        "Packets received by the lcore; libpmdscope only. An lcore far above the others does most \
         of the work.";
    LCORE_POLL_GAP = Histogram "dpdk_lcore_poll_gap_seconds" ["app" "lcore"]
        "Time between two iterations of the poll loop; libpmdscope only. A receive ring overflows \
         in a gap longer than its descriptors divided by the packet rate. There is no sum.";
    LCORE_POLL_GAP_WINDOW_MAX = Gauge "dpdk_lcore_poll_gap_window_max_seconds" ["app" "lcore"]
        "Longest gap between two iterations in the last complete window of libpmdscope, so gaps \
         between scrapes are included.";
    LCORE_STALLS = Counter "dpdk_lcore_stalls_total" ["app" "lcore"]
        "Gaps between two iterations above the stall threshold; libpmdscope only. If involuntary \
         context switches rise as well, something else ran on the CPU; otherwise the app itself \
         took long.";
    LCORE_LAST_POLL = Gauge "dpdk_lcore_last_poll_timestamp_seconds" ["app" "lcore"]
        "Time of the last poll; libpmdscope only. More than a second ago: the loop has ended or is \
         blocked.";
    LCORE_VOLUNTARY_CONTEXT_SWITCHES =
        Counter "dpdk_lcore_voluntary_context_switches_total" ["app" "lcore"]
        "Number of times that the thread gave up its CPU: it slept or waited for a lock, which a \
         poll loop should not do.";
    LCORE_INVOLUNTARY_CONTEXT_SWITCHES =
        Counter "dpdk_lcore_involuntary_context_switches_total" ["app" "lcore"]
        "Number of times that the thread lost its CPU: each is a gap in polling. Isolate the CPU \
         (isolcpus, cpusets), and move interrupts and control threads to other CPUs.";
}

metrics! { STOLEN:
    LCORE_STOLEN_TIME = Counter "dpdk_lcore_stolen_seconds_total" ["app" "lcore" "cause"]
        "Time in which something else had the CPU of a polling lcore, by cause, since tracing began; \
         with --interrupts only. sleep: the thread itself slept or waited. Absent for causes whose \
         times are not known: see dpdk_lcore_stolen_events_total. pmdscope interrupts names the \
         thieves.";
    LCORE_STOLEN_EVENTS = Counter "dpdk_lcore_stolen_events_total" ["app" "lcore" "cause"]
        "Number of times that something else took the CPU of a polling lcore, by cause, since tracing \
         began; with --interrupts only. Each is a gap in polling. Absent before the first.";
    LCORE_STOLEN_LONGEST = Gauge "dpdk_lcore_stolen_longest_seconds" ["app" "lcore" "cause"]
        "Longest time for which something else had the CPU at a stretch, since tracing began. A \
         receive ring overflows in a time longer than its descriptors divided by the packet rate. \
         Absent for causes whose times are not known.";
    LCORE_TRACING_LOST_EVENTS = Counter "dpdk_lcore_tracing_lost_events_total" ["app"]
        "Events that the tracer lost. If it increases, dpdk_lcore_stolen_seconds_total is too low.";
    LCORE_TRACING_OVERHEAD = Counter "dpdk_lcore_tracing_overhead_seconds_total" ["app"]
        "Estimated time that tracing itself took from the lcores of the app.";
    LCORE_TRACING_INFO = Info "dpdk_lcore_tracing_info" ["app" "method" "missing"]
        "How stolen time is traced. bpf: each event with its time; proc: counters in /proc, which \
         have the times of the scheduler only. missing: what is not traced, and why. Absent: the \
         exporter runs without --interrupts.";
}

metrics! { CAPTURE:
    CAPTURE_SESSIONS = Gauge "dpdk_capture_sessions" ["app"]
        "Open captures. Each costs the lcores some cycles per packet.";
    CAPTURE_PACKETS = Counter "dpdk_capture_packets_total" ["app" "session" "lcore"]
        "Packets that the lcore wrote to a capture.";
    CAPTURE_DROPPED_PACKETS = Counter "dpdk_capture_dropped_packets_total" ["app" "session" "lcore"]
        "Packets missing from a capture because its ring was full; the app lost none. Use a more \
         selective filter, or capture less of each packet.";
    CAPTURE_FILTERED_PACKETS = Counter "dpdk_capture_filtered_packets_total" ["app" "session" "lcore"]
        "Packets that did not match the filter of the capture.";
    CAPTURE_RING_BYTES = Gauge "dpdk_capture_ring_bytes" ["app" "session" "lcore"]
        "Size of the ring between lcore and capturing tool.";
    CAPTURE_RING_USED_BYTES = Gauge "dpdk_capture_ring_used_bytes" ["app" "session" "lcore"]
        "Bytes written and not yet read. Near the ring size, the capture will lose packets.";
    CAPTURE_ABANDONED_BYTES = Gauge "dpdk_capture_abandoned_bytes" ["app"]
        "Capture memory that is not freed because a stuck lcore might still use it. Above 0, an \
         lcore hung while a capture ended.";
}
