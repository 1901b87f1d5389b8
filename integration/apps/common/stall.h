/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef STALL_H
#define STALL_H

/* Injects stalls: from time to time the poll loop does other work, or sleeps, for too long. */

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_pause.h>

#include "periodic.h"

/* Do nothing until so many TSC cycles after begin. */
static inline void
pause_until(uint64_t begin, uint64_t cycles)
{
	while (rte_rdtsc() - begin < cycles)
		rte_pause();
}

/* Not inlined, so that profiles show it. */
static __rte_noinline void
inject_stall(uint64_t begin, uint64_t cycles)
{
	pause_until(begin, cycles);
}

/* True if a stall is due; the next one is a period from now. */
static inline bool
stall_is_due(struct periodic *stall, uint64_t *now)
{
	if (stall->cycles == 0)
		return false;
	*now = rte_rdtsc();
	if (*now < stall->start)
		return false;
	stall->start = *now + stall->period;
	return true;
}

/* Work for the length of a stall if one is due. True if so. */
static inline bool
stall_when_due(struct periodic *stall)
{
	uint64_t now;

	if (!stall_is_due(stall, &now))
		return false;
	inject_stall(now, stall->cycles);
	return true;
}

/* Spend us microseconds in a system call if that is due. True if so. */
static inline bool
sleep_when_due(struct periodic *stall, uint64_t us)
{
	const struct timespec length = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };
	uint64_t now;

	if (!stall_is_due(stall, &now))
		return false;
	nanosleep(&length, NULL);
	return true;
}

#endif /* STALL_H */
