/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REFLECT_H
#define REFLECT_H

/*
 * Swaps the addresses of a packet in place: MAC, IPv4 or IPv6, and UDP or TCP ports.
 *
 * Up to two VLAN tags are skipped. Ports are not changed in later fragments and after IPv6
 * extension headers. Swapping does not change an Internet checksum, so the sender can check it. A
 * checksum is computed only if the sender left that to hardware: an IPv4 header checksum of zero,
 * and a UDP or TCP checksum that the driver marks as not filled in (RTE_MBUF_F_RX_L4_CKSUM_NONE).
 */

#include <rte_ether.h>
#include <rte_mbuf.h>

enum reflect_kind {
	REFLECT_IP,    /* Turned round at every layer there is. */
	REFLECT_OTHER, /* Not IP, or cut short: MAC addresses only. */
	REFLECT_RUNT,  /* Shorter than an Ethernet header: not touched, not fit to be sent. */
};

/* own is the sender of the answer to a multicast frame, whose address cannot be a source. */
enum reflect_kind reflect_packet(struct rte_mbuf *m, const struct rte_ether_addr *own);

#endif /* REFLECT_H */
