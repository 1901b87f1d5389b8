//! Metrics of devices, ports and queues.

use super::metrics;

metrics! { PCI:
    PCI_DEVICE_INFO = Info "dpdk_pci_device_info" ["app" "bdf" "driver"]
        "A PCI device that the app's arguments name, and the kernel driver it is bound to; empty \
         driver: it is not bound, or the device does not exist.";
    PCI_DEVICE_DRIVER_MISMATCH = Gauge "dpdk_pci_device_driver_mismatch" ["app" "bdf"]
        "1 if a device that the app's arguments name is not a port of the app, because it is not \
         bound to a driver that DPDK can use: bind it with dpdk-devbind.py, then restart the app.";
}

metrics! { PORT:
    PORT_INFO = Info "dpdk_port_info" ["app" "port" "port_id" "numa_node" "mac"]
        "Identity of a port. Lcores on another NUMA node than numa_node have a higher cost per \
         packet; -1: unknown.";
    PORT_STARTED = Gauge "dpdk_port_started" ["app" "port"]
        "1 if the app has started the port; 0: it carries no packets, see the app's log.";
    PORT_LINK_UP = Gauge "dpdk_port_link_up" ["app" "port"]
        "1 if the link is up; 0: check cable, transceiver and the other side. Absent if the driver \
         does not report it.";
    PORT_LINK_SPEED = Gauge "dpdk_port_link_speed_bytes_per_second" ["app" "port"]
        "Link speed in bytes per second. Divide byte rates by it for utilisation. Lower than \
         expected: autonegotiation selected a lower speed. Absent if the link is down or the speed \
         is unknown.";
    PORT_PROMISCUOUS = Gauge "dpdk_port_promiscuous" ["app" "port"]
        "1 if the port accepts packets for any address; 0: packets for other addresses are not \
         received.";
    PORT_MTU = Gauge "dpdk_port_mtu_bytes" ["app" "port"]
        "Maximum packet length without Ethernet header; longer packets are receive errors on most \
         NICs.";
    PORT_RECEIVE_QUEUES = Gauge "dpdk_port_receive_queues" ["app" "port"]
        "Configured receive queues.";
    PORT_TRANSMIT_QUEUES = Gauge "dpdk_port_transmit_queues" ["app" "port"]
        "Configured transmit queues.";
    PORT_RECEIVE_PACKETS = Counter "dpdk_port_receive_packets_total" ["app" "port"]
        "Packets received, as counted by the driver. Flat while the link is up: no packets arrive, \
         or the port is not polled.";
    PORT_TRANSMIT_PACKETS = Counter "dpdk_port_transmit_packets_total" ["app" "port"]
        "Packets sent, as counted by the driver.";
    PORT_RECEIVE_BYTES = Counter "dpdk_port_receive_bytes_total" ["app" "port"]
        "Bytes received, as counted by the driver. Absent if the driver counts packets only.";
    PORT_TRANSMIT_BYTES = Counter "dpdk_port_transmit_bytes_total" ["app" "port"]
        "Bytes sent, as counted by the driver. Absent if the driver counts packets only.";
    PORT_RECEIVE_MISSED_PACKETS = Counter "dpdk_port_receive_missed_packets_total" ["app" "port"]
        "Packets that the NIC dropped because no receive descriptor was free. The app polls too \
         slowly or too rarely: see dpdk_lcore_stalls_total, then queues and ring sizes. Not every \
         driver counts them.";
    PORT_RECEIVE_ERRORS = Counter "dpdk_port_receive_errors_total" ["app" "port"]
        "Packets received with errors, such as corrupt or too long packets: check cable, \
         transceiver and MTU, and dpdk_port_xstat for the kind of error.";
    PORT_TRANSMIT_ERRORS = Counter "dpdk_port_transmit_errors_total" ["app" "port"]
        "Packets that the NIC failed to send. A full transmit ring is not an error: \
         rte_eth_tx_burst() then returns less.";
    PORT_RECEIVE_MBUF_ALLOCATION_FAILURES =
        Counter "dpdk_port_receive_mbuf_allocation_failures_total" ["app" "port"]
        "Number of times that the driver found no free mbuf for a packet: the pool is empty. See \
         dpdk_mempool_objects_in_use and dpdk_mbuf_leaked.";
    PORT_MISSED_CAUSE = Gauge "dpdk_port_missed_cause" ["app" "port" "cause"]
        "1 for each cause of the packets that the NIC misses, or missed up to 15 s ago; unknown: no \
         cause was found. All causes are present meanwhile, and absent otherwise. pmdscope check \
         shows numbers and shares.";
    PORT_DISCARDS = Counter "dpdk_port_discards_total" ["app" "port" "place" "reason"]
        "Packets that the NIC or its driver discarded, or that had errors, by place (wire, mac, nic: \
         before the queues; queue, driver, tx; unknown) and reason, such as buffer, crc or length; \
         unexplained: the name of a counter seems to count losses, but its meaning is not known. \
         Packets of the basic counters may be among them: do not add both.";
    PORT_MEMBER = Gauge "dpdk_port_member" ["app" "port" "of"]
        "1 for a port whose packets a bonding, failsafe or netvsc port (of) counts as well: leave it \
         out of sums by unless on (app, port).";
    PORT_XSTAT = Unknown "dpdk_port_xstat" ["app" "port" "name"]
        "Extended counters by the driver's names; those that the configuration selects, by default \
         losses and errors. Almost all are counters: use rate().";
}

metrics! { QUEUE:
    QUEUE_RECEIVE_PACKETS = Counter "dpdk_queue_receive_packets_total" ["app" "port" "queue"]
        "Packets that the app received from this queue; for a stock app, as counted by its driver. \
         One queue far above the others: RSS does not distribute this traffic.";
    QUEUE_RECEIVE_BYTES = Counter "dpdk_queue_receive_bytes_total" ["app" "port" "queue"]
        "Bytes of these packets, estimated by libpmdscope from one of 16 bursts; for a stock app, \
         as counted by its driver.";
    QUEUE_RECEIVE_ERRORS = Counter "dpdk_queue_receive_errors_total" ["app" "port" "queue"]
        "Receive errors of this queue, if the driver counts them; for most drivers, packets \
         dropped because no descriptor or mbuf was free.";
    QUEUE_TRANSMIT_PACKETS = Counter "dpdk_queue_transmit_packets_total" ["app" "port" "queue"]
        "Packets sent by this queue, as counted by the driver. Absent if the driver does not count \
         them by queue and the port has several transmit queues.";
    QUEUE_TRANSMIT_BYTES = Counter "dpdk_queue_transmit_bytes_total" ["app" "port" "queue"]
        "Bytes of these packets, as counted by the driver. Absent if the driver counts packets only.";
    QUEUE_TRANSMIT_OFFERED =
        Counter "dpdk_queue_transmit_offered_packets_total" ["app" "port" "queue"]
        "Packets that the app offered to this queue; libpmdscope only. A packet that was refused and \
         is offered again counts again.";
    QUEUE_TRANSMIT_REFUSED =
        Counter "dpdk_queue_transmit_refused_packets_total" ["app" "port" "queue"]
        "Packets that were offered to this queue and that the driver did not take, since the \
         exporter first queried the app; libpmdscope only. A packet that is offered again counts \
         again. Above 0, the app sends faster than the NIC: see dpdk_port_transmit_packets_total. \
         Differences of less than a tenth of a second of traffic are not counted. Absent where \
         dpdk_queue_transmit_packets_total is.";
    QUEUE_POLLS = Counter "dpdk_queue_polls_total" ["app" "port" "queue"]
        "Receive bursts that the app requested from this queue; libpmdscope only. Flat: it is not \
         polled, and its packets are lost.";
    QUEUE_EMPTY_POLLS = Counter "dpdk_queue_empty_polls_total" ["app" "port" "queue"]
        "Receive bursts without packets. Their share of dpdk_queue_polls_total is the headroom of \
         the queue: near 0, the app is saturated.";
    QUEUE_RECEIVE_DEPTH = Gauge "dpdk_queue_receive_depth_packets" ["app" "port" "queue"]
        "Packets waiting at the start of a burst, last sample; libpmdscope only. Absent if the \
         driver does not report it. Near dpdk_queue_receive_descriptors, packets will be missed \
         soon.";
    QUEUE_RECEIVE_DEPTH_WINDOW_MAX =
        Gauge "dpdk_queue_receive_depth_window_max_packets" ["app" "port" "queue"]
        "Maximum of packets waiting in the last complete window of libpmdscope, independent of the \
         scrape interval. Near dpdk_queue_receive_descriptors, packets were or will be missed.";
    QUEUE_RECEIVE_DESCRIPTORS = Gauge "dpdk_queue_receive_descriptors" ["app" "port" "queue"]
        "Size of the receive ring. Absent if the driver does not report it; without libpmdscope known \
         only from DPDK 23.07 on, of apps with no other ports than Intel NICs.";
    QUEUE_RECEIVE_DEPTH_HISTOGRAM = Histogram "dpdk_queue_receive_depth" ["app" "port" "queue"]
        "Packets waiting at the start of a burst; only with queue_histograms. All empty polls are \
         counted; of the others, one in 64, and one in 16 full bursts. Compare only buckets above \
         0 with each other.";
    QUEUE_BURST_PACKETS = Histogram "dpdk_queue_burst_packets" ["app" "port" "queue"]
        "Packets per non-empty receive burst; only with queue_histograms. If bursts are full, more \
         packets were waiting, and the app is behind.";
    QUEUE_STATS_TRUNCATED = Gauge "dpdk_queue_stats_truncated" ["app" "port"]
        "1 if counters of some queues of this port are missing, because the driver or DPDK's \
         telemetry does not report all of them: sums over queues are too low; use the port \
         counters.";
}
