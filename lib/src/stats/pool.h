/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_POOL_H
#define PMDSCOPE_POOL_H

/* Mempools: where their objects are. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "page.h"

/* /pmdscope/pools. */
extern const struct pmdscope_table pmdscope_pool_table;

/* Find and sample all pools. Control thread, state lock held. */
void pmdscope_pool_sample(void);
void pmdscope_pool_stop(void);

/* The values of a pool that the leak ledger needs. */
struct pmdscope_pool_counts {
	const void *address;
	const char *name;
	bool mbufs;    /* Its objects are mbufs. */
	bool readable; /* Its free objects can be listed. */
	uint32_t size;
	uint32_t common;
	uint32_t cached;
	uint32_t in_use;
};

/* The i-th pool of the last sample; false after the last. */
bool pmdscope_pool_get(unsigned int i, struct pmdscope_pool_counts *counts);
/* The pool, if it still exists; it remains while the caller holds the tailq lock. */
struct rte_mempool *pmdscope_pool_find(const void *address, const char *name);
/* The row of a pool in /pmdscope/pools, plus 1; 0 for an address that is not that of a pool. */
unsigned int pmdscope_pool_row(const void *address);
/* The common pool is an rte_ring. */
bool pmdscope_pool_is_readable(const struct rte_mempool *mp);

#endif /* PMDSCOPE_POOL_H */
