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
#include "ledger.h"
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

/* Without call sites: the queue is the place, and the TX call for the rest. */
static void
test_plain(void)
{
	orders.plain = true;
	restart(&always);
	expect_no_leak(700);
	lose(LEAK_RX, 3);
	WAIT_FOR(has_site("pool", "rx port 0 queue 0", "leak", 3));
	lose(LEAK_UNSENT, 2);
	WAIT_FOR(ledger("pool", "tx_pending") >= 2);
	await_walks(10);
	/* Given to a NIC that sends nothing: they may still be there. */
	CHECK_U64(ledger("pool", "leaked"), 3);
	CHECK(ledger("pool", "tx_pending") >= 2);
	lose(LEAK_MARKED, 2);
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 2));
	lose(LEAK_CLONE, 2);
	WAIT_FOR(ledger("clones", "leaked") == 2);
	check_sum("pool");
	orders.plain = false;
}

/* The progress of a walk, read with the state lock held. */
struct walk_position {
	uint64_t walks; /* Completed walks. */
	uint32_t ring_at, mark_at;
};

/* False between walks. */
static bool
get_position(const char *pool, struct walk_position *position)
{
	const struct pmdscope_ledger *l;
	bool walking = false;
	unsigned int i;

	*position = (struct walk_position){ 0 };
	pthread_mutex_lock(&pmdscope_state.lock);
	for (i = 0; (l = pmdscope_ledger_get(i)) != NULL; i++)
		if (strcmp(l->name, pool) == 0) {
			position->walks = l->walks;
			position->ring_at = l->ring_at;
			position->mark_at = l->mark_at;
			walking = l->walking && pmdscope_ledger_busy();
		}
	pthread_mutex_unlock(&pmdscope_state.lock);
	return walking;
}

/* How often the state lock could be taken during the next walk, each time at a later position. */
static unsigned int
nb_slices(const char *pool)
{
	struct walk_position first, last, now;
	unsigned int slices = 0;

	get_position(pool, &first);
	do
		get_position(pool, &last);
	while (last.walks == first.walks);
	for (first = last; last.walks == first.walks; last = now)
		slices += get_position(pool, &now) &&
			  (now.ring_at != last.ring_at || now.mark_at != last.mark_at);
	return slices;
}

/* A pool of a million mbufs is walked in slices, and its single lost mbuf is found. */
static void
test_large(void)
{
	struct rte_mempool *mp =
			rte_pktmbuf_pool_create("large", 1000000, 256, 0, 0, SOCKET_ID_ANY);
	const int stage = pmdscope_stage("large");
	struct rte_mbuf *m;
	unsigned int walks = 0;

	CHECK(mp != NULL);
	restart(&always);
	m = rte_pktmbuf_alloc(mp);
	pmdscope_mark(m, stage);
	WAIT_FOR(ledger("large", "leaked") == 1);
	CHECK_U64(site("large", "stage large", "leak", "count"), 1);
	check_sum("large");
	CHECK_U64(ledger("large", "common") + ledger("large", "cached"), 999999);
	/* The state lock is held for a slice of 1 ms at a time, so a faster CPU needs fewer. A
	 * busy scheduler may hide half of them, but not in every walk.
	 */
	while (nb_slices("large") < RTE_MAX(2, ledger("large", "walk_us") / 2000))
		CHECK(++walks < 100);
	rte_pktmbuf_free(m);
	WAIT_FOR(ledger("large", "leaked") == 0);
	rte_mempool_free(mp);
}

/* Lose all mbufs: no traffic is left for a proof by turnover. */
static void
exhaust(void)
{
	restart(&always);
	expect_no_leak(700);
	/* Wait until walks have checked which code frees mbufs. */
	await_walks(5);
	lose_all();
}

static void
test_exhausted(void)
{
	/* Frees are traced: mbufs that a call site had last cannot be posted. */
	exhaust();
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > POOL_SIZE * 9 / 10);
	check_sum("pool");
}

/* The driver does not report how many it may hold: 4096 are assumed, or the number once in use. */
static void
test_exhausted_plain(void)
{
	orders.plain = true;
	exhaust();
	WAIT_FOR(ledger("pool", "lost_at_least") > (POOL_SIZE - 4096) * 9 / 10);
	CHECK(ledger("pool", "lost_at_least") <= POOL_SIZE);
	check_sum("pool");
}

/* Held for long, and then freed: no leak, or one that is retracted and not reported again. */
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

/* Mbufs in a software ring are never lost. */
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
	await_walks(10);
	CHECK_U64(ledger("pool", "rings"), 200);
	CHECK_U64(all_leaked(), 0);
	while (rte_ring_dequeue(r, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(r);
}

/* Traffic that pauses, and a poller that stops while it holds packets. */
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

/* Pools are created and freed during walks. */
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
	{ "auto_unread", test_auto_unread },
	{ "auto_at_once", test_auto_at_once },
	{ "auto_late", test_auto_late },
	{ "auto_long_missing", test_auto_long_missing },
	{ "plain", test_plain },
	{ "traced", test_traced },
	{ "dump", test_dump },
	{ "large", test_large },
	{ "exhausted", test_exhausted },
	{ "exhausted_plain", test_exhausted_plain },
};

/* One test per process, as mbufs lost by one would be found by the next. */
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
