/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Pools, rings and /pmdscope over the socket; settings; start and stop. */

#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

#include "pmdscope.h"
#include "test.h"

#define POOL_SIZE 1023
#define CACHE_SIZE 32

static const struct pmdscope_conf conf = { .sample_ms = 10, .window_ms = 100 };

static void
test_conf(void)
{
	static const struct pmdscope_conf bad[] = {
		{ .sample_ms = 9 },
		{ .sample_ms = 10001 },
		{ .window_ms = 99 },
		{ .window_ms = 60001 },
		{ .stall_us = 10000001 },
		{ .tee_sessions = 9 },
		{ .tee_session_mb = 1025 },
		{ .tee_filter_cycles = 49 },
		{ .flags = 1U << 31 },
	};
	unsigned int i;

	for (i = 0; i < RTE_DIM(bad); i++)
		CHECK(pmdscope_init(&bad[i]) == -EINVAL);
}

static void
test_start_stop(void)
{
	pmdscope_fini();
	CHECK(pmdscope_init(NULL) == 0);
	CHECK(pmdscope_init(NULL) == -EALREADY);
	CHECK_U64(tel_u64(tel_ask("/pmdscope", ""), "sample_ms"), 100);
	pmdscope_fini();
	pmdscope_fini();
	CHECK(tel_ask("/pmdscope", "") == NULL);
	CHECK(tel_ask("/pmdscope/pools", "0") == NULL);
	CHECK(pmdscope_init(&conf) == 0);
}

static void
test_info(void)
{
	const char *info = tel_ask("/pmdscope", "");

	CHECK_U64(tel_u64(info, "schema"), 1);
	CHECK_U64(tel_u64(info, "pid"), (uint64_t)getpid());
	CHECK_U64(tel_u64(info, "sample_ms"), 10);
	CHECK_U64(tel_u64(info, "window_ms"), 100);
	CHECK_U64(tel_u64(info, "stall_us"), 1000);
	CHECK_U64(json_len(json_get(info, "tables")), 10);
	CHECK_U64(tel_u64(info, "traced_units"), 0);
	CHECK(strncmp(json_get(info, "dpdk") + 1, rte_version(), strlen(rte_version())) == 0);
	/* Measured; the EAL's own figure may be rounded to 10 MHz and is off by little more. */
	WAIT_FOR(tel_u64(tel_ask("/pmdscope", ""), "tsc_hz") != 0);
	CHECK(labs((long)tel_u64(tel_ask("/pmdscope", ""), "tsc_hz") - (long)rte_get_tsc_hz()) <
			(long)rte_get_tsc_hz() / 50);
	CHECK(tel_ask("/pmdscope", "1") == NULL);
	CHECK(tel_ask("/pmdscope/pools", "abc") == NULL);
	CHECK(tel_ask("/pmdscope/pools", "1000") == NULL);
}

static uint64_t
pool_cell(const char *column)
{
	const char *pools = tel_ask("/pmdscope/pools", "");
	const int row = tel_find(pools, "name", "pool");

	return row < 0 ? UINT64_MAX : tel_cell(pools, column, (unsigned int)row);
}

/* The parts add up in every reply, while objects come and go. */
static void
check_sums(void)
{
	const char *pools = tel_ask("/pmdscope/pools", "");
	const int row = tel_find(pools, "name", "pool");
	const unsigned int i = (unsigned int)row;

	CHECK(row >= 0);
	CHECK_U64(tel_cell(pools, "common", i) + tel_cell(pools, "cached", i) +
					tel_cell(pools, "in_use", i),
			POOL_SIZE);
	CHECK_U64(tel_cell(pools, "size", i), POOL_SIZE);
}

static void
test_pool(void)
{
	struct rte_mempool *mp = rte_pktmbuf_pool_create(
			"pool", POOL_SIZE, CACHE_SIZE, 0, 2048, SOCKET_ID_ANY);
	struct rte_mbuf *mbufs[700];
	const char *pools;
	unsigned int i;

	CHECK(mp != NULL);
	WAIT_FOR(pool_cell("size") == POOL_SIZE);
	CHECK_U64(pool_cell("in_use"), 0);
	CHECK_U64(pool_cell("cache_size"), CACHE_SIZE);
	for (i = 0; i < 700; i++) {
		mbufs[i] = rte_pktmbuf_alloc(mp);
		CHECK(mbufs[i] != NULL);
		if (i % 50 == 0)
			check_sums();
	}
	WAIT_FOR(pool_cell("in_use") == 700);
	CHECK_U64(pool_cell("in_use_max"), 700);

	/* One lcore's cache is all that is cached. */
	pools = tel_ask("/pmdscope/pools", "");
	CHECK_U64(json_len(json_get(pools, "caches_lcore")), 1);
	CHECK_U64(tel_cell(pools, "caches_lcore", 0), rte_lcore_id());
	CHECK_U64(tel_cell(pools, "caches_row", 0), (uint64_t)tel_find(pools, "name", "pool"));
	CHECK_U64(tel_cell(pools, "caches_objects", 0), mp->local_cache[rte_lcore_id()].len);

	for (i = 0; i < 700; i++)
		rte_pktmbuf_free(mbufs[i]);
	WAIT_FOR(pool_cell("in_use") == 0);
	/* The window forgets, the maximum does not. */
	WAIT_FOR(pool_cell("in_use_window_max") == 0);
	CHECK_U64(pool_cell("in_use_max"), 700);
	rte_mempool_free(mp);
	WAIT_FOR(pool_cell("size") == UINT64_MAX);
}

/* A pool that has no common ring yet must not be asked for its count. */
static void
test_empty_pool(void)
{
	struct rte_mempool *mp = rte_mempool_create_empty("hollow", 15, 64, 0, 0, SOCKET_ID_ANY, 0);

	CHECK(mp != NULL);
	rte_delay_us_sleep(50000);
	CHECK(tel_find(tel_ask("/pmdscope/pools", ""), "name", "hollow") < 0);
	rte_mempool_free(mp);
}

static uint64_t
ring_cell(const char *name, const char *column)
{
	const char *rings = tel_ask("/pmdscope/rings", "");
	const int row = tel_find(rings, "name", name);

	return row < 0 ? UINT64_MAX : tel_cell(rings, column, (unsigned int)row);
}

static void
test_rings(void)
{
	struct rte_ring *r = rte_ring_create("sp_mc", 64, SOCKET_ID_ANY, RING_F_SP_ENQ);
	uint64_t generation;
	const char *rings;
	unsigned int i, row;

	CHECK(r != NULL);
	WAIT_FOR(ring_cell("sp_mc", "capacity") == 63);
	for (i = 0; i < 40; i++)
		CHECK(rte_ring_enqueue(r, r) == 0);
	WAIT_FOR(ring_cell("sp_mc", "used") == 40);
	rings = tel_ask("/pmdscope/rings", "");
	row = (unsigned int)tel_find(rings, "name", "sp_mc");
	CHECK(tel_cell_is(rings, "producers", row, "sp"));
	CHECK(tel_cell_is(rings, "consumers", row, "mc"));
	/* The pool's own ring is not among them. */
	CHECK(tel_find(rings, "name", "MP_pool") < 0);
	generation = tel_u64(rings, "generation");

	rte_ring_reset(r);
	WAIT_FOR(ring_cell("sp_mc", "used_window_max") == 0);
	CHECK_U64(ring_cell("sp_mc", "used_max"), 40);
	rte_ring_free(r);
	WAIT_FOR(ring_cell("sp_mc", "capacity") == UINT64_MAX);
	CHECK(tel_u64(tel_ask("/pmdscope/rings", ""), "generation") != generation);
}

/* Pools and rings that come and go as fast as they can do not trip the sampler. */
static void
test_churn(void)
{
	const uint64_t end = rte_get_tsc_cycles() + rte_get_tsc_hz() / 2;
	struct rte_mempool *mp;
	struct rte_ring *r;

	while (rte_get_tsc_cycles() < end) {
		mp = rte_pktmbuf_pool_create("churn", 63, 0, 0, 2048, SOCKET_ID_ANY);
		r = rte_ring_create("churn", 64, SOCKET_ID_ANY, 0);
		CHECK(mp != NULL && r != NULL);
		rte_ring_free(r);
		rte_mempool_free(mp);
	}
	WAIT_FOR(tel_find(tel_ask("/pmdscope/pools", ""), "name", "churn") < 0);
	WAIT_FOR(tel_find(tel_ask("/pmdscope/rings", ""), "name", "churn") < 0);
}

int
main(void)
{
	test_eal("0@0");
	test_conf();
	test_start_stop();
	test_info();
	test_pool();
	test_empty_pool();
	test_rings();
	test_churn();
	pmdscope_fini();
	rte_eal_cleanup();
	return 0;
}
