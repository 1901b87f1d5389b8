/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_SAMPLING_H
#define PMDSCOPE_CAPTURE_SAMPLING_H

/*
 * Which packets a 1-in-N sampling keeps. The distance from one to the next is random, uniform in 1
 * to 2N - 1: periodic traffic, such as alternating bursts of RX and TX, is sampled evenly, which
 * keeping every Nth packet would not do. Fast path.
 */

#include <stdint.h>

#include <rte_common.h>

struct pmdscope_sampling {
	uint64_t random; /* Any seed will do. */
	uint64_t skip;	 /* Packets to leave out before the next is kept. */
};

/*
 * A random number, uniform in 0 to n - 1, for n up to 2^33. The high bits of a linear congruential
 * generator modulo 2^64, with Knuth's multiplier: the low ones have short periods.
 */
static inline uint64_t
pmdscope_sampling_draw(struct pmdscope_sampling *s, uint64_t n)
{
	s->random = s->random * 6364136223846793005U + 1442695040888963407U;
	return (s->random >> 33) * n >> 31;
}

/* A packet was kept: draw how many to leave out next. A rate of 1 leaves out none. */
static inline void
pmdscope_sampling_next(struct pmdscope_sampling *s, uint32_t rate)
{
	if (rate > 1)
		s->skip = pmdscope_sampling_draw(s, 2 * (uint64_t)rate - 1);
}

/*
 * Begin with a rate, as if it had always been in force: each packet is kept with probability 1/N.
 * For this a first distance k must have the probability (2N - k) / (N * (2N - 1)), which is that of
 * the smaller one of two different numbers of 1 to 2N.
 */
static inline void
pmdscope_sampling_begin(struct pmdscope_sampling *s, uint32_t rate)
{
	const uint64_t a = pmdscope_sampling_draw(s, 2 * (uint64_t)rate);
	const uint64_t b = pmdscope_sampling_draw(s, 2 * (uint64_t)rate - 1);

	s->skip = RTE_MIN(a, b < a ? b : b + 1);
}

#endif /* PMDSCOPE_CAPTURE_SAMPLING_H */
