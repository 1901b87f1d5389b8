/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_POOLS_H
#define PDUMP_POOLS_H

/*
 * Header of a mempool and caches of its lcores depend on how DPDK was built: RTE_MAX_LCORE, counters,
 * debugging. An app that expects more of them than there are would write behind our pool. The size of
 * the app's own pools tells.
 */

#include <stddef.h>
#include <sys/types.h>

#include <rte_mempool.h>

#include "failure.h"

/* Length of the memzone that a pool like this one is in. */
size_t pools_zone_len(const struct rte_mempool *mp);

/*
 * Are the pools of the app laid out as ours will be? Call when attached. 0, also where the app has no
 * pools to tell by, or -1 with the failure.
 */
int pools_check(pid_t pid, struct failure *failure);

#endif /* PDUMP_POOLS_H */
