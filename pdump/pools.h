/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_POOLS_H
#define PDUMP_POOLS_H

/*
 * Header of a mempool and caches of its lcores depend on how DPDK was built: RTE_MAX_LCORE,
 * counters, debugging. An app with larger ones would write beyond our pool. The size of the app's
 * own pools shows this.
 */

#include <stddef.h>
#include <sys/types.h>

#include <rte_mempool.h>

#include "failure.h"

/* Length of the memzone of a pool like this one. */
size_t pools_zone_len(const struct rte_mempool *mp);

/*
 * Check that the app's pools have the layout that ours will have. Call when attached. 0, also if
 * the app has no pools to compare with, or -1 with the failure.
 */
int pools_check(struct failure *failure);

#endif /* PDUMP_POOLS_H */
