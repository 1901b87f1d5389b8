/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CLOCK_H
#define PMDSCOPE_CLOCK_H

/* Ties the TSC to wall-clock and raw monotonic time. Control thread only, except readers. */

#include <stdbool.h>
#include <stdint.h>

#include "pmdscope_ring.h"

/* Take the first anchor. */
void pmdscope_clock_start(void);

/*
 * Take a new last anchor if the present one is older than a second. True when it did. When the
 * TSC is not the one it was, the first anchor is a new one, too, and its rate has to be measured
 * anew.
 */
int pmdscope_clock_tick(void);

/* Between two anchors something else than time went by at this rate (0: unknown). */
bool pmdscope_clock_jumped(
		const struct pmdscope_anchor *from, const struct pmdscope_anchor *to, uint64_t hz);

/* The first and the latest anchor. Caller holds the state lock. */
const struct pmdscope_anchor *pmdscope_clock_first(void);
const struct pmdscope_anchor *pmdscope_clock_last(void);

/* TSC frequency measured against CLOCK_MONOTONIC_RAW, Hz; 0 in the first 100 ms. */
uint64_t pmdscope_clock_hz(void);

/* Wall clock of a TSC value, nanoseconds. Before a measured rate is known, by the EAL's rate. */
uint64_t pmdscope_clock_realtime_ns(uint64_t tsc);

/* A span of TSC cycles in microseconds. */
uint64_t pmdscope_clock_us(uint64_t cycles);

#endif /* PMDSCOPE_CLOCK_H */
