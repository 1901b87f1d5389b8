//! Metrics of interfaces of the kernel.

use super::metrics;

metrics! { INTERFACE:
    INTERFACES_READABLE = Gauge "dpdk_interfaces_readable" []
        "1 if the interfaces of the kernel that have an XDP filter of pmdscope, or a queue that \
         bypasses the kernel, could be read in this scrape. 0: their other metrics are absent; \
         pmdscope check says why. Absent if there is no such interface.";
    INTERFACE_INFO = Info "dpdk_interface_info" ["interface" "driver" "filter_mode"]
        "Driver of an interface, and where its filter runs: native (in the driver), generic (in \
         the network stack), or empty without a filter.";
    INTERFACE_UNHEALTHY_REASON = Gauge "dpdk_interface_unhealthy_reason" ["interface" "reason"]
        "1 for each finding of severity warning or critical about the interface. pmdscope check \
         shows numbers, top sources and advice.";
    INTERFACE_RECEIVE_PACKETS = Counter "dpdk_interface_receive_packets_total" ["interface"]
        "Packets that the kernel counts as received, regardless of their fate: includes those that \
         the filter dropped after the driver counted them, and, for most drivers, those that \
         bypass the kernel.";
    INTERFACE_RECEIVE_DROPPED = Counter "dpdk_interface_receive_dropped_packets_total" ["interface"]
        "Received packets that the kernel dropped before any socket saw them.";
    INTERFACE_TRANSMIT_PACKETS = Counter "dpdk_interface_transmit_packets_total" ["interface"]
        "Packets that the interface sent.";
    INTERFACE_QUEUE_RECEIVE_PACKETS = Counter
        "dpdk_interface_queue_receive_packets_total" ["interface" "queue"]
        "Packets that the driver received in the queue, before any XDP program: includes those \
         that it dropped or redirected. Absent if the driver does not count.";
    INTERFACE_QUEUE_RECEIVE_DROPPED = Counter
        "dpdk_interface_queue_receive_dropped_packets_total" ["interface" "queue"]
        "Packets of the queue that were lost for lack of buffers or space in a ring.";
    INTERFACE_QUEUE_REDIRECTED = Counter
        "dpdk_interface_queue_redirected_packets_total" ["interface" "queue"]
        "Packets of the queue that an XDP program redirected to an AF_XDP socket or another \
         interface: a part of dpdk_interface_queue_receive_packets_total. Those that the app took \
         are dpdk_port_receive_packets_total of its port.";
    INTERFACE_BYPASS_INFO = Info "dpdk_interface_bypass_info"
        ["interface" "queue" "app" "port" "flows"]
        "The queue that bypasses the kernel, and the app and port that poll it; app and port are \
         empty while none does, or it does not answer. Joins dpdk_interface_queue_receive_packets_total to \
         dpdk_port_receive_packets_total.";
    XDP_FILTER_PACKETS = Counter "dpdk_xdp_filter_packets_total" ["interface" "reason"]
        "Packets that arrived at the filter, by what became of them: passed, or dropped for a \
         reason (malformed, not_ip, fragment, denied, rate_limit, syn_flood). Their sum is all \
         that arrived. Starts at 0 when the filter is attached.";
    XDP_FILTER_BYTES = Counter "dpdk_xdp_filter_bytes_total" ["interface" "reason"]
        "Bytes of these packets, Ethernet header included.";
    XDP_FILTER_UNCOUNTED = Counter "dpdk_xdp_filter_uncounted_packets_total" ["interface"]
        "Dropped packets whose source could not be counted because the table of sources was full. \
         Above 0, the top sources of pmdscope check may miss some.";
}
