/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The leak ledger while stamps are armed by need: when they are, and what was lost before. */

#include <pthread.h>

#include <rte_mbuf.h>

#include "leak_bed.h"
#include "ledger.h"
#include "state.h"
#include "test.h"

/* What was lost by LEAK_RX, to be given back. */
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
 * Walks meet every mbuf. Those that the worker has in hand are always the same, and what no walk has
 * ever met is not told as lost.
 */
static void
meet_all(void)
{
	orders.idle = true;
	await_bursts(2);
	await_walks(2);
	orders.idle = false;
}

/* Stamps by need: counts alone arm them, and what was lost before is told as such. */
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
	/* They stay known after that. */
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
	/* A single one, lost long before. */
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

/* A single one is missed, whether anything is stamped at that moment or not. */
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

/* All at once, before anything is stamped. */
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

/* A walk falls into the loss: what it finds in use is lost already, and not what queues hold. */
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

/* The pool is empty in less time than its growth takes to be sure. */
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

/* Emptied sooner than a leak is confirmed: how much is lost is told, and a site of the next time. */
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

/* All at once and too early to be named; what is lost of them the next time is. */
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

/* An mbuf without a stamp came back after so many walks. */
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

/* From now on stamps may be armed because mbufs are missing, or never. */
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
 * A pool whose mbufs are missed for long: stamps stay armed until the ledger can tell what is lost,
 * and not just for the time that they are armed in vain.
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
	/* The ledger learns meanwhile what the receive queue holds. */
	WAIT_FOR(ledger("pool", "walks") >= 8);
	note_returned("pool", 20);
	orders.every = 1;
	/* Less than a thirty-second is left, and no packet moves that could prove more. */
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
