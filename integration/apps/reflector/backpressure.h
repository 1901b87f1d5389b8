/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef BACKPRESSURE_H
#define BACKPRESSURE_H

/* TX takes nothing for some time now and then, as with a peer that does not read, and the app retries. */

#include <stdbool.h>
#include <stdint.h>

struct backpressure {
	uint64_t cycles; /* Length; 0: never. */
	uint64_t period; /* From the start of one to that of the next, cycles. */
	uint64_t start;	 /* TSC at the start of the first. */
};

static inline struct backpressure
backpressure_start(uint64_t us, uint64_t every_ms, uint64_t hz, uint64_t now)
{
	return (struct backpressure){
		.cycles = us * hz / 1000000,
		.period = every_ms * hz / 1000,
		.start = now + every_ms * hz / 1000,
	};
}

/* TX takes nothing at this TSC. */
static inline bool
backpressure_now(const struct backpressure *pressure, uint64_t now)
{
	return now >= pressure->start &&
	       (now - pressure->start) % pressure->period < pressure->cycles;
}

#endif /* BACKPRESSURE_H */
