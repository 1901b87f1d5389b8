/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PERIODIC_H
#define PERIODIC_H

/* A periodic fault that lasts for some time. */

#include <stdint.h>

struct periodic {
	uint64_t cycles; /* Length; 0: never. */
	uint64_t period; /* From the start of one to that of the next, cycles. */
	uint64_t start;	 /* TSC at the start of the first one or, if updated, of the next one. */
};

static inline struct periodic
periodic_start(uint64_t us, uint64_t every_ms, uint64_t hz, uint64_t now)
{
	return (struct periodic){
		.cycles = us * hz / 1000000,
		.period = every_ms * hz / 1000,
		.start = now + every_ms * hz / 1000,
	};
}

#endif /* PERIODIC_H */
