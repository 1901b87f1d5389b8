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
 * Take a new last anchor if the present one is older than a second. True if one was taken. If
 * the TSC has been replaced, the first anchor is taken anew as well, and the rate is measured
 * again.
 */
int pmdscope_clock_tick(void);

/* The time between two anchors does not fit this rate (0: unknown). */
bool pmdscope_clock_jumped(
		const struct pmdscope_anchor *from, const struct pmdscope_anchor *to, uint64_t hz);

/* The first and the latest anchor. Caller holds the state lock. */
const struct pmdscope_anchor *pmdscope_clock_first(void);
const struct pmdscope_anchor *pmdscope_clock_last(void);

/* TSC frequency measured against CLOCK_MONOTONIC_RAW, Hz; 0 in the first 100 ms. */
uint64_t pmdscope_clock_hz(void);

/* Wall clock of a TSC value, nanoseconds. Uses the EAL's rate until a measured one is known. */
uint64_t pmdscope_clock_realtime_ns(uint64_t tsc);

/* A span of TSC cycles in microseconds. */
uint64_t pmdscope_clock_us(uint64_t cycles);

#endif /* PMDSCOPE_CLOCK_H */
