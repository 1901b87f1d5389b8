//! Metrics of devices, ports and queues.

use super::metrics;

metrics! { PCI:
    PCI_DEVICE_INFO = Info "dpdk_pci_device_info" ["app" "bdf" "driver"]
        "A PCI device that the app's arguments name, and the kernel driver it is bound to; no driver: \
         it is bound to none, or the machine has no such device.";
    PCI_DEVICE_DRIVER_MISMATCH = Gauge "dpdk_pci_device_driver_mismatch" ["app" "bdf"]
        "1 when a device that the app's arguments name is no port of it, because it is bound to a driver \
         that DPDK cannot use, or to none: bind it with dpdk-devbind.py, then restart the app.";
}

metrics! { PORT:
    PORT_INFO = Info "dpdk_port_info" ["app" "port" "port_id" "numa_node" "mac"]
        "Identity of a port. Lcores on another NUMA node than numa_node pay for every packet; -1 is \
         unknown.";
    PORT_STARTED = Gauge "dpdk_port_started" ["app" "port"]
        "1 when the app has started the port; 0: it passes no packets, see the app's log.";
    PORT_LINK_UP = Gauge "dpdk_port_link_up" ["app" "port"]
        "1 when the link is up; 0: check cable, transceiver and the other side. Absent when the driver \
         does not tell.";
    PORT_LINK_SPEED = Gauge "dpdk_port_link_speed_bytes_per_second" ["app" "port"]
        "Link speed, in bytes. Divide the byte rates by it for utilisation; lower than expected: the \
         link was negotiated down. Absent when the link is down or the speed unknown.";
    PORT_PROMISCUOUS = Gauge "dpdk_port_promiscuous" ["app" "port"]
        "1 when the port accepts packets for any address; 0: packets for other addresses never arrive.";
    PORT_MTU = Gauge "dpdk_port_mtu_bytes" ["app" "port"]
        "Longest packet without Ethernet header; longer ones are receive errors on most NICs.";
    PORT_RECEIVE_QUEUES = Gauge "dpdk_port_receive_queues" ["app" "port"]
        "Configured receive queues.";
    PORT_TRANSMIT_QUEUES = Gauge "dpdk_port_transmit_queues" ["app" "port"]
        "Configured transmit queues.";
    PORT_RECEIVE_PACKETS = Counter "dpdk_port_receive_packets_total" ["app" "port"]
        "Packets received, as the driver counts them. Flat while the link is up: nothing is sent here, \
         or nobody polls the port.";
    PORT_TRANSMIT_PACKETS = Counter "dpdk_port_transmit_packets_total" ["app" "port"]
        "Packets sent, as the driver counts them.";
    PORT_RECEIVE_BYTES = Counter "dpdk_port_receive_bytes_total" ["app" "port"]
        "Bytes received, as the driver counts them. Absent for a driver that counts packets only.";
    PORT_TRANSMIT_BYTES = Counter "dpdk_port_transmit_bytes_total" ["app" "port"]
        "Bytes sent, as the driver counts them. Absent for a driver that counts packets only.";
    PORT_RECEIVE_MISSED_PACKETS = Counter "dpdk_port_receive_missed_packets_total" ["app" "port"]
        "Packets that the NIC dropped because no receive descriptor was free. The app polls too slowly \
         or too seldom: look at dpdk_lcore_stalls_total, then at queues and ring sizes. Not every driver \
         counts them.";
    PORT_RECEIVE_ERRORS = Counter "dpdk_port_receive_errors_total" ["app" "port"]
        "Packets received damaged, too long or otherwise wrong: look at cable, transceiver and MTU, and \
         at dpdk_port_xstat for the kind of error.";
    PORT_TRANSMIT_ERRORS = Counter "dpdk_port_transmit_errors_total" ["app" "port"]
        "Packets the NIC failed to send. A full transmit ring does not count here: the app sees it as a \
         short rte_eth_tx_burst().";
    PORT_RECEIVE_MBUF_ALLOCATION_FAILURES =
        Counter "dpdk_port_receive_mbuf_allocation_failures_total" ["app" "port"]
        "Times that the driver found no free mbuf to receive into: the pool is empty. Look at \
         dpdk_mempool_objects_in_use and dpdk_mbuf_leaked.";
    PORT_XSTAT = Unknown "dpdk_port_xstat" ["app" "port" "name"]
        "Extended counters of the driver, by its own names; those that the configuration allows, losses \
         and errors by default. Nearly all are counters: use rate().";
}

metrics! { QUEUE:
    QUEUE_RECEIVE_PACKETS = Counter "dpdk_queue_receive_packets_total" ["app" "port" "queue"]
        "Packets that the app took from this queue; of a stock app, as its driver counts them. One queue \
         far above the others: RSS does not spread this traffic.";
    QUEUE_RECEIVE_BYTES = Counter "dpdk_queue_receive_bytes_total" ["app" "port" "queue"]
        "Bytes of these packets, estimated by libpmdscope from one burst of each 16; of a stock app, as \
         its driver counts them.";
    QUEUE_RECEIVE_ERRORS = Counter "dpdk_queue_receive_errors_total" ["app" "port" "queue"]
        "Receive errors of this queue, where the driver counts them; on most, packets dropped for want \
         of descriptors or mbufs.";
    QUEUE_TRANSMIT_PACKETS = Counter "dpdk_queue_transmit_packets_total" ["app" "port" "queue"]
        "Packets that the app offered to this queue; of a stock app, sent packets as its driver counts \
         them.";
    QUEUE_TRANSMIT_BYTES = Counter "dpdk_queue_transmit_bytes_total" ["app" "port" "queue"]
        "Bytes of these packets, estimated by libpmdscope from one burst of each 16; of a stock app, as \
         its driver counts them.";
    QUEUE_POLLS = Counter "dpdk_queue_polls_total" ["app" "port" "queue"]
        "Receive bursts that the app asked of this queue; libpmdscope only. Flat: nobody polls it, and \
         what arrives is lost.";
    QUEUE_EMPTY_POLLS = Counter "dpdk_queue_empty_polls_total" ["app" "port" "queue"]
        "Of dpdk_queue_polls_total, those that brought no packet. Their share is the queue's headroom: \
         near 0, the app is saturated.";
    QUEUE_RECEIVE_DEPTH = Gauge "dpdk_queue_receive_depth_packets" ["app" "port" "queue"]
        "Packets waiting when a burst began, last sample; libpmdscope only. Absent when the driver \
         cannot tell. Near dpdk_queue_receive_descriptors: about to miss packets.";
    QUEUE_RECEIVE_DEPTH_WINDOW_MAX =
        Gauge "dpdk_queue_receive_depth_window_max_packets" ["app" "port" "queue"]
        "Most packets seen waiting in the last complete window of libpmdscope, however often it is \
         scraped. Near dpdk_queue_receive_descriptors: packets were or will be missed.";
    QUEUE_RECEIVE_DESCRIPTORS = Gauge "dpdk_queue_receive_descriptors" ["app" "port" "queue"]
        "Size of the receive ring; libpmdscope only. Absent when the driver does not tell.";
    QUEUE_RECEIVE_DEPTH_HISTOGRAM = Histogram "dpdk_queue_receive_depth" ["app" "port" "queue"]
        "Packets waiting when a burst began; only with queue_histograms. Empty polls all count, of others \
         every 64th or, when full, every 8th: compare buckets above 0 with each other only.";
    QUEUE_BURST_PACKETS = Histogram "dpdk_queue_burst_packets" ["app" "port" "queue"]
        "Packets per receive burst that brought any; only with queue_histograms. Full bursts: the queue \
         had more to give, so the app is behind.";
    QUEUE_STATS_TRUNCATED = Gauge "dpdk_queue_stats_truncated" ["app" "port"]
        "1 when counters of some queues of this port are missing, because the driver or DPDK's telemetry \
         told fewer than there are: sums over queues are too low; use the port's own counters.";
}
