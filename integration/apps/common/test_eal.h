/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef TEST_EAL_H
#define TEST_EAL_H

/* The EAL of a unit test, with a runtime directory of its own: the EAL never removes the one it creates. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "check.h"

/* Exit status of a skipped test. */
#define TEST_SKIPPED 77

static char runtime_dir[] = "/tmp/pmdscope-test-XXXXXX";

static inline void
remove_runtime_dir(void)
{
	static const char *const leaves[] = { "/dpdk/rte", "/dpdk", "" };
	char path[sizeof(runtime_dir) + sizeof("/dpdk/rte")];
	unsigned int i;

	for (i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", runtime_dir, leaves[i]);
		remove(path);
	}
}

/* Make rte_eal_init() use a directory that is removed when the test exits. */
static inline void
use_own_runtime_dir(void)
{
	CHECK(mkdtemp(runtime_dir) != NULL);
	CHECK(atexit(remove_runtime_dir) == 0);
	CHECK(setenv("RUNTIME_DIRECTORY", runtime_dir, 1) == 0);
}

/* Start the EAL without hugepages, devices and telemetry, or exit because this machine cannot. */
static inline void
test_eal_start(void)
{
	char *argv[] = { (char[]){ "test" }, (char[]){ "--no-huge" }, (char[]){ "-m" },
		(char[]){ "32" }, (char[]){ "--no-pci" }, (char[]){ "--no-shconf" },
		(char[]){ "--no-telemetry" } };

	use_own_runtime_dir();
	if (rte_eal_init(RTE_DIM(argv), argv) >= 0)
		return;
	CHECK(rte_errno != EINVAL);
	printf("skipped: rte_eal_init: %s\n", rte_strerror(rte_errno));
	exit(TEST_SKIPPED);
}

/* Start the EAL, and create a pool of 1023 mbufs with buffers of 256 bytes. */
static inline struct rte_mempool *
test_eal_pool(void)
{
	struct rte_mempool *pool;

	test_eal_start();
	pool = rte_pktmbuf_pool_create("pool", 1023, 64, 0, 256, (int)rte_socket_id());
	CHECK(pool != NULL);
	return pool;
}

#endif /* TEST_EAL_H */
