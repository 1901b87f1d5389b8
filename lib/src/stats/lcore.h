/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_LCORE_H
#define PMDSCOPE_LCORE_H

/* Polling lcores: their table, and waiting until they have left the callbacks. */

#include <stdbool.h>
#include <stdint.h>

#include "page.h"
#include "pmdscope.h"

/* /pmdscope/lcores. */
extern const struct pmdscope_table pmdscope_lcore_table;

/* Forget all lcores and let those that poll register anew. */
void pmdscope_lcore_start(uint32_t stall_us);
/* Once per sample, on the control thread: adds registered lcores as rows. */
void pmdscope_lcore_tick(void);
void pmdscope_lcore_stop(void);

/* Polls by threads without an lcore id. */
uint64_t pmdscope_foreign_polls(void);
/* The calling thread may run on the CPU of a polling lcore. */
bool pmdscope_lcore_shares_cpu(void);

/* This thread runs ethdev callbacks. Rarely called, from the callbacks. */
void pmdscope_lcore_bursts(void);

/* The lcore cannot be in a burst now, even if its poll counter has not changed. */
bool pmdscope_lcore_is_idle(unsigned int lcore);

/* The polls of every lcore at the time when something was unlinked that it may still use. */
struct pmdscope_grace {
	uint64_t polls[RTE_MAX_LCORE];
};

void pmdscope_grace_begin(struct pmdscope_grace *grace);
/* Every lcore has polled since, or cannot be in a burst: unlinked memory may be freed. */
bool pmdscope_grace_over(const struct pmdscope_grace *grace);

#endif /* PMDSCOPE_LCORE_H */
