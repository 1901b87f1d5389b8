/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The smallest app with libpmdscope: compiled and started with an installed library. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#define POLLS 1000000

int
main(int argc, char **argv)
{
	struct rte_mempool *pool;
	struct rte_mbuf *mbuf;
	int i, result;

	if (rte_eal_init(argc, argv) < 0)
		rte_exit(EXIT_FAILURE, "rte_eal_init failed\n");
	result = pmdscope_init(NULL);
	if (result != 0)
		rte_exit(EXIT_FAILURE, "pmdscope_init: %s\n", strerror(-result));
	pool = rte_pktmbuf_pool_create("pool", 255, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		rte_exit(EXIT_FAILURE, "no pool\n");
	for (i = 0; i < POLLS; i++) {
		/* At level 2 these two are call sites. */
		mbuf = rte_pktmbuf_alloc(pool);
		rte_pktmbuf_free(mbuf);
		pmdscope_poll(mbuf != NULL);
	}
	pmdscope_fini();
	rte_eal_cleanup();
	printf("%d polls, libpmdscope %s\n", POLLS, PMDSCOPE_VERSION);
	return 0;
}
