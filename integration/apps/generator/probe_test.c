/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_udp.h>

#include "check.h"
#include "packet.h"
#include "probe.h"

static struct packet packet;

static struct probe_path
random_path(bool ipv6, uint64_t *random)
{
	struct probe_path path = { .ipv6 = ipv6 };
	unsigned int i;

	for (i = 0; i < 16; i++) {
		path.src_ip[i] = (uint8_t)check_random(random);
		path.dst_ip[i] = (uint8_t)check_random(random);
	}
	for (i = 0; i < RTE_ETHER_ADDR_LEN; i++) {
		path.src_mac.addr_bytes[i] = (uint8_t)check_random(random);
		path.dst_mac.addr_bytes[i] = (uint8_t)check_random(random);
	}
	return path;
}

static struct flow
random_flow(uint64_t *random)
{
	return (struct flow){ .value = {
					      [FLOW_SRC_PORT] = (uint16_t)check_random(random),
					      [FLOW_DST_PORT] = (uint16_t)check_random(random),
					      [FLOW_SRC_IP] = (uint32_t)check_random(random),
					      [FLOW_DST_IP] = (uint32_t)check_random(random),
			      } };
}

static void
check_and_remove_tag(struct rte_mbuf *m, uint16_t tci)
{
	uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);
	const struct rte_vlan_hdr *vlan = (const struct rte_vlan_hdr *)(data + 14);

	CHECK_EQ(data[12] << 8 | data[13], RTE_ETHER_TYPE_VLAN);
	CHECK_EQ(rte_be_to_cpu_16(vlan->vlan_tci), tci);
	memmove(data + 4, data, 12);
	m->data_off += 4;
	m->data_len -= 4;
	m->pkt_len -= 4;
}

/* The first bytes of an address are those of the path, the last four those of the flow. */
static void
check_address(const uint8_t *seen, const uint8_t *path, size_t size, uint32_t tail)
{
	const rte_be32_t wanted = rte_cpu_to_be_32(tail);

	CHECK(memcmp(seen, path, size - sizeof(wanted)) == 0);
	CHECK(memcmp(seen + size - sizeof(wanted), &wanted, sizeof(wanted)) == 0);
}

static void
check_flow(const struct rte_mbuf *m, const struct probe_path *path, const struct flow *flow)
{
	const uint32_t size = path->ipv6 ? 16 : 4, l4 = path->ipv6 ? 54 : 34;
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const struct rte_udp_hdr *udp = (const struct rte_udp_hdr *)(frame + l4);

	CHECK(udp->dgram_cksum != 0);
	CHECK_EQ(rte_be_to_cpu_16(udp->src_port), flow->value[FLOW_SRC_PORT]);
	CHECK_EQ(rte_be_to_cpu_16(udp->dst_port), flow->value[FLOW_DST_PORT]);
	check_address(frame + l4 - 2 * size, path->src_ip, size, flow->value[FLOW_SRC_IP]);
	check_address(frame + l4 - size, path->dst_ip, size, flow->value[FLOW_DST_IP]);
}

/* What was written can be read again, with valid checksums, at every size. */
static void
test_round_trip(bool ipv6, bool fill, bool tagged)
{
	const uint16_t tag = tagged ? sizeof(struct rte_vlan_hdr) : 0;
	const uint16_t least = probe_min_frame(ipv6) + tag;
	struct probe_template template;
	struct probe wanted, seen;
	uint64_t random = 11;
	struct rte_mbuf *m;
	uint16_t size;

	for (size = least; size <= PROBE_MAX_FRAME + tag; size++) {
		struct probe_path path = random_path(ipv6, &random);
		struct flow flow;

		path.tagged = tagged;
		path.tci = (uint16_t)check_random(&random);
		flow = random_flow(&random);

		wanted = (struct probe){
			.run = (uint16_t)check_random(&random),
			.lane = (uint16_t)check_random(&random),
			.seq = check_random(&random) & PROBE_NUMBER_MASK,
			.tsc = check_random(&random) & PROBE_NUMBER_MASK,
		};
		m = packet_reset(&packet, 0);
		probe_template(&template, &path);
		template.fill = fill;
		probe_write_flow(&template, m, size, &flow, &wanted);

		CHECK_EQ(m->pkt_len, size);
		packet_check_guards(&packet);
		CHECK(probe_read(m, ipv6, &seen));
		CHECK_EQ(seen.run, wanted.run);
		CHECK_EQ(seen.lane, wanted.lane);
		CHECK_EQ(seen.seq, wanted.seq);
		CHECK_EQ(seen.tsc, wanted.tsc);
		CHECK(!probe_read(m, !ipv6, &seen));
		if (tagged)
			check_and_remove_tag(m, path.tci);
		packet_check_checksums(m, ipv6);
		check_flow(m, &path, &flow);
	}
}

/* In a payload of zeros, writing only the headers makes the same packet. */
static void
test_only_headers(bool ipv6, bool fill, bool tagged)
{
	uint64_t random = 13;
	struct probe_path path = random_path(ipv6, &random);
	const struct flow flow = random_flow(&random);
	const struct probe probe = { .run = 1, .lane = 2, .seq = 3, .tsc = 4 };
	struct probe_template template;
	struct packet whole;
	uint16_t size;

	path.tagged = tagged;
	for (size = probe_min_frame(ipv6) + 4; size <= PROBE_MAX_FRAME; size++) {
		probe_template(&template, &path);
		template.fill = fill;
		probe_write_flow(&template, packet_reset(&whole, 0), size, &flow, &probe);
		template.only_headers = true;
		packet_reset(&packet, 0);
		memset(rte_pktmbuf_mtod(&packet.m, void *), 0, size);
		probe_write_flow(&template, &packet.m, size, &flow, &probe);
		CHECK(memcmp(whole.room, packet.room, sizeof(packet.room)) == 0);
	}
}

/* A UDP checksum that comes out as 0 would mean "none" and must be sent as 0xffff. */
static void
test_zero_checksum(void)
{
	struct probe_path path = { .src_ip = { 198, 18, 0, 1 }, .dst_ip = { 198, 19, 0, 1 } };
	struct probe_template template;
	struct probe probe = { 0 };
	bool met = false;
	uint32_t low;

	probe_template(&template, &path);
	for (low = 0; low < 65536; low++) {
		struct rte_mbuf *m = packet_reset(&packet, 0);
		const struct rte_udp_hdr *udp;

		probe.tsc = low;
		probe_write(&template, m, 60, 0, &probe);
		udp = rte_pktmbuf_mtod_offset(m, const struct rte_udp_hdr *, 34);
		CHECK(udp->dgram_cksum != 0);
		if (udp->dgram_cksum == 0xffff) {
			met = true;
			packet_check_checksums(m, 0);
		}
	}
	CHECK(met);
}

/* Random bytes: no read past the end (checked by the address sanitizer), no false probe. */
static void
test_outside_bytes(bool ipv6)
{
	struct probe_template template;
	struct probe probe = { .run = 1 }, seen;
	uint64_t random = 5;
	const struct probe_path path = random_path(ipv6, &random);
	unsigned int round, i;

	for (round = 0; round < 50000; round++) {
		struct rte_mbuf *m = packet_reset(&packet, (uint16_t)(check_random(&random) % 130));
		uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);

		for (i = 0; i < m->data_len; i++)
			data[i] = (uint8_t)check_random(&random);
		CHECK(!probe_read(m, ipv6, &seen));
		CHECK(!probe_read(m, !ipv6, &seen));
	}
	/* A true probe with its end cut off, or its magic changed. */
	probe_template(&template, &path);
	probe_write(&template, packet_reset(&packet, 0), 100, 0, &probe);
	for (i = 0; i < 100; i++) {
		packet.m.data_len = (uint16_t)i;
		CHECK_EQ(probe_read(&packet.m, ipv6, &seen), i >= probe_min_frame(ipv6));
	}
	packet.m.data_len = 100;
	rte_pktmbuf_mtod(&packet.m,
			uint8_t *)[probe_min_frame(ipv6) - sizeof(struct probe_header)]++;
	CHECK(!probe_read(&packet.m, ipv6, &seen));
}

/* Ages are also right after the 48 bits of a stamp have wrapped around. */
static void
test_age(void)
{
	const struct probe probe = { .tsc = PROBE_NUMBER_MASK - 9 };

	CHECK_EQ(probe_age(&probe, PROBE_NUMBER_MASK + 91), 100);
	CHECK_EQ(probe_age(&probe, (UINT64_C(5) << 48) + PROBE_NUMBER_MASK - 8), 1);
	CHECK_EQ(probe_age(&probe, (UINT64_C(5) << 48) + PROBE_NUMBER_MASK - 10), 0);
}

/* Without a flow a packet has the addresses of the path. */
static void
test_default_flow(void)
{
	uint64_t random = 3;
	const struct probe_path path = random_path(true, &random);
	const struct probe probe = { 0 };
	struct probe_template template;
	struct flow flow;

	probe_template(&template, &path);
	flow = template.first;
	flow.value[FLOW_SRC_PORT] += 9;
	probe_write(&template, packet_reset(&packet, 0), 100, 9, &probe);
	check_flow(&packet.m, &path, &flow);
	CHECK(memcmp(rte_pktmbuf_mtod_offset(&packet.m, const uint8_t *, 22), path.src_ip, 16) ==
			0);
	CHECK(memcmp(rte_pktmbuf_mtod_offset(&packet.m, const uint8_t *, 38), path.dst_ip, 16) ==
			0);
}

/* A copy of a packet with a tag inserted or removed, as networks do. */
static struct rte_mbuf *
retag(struct packet *copy, const struct rte_mbuf *m)
{
	struct rte_mbuf *out = packet_reset(copy, m->data_len);
	uint8_t *data = rte_pktmbuf_mtod(out, uint8_t *);

	memcpy(data, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);
	if (data[12] == 0x81) {
		check_and_remove_tag(out, 5);
		return out;
	}
	memmove(data + 16, data + 12, m->data_len - 12);
	memcpy(data + 12, "\x81\x00\x00\x05", 4);
	out->data_len += 4;
	out->pkt_len += 4;
	return out;
}

/*
 * Every changed bit of the payload is detected, and none of the headers before that of the probe.
 */
static void
check_bits(const struct probe_template *template, uint16_t size, const struct probe *probe)
{
	const uint32_t header = template->l4 + sizeof(struct rte_udp_hdr);
	const uint32_t payload = header + sizeof(struct probe_header);
	uint8_t *data = rte_pktmbuf_mtod(&packet.m, uint8_t *);
	uint32_t i;

	for (i = 0; i < size; i++) {
		if (i == 12 || i == 13 || (i >= header && i < payload))
			continue; /* The Ethernet type, and the probe header. */
		data[i] ^= 1 << i % 8;
		CHECK_EQ(probe_intact(template, &packet.m, size, probe), i < payload);
		data[i] ^= 1 << i % 8;
	}
}

static void
test_intact(bool ipv6, bool tagged, uint16_t size)
{
	uint64_t random = 7;
	struct probe_path path = random_path(ipv6, &random);
	const struct probe probe = { .lane = 2, .seq = 77 };
	struct probe other = probe;
	struct probe_template template;
	struct packet copy;

	path.tagged = tagged;
	path.tci = 5;
	probe_template(&template, &path);
	template.fill = true;
	probe_write_flow(&template, packet_reset(&packet, 0), size, &template.first, &probe);
	CHECK(probe_intact(&template, &packet.m, size, &probe));
	CHECK(probe_intact(&template, retag(&copy, &packet.m), size, &probe));
	check_bits(&template, size, &probe);
	/* A wrong number, and a cut packet. */
	other.seq++;
	CHECK(!probe_intact(&template, &packet.m, size, &other));
	packet.m.data_len--;
	packet.m.pkt_len--;
	CHECK(!probe_intact(&template, &packet.m, size, &probe));
}

#define BURST 8

static struct packet burst[BURST];

/* A burst has the same result as its packets one by one. */
static void
test_burst(bool ipv6, bool tagged, uint16_t least)
{
	uint64_t random = 17;
	struct probe_path path = random_path(ipv6, &random);
	const struct flow flow = random_flow(&random);
	struct probe probe = { .run = 1, .lane = 2, .seq = 0xfffffffd, .tsc = 4 };
	struct rte_mbuf *pkts[BURST];
	uint16_t sizes[BURST];
	struct probe_template template;
	unsigned int i;

	path.tagged = tagged;
	probe_template(&template, &path);
	template.only_headers = true;
	for (i = 0; i < BURST; i++) {
		pkts[i] = packet_reset(&burst[i], 0);
		sizes[i] = (uint16_t)(least + check_random(&random) % (PROBE_MAX_FRAME - least));
	}
	probe_write_burst(&template, pkts, BURST, sizes, &flow, &probe);
	for (i = 0; i < BURST; i++, probe.seq++) {
		probe_write_flow(&template, packet_reset(&packet, 0), sizes[i], &flow, &probe);
		CHECK_EQ(burst[i].m.pkt_len, sizes[i]);
		CHECK_EQ(burst[i].m.data_len, sizes[i]);
		CHECK(memcmp(burst[i].room, packet.room, sizeof(packet.room)) == 0);
	}
}

/* A run ends where anything but the number differs, or the number is not the next. */
static void
test_run(bool ipv6, bool tagged)
{
	const uint16_t size = 100;
	const struct probe first = { .run = 1, .lane = 2, .seq = 0xfffffffd, .tsc = 4 };
	struct probe_path path = { .ipv6 = ipv6, .tagged = tagged };
	struct rte_mbuf *pkts[BURST];
	uint16_t sizes[BURST];
	struct probe_template template;
	struct probe_run run;
	unsigned int i, byte;
	uint8_t *header;

	probe_template(&template, &path);
	template.only_headers = true;
	for (i = 0; i < BURST; i++) {
		pkts[i] = packet_reset(&burst[i], 0);
		sizes[i] = size;
	}
	probe_write_burst(&template, pkts, BURST, sizes, &template.first, &first);
	for (i = 1; i <= BURST; i++) {
		probe_read_run(pkts, (uint16_t)i, ipv6, &run);
		CHECK_EQ(run.n, i);
		CHECK_EQ(run.bytes, i * size);
		CHECK_EQ(run.first.run, first.run);
		CHECK_EQ(run.first.lane, first.lane);
		CHECK_EQ(run.first.seq, first.seq);
		CHECK_EQ(run.first.tsc, first.tsc);
	}
	header = rte_pktmbuf_mtod_offset(
			pkts[5], uint8_t *, template.l4 + sizeof(struct rte_udp_hdr));
	for (byte = 0; byte < sizeof(struct probe_header); byte++) {
		header[byte] ^= 1;
		probe_read_run(pkts, BURST, ipv6, &run);
		CHECK_EQ(run.n, 5);
		CHECK_EQ(run.bytes, 5 * size);
		header[byte] ^= 1;
	}
	pkts[3]->data_len = template.l4;
	probe_read_run(pkts, BURST, ipv6, &run);
	CHECK_EQ(run.n, 3);
	pkts[0]->data_len = 20;
	probe_read_run(pkts, BURST, ipv6, &run);
	CHECK_EQ(run.n, 0);
}

int
main(void)
{
	unsigned int i;

	CHECK_EQ(probe_min_frame(false), 60);
	CHECK_EQ(probe_min_frame(true), 80);
	test_age();
	for (i = 0; i < 8; i++) {
		test_round_trip((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
		test_only_headers((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
	}
	test_default_flow();
	for (i = 0; i < 4; i++) {
		test_burst((i & 1) != 0, (i & 2) != 0, 84);
		test_run((i & 1) != 0, (i & 2) != 0);
		test_intact((i & 1) != 0, (i & 2) != 0, 85);
		test_intact((i & 1) != 0, (i & 2) != 0, PROBE_MAX_FRAME);
	}
	test_burst(false, false, 60);
	test_zero_checksum();
	test_outside_bytes(false);
	test_outside_bytes(true);
	return 0;
}
