/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CLOCK_H
#define CLOCK_H

/* The TSC in seconds and in wall-clock time. */

#include <stdint.h>
#include <time.h>

/* One moment on three clocks. */
struct moment {
	uint64_t tsc;
	uint64_t monotonic_ns; /* CLOCK_MONOTONIC */
	uint64_t realtime_ns;  /* CLOCK_REALTIME */
};

/* Any clock of the system, nanoseconds. */
uint64_t clock_read_ns(clockid_t id);

/* Read all three clocks in close succession: the best of a few tries. */
struct moment clock_now(void);

/*
 * TSC frequency in Hz from two moments, or 0 if they are less than 1 ms apart. The rate of
 * the EAL is rounded to 10 MHz, which is far too coarse for a paced sender.
 */
uint64_t clock_hz(const struct moment *from, const struct moment *to);

/* Measure the TSC frequency, in Hz. Sleeps 100 ms; better than 1 in 100,000. */
uint64_t clock_measure_hz(void);

/* Wall clock of a TSC value, nanoseconds, calculated from a moment close to it. */
uint64_t clock_realtime_ns(const struct moment *near, uint64_t tsc, uint64_t hz);

/* A span of TSC cycles in nanoseconds. */
uint64_t clock_ns(uint64_t cycles, uint64_t hz);

#endif /* CLOCK_H */
