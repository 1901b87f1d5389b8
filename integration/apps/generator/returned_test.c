/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_eal.h>

#include "check.h"
#include "returned.h"
#include "test_eal.h"

#define BYTES "what came back"

static void
receive(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int n)
{
	unsigned int i;

	CHECK_EQ(rte_pktmbuf_alloc_bulk(pool, pkts, n), 0);
	for (i = 0; i < n; i++) {
		CHECK(rte_pktmbuf_append(pkts[i], sizeof(BYTES)) != NULL);
		memcpy(rte_pktmbuf_mtod(pkts[i], void *), BYTES, sizeof(BYTES));
		rte_pktmbuf_adj(pkts[i], 4);
		pkts[i]->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_BAD;
	}
}

/* Those kept are empty, and come back once each; those above the maximum are freed. */
static void
test_keep(struct rte_mempool *pool)
{
	struct rte_mbuf *pkts[RETURNED_MAX], *to[RETURNED_MAX + 1];
	struct returned returned = { .nb = 0 };
	uint16_t i, taken;

	receive(pool, pkts, 3);
	returned_keep(&returned, pkts, 3);
	receive(pool, pkts, RETURNED_MAX);
	returned_keep(&returned, pkts, RETURNED_MAX);
	CHECK_EQ(returned.nb, RETURNED_MAX);
	CHECK_EQ(rte_mempool_in_use_count(pool), RETURNED_MAX);

	taken = returned_take(&returned, to, 2);
	CHECK_EQ(taken, 2);
	taken += returned_take(&returned, to + taken, RETURNED_MAX);
	CHECK_EQ(taken, RETURNED_MAX);
	CHECK_EQ(returned_take(&returned, to + taken, 1), 0);
	for (i = 0; i < taken; i++) {
		CHECK_EQ(rte_pktmbuf_pkt_len(to[i]), 0);
		CHECK_EQ(rte_pktmbuf_headroom(to[i]), RTE_PKTMBUF_HEADROOM);
		CHECK_EQ(to[i]->ol_flags, 0);
		CHECK(strcmp(rte_pktmbuf_mtod(to[i], char *), BYTES) == 0);
		rte_pktmbuf_free(to[i]);
	}
	CHECK_EQ(rte_mempool_in_use_count(pool), 0);
}

/* Mbufs that something else uses, too, must not be written to. */
static void
test_shared(struct rte_mempool *pool)
{
	struct returned returned = { .nb = 0 };
	struct rte_mbuf *pkts[4], *shared, *chained, *clone;

	receive(pool, pkts, 4);
	shared = pkts[0];
	rte_mbuf_refcnt_update(shared, 1);
	chained = pkts[1];
	CHECK_EQ(rte_pktmbuf_chain(chained, rte_pktmbuf_alloc(pool)), 0);
	clone = rte_pktmbuf_clone(pkts[3], pool);
	CHECK(clone != NULL);
	rte_pktmbuf_free(pkts[3]);
	pkts[3] = clone;
	returned_keep(&returned, pkts, 4);
	CHECK_EQ(returned.nb, 1);
	CHECK(returned.mbufs[0] == pkts[2]);
	CHECK_EQ(rte_mempool_in_use_count(pool), 2);
	CHECK(strcmp(rte_pktmbuf_mtod(shared, char *), BYTES + 4) == 0);
	rte_pktmbuf_free(shared);
	returned_free(&returned);
	CHECK_EQ(returned.nb, 0);
	CHECK_EQ(rte_mempool_in_use_count(pool), 0);
}

int
main(void)
{
	struct rte_mempool *pool = test_eal_pool();

	test_keep(pool);
	test_shared(pool);
	rte_mempool_free(pool);
	rte_eal_cleanup();
	return 0;
}
