/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Poll gaps, stalls and polling lcores. */

#include <pthread.h>

#include <rte_launch.h>

#include "pmdscope.h"
#include "test.h"

#define US_CYCLES (rte_get_tsc_hz() / 1000000)

static const struct pmdscope_conf conf = {
	.sample_ms = 10,
	.window_ms = 100,
	.stall_us = 5000,
	.flags = PMDSCOPE_F_NO_TEE,
};

static uint64_t
cell(unsigned int lcore, const char *column, unsigned int k, unsigned int width)
{
	const char *body = tel_ask("/pmdscope/lcores", "");
	unsigned int i;

	for (i = 0; i < json_len(json_get(body, "lcore")); i++)
		if (tel_cell(body, "lcore", i) == lcore)
			return tel_cell(body, column, i * width + k);
	return UINT64_MAX;
}

/* Calls the cold half with a given gap: real time would depend on the scheduler. */
static void
file_gap(uint64_t gap)
{
	struct pmdscope_lcore *lc = &pmdscope_lcores[rte_lcore_id()];

	lc->polls++;
	pmdscope_poll_gap(lc, rte_rdtsc(), gap);
}

static void
check_bucket(uint64_t gap, unsigned int bucket)
{
	const struct pmdscope_lcore *lc = &pmdscope_lcores[rte_lcore_id()];
	const uint64_t before = lc->gaps[bucket];

	file_gap(gap);
	if (lc->gaps[bucket] != before + 1) {
		fprintf(stderr, "gap of %" PRIu64 " cycles is not in bucket %u\n", gap, bucket);
		exit(1);
	}
}

static void
test_buckets(void)
{
	unsigned int i;

	pmdscope_poll(0);
	for (i = 1; i < PMDSCOPE_GAP_BUCKETS; i++)
		check_bucket(US_CYCLES << (i - 1), i);
	/* The last cycle of each bucket; the last bucket is open-ended. */
	for (i = 1; i < PMDSCOPE_GAP_BUCKETS - 1; i++)
		check_bucket((US_CYCLES << i) - 1, i);
	check_bucket(US_CYCLES << 40, PMDSCOPE_GAP_BUCKETS - 1);
}

/* All polls are in one bucket, except the first one. */
static void
test_sum(void)
{
	const unsigned int lcore = rte_lcore_id();
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < 1000; i++)
		pmdscope_poll((uint16_t)(i % 2));
	WAIT_FOR(cell(lcore, "polls", 0, 1) != UINT64_MAX);
	for (i = 0; i < PMDSCOPE_GAP_BUCKETS; i++)
		sum += cell(lcore, "gaps", i, PMDSCOPE_GAP_BUCKETS);
	CHECK_U64(sum, cell(lcore, "polls", 0, 1) - 1);
	CHECK_U64(cell(lcore, "packets", 0, 1), 500);
	CHECK_U64(cell(lcore, "busy_polls", 0, 1), 500);
	CHECK_U64(cell(lcore, "tid", 0, 1), (uint64_t)gettid());
}

static void
test_stall_and_window(void)
{
	const unsigned int lcore = rte_lcore_id();
	const uint64_t stalls = cell(lcore, "stalls", 0, 1);
	const uint64_t max = cell(lcore, "gap_max_us", 0, 1);
	const uint64_t stall = conf.stall_us * US_CYCLES;

	WAIT_FOR(cell(lcore, "gap_window_max_us", 0, 1) == 0);
	file_gap(stall);
	file_gap(stall - 1);
	CHECK_U64(cell(lcore, "stalls", 0, 1), stalls + 1);
	/* Seen once its window is complete, then forgotten; 1 % tolerance for the measured
	 * rate. In each window, as this thread may pause for the length of one.
	 */
	WAIT_FOR((file_gap(stall), cell(lcore, "gap_window_max_us", 0, 1) >=
						   conf.stall_us * UINT64_C(99) / 100));
	WAIT_FOR(cell(lcore, "gap_window_max_us", 0, 1) == 0);
	CHECK(cell(lcore, "gap_max_us", 0, 1) >= max / 100 * 99);
	CHECK(cell(lcore, "gap_max_realtime_ns", 0, 1) != 0);
}

/* The last four stalls are reported, newest first, each with its length and end. */
static void
test_last_stalls(void)
{
	const char *body;
	uint64_t last = UINT64_MAX;
	unsigned int i, row;

	for (i = 1; i <= 20; i++) {
		file_gap((uint64_t)i * conf.stall_us * US_CYCLES);
		/* A gap that is shorter than a stall is not reported. */
		file_gap(conf.stall_us * US_CYCLES - 1);
	}
	body = tel_ask("/pmdscope/lcores", "");
	CHECK_U64(tel_u64(body, "stall_last_us_buckets"), 4);
	CHECK_U64(tel_u64(body, "stall_last_realtime_ns_buckets"), 4);
	for (row = 0; tel_cell(body, "lcore", row) != rte_lcore_id(); row++)
		;
	for (i = 0; i < 4; i++) {
		const uint64_t us = tel_cell(body, "stall_last_us", row * 4 + i);
		const uint64_t expected = (uint64_t)(20 - i) * conf.stall_us;
		const uint64_t end = tel_cell(body, "stall_last_realtime_ns", row * 4 + i);

		/* 1 % tolerance for the measured rate. */
		CHECK(us >= expected / 100 * 99 && us <= expected / 100 * 101);
		CHECK(end != 0 && end < last);
		last = end;
	}
}

static void *
poll_once(void *arg)
{
	pmdscope_poll(1);
	return arg;
}

/* Stalls that no later one exceeded, newest first; of more than eight, neither the newest nor
 * the longest is dropped.
 */
static void
test_longest_stalls(void)
{
	static const unsigned int before[] = { 30, 200, 40, 100, 20, 60, 50 };
	static const unsigned int expected[] = { 50, 60, 100, 200 };
	const uint64_t unit = conf.stall_us * US_CYCLES;
	uint64_t last = UINT64_MAX;
	unsigned int i;

	for (i = 0; i < RTE_DIM(before); i++)
		file_gap(before[i] * unit);
	for (i = 0; i < RTE_DIM(expected); i++) {
		const uint64_t us = cell(rte_lcore_id(), "stall_longest_us", i, 8);
		const uint64_t end = cell(rte_lcore_id(), "stall_longest_realtime_ns", i, 8);

		/* 1 % tolerance for the measured rate. */
		CHECK(us >= expected[i] * conf.stall_us / 100 * 99);
		CHECK(us <= expected[i] * conf.stall_us / 100 * 101);
		CHECK(end != 0 && end < last);
		last = end;
	}
	for (i = 40; i > 1; i--)
		file_gap(i * unit);
	CHECK(cell(rte_lcore_id(), "stall_longest_us", 0, 8) < 3 * conf.stall_us);
	CHECK(cell(rte_lcore_id(), "stall_longest_us", 7, 8) > 190 * conf.stall_us);
}

static void
test_foreign(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, poll_once, NULL) == 0);
	pthread_join(thread, NULL);
	CHECK_U64(tel_u64(tel_ask("/pmdscope", ""), "foreign_polls"), 1);
}

static volatile bool stop;

static int
spin(void *arg __rte_unused)
{
	while (!stop)
		pmdscope_poll(0);
	return 0;
}

/* A library that starts later finds a loop that never pauses, and counts from its start. */
static void
test_spinning(void)
{
	const unsigned int worker = rte_get_next_lcore(-1, 1, 0);
	uint64_t polls;
	unsigned int i;

	CHECK(rte_eal_remote_launch(spin, NULL, worker) == 0);
	rte_delay_us_sleep(20000);
	for (i = 0; i < 3; i++) {
		CHECK(pmdscope_init(&conf) == 0);
		WAIT_FOR(cell(worker, "polls", 0, 1) != UINT64_MAX);
		polls = cell(worker, "polls", 0, 1);
		WAIT_FOR(cell(worker, "polls", 0, 1) > polls);
		CHECK(tel_cell_is(tel_ask("/pmdscope/lcores", ""), "role", 0, "worker"));
		/* Earlier polls of the main lcore do not count in this run. */
		CHECK_U64(cell(rte_lcore_id(), "polls", 0, 1), UINT64_MAX);
		pmdscope_fini();
	}
	stop = true;
	rte_eal_mp_wait_lcore();
}

int
main(void)
{
	test_eal("0@(0,1),1@(0,1)");
	CHECK(pmdscope_init(&conf) == 0);
	test_buckets();
	test_sum();
	test_stall_and_window();
	test_last_stalls();
	test_longest_stalls();
	test_foreign();
	pmdscope_fini();
	test_spinning();
	rte_eal_cleanup();
	return 0;
}
