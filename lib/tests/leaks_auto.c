/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The leak ledger while stamps are armed on demand: when they are, and earlier losses. */

#include <pthread.h>

#include <rte_mbuf.h>

#include "leak_bed.h"
#include "ledger.h"
#include "readers.h"
#include "state.h"
#include "test.h"

/* Mbufs lost by LEAK_RX, which can be freed again. */
static struct rte_mbuf *kept[2 * POOL_SIZE];

/* Stamps are armed on demand, and the app has all its mbufs again. */
static void
give_back(void)
{
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	orders.nb_leaks = 0;
	await_bursts(2);
	CHECK(app.nb_kept <= RTE_DIM(kept));
	rte_pktmbuf_free_bulk(kept, app.nb_kept);
	app.kept = NULL;
	WAIT_FOR(ledger("pool", "leaked") == 0);
}

/*
 * Wait until walks have found every mbuf. The worker always holds the same ones, and an mbuf that
 * no walk has ever found is not reported as lost.
 */
static void
meet_all(void)
{
	orders.idle = true;
	await_bursts(2);
	await_walks(2);
	orders.idle = false;
}

/* Stamps on demand: counts alone arm them, and earlier losses are reported as such. */
void
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
	meet_all();
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
	/* They are still reported after that. */
	CHECK(tel_ask("/pmdscope/arm", "0") != NULL);
	rte_delay_us_sleep(300000);
	CHECK_U64(ledger("pool", "armed"), 0);
	CHECK(ledger("pool", "leaked") > 0);
	check_sum("pool");
}

void
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
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	CHECK(pmdscope_stamp_now() != 0);
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "1"), "armed"), 1);
	WAIT_FOR(pmdscope_stamp_now() == 0);
	/* A single mbuf, lost long before. */
	meet_all();
	lose(LEAK_RX, 1);
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	WAIT_FOR(has_site("pool", "before arming", "leak", 1));
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "0"), "armed"), 0);
}

static const struct pmdscope_conf by_need = {
	.sample_ms = 50,
	.leak_hold_ms = 500,
	.leak_walk_ms = 100,
};

/* A single missing mbuf is noticed, whether or not stamps are armed at that moment. */
void
test_auto_single(void)
{
	restart(&by_need);
	expect_no_leak(1500);
	meet_all();
	lose(LEAK_RX, 1);
	WAIT_FOR(all_leaked() == 1);
	CHECK(has_site("pool", "before arming", "leak", ledger("pool", "prearm")));
	CHECK(has_site("pool", line_of(LEAK_RX), "leak", 1 - ledger("pool", "prearm")));
	check_sum("pool");
}

#define UNREAD_LEAKS 100000U

static uint64_t
queues_counted(void)
{
	return tel_u64(tel_ask("/pmdscope", ""), "queues_counted");
}

/*
 * Queues are counted on demand and nobody reads: mbufs are not walked, but a pool that grows arms
 * stamps, and the line is found. The queues are counted anew then; the mbufs in them are not lost.
 */
void
test_auto_unread(void)
{
	struct pmdscope_conf unread = by_need;
	uint64_t walks;

	unread.flags = PMDSCOPE_F_COUNT_ON_DEMAND;
	restart(&unread);
	expect_no_leak(1500);
	meet_all();
	pmdscope_readers_hold_ns = 1;
	/* Stamps may be armed, for seconds. */
	WAIT_FOR(queues_counted() == 0);
	walks = ledger("pool", "walks");
	CHECK(walks > 0);
	/* That was read; after it there is time for twenty-five walks. */
	rte_delay_us_sleep(500000);
	WAIT_FOR(queues_counted() == 0);
	rte_delay_us_sleep(2500000);
	CHECK_U64(queues_counted(), 0);
	orders.every = 16384;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UNREAD_LEAKS;
	WAIT_FOR(queues_counted() == 1);
	pmdscope_readers_hold_ns = 600 * UINT64_C(1000000000);
	CHECK_U64(ledger("pool", "armed"), 1);
	CHECK(ledger("pool", "walks") < walks + 15);
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > 0);
	orders.every = UINT_MAX;
	await_bursts(2);
	check_sum("pool");
	CHECK(all_leaked() <= UNREAD_LEAKS - orders.nb_leaks);
}

/* All mbufs at the same time, before stamps are armed. */
void
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

/*
 * The loss happens during a walk: mbufs that it finds in use are already lost, and not in queues.
 */
void
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

/* The pool is empty before its growth is certain. */
void
test_auto_fast(void)
{
	static const struct pmdscope_conf defaults = { .sample_ms = 100 };

	restart(&defaults);
	expect_no_leak(1500);
	orders.per_second = 2500;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > POOL_SIZE / 4);
	WAIT_FOR(ledger("pool", "lost_at_least") > POOL_SIZE * 2 / 3 ||
			ledger("pool", "leaked") > POOL_SIZE * 2 / 3);
	check_sum("pool");
}

/*
 * Emptied before a leak is confirmed: the number of losses is reported, and the site of the next
 * ones.
 */
void
test_auto_at_once(void)
{
	static const struct pmdscope_conf defaults = { .sample_ms = 100 };

	restart(&defaults);
	expect_no_leak(1500);
	app.kept = kept;
	orders.per_second = 6000;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(ledger("pool", "lost_at_least") > 0);
	WAIT_FOR(lost() > POOL_SIZE * 2 / 3);
	give_back();
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") > 0);
	check_sum("pool");
}

/* All mbufs at the same time, too early for a site; the next time they have one. */
void
test_auto_late(void)
{
	restart(&by_need);
	expect_no_leak(1500);
	app.kept = kept;
	lose_all();
	WAIT_FOR(ledger("pool", "lost_at_least") > 0 || all_leaked() > 0);
	check_sum("pool");
	give_back();
	orders.every = 64;
	lose(LEAK_RX, 50);
	WAIT_FOR(site("pool", line_of(LEAK_RX), "leak", "count") == 50);
	check_sum("pool");
}

/* An mbuf without a stamp came back after this many walks. */
static void
note_returned(const char *pool, uint32_t walks)
{
	struct pmdscope_ledger *l;
	unsigned int i;

	pthread_mutex_lock(&pmdscope_state.lock);
	for (i = 0; (l = pmdscope_ledger_get(i)) != NULL; i++)
		if (strcmp(l->name, pool) == 0)
			l->longest_missing = walks;
	pthread_mutex_unlock(&pmdscope_state.lock);
}

/* Allow or forbid, from now on, to arm stamps because mbufs are missing. */
static void
suspect_from(uint64_t ms)
{
	struct pmdscope_ledger *l;
	unsigned int i;

	pthread_mutex_lock(&pmdscope_state.lock);
	for (i = 0; (l = pmdscope_ledger_get(i)) != NULL; i++) {
		l->suspicion.not_before = ms;
		l->draining.not_before = ms;
	}
	pthread_mutex_unlock(&pmdscope_state.lock);
}

/*
 * A pool whose mbufs are missed for long: stamps stay armed until the ledger can confirm losses,
 * and not just for the usual time without a result.
 */
void
test_auto_long_missing(void)
{
	static const struct pmdscope_conf conf = {
		.sample_ms = 50,
		.leak_hold_ms = 500,
		.leak_walk_ms = 500,
	};

	orders.idle = true;
	restart(&conf);
	suspect_from(UINT64_MAX);
	orders.idle = false;
	/* Meanwhile the ledger learns how many mbufs the receive queue holds. */
	WAIT_FOR(ledger("pool", "walks") >= 8);
	note_returned("pool", 20);
	orders.every = 1;
	/* Less than 1/32 is left, and no packet moves that could give another proof. */
	lose(LEAK_RX, POOL_SIZE - 200);
	orders.idle = true;
	CHECK_U64(ledger("pool", "armed"), 0);
	suspect_from(0);
	WAIT_FOR(ledger("pool", "armed") == 1);
	while (ledger("pool", "lost_at_least") == 0) {
		CHECK_U64(ledger("pool", "armed"), 1);
		rte_delay_us_sleep(50000);
	}
	CHECK(ledger("pool", "lost_at_least") <= POOL_SIZE);
	check_sum("pool");
}
