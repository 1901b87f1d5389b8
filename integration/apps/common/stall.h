/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef STALL_H
#define STALL_H

/* Injects stalls: the poll loop does other work for too long from time to time. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_pause.h>

#include "periodic.h"

/* Not inlined, so that a profile can name it. */
static __rte_noinline void
inject_stall(uint64_t begin, uint64_t cycles)
{
	while (rte_rdtsc() - begin < cycles)
		rte_pause();
}

/* Busy for the length of a stall if one is due, and start the next a period from now. True if so. */
static inline bool
stall_when_due(struct periodic *stall)
{
	uint64_t now;

	if (stall->cycles == 0)
		return false;
	now = rte_rdtsc();
	if (now < stall->start)
		return false;
	stall->start = now + stall->period;
	inject_stall(now, stall->cycles);
	return true;
}

#endif /* STALL_H */
