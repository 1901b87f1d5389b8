/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_RECLAIM_H
#define PMDSCOPE_RECLAIM_H

/* Memory that was unlinked from the fast path, freed once no lcore can be using it. */

#include <stdbool.h>

/* Hand over memory of rte_malloc. Callers of these functions share a lock. */
void pmdscope_reclaim_later(void *memory);
/* Free what is due. Never waits. */
void pmdscope_reclaim_tick(void);
/*
 * Wait, at most wait_ms, until everything handed over could be freed. False if an lcore has
 * not polled in that time: everything is kept, and pmdscope_reclaim_tick() frees it when
 * possible.
 */
bool pmdscope_reclaim_all(unsigned int wait_ms);

#endif /* PMDSCOPE_RECLAIM_H */
