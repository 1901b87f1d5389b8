/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The leak ledger: it finds the injected leaks, names their places, and finds nothing else. */

#include <pthread.h>

#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "leak_bed.h"
#include "state.h"
#include "test.h"

/* Each kind is found in full, at its line, and nothing else is. */
static void
test_traced(void)
{
	restart(&always);
	expect_no_leak(700);
	lose(LEAK_RX, 7);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 7));
	lose(LEAK_RX, 1);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 8));
	lose(LEAK_CLONE, 5);
	WAIT_FOR(has_site("clones", line_of(LEAK_CLONE), "leak", 5));
	WAIT_FOR(ledger("pool", "leaked") == 8 + 5);
	lose(LEAK_TAIL, 4);
	WAIT_FOR(has_site("pool", line_of(LEAK_TAIL), "leak", 4));
	lose(LEAK_UNSENT, 3);
	WAIT_FOR(has_site("pool", line_of(LEAK_UNSENT), "leak", 3));
	lose(LEAK_OVERFLOW, 2);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 8 + 2));
	lose(LEAK_MARKED, 1);
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 1));
	lose(LEAK_DOUBLE_FREE, 2);
	WAIT_FOR(has_site("pool", line_of(LEAK_DOUBLE_FREE), "double_free", 2));
	lose(LEAK_USE_AFTER_FREE, 2);
	WAIT_FOR(has_site("pool", line_of(LEAK_USE_AFTER_FREE), "use_after_free", 2));
	CHECK_U64(ledger("pool", "double_frees"), 2);
	CHECK_U64(ledger("pool", "use_after_frees"), 2);
	CHECK_U64(ledger("clones", "leaked"), 5);
	CHECK_U64(ledger("pool", "leaked"), 8 + 5 + 4 + 3 + 2 + 1);
	CHECK(ledger("pool", "first_leak_realtime_ns") != 0);
	CHECK_U64(ledger("pool", "prearm"), 0);
	check_sum("pool");
}

/* Without call sites: the queue is named, and the call for the rest. */
static void
test_plain(void)
{
	orders.plain = true;
	restart(&always);
	expect_no_leak(700);
	lose(LEAK_RX, 3);
	WAIT_FOR(has_site("pool", "rx port 0 queue 0", "leak", 3));
	lose(LEAK_UNSENT, 2);
	rte_delay_us_sleep(1000000);
	/* Given to a NIC that sends nothing: there they may be. */
	CHECK_U64(ledger("pool", "leaked"), 3);
	CHECK(ledger("pool", "tx_pending") >= 2);
	lose(LEAK_MARKED, 2);
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 2));
	lose(LEAK_CLONE, 2);
	WAIT_FOR(ledger("clones", "leaked") == 2);
	check_sum("pool");
	orders.plain = false;
}

/* Longest time that the state lock was not to be had, within a second of several walks. */
static uint64_t
longest_wait(void)
{
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz();
	uint64_t now, last, longest = 0;

	for (last = rte_rdtsc(); last < end; last = now) {
		pthread_mutex_lock(&pmdscope_state.lock);
		pthread_mutex_unlock(&pmdscope_state.lock);
		now = rte_rdtsc();
		longest = RTE_MAX(longest, now - last);
	}
	return longest;
}

/* A pool of a million is walked in slices, and the one that is lost of it is found. */
static void
test_large(void)
{
	struct rte_mempool *mp =
			rte_pktmbuf_pool_create("large", 1000000, 256, 0, 0, SOCKET_ID_ANY);
	const int stage = pmdscope_stage("large");
	struct rte_mbuf *m;
	const uint64_t limit = rte_get_tsc_hz() / 20;
	unsigned int seconds = 0;

	CHECK(mp != NULL);
	restart(&always);
	m = rte_pktmbuf_alloc(mp);
	pmdscope_mark(m, stage);
	WAIT_FOR(ledger("large", "leaked") == 1);
	CHECK_U64(site("large", "stage large", "leak", "count"), 1);
	check_sum("large");
	CHECK_U64(ledger("large", "common") + ledger("large", "cached"), 999999);
	/* The state lock is held for a slice at a time. A busy scheduler adds to that, but not in
	 * every second; a whole walk would be seen in each.
	 */
	while (longest_wait() >= limit)
		CHECK(++seconds < 20);
	rte_pktmbuf_free(m);
	WAIT_FOR(ledger("large", "leaked") == 0);
	rte_mempool_free(mp);
}

/* Lose all there is: nothing moves any more that could prove anything. */
static void
exhaust(void)
{
	restart(&always);
	expect_no_leak(700);
	orders.every = 1;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(rte_mempool_avail_count(app.pool) < LEAK_BURST);
}

static void
test_exhausted(void)
{
	/* Frees are traced: what a call site had last cannot be posted. */
	exhaust();
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > POOL_SIZE * 9 / 10);
	check_sum("pool");
}

/* The driver does not tell what it may hold: 4096 are assumed, or what was once in use. */
static void
test_exhausted_plain(void)
{
	orders.plain = true;
	exhaust();
	WAIT_FOR(ledger("pool", "lost_at_least") > (POOL_SIZE - 4096) * 9 / 10);
	CHECK(ledger("pool", "lost_at_least") <= POOL_SIZE);
	check_sum("pool");
}

/* Held for long, and let go: no leak, or one that is taken back and not claimed again. */
static void
test_hold(void)
{
	struct rte_mbuf *held[300];
	const int stage = pmdscope_stage("queue");
	const int keeper = pmdscope_stage("keeper");
	unsigned int i;

	restart(&always);
	CHECK(pmdscope_stage("") == -EINVAL);
	CHECK(pmdscope_stage_hold(0) == -EINVAL && pmdscope_stage_hold(9999) == -EINVAL);
	CHECK(keeper != stage && pmdscope_stage("queue") == stage);
	CHECK(pmdscope_stage_hold(keeper) == 0);
	CHECK(rte_pktmbuf_alloc_bulk(app.pool, held, 300) == 0);
	pmdscope_mark_bulk(held, 300, keeper);
	expect_no_leak(2000);
	WAIT_FOR(ledger("pool", "held") >= 300);

	pmdscope_mark_bulk(held, 300, stage);
	WAIT_FOR(has_site("pool", "stage queue", "leak", 300));
	for (i = 0; i < 300; i++)
		rte_pktmbuf_free(held[i]);
	WAIT_FOR(ledger("pool", "leaked") == 0);
	CHECK_U64(site("pool", "stage queue", "leak", "events"), 300);
}

/* In a software ring nothing is lost, however long. */
static void
test_ring(void)
{
	struct rte_ring *r = rte_ring_create("waiting", 512, SOCKET_ID_ANY, 0);
	const int stage = pmdscope_stage("ring");
	struct rte_mbuf *m;
	unsigned int i;

	CHECK(r != NULL);
	restart(&always);
	for (i = 0; i < 200; i++) {
		m = rte_pktmbuf_alloc(app.pool);
		CHECK(m != NULL);
		pmdscope_mark(m, stage);
		CHECK(rte_ring_enqueue(r, m) == 0);
	}
	expect_no_leak(1500);
	CHECK_U64(ledger("pool", "rings"), 200);
	while (rte_ring_dequeue(r, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(r);
}

/* Traffic that stops and goes, and a poller that stands still with packets in its hands. */
static void
test_pauses(void)
{
	struct rte_mbuf *held[32];
	const int stage = pmdscope_stage("pause");
	unsigned int i;

	restart(&always);
	for (i = 0; i < 8; i++) {
		orders.idle = !orders.idle;
		expect_no_leak(i % 3 * 300 + 50);
	}
	orders.idle = false;
	CHECK(rte_pktmbuf_alloc_bulk(app.pool, held, 32) == 0);
	pmdscope_mark_bulk(held, 32, stage);
	orders.paused = true;
	expect_no_leak(2500);
	rte_pktmbuf_free_bulk(held, 32);
	orders.paused = false;
	expect_no_leak(1500);
}

/* Stamps by need: counts alone arm them, and what was lost before is told as such. */
static void
test_auto(void)
{
	static const struct pmdscope_conf conf = {
		.sample_ms = 50,
		.leak_hold_ms = 500,
		.leak_walk_ms = 100,
	};

	restart(&conf);
	CHECK_U64(ledger("pool", "armed"), 0);
	CHECK(tel_cell_is(ask("leaks"), "mode", 0, "auto"));
	check_sum("pool");
	orders.every = 16384;
	orders.kind = LEAK_RX;
	orders.nb_leaks = 100000;
	WAIT_FOR(ledger("pool", "armed") == 1);
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > 0);
	WAIT_FOR(ledger("pool", "prearm") > 0);
	WAIT_FOR((int)ledger("pool", "slope_milli") > 0);
	WAIT_FOR(ledger("pool", "exhausted_in_ms") > 0);
	orders.nb_leaks = 0;
	orders.every = 64;
	/* They stay known after that. */
	CHECK(tel_ask("/pmdscope/arm", "0") != NULL);
	rte_delay_us_sleep(300000);
	CHECK_U64(ledger("pool", "armed"), 0);
	CHECK(ledger("pool", "leaked") > 0);
	check_sum("pool");
}

static void
test_arm(void)
{
	static const struct pmdscope_conf on_demand = {
		.sample_ms = 50,
		.leak_hold_ms = 500,
		.leak_walk_ms = 100,
	};
	static const struct pmdscope_conf never = { .leak_mode = PMDSCOPE_LEAK_NEVER };
	static const char *const bad[] = { "", "x", "-1", "86401", "1 ", "999999999999" };
	unsigned int i;

	restart(&never);
	CHECK(tel_ask("/pmdscope/arm", "5") == NULL);
	CHECK_U64(pmdscope_stamp_now(), 0);
	restart(&on_demand);
	for (i = 0; i < RTE_DIM(bad); i++)
		CHECK(tel_ask("/pmdscope/arm", bad[i]) == NULL);
	CHECK_U64(pmdscope_stamp_now(), 0);
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "1"), "armed"), 1);
	CHECK(pmdscope_stamp_now() != 0);
	WAIT_FOR(pmdscope_stamp_now() == 0);
	/* A single one, lost long before. */
	lose(LEAK_RX, 1);
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	WAIT_FOR(has_site("pool", "before arming", "leak", 1));
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "0"), "armed"), 0);
}

/* Pools come and go while they are walked. */
static void
test_churn(void)
{
	const uint64_t end = rte_get_tsc_cycles() + rte_get_tsc_hz();
	struct rte_mempool *mp;
	struct rte_mbuf *m;

	restart(&always);
	while (rte_get_tsc_cycles() < end) {
		mp = rte_pktmbuf_pool_create("churn", 255, 32, 32, 512, SOCKET_ID_ANY);
		CHECK(mp != NULL);
		m = rte_pktmbuf_alloc(mp);
		rte_delay_us_sleep((unsigned int)rte_rdtsc() % 60000);
		rte_pktmbuf_free(m);
		rte_mempool_free(mp);
	}
	WAIT_FOR(tel_find(ask("leaks"), "name", "churn") < 0);
	CHECK_U64(ledger("pool", "leaked") + ledger("clones", "leaked"), 0);
}

static const struct pmdscope_conf by_need = {
	.sample_ms = 50,
	.leak_hold_ms = 500,
	.leak_walk_ms = 100,
};

/* A single one is missed, whether anything is stamped at that moment or not. */
static void
test_auto_single(void)
{
	restart(&by_need);
	expect_no_leak(1500);
	lose(LEAK_RX, 1);
	WAIT_FOR(all_leaked() == 1);
	CHECK(has_site("pool", "before arming", "leak", ledger("pool", "prearm")));
	CHECK(has_site("pool", line_of(LEAK_RX), "leak", 1 - ledger("pool", "prearm")));
	check_sum("pool");
}

/* All at once, before anything is stamped. */
static void
test_auto_exhausted(void)
{
	restart(&by_need);
	expect_no_leak(1500);
	CHECK_U64(ledger("pool", "exhausted_in_ms"), 0);
	orders.every = 1;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(ledger("pool", "armed") == 1);
	WAIT_FOR(ledger("pool", "lost_at_least") > 0 || all_leaked() > 0);
	check_sum("pool");
}

/* A walk falls into the loss: what it finds in use is lost already, and not what queues hold. */
static void
test_auto_halves(void)
{
	uint64_t walks;

	restart(&by_need);
	expect_no_leak(1500);
	orders.every = 1;
	lose(LEAK_RX, POOL_SIZE * 3 / 4);
	walks = ledger("pool", "walks");
	WAIT_FOR(ledger("pool", "walks") >= walks + 2);
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(ledger("pool", "lost_at_least") + ledger("pool", "leaked") > POOL_SIZE / 4);
	CHECK(ledger("pool", "lost_at_least") <= POOL_SIZE);
	check_sum("pool");
}

/* The pool is empty in less time than its growth takes to be sure. */
static void
test_auto_fast(void)
{
	static const struct pmdscope_conf defaults = { .sample_ms = 100 };

	restart(&defaults);
	expect_no_leak(1500);
	orders.per_second = 6000;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > POOL_SIZE / 4);
	WAIT_FOR(ledger("pool", "lost_at_least") > POOL_SIZE * 2 / 3 ||
			ledger("pool", "leaked") > POOL_SIZE * 2 / 3);
	check_sum("pool");
}

/* All at once and too early to be named; what is lost of them the next time is. */
static void
test_auto_late(void)
{
	static struct rte_mbuf *kept[2 * POOL_SIZE];

	restart(&by_need);
	expect_no_leak(1500);
	app.kept = kept;
	orders.every = 1;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(rte_mempool_avail_count(app.pool) < LEAK_BURST);
	WAIT_FOR(ledger("pool", "lost_at_least") > 0 || all_leaked() > 0);
	check_sum("pool");
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	orders.nb_leaks = 0;
	orders.every = 64;
	rte_delay_us_sleep(50000);
	CHECK(app.nb_kept <= RTE_DIM(kept));
	rte_pktmbuf_free_bulk(kept, app.nb_kept);
	app.kept = NULL;
	WAIT_FOR(ledger("pool", "leaked") == 0);
	lose(LEAK_RX, 50);
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") == 50);
	check_sum("pool");
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "hold", test_hold },
	{ "ring", test_ring },
	{ "pauses", test_pauses },
	{ "churn", test_churn },
	{ "arm", test_arm },
	{ "auto", test_auto },
	{ "auto_single", test_auto_single },
	{ "auto_exhausted", test_auto_exhausted },
	{ "auto_halves", test_auto_halves },
	{ "auto_fast", test_auto_fast },
	{ "auto_late", test_auto_late },
	{ "plain", test_plain },
	{ "traced", test_traced },
	{ "dump", test_dump },
	{ "large", test_large },
	{ "exhausted", test_exhausted },
	{ "exhausted_plain", test_exhausted_plain },
};

/* One test a process: what one has lost, the next would find. */
int
main(int argc, char **argv)
{
	unsigned int i, ran = 0;

	test_eal_mb("0@(0,1),1@(0,1)", "512");
	CHECK(pmdscope_init(&always) == 0);
	start_app();
	for (i = 0; i < RTE_DIM(tests); i++)
		if (argc == 2 && strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			ran++;
		}
	CHECK(ran == 1);
	stop_app();
	pmdscope_fini();
	rte_eal_cleanup();
	return 0;
}
