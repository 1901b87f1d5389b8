/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PACKET_H
#define PACKET_H

/* Packets for unit tests: an mbuf without a pool, with guard bytes round its data. */

#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "check.h"

#define PACKET_ROOM 2048
#define PACKET_GUARD 0xa5

struct packet {
	struct rte_mbuf m;
	uint8_t room[PACKET_ROOM];
};

/* An mbuf with this many bytes of data. */
static inline struct rte_mbuf *
packet_reset(struct packet *packet, uint16_t size)
{
	memset(packet, 0, sizeof(*packet));
	memset(packet->room, PACKET_GUARD, sizeof(packet->room));
	packet->m.buf_addr = packet->room;
	packet->m.buf_len = sizeof(packet->room);
	packet->m.data_off = RTE_PKTMBUF_HEADROOM;
	packet->m.nb_segs = 1;
	packet->m.data_len = size;
	packet->m.pkt_len = size;
	return &packet->m;
}

/* Check that nothing outside of the data was written. */
static inline void
packet_check_guards(const struct packet *packet)
{
	const uint32_t from = packet->m.data_off, to = from + packet->m.data_len;
	uint32_t i;

	for (i = 0; i < PACKET_ROOM; i++)
		if (i < from || i >= to)
			CHECK_EQ(packet->room[i], PACKET_GUARD);
}

/* Check the checksums of an untagged IP packet with DPDK's own functions. */
static inline void
packet_check_checksums(const struct rte_mbuf *m, int ipv6)
{
	const uint8_t *l3 =
			rte_pktmbuf_mtod_offset(m, const uint8_t *, sizeof(struct rte_ether_hdr));
	struct rte_ipv4_hdr v4;

	if (ipv6) {
		CHECK_EQ(rte_ipv6_udptcp_cksum_verify((const struct rte_ipv6_hdr *)l3,
					 l3 + sizeof(struct rte_ipv6_hdr)),
				0);
		return;
	}
	memcpy(&v4, l3, sizeof(v4));
	v4.hdr_checksum = 0;
	CHECK_EQ(rte_ipv4_cksum(&v4), ((const struct rte_ipv4_hdr *)l3)->hdr_checksum);
	CHECK_EQ(rte_ipv4_udptcp_cksum_verify((const struct rte_ipv4_hdr *)l3, l3 + sizeof(v4)), 0);
}

#endif /* PACKET_H */
