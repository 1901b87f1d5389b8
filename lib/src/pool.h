/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_POOL_H
#define PMDSCOPE_POOL_H

/* Mempools: where their objects are. */

#include "page.h"

/* /pmdscope/pools. */
extern const struct pmdscope_table pmdscope_pool_table;

/* Find and sample all pools. Control thread, state lock held. */
void pmdscope_pool_sample(void);
void pmdscope_pool_stop(void);

#endif /* PMDSCOPE_POOL_H */
