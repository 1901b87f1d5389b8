/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdbool.h>

#include <rte_tcp.h>
#include <rte_udp.h>

#include "check.h"
#include "packet.h"
#include "probe.h"
#include "reflect.h"

#define IPV4_UDP (sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr))

static const struct rte_ether_addr own = { .addr_bytes = { 2, 0, 0, 0, 0, 9 } };
static const struct probe_path v4 = {
	.src_mac = { .addr_bytes = { 2, 0, 0, 0, 0, 1 } },
	.dst_mac = { .addr_bytes = { 2, 0, 0, 0, 0, 2 } },
	.src_ip = { 198, 18, 0, 1 },
	.dst_ip = { 198, 19, 0, 1 },
};
static struct packet packet;

static struct rte_mbuf *
make(const struct probe_path *path)
{
	const struct probe probe = { .run = 3, .seq = 77, .tsc = 123456789 };
	struct probe_template template;

	probe_template(&template, path);
	probe_write(&template, packet_reset(&packet, 0), 200, 5, &probe);
	return &packet.m;
}

static struct rte_ipv4_hdr *
ipv4_of(struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, sizeof(struct rte_ether_hdr));
}

static struct rte_udp_hdr *
udp_of(struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod_offset(m, struct rte_udp_hdr *, IPV4_UDP);
}

static void
test_ipv4(void)
{
	struct rte_mbuf *m = make(&v4);
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	CHECK_EQ(reflect_packet(m, &own), REFLECT_IP);
	CHECK(rte_is_same_ether_addr(&eth->src_addr, &v4.dst_mac));
	CHECK(rte_is_same_ether_addr(&eth->dst_addr, &v4.src_mac));
	CHECK(memcmp(&ipv4_of(m)->src_addr, v4.dst_ip, 4) == 0);
	CHECK(memcmp(&ipv4_of(m)->dst_addr, v4.src_ip, 4) == 0);
	CHECK_EQ(rte_be_to_cpu_16(udp_of(m)->src_port), PROBE_DST_PORT);
	CHECK_EQ(rte_be_to_cpu_16(udp_of(m)->dst_port), PROBE_SRC_PORT + 5);
	packet_check_checksums(m, 0);
}

static void
test_ipv6(void)
{
	struct probe_path v6 = v4;
	const uint8_t *ip;
	struct rte_mbuf *m;

	v6.ipv6 = true;
	v6.src_ip[15] = 1;
	m = make(&v6);
	ip = rte_pktmbuf_mtod_offset(m, const uint8_t *, sizeof(struct rte_ether_hdr));
	CHECK_EQ(reflect_packet(m, &own), REFLECT_IP);
	CHECK(memcmp(ip + 8, v6.dst_ip, 16) == 0);
	CHECK(memcmp(ip + 24, v6.src_ip, 16) == 0);
	packet_check_checksums(m, 1);
}

/* Checksums left to hardware are filled in; wrong ones stay wrong. */
static void
test_checksums(void)
{
	struct rte_mbuf *m = make(&v4);

	ipv4_of(m)->hdr_checksum = 0;
	udp_of(m)->dgram_cksum = 0x1234; /* As from a guest: not the final sum. */
	m->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_NONE;
	reflect_packet(m, &own);
	packet_check_checksums(m, 0);

	m = make(&v4);
	ipv4_of(m)->hdr_checksum ^= 1;
	udp_of(m)->dgram_cksum ^= 1;
	reflect_packet(m, &own);
	CHECK(rte_ipv4_udptcp_cksum_verify(ipv4_of(m), udp_of(m)) != 0);
}

/* The same IP packet with two tags gives the same result. */
static void
test_vlan(void)
{
	struct rte_mbuf *m = make(&v4);
	const uint8_t tags[] = { 0x88, 0xa8, 0, 1, 0x81, 0, 0, 2 };
	uint8_t plain[200], *data;

	reflect_packet(m, &own);
	memcpy(plain, rte_pktmbuf_mtod(m, void *), sizeof(plain));

	m = make(&v4);
	data = rte_pktmbuf_mtod(m, uint8_t *);
	memmove(data + 12 + sizeof(tags), data + 12, 200 - 12);
	memcpy(data + 12, tags, sizeof(tags));
	m->data_len = m->pkt_len = 200 + sizeof(tags);
	CHECK_EQ(reflect_packet(m, &own), REFLECT_IP);
	CHECK(memcmp(data + 12 + sizeof(tags), plain + 12, 200 - 12) == 0);
}

static void
test_fragment(void)
{
	struct rte_mbuf *m = make(&v4);
	const rte_be16_t port = udp_of(m)->src_port;

	ipv4_of(m)->fragment_offset = rte_cpu_to_be_16(100);
	CHECK_EQ(reflect_packet(m, &own), REFLECT_IP);
	CHECK_EQ(udp_of(m)->src_port, port);
}

static void
test_not_ip(void)
{
	struct rte_mbuf *m = make(&v4);
	struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	uint8_t before[200];

	eth->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP);
	memset(&eth->dst_addr, 0xff, sizeof(eth->dst_addr));
	memcpy(before, eth, sizeof(before));
	CHECK_EQ(reflect_packet(m, &own), REFLECT_OTHER);
	CHECK(rte_is_same_ether_addr(&eth->src_addr, &own));
	CHECK(rte_is_same_ether_addr(&eth->dst_addr, &v4.src_mac));
	CHECK(memcmp((uint8_t *)eth + 12, before + 12, sizeof(before) - 12) == 0);

	m->data_len = m->pkt_len = 13;
	CHECK_EQ(reflect_packet(m, &own), REFLECT_RUNT);
}

/*
 * Half-random headers of any length: swapping twice restores the packet, and nothing else is
 * changed.
 */
static void
test_outside_bytes(void)
{
	static const uint8_t types[][2] = { { 8, 0 }, { 0x86, 0xdd }, { 0x81, 0 }, { 0x88, 0xa8 },
		{ 8, 6 } };
	uint8_t before[PACKET_ROOM];
	uint64_t random = 23;
	unsigned int round, i;

	for (round = 0; round < 200000; round++) {
		struct rte_mbuf *m = packet_reset(&packet, (uint16_t)(check_random(&random) % 120));
		uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);
		const uint64_t pick = check_random(&random);

		for (i = 0; i < m->data_len; i++)
			data[i] = (uint8_t)check_random(&random);
		if (m->data_len > 26) {
			memcpy(data + 12, types[pick % 5], 2);
			memcpy(data + 16, types[pick / 5 % 5], 2);
			data[0] &= 0xfe;
			data[6] &= 0xfe;
			data[14] = pick / 32 % 2 ? 0x45 : 0x60;
			data[23] = pick / 64 % 2 ? 17 : 6;
			/* A checksum of zero would be filled in, and would then remain. */
			data[24] |= 1;
			data[28 % m->data_len] |= 1;
		}
		memcpy(before, data, m->data_len);
		if (reflect_packet(m, &own) == REFLECT_RUNT)
			continue;
		packet_check_guards(&packet);
		reflect_packet(m, &own);
		CHECK((before[0] & 1) != 0 || (before[6] & 1) != 0 ||
				memcmp(before, data, m->data_len) == 0);

		m->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_NONE;
		reflect_packet(m, &own);
		packet_check_guards(&packet);
	}
}

/*
 * Packets that the fast function handles get the same result as from the slow one; others are
 * unchanged.
 */
static void
test_plain(void)
{
	static struct packet other;
	uint64_t random = 31;
	unsigned int round, i, taken = 0, left = 0;

	CHECK(reflect_plain(make(&v4)));
	for (round = 0; round < 200000; round++) {
		struct rte_mbuf *m = make(&v4);
		uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);

		/*
		 * A few bytes of the headers, the length, and the driver's flag for the checksum.
		 */
		for (i = check_random(&random) % 3; i > 0; i--)
			data[check_random(&random) % 44] = (uint8_t)check_random(&random);
		if (check_random(&random) % 4 == 0)
			m->data_len = m->pkt_len = (uint16_t)(check_random(&random) % 60);
		if (check_random(&random) % 8 == 0)
			m->ol_flags = check_random(&random) & RTE_MBUF_F_RX_L4_CKSUM_MASK;
		if (check_random(&random) % 8 == 0)
			ipv4_of(m)->hdr_checksum = 0;
		other = packet;
		other.m.buf_addr = other.room;
		if (reflect_plain(m)) {
			CHECK_EQ(reflect_packet(&other.m, &own), REFLECT_IP);
			taken++;
		} else {
			left++;
		}
		CHECK(memcmp(packet.room, other.room, sizeof(packet.room)) == 0);
	}
	CHECK(taken > round / 4 && left > round / 8);
}

int
main(void)
{
	test_plain();
	test_ipv4();
	test_ipv6();
	test_checksums();
	test_vlan();
	test_fragment();
	test_not_ip();
	test_outside_bytes();
	return 0;
}
