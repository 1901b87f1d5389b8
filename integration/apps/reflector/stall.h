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

struct stall {
	uint64_t cycles; /* Length; 0: never stall. */
	uint64_t period; /* From one stall's start to the next one's, cycles. */
	uint64_t due;	 /* TSC of the next. */
};

static inline struct stall
stall_start(uint64_t us, uint64_t every_ms, uint64_t hz, uint64_t now)
{
	return (struct stall){
		.cycles = us * hz / 1000000,
		.period = every_ms * hz / 1000,
		.due = now + every_ms * hz / 1000,
	};
}

/* Not inlined, so that a profile can name it. */
static __rte_noinline void
inject_stall(uint64_t begin, uint64_t cycles)
{
	while (rte_rdtsc() - begin < cycles)
		rte_pause();
}

/* Busy for the length of a stall if one is due. True if so. */
static inline bool
stall_when_due(struct stall *stall)
{
	uint64_t now;

	if (stall->cycles == 0)
		return false;
	now = rte_rdtsc();
	if (now < stall->due)
		return false;
	stall->due = now + stall->period;
	inject_stall(now, stall->cycles);
	return true;
}

#endif /* STALL_H */
