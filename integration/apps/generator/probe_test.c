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

/* What is written is read again, with right checksums, at every size. */
static void
test_round_trip(bool ipv6, bool fill)
{
	const uint16_t least = probe_min_frame(ipv6);
	struct probe_template template;
	struct probe wanted, seen;
	uint64_t random = 11;
	struct rte_mbuf *m;
	uint16_t size, flow;

	for (size = least; size <= PROBE_MAX_FRAME; size++) {
		const struct probe_path path = random_path(ipv6, &random);
		const struct rte_udp_hdr *udp;

		wanted = (struct probe){
			.run = (uint16_t)check_random(&random),
			.lane = (uint16_t)check_random(&random),
			.seq = check_random(&random) & PROBE_NUMBER_MASK,
			.tsc = check_random(&random) & PROBE_NUMBER_MASK,
		};
		flow = (uint16_t)(check_random(&random) % PROBE_MAX_FLOWS);
		m = packet_reset(&packet, 0);
		probe_template(&template, &path);
		template.fill = fill;
		probe_write(&template, m, size, flow, &wanted);

		CHECK_EQ(m->pkt_len, size);
		packet_check_guards(&packet);
		packet_check_checksums(m, ipv6);
		udp = rte_pktmbuf_mtod_offset(m, const struct rte_udp_hdr *,
				least - sizeof(struct probe_header) - sizeof(*udp));
		CHECK_EQ(rte_be_to_cpu_16(udp->src_port), PROBE_SRC_PORT + flow);
		CHECK(udp->dgram_cksum != 0);
		CHECK(probe_read(m, ipv6, &seen));
		CHECK(memcmp(&seen, &wanted, sizeof(seen)) == 0);
		CHECK(!probe_read(m, !ipv6, &seen));
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

/* Bytes from anywhere: no read past the end (the address sanitizer sees), no false probe. */
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

/* Ages are right also when the 48 bits of a stamp have begun anew. */
static void
test_age(void)
{
	const struct probe probe = { .tsc = PROBE_NUMBER_MASK - 9 };

	CHECK_EQ(probe_age(&probe, PROBE_NUMBER_MASK + 91), 100);
	CHECK_EQ(probe_age(&probe, (UINT64_C(5) << 48) + PROBE_NUMBER_MASK - 8), 1);
	CHECK_EQ(probe_age(&probe, (UINT64_C(5) << 48) + PROBE_NUMBER_MASK - 10), 0);
}

int
main(void)
{
	CHECK_EQ(probe_min_frame(false), 60);
	CHECK_EQ(probe_min_frame(true), 80);
	test_age();
	test_round_trip(false, false);
	test_round_trip(true, false);
	test_round_trip(false, true);
	test_round_trip(true, true);
	test_zero_checksum();
	test_outside_bytes(false);
	test_outside_bytes(true);
	return 0;
}
