/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_ip.h>

#include "answer.h"
#include "check.h"
#include "packet.h"

#define ETH 14
#define V4 20
#define V6 40

static const struct rte_ether_addr own = { .addr_bytes = { 2, 0, 0, 0, 0, 9 } };
static const uint8_t asker[6] = { 2, 0, 0, 0, 0, 1 };
static struct answer_addresses addresses;
static struct packet packet;

static void
add(const char *text)
{
	CHECK(answer_parse(text, &addresses.address[addresses.nb]));
	addresses.nb++;
}

static uint8_t *
start(uint16_t size, uint16_t type)
{
	uint8_t *data;

	packet_reset(&packet, size);
	data = rte_pktmbuf_mtod(&packet.m, uint8_t *);
	memset(data, 0, size);
	memcpy(data, own.addr_bytes, 6);
	memcpy(data + 6, asker, 6);
	data[12] = (uint8_t)(type >> 8);
	data[13] = (uint8_t)type;
	return data;
}

static enum answer_kind
answer(void)
{
	const uint16_t before = packet.m.data_len;
	const enum answer_kind kind = answer_packet(&packet.m, &own, &addresses);
	const uint16_t after = packet.m.data_len;

	/* An answer may be shorter than the request. */
	packet.m.data_len = RTE_MAX(before, after);
	packet_check_guards(&packet);
	packet.m.data_len = after;
	return kind;
}

static void
check_to_asker(const uint8_t *data)
{
	CHECK(memcmp(data, asker, 6) == 0);
	CHECK(memcmp(data + 6, own.addr_bytes, 6) == 0);
}

static void
test_parse(void)
{
	static const char *const bad[] = { "", "/", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/8x",
		"10.0.0.1/-1", "10.0.0", "fd00::1/129", "fd00::g", "10.0.0.1/1/2",
		"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc" };
	struct answer_address a;
	unsigned int i;

	for (i = 0; i < RTE_DIM(bad); i++)
		CHECK(!answer_parse(bad[i], &a));
	CHECK(answer_parse("10.0.0.1", &a) && !a.ipv6 && a.bits == 32 && a.ip[3] == 1);
	CHECK(answer_parse("10.0.0.1/0", &a) && a.bits == 0);
	CHECK(answer_parse("fd00::1/64", &a) && a.ipv6 && a.bits == 64 && a.ip[15] == 1);
}

/* Who has 10.1.x.y, tell 10.1.0.200. */
static uint8_t *
make_arp(uint8_t x, uint8_t y)
{
	static const uint8_t head[] = { 0, 1, 8, 0, 6, 4, 0, 1 };
	uint8_t *data = start(60, RTE_ETHER_TYPE_ARP), *arp = data + ETH;

	memset(data, 0xff, 6);
	memcpy(arp, head, sizeof(head));
	memcpy(arp + 8, asker, 6);
	memcpy(arp + 14, ((uint8_t[]){ 10, 1, 0, 200 }), 4);
	memcpy(arp + 24, ((uint8_t[]){ 10, 1, x, y }), 4);
	return data;
}

static void
test_arp(void)
{
	uint8_t *arp, *data = make_arp(0, 1);

	CHECK_EQ(answer(), ANSWER_ARP);
	arp = data + ETH;
	check_to_asker(data);
	CHECK_EQ(arp[7], 2);
	CHECK(memcmp(arp + 8, own.addr_bytes, 6) == 0);
	CHECK(memcmp(arp + 14, ((uint8_t[]){ 10, 1, 0, 1 }), 4) == 0);
	CHECK(memcmp(arp + 18, asker, 6) == 0);
	CHECK(memcmp(arp + 24, ((uint8_t[]){ 10, 1, 0, 200 }), 4) == 0);

	/* A reply, a foreign address, an announcement. */
	make_arp(0, 1)[ETH + 7] = 2;
	CHECK_EQ(answer(), ANSWER_IGNORED);
	make_arp(2, 1);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	make_arp(0, 200);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	/*
	 * An address of the prefix 10.1.3.0/25, and the one after it; a probe for it must not be
	 * answered.
	 */
	make_arp(3, 127);
	CHECK_EQ(answer(), ANSWER_ARP);
	make_arp(3, 128);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	memset(make_arp(3, 127) + ETH + 14, 0, 4);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	memset(make_arp(0, 1) + ETH + 14, 0, 4);
	CHECK_EQ(answer(), ANSWER_ARP);
}

static uint16_t
raw_sum(const void *data, size_t size)
{
	return (uint16_t)~rte_raw_cksum(data, size);
}

/* An echo request of this many ICMP bytes to 10.1.0.1, with correct checksums. */
static uint8_t *
make_echo(uint16_t size)
{
	uint8_t *data = start(ETH + V4 + size, RTE_ETHER_TYPE_IPV4);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(data + ETH);
	uint16_t sum, i;

	ip->version_ihl = RTE_IPV4_VHL_DEF;
	ip->total_length = rte_cpu_to_be_16(V4 + size);
	ip->time_to_live = 3;
	ip->next_proto_id = 1;
	ip->src_addr = rte_cpu_to_be_32(RTE_IPV4(10, 1, 0, 200));
	ip->dst_addr = rte_cpu_to_be_32(RTE_IPV4(10, 1, 0, 1));
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	for (i = 0; i < size; i++)
		data[ETH + V4 + i] = (uint8_t)(i * 7);
	memcpy(data + ETH + V4, ((uint8_t[]){ 8, 0, 0, 0 }), 4);
	sum = raw_sum(data + ETH + V4, size);
	memcpy(data + ETH + V4 + 2, &sum, 2);
	return data;
}

static struct rte_ipv4_hdr *
ipv4_of(uint8_t *data)
{
	return (struct rte_ipv4_hdr *)(data + ETH);
}

static void
test_echo(void)
{
	uint16_t size;

	for (size = 8; size < 100; size++) {
		uint8_t *data = make_echo(size);

		CHECK_EQ(answer(), ANSWER_ECHO);
		check_to_asker(data);
		CHECK_EQ(data[ETH + V4], 0);
		CHECK_EQ(rte_raw_cksum(data + ETH + V4, size), 0xffff);
		CHECK_EQ(rte_raw_cksum(data + ETH, V4), 0xffff);
		CHECK_EQ(ipv4_of(data)->time_to_live, 64);
		CHECK_EQ(ipv4_of(data)->dst_addr, rte_cpu_to_be_32(RTE_IPV4(10, 1, 0, 200)));
	}
}

/* A wrong checksum stays wrong, so that the requester detects it. */
static void
test_wrong_echo_stays_wrong(void)
{
	uint8_t *data = make_echo(64);

	data[ETH + V4 + 40] ^= 1;
	CHECK_EQ(answer(), ANSWER_ECHO);
	CHECK(rte_raw_cksum(data + ETH + V4, 64) != 0xffff);
}

/* Packets that a host does not answer. */
static void
test_ignored_echo(void)
{
	make_echo(64)[0] |= 1; /* Broadcast. */
	CHECK_EQ(answer(), ANSWER_IGNORED);
	make_echo(64)[ETH + V4] = 0; /* A reply. */
	CHECK_EQ(answer(), ANSWER_IGNORED);
	ipv4_of(make_echo(64))->src_addr = 0;
	CHECK_EQ(answer(), ANSWER_IGNORED);
	ipv4_of(make_echo(64))->src_addr = 0xffffffff;
	CHECK_EQ(answer(), ANSWER_IGNORED);
	ipv4_of(make_echo(64))->dst_addr ^= rte_cpu_to_be_32(2);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	ipv4_of(make_echo(64))->total_length = rte_cpu_to_be_16(V4 + 65); /* Cut short. */
	CHECK_EQ(answer(), ANSWER_IGNORED);
	ipv4_of(make_echo(64))->next_proto_id = 17; /* Other traffic is reflected. */
	CHECK_EQ(answer(), ANSWER_NONE);
}

/* Only the first fragment of a request has a type. */
static void
test_fragments(void)
{
	uint8_t *data = make_echo(64);

	ipv4_of(data)->fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG);
	CHECK_EQ(answer(), ANSWER_ECHO);
	CHECK_EQ(data[ETH + V4], 0);
	data = make_echo(64);
	ipv4_of(data)->fragment_offset = rte_cpu_to_be_16(185);
	CHECK_EQ(answer(), ANSWER_ECHO);
	CHECK_EQ(data[ETH + V4], 8);
}

static const uint8_t v6_asker[16] = { 0xfd, [15] = 200 };
static const uint8_t v6_own[16] = { 0xfd, [15] = 1 };

static uint16_t
sum6(const uint8_t *data, uint16_t size)
{
	uint32_t sum = rte_ipv6_phdr_cksum((const struct rte_ipv6_hdr *)(data + ETH), 0);

	sum += rte_raw_cksum(data + ETH + V6, size);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* An ICMPv6 message of this many bytes to us, without its checksum. */
static uint8_t *
make_icmp6(uint8_t type, uint16_t size)
{
	uint8_t *data = start(ETH + V6 + size, RTE_ETHER_TYPE_IPV6), *ip = data + ETH;

	ip[0] = 0x60;
	ip[4] = (uint8_t)(size >> 8);
	ip[5] = (uint8_t)size;
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, v6_asker, 16);
	memcpy(ip + 24, v6_own, 16);
	ip[V6] = type;
	return data;
}

static void
finish(uint8_t *data)
{
	const uint16_t size = (uint16_t)(data[ETH + 4] << 8 | data[ETH + 5]);
	const uint16_t sum = (uint16_t)~sum6(data, size);

	memcpy(data + ETH + V6 + 2, &sum, 2);
}

static uint8_t *
make_solicitation(uint16_t size, const uint8_t *target)
{
	static const uint8_t group[16] = { 0xff, 2, [11] = 1, 0xff, 0, 0, 1 };
	uint8_t *data = make_icmp6(135, size);

	memcpy(data, ((uint8_t[]){ 0x33, 0x33, 0xff, 0, 0, 1 }), 6);
	memcpy(data + ETH + 24, group, 16);
	memcpy(data + ETH + V6 + 8, target, 16);
	if (size > 24)
		memcpy(data + ETH + V6 + 24, ((uint8_t[]){ 1, (uint8_t)((size - 24) / 8) }), 2);
	return data;
}

static void
check_advertisement(const uint8_t *data, const uint8_t *target, uint8_t flags)
{
	const uint8_t *icmp = data + ETH + V6;

	CHECK_EQ(packet.m.data_len, ETH + V6 + 32);
	CHECK_EQ(packet.m.pkt_len, ETH + V6 + 32);
	CHECK_EQ(data[ETH + 5], 32);
	CHECK_EQ(data[ETH + 7], 255);
	CHECK_EQ(icmp[0], 136);
	CHECK_EQ(icmp[4], flags);
	CHECK(memcmp(icmp + 8, target, 16) == 0);
	CHECK_EQ(icmp[24], 2);
	CHECK_EQ(icmp[25], 1);
	CHECK(memcmp(icmp + 26, own.addr_bytes, 6) == 0);
	CHECK(memcmp(data + ETH + 8, target, 16) == 0);
	CHECK_EQ(sum6(data, 32), 0xffff);
}

static void
test_solicitation(void)
{
	static const uint16_t sizes[] = { 24, 32, 40 };
	uint8_t *data;
	unsigned int i;

	for (i = 0; i < RTE_DIM(sizes); i++) {
		data = make_solicitation(sizes[i], v6_own);
		finish(data);
		CHECK_EQ(answer(), ANSWER_NEIGHBOUR);
		check_to_asker(data);
		check_advertisement(data, v6_own, 0x60);
		CHECK(memcmp(data + ETH + 24, v6_asker, 16) == 0);
	}
}

/*
 * Duplicate address detection: the answer goes to all nodes, and only for addresses listed exactly.
 */
static void
test_address_probe(void)
{
	static const uint8_t covered[16] = { 0xfd, 1, [15] = 7 };
	uint8_t *data = make_solicitation(24, v6_own);

	memset(data + ETH + 8, 0, 16);
	finish(data);
	CHECK_EQ(answer(), ANSWER_NEIGHBOUR);
	check_advertisement(data, v6_own, 0x20);
	CHECK(memcmp(data, ((uint8_t[]){ 0x33, 0x33, 0, 0, 0, 1 }), 6) == 0);

	data = make_solicitation(24, covered);
	finish(data);
	CHECK_EQ(answer(), ANSWER_NEIGHBOUR);
	data = make_solicitation(24, covered);
	memset(data + ETH + 8, 0, 16);
	finish(data);
	CHECK_EQ(answer(), ANSWER_IGNORED);
}

static void
test_ignored_solicitation(void)
{
	uint8_t *data = make_solicitation(32, v6_own);

	CHECK_EQ(answer(), ANSWER_IGNORED); /* No checksum. */
	data[ETH + 7] = 254;
	finish(data);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	data = make_solicitation(32, v6_own);
	data[ETH + V6 + 25] = 0; /* An option of no length. */
	finish(data);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	data = make_solicitation(32, v6_asker);
	finish(data);
	CHECK_EQ(answer(), ANSWER_IGNORED);
	make_icmp6(143, 28); /* A report of multicast listeners. */
	CHECK_EQ(answer(), ANSWER_IGNORED);
}

static void
test_echo6(void)
{
	uint8_t *data = make_icmp6(128, 71);

	finish(data);
	CHECK_EQ(answer(), ANSWER_ECHO);
	check_to_asker(data);
	CHECK_EQ(data[ETH + V6], 129);
	CHECK_EQ(sum6(data, 71), 0xffff);
	CHECK(memcmp(data + ETH + 8, v6_own, 16) == 0);
	CHECK(memcmp(data + ETH + 24, v6_asker, 16) == 0);

	data = make_icmp6(44, 71);
	data[ETH + 6] = 44; /* A later fragment. */
	data[ETH + V6] = 58;
	data[ETH + V6 + 2] = 1;
	CHECK_EQ(answer(), ANSWER_ECHO);
	data = make_icmp6(44, 71);
	data[ETH + 6] = 44;
	data[ETH + V6] = 17; /* Of another protocol. */
	CHECK_EQ(answer(), ANSWER_NONE);
}

static void
test_vlan(void)
{
	const uint8_t tags[] = { 0x88, 0xa8, 0, 1, 0x81, 0, 0, 2 };
	uint8_t *data = make_echo(64);

	packet.m.data_len = packet.m.pkt_len = ETH + V4 + 64 + sizeof(tags);
	memmove(data + 12 + sizeof(tags), data + 12, ETH + V4 + 64 - 12);
	memcpy(data + 12, tags, sizeof(tags));
	CHECK_EQ(answer(), ANSWER_ECHO);
	CHECK(memcmp(data + 12, tags, sizeof(tags)) == 0);
	CHECK_EQ(rte_raw_cksum(data + ETH + sizeof(tags) + V4, 64), 0xffff);
}

/* Every packet cut short at every length, and with random bytes in it, stays within its bounds. */
static void
test_damaged(void)
{
	uint64_t random = 5;
	unsigned int round, i;

	for (round = 0; round < 300000; round++) {
		const uint64_t pick = check_random(&random);
		uint8_t *data;

		switch (pick % 4) {
		case 0:
			data = make_arp(0, 1);
			break;
		case 1:
			data = make_echo(64);
			break;
		case 2:
			data = make_solicitation(40, v6_own);
			finish(data);
			break;
		default:
			data = make_icmp6(128, 64);
		}
		for (i = 0; i < pick / 4 % 3; i++)
			data[12 + check_random(&random) % 80] = (uint8_t)check_random(&random);
		if (pick / 16 % 2) {
			const uint16_t size = packet.m.data_len;
			uint8_t kept[200];

			memcpy(kept, data, size);
			packet_reset(&packet, (uint16_t)(check_random(&random) % size));
			memcpy(rte_pktmbuf_mtod(&packet.m, void *), kept, packet.m.data_len);
		} else if (packet.m.data_len < 12 + 80) {
			memset(data + packet.m.data_len, PACKET_GUARD, 12 + 80 - packet.m.data_len);
		}
		answer();
	}
}

int
main(void)
{
	add("10.1.0.1");
	add("10.1.3.77/25");
	add("fd00::1");
	add("fd01::/16");
	test_parse();
	test_arp();
	test_echo();
	test_wrong_echo_stays_wrong();
	test_ignored_echo();
	test_fragments();
	test_solicitation();
	test_address_probe();
	test_ignored_solicitation();
	test_echo6();
	test_vlan();
	test_damaged();
	return 0;
}
