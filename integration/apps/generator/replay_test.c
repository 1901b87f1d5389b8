/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "check.h"
#include "replay.h"

#define HZ UINT64_C(1000000000)
#define PACKETS 5

static char path[] = "/tmp/pmdscope-replay-XXXXXX";
/* Nanoseconds from the first; the fourth is older than the third. */
static const uint64_t times[PACKETS] = { 0, 1000, 5000, 4000, 2000000000 };
static const uint16_t sizes[PACKETS] = { 60, 1514, 14, 2048, 61 };
static uint8_t bytes[4096];

/*
 * A file with these packets. size changes that of the last, cut is the number of bytes kept of it.
 */
static void
write_file(int link_type, unsigned int nb, uint32_t size, uint32_t cut)
{
	pcap_t *pcap = pcap_open_dead_with_tstamp_precision(
			link_type, 65535, PCAP_TSTAMP_PRECISION_NANO);
	pcap_dumper_t *out;
	unsigned int i;

	CHECK(pcap != NULL);
	out = pcap_dump_open(pcap, path);
	CHECK(out != NULL);
	for (i = 0; i < nb; i++) {
		const uint32_t len = i + 1 == nb && size != 0 ? size : sizes[i];
		struct pcap_pkthdr header = { .len = len, .caplen = len };

		if (i + 1 == nb && cut != 0)
			header.caplen = cut;
		header.ts.tv_sec = (time_t)(1700000000 + times[i] / 1000000000);
		header.ts.tv_usec = (suseconds_t)(times[i] % 1000000000);
		memset(bytes, (int)i, sizeof(bytes));
		pcap_dump((u_char *)out, &header, bytes);
	}
	pcap_dump_close(out);
	pcap_close(pcap);
}

static void
test_load(void)
{
	struct replay replay;
	unsigned int i;

	write_file(DLT_EN10MB, PACKETS, 0, 0);
	CHECK_EQ(replay_load(&replay, path), 0);
	CHECK_EQ(replay.nb, PACKETS);
	CHECK_EQ(replay.nb_cut, 0);
	CHECK_EQ(replay.min_size, 14);
	CHECK_EQ(replay.max_size, 2048);
	for (i = 0; i < PACKETS; i++) {
		memset(bytes, (int)i, sizeof(bytes));
		CHECK_EQ(replay.packet[i].size, sizes[i]);
		CHECK(memcmp(replay.packet[i].data, bytes, sizes[i]) == 0);
		CHECK_EQ(replay.packet[i].ns, i == 3 ? 5000 : times[i]);
	}
	replay_free(&replay);
	write_file(DLT_EN10MB, PACKETS, 1500, 100);
	CHECK_EQ(replay_load(&replay, path), 0);
	CHECK_EQ(replay.nb_cut, 1);
	CHECK_EQ(replay.packet[PACKETS - 1].size, 100);
	replay_free(&replay);
}

static void
test_bad_files(void)
{
	struct replay replay;

	write_file(DLT_EN10MB, PACKETS, 2049, 0);
	CHECK_EQ(replay_load(&replay, path), -EINVAL);
	write_file(DLT_EN10MB, PACKETS, 13, 0);
	CHECK_EQ(replay_load(&replay, path), -EINVAL);
	write_file(DLT_EN10MB, 0, 0, 0);
	CHECK_EQ(replay_load(&replay, path), -EINVAL);
	write_file(DLT_RAW, PACKETS, 0, 0);
	CHECK_EQ(replay_load(&replay, path), -EINVAL);
	write_file(DLT_EN10MB, PACKETS, 0, 0);
	CHECK(truncate(path, 110) == 0);
	CHECK_EQ(replay_load(&replay, path), -EINVAL);
	CHECK_EQ(replay_load(&replay, "/nowhere.pcap"), -EINVAL);
}

/* Packets are due at their times, at half of them at twice the speed, and again in the next loop. */
static void
test_times(double speed)
{
	struct replay_cursor cursor = { 0 };
	struct replay replay;
	uint64_t i, due, loop;

	write_file(DLT_EN10MB, PACKETS, 0, 0);
	CHECK_EQ(replay_load(&replay, path), 0);
	replay_schedule(&replay, HZ, speed);
	loop = (uint64_t)(2000000000 * 1.25 / speed);
	CHECK_EQ(replay.loop_due, loop);
	for (i = 0; i < 3 * PACKETS; i++) {
		due = i / PACKETS * loop +
		      (uint64_t)((double)replay.packet[i % PACKETS].ns / speed);
		if (due > 0 && i % PACKETS != 3)
			CHECK_EQ(replay_ready(&replay, cursor, 1, due - 1, 10), 0);
		CHECK(replay_ready(&replay, cursor, 1, due, 10) >= 1);
		CHECK(replay_next(&replay, &cursor, 1) == &replay.packet[i % PACKETS]);
	}
	CHECK_EQ(replay_ready(&replay, cursor, 1, UINT64_MAX / 2, 7), 7);
	replay_free(&replay);
}

/* Together, lanes send each packet of each loop once, even if there are more lanes than packets. */
static void
test_lanes(unsigned int nb_lanes)
{
	const unsigned int nb_loops = 12;
	unsigned int seen[PACKETS] = { 0 }, lane;
	struct replay_cursor cursor;
	struct replay replay;
	uint64_t i;

	write_file(DLT_EN10MB, PACKETS, 0, 0);
	CHECK_EQ(replay_load(&replay, path), 0);
	replay_schedule(&replay, HZ, 1);
	for (lane = 0; lane < nb_lanes; lane++) {
		cursor = (struct replay_cursor){ .at = lane };
		for (i = lane; i < nb_loops * PACKETS; i += nb_lanes) {
			const struct replay_packet *packet =
					replay_next(&replay, &cursor, nb_lanes);

			CHECK(packet == &replay.packet[i % PACKETS]);
			seen[packet - replay.packet]++;
		}
		/* It checks the next packet at each call. */
		replay_ready(&replay, cursor, nb_lanes, 0, 1);
	}
	for (i = 0; i < PACKETS; i++)
		CHECK_EQ(seen[i], nb_loops);
	replay_free(&replay);
}

static void
remove_file(void)
{
	unlink(path);
}

int
main(void)
{
	const int fd = mkstemp(path);

	CHECK(fd >= 0);
	close(fd);
	CHECK(atexit(remove_file) == 0);
	test_load();
	test_bad_files();
	test_times(1);
	test_times(2);
	test_times(0.5);
	test_lanes(1);
	test_lanes(3);
	test_lanes(7);
	test_lanes(11);
	return 0;
}
