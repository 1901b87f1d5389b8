/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "check.h"
#include "corrupt.h"
#include "packet.h"
#include "probe.h"

#define IPV4_UDP (sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr))

static struct packet packet;

static struct rte_mbuf *
make(bool ipv6, uint16_t size)
{
	const struct probe_path path = { .ipv6 = ipv6, .src_ip = { 10 }, .dst_ip = { 11 } };
	const struct probe probe = { .run = 3, .seq = 77, .tsc = 123456789 };
	struct probe_template template;

	probe_template(&template, &path);
	probe_write(&template, packet_reset(&packet, 0), size, 5, &probe);
	return &packet.m;
}

/* Exactly one bit differs: the lowest of the byte at an offset. */
static void
check_flipped(struct rte_mbuf *m, uint16_t size, uint32_t at)
{
	uint8_t before[PACKET_ROOM];
	uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);

	memcpy(before, data, size);
	CHECK(corrupt_packet(m));
	before[at] ^= 1;
	CHECK(memcmp(before, data, size) == 0);
	packet_check_guards(&packet);
}

static void
test_udp(void)
{
	check_flipped(make(false, 200), 200, 199);
	check_flipped(make(true, 201), 201, 200);
}

/* The padding of a short frame is not payload. */
static void
test_padding(void)
{
	struct rte_mbuf *m = make(false, 200);
	struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(
			m, struct rte_ipv4_hdr *, sizeof(struct rte_ether_hdr));

	ip->total_length = rte_cpu_to_be_16(28 + 10);
	check_flipped(m, 200, IPV4_UDP + 8 + 10 - 1);
	ip->total_length = rte_cpu_to_be_16(28);
	CHECK(!corrupt_packet(m));
	ip->total_length = rte_cpu_to_be_16(201);
	CHECK(!corrupt_packet(m));
}

static void
test_segments(void)
{
	static struct packet tail;
	struct rte_mbuf *m = make(false, 200);

	packet_reset(&tail, 50);
	m->data_len = 150;
	m->next = &tail.m;
	m->nb_segs = 2;
	CHECK(corrupt_packet(m));
	CHECK_EQ(rte_pktmbuf_mtod(&tail.m, uint8_t *)[49], PACKET_GUARD ^ 1);
	m->next = NULL;
	CHECK(!corrupt_packet(m));
}

static void
test_no_payload(void)
{
	struct rte_mbuf *m = make(false, 200);
	struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	uint16_t size;

	for (size = 0; size < 200; size++) {
		m->data_len = m->pkt_len = size;
		CHECK(!corrupt_packet(m));
	}
	m->data_len = m->pkt_len = 200;
	eth->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP);
	CHECK(!corrupt_packet(m));
}

int
main(void)
{
	test_udp();
	test_padding();
	test_segments();
	test_no_payload();
	return 0;
}
