/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include "check.h"
#include "leak.h"
#include "schedule.h"
#include "stall.h"
#include "test_eal.h"

#define BURST 32

/* As the reflector sends: TX takes `sent` packets of a burst, the rest are freed. */
static void
send_burst(struct rte_mempool *pool, struct schedule *leak, uint16_t taken)
{
	struct rte_mbuf *pkts[BURST];
	uint16_t i;

	CHECK_EQ(rte_pktmbuf_alloc_bulk(pool, pkts, BURST), 0);
	for (i = 0; i < taken; i++)
		rte_pktmbuf_free(pkts[i]);
	if (schedule_due(leak))
		leak_free_unsent(pkts, taken, BURST);
	else
		rte_pktmbuf_free_bulk(&pkts[taken], BURST - taken);
}

/* One packet in each N bursts, independent of how many packets TX took. */
static void
test_leak(struct rte_mempool *pool)
{
	struct schedule leak = { .every = 10 }, none = { 0 };
	unsigned int i;

	for (i = 1; i <= 500; i++) {
		send_burst(pool, &none, BURST / 2);
		CHECK_EQ(rte_mempool_in_use_count(pool), (i - 1) / 10);
		send_burst(pool, &leak, (uint16_t)(i * 7 % BURST));
		CHECK_EQ(rte_mempool_in_use_count(pool), i / 10);
	}
}

static void
test_stall(void)
{
	const uint64_t hz = rte_get_tsc_hz();
	uint64_t begin = rte_rdtsc(), spent;
	struct periodic stall = periodic_start(2000, 10, hz, begin);
	struct periodic none = periodic_start(0, 0, hz, begin);
	unsigned int stalls = 0;

	while (stalls < 3) {
		const uint64_t before = rte_rdtsc();

		CHECK(!stall_when_due(&none));
		if (!stall_when_due(&stall))
			continue;
		stalls++;
		CHECK(rte_rdtsc() - before >= hz / 500);
	}
	spent = rte_rdtsc() - begin;
	CHECK(spent >= hz * 32 / 1000);
}

static void
test_sleep(void)
{
	struct periodic none = periodic_start(0, 0, rte_get_tsc_hz(), rte_rdtsc());
	struct periodic stall = periodic_start(2000, 10, rte_get_tsc_hz(), rte_rdtsc());
	struct timespec before, after;

	CHECK(!sleep_when_due(&none, 0));
	while (!sleep_when_due(&stall, 2000))
		;
	CHECK(!sleep_when_due(&stall, 0));
	/* It takes elapsed time, but no CPU time. */
	stall.start = 0;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	CHECK(sleep_when_due(&stall, 200000));
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 <
			100);
}

int
main(void)
{
	struct rte_mempool *pool = test_eal_pool();

	test_leak(pool);
	test_stall();
	test_sleep();
	rte_mempool_free(pool);
	rte_eal_cleanup();
	return 0;
}
