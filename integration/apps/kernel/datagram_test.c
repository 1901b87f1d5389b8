/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Tests of the payload of the kernel generator, and of messages of several packets. */

#include <string.h>

#include "check.h"
#include "datagram.h"

static void
a_probe_reads_as_written(void)
{
	const struct probe probe = { .run = 7,
		.lane = 300,
		.seq = (UINT64_C(1) << 40) + 5,
		.tsc = UINT64_C(0x123456789abc) };
	uint8_t payload[sizeof(struct probe_header)];
	struct probe read;

	datagram_write(payload, &probe);
	CHECK(datagram_read(payload, sizeof(payload), &read));
	CHECK_EQ(read.run, probe.run);
	CHECK_EQ(read.lane, probe.lane);
	CHECK_EQ(read.seq, probe.seq);
	CHECK_EQ(read.tsc, probe.tsc);
	CHECK(!datagram_read(payload, sizeof(payload) - 1, &read));
	payload[0] ^= 1;
	CHECK(!datagram_read(payload, sizeof(payload), &read));
}

/* Both generators must use the same frame sizes and probes. */
static void
a_probe_is_that_of_the_dpdk_generator(void)
{
	const struct probe_path path = { .src_ip = { 198, 18, 0, 1 }, .dst_ip = { 198, 19, 0, 1 } };
	const struct probe probe = { .run = 1, .lane = 2, .seq = 3, .tsc = 4 };
	const uint32_t overhead = datagram_overhead(false);
	struct probe_template template;
	static struct rte_mbuf m;
	uint8_t frame[PROBE_MAX_FRAME], payload[sizeof(struct probe_header)];

	CHECK_EQ(probe_min_frame(false), overhead + sizeof(struct probe_header));
	CHECK_EQ(probe_min_frame(true), datagram_overhead(true) + sizeof(struct probe_header));
	probe_template(&template, &path);
	m.buf_addr = frame;
	probe_write(&template, &m, probe_min_frame(false), 0, &probe);
	datagram_write(payload, &probe);
	CHECK(memcmp(frame + overhead, payload, sizeof(payload)) == 0);
}

static void
a_message_splits_into_its_packets(void)
{
	struct datagram datagram = { .size = 250, .segment = 100 };

	CHECK_EQ(datagram_packets(&datagram), 3);
	CHECK_EQ(datagram_packet_size(&datagram, 0), 100);
	CHECK_EQ(datagram_packet_size(&datagram, 2), 50);
	datagram.size = 200;
	CHECK_EQ(datagram_packets(&datagram), 2);
	CHECK_EQ(datagram_packet_size(&datagram, 1), 100);
	datagram.size = 0;
	CHECK_EQ(datagram_packets(&datagram), 1);
	CHECK_EQ(datagram_packet_size(&datagram, 0), 0);
}

static void
a_message_holds_what_the_kernel_takes(void)
{
	CHECK_EQ(datagram_max_packets(24), DATAGRAM_MAX_SEGMENTS);
	CHECK_EQ(datagram_max_packets(1472), 44);
	CHECK_EQ(datagram_max_packets(DATAGRAM_MAX), 1);
}

int
main(void)
{
	a_probe_reads_as_written();
	a_probe_is_that_of_the_dpdk_generator();
	a_message_splits_into_its_packets();
	a_message_holds_what_the_kernel_takes();
	return 0;
}
