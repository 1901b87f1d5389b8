/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_SAMPLING_H
#define PMDSCOPE_CAPTURE_SAMPLING_H

/*
 * Which packets a 1-in-N sampling keeps. The distance from one to the next is random, uniform in
 * 1 to 2N - 1: periodic traffic, such as alternating bursts of RX and TX, is sampled evenly, while
 * every Nth packet would not do so. Fast path.
 */

#include <stdint.h>

#include <rte_common.h>

struct pmdscope_sampling {
	uint64_t random; /* Any seed will do. */
	uint64_t skip;	 /* Packets to leave out before the next is kept. */
};

/*
 * Uniform in 0 to n - 1, of n up to 2^33. The high bits of a linear congruential generator modulo
 * 2^64, with Knuth's multiplier: the low ones have short periods.
 */
static inline uint64_t
pmdscope_sampling_draw(struct pmdscope_sampling *s, uint64_t n)
{
	s->random = s->random * 6364136223846793005U + 1442695040888963407U;
	return (s->random >> 33) * n >> 31;
}

/* A packet has been kept: how many to leave out. Of all nothing is ever left out. */
static inline void
pmdscope_sampling_next(struct pmdscope_sampling *s, uint32_t rate)
{
	if (rate > 1)
		s->skip = pmdscope_sampling_draw(s, 2 * (uint64_t)rate - 1);
}

/*
 * Begin with a rate. As if it had been in force for ever: each packet from now on has the chance
 * 1/N, for which a first distance k must have the chance (2N - k) / (N * (2N - 1)). So has the
 * smaller one of two different numbers of 1 to 2N.
 */
static inline void
pmdscope_sampling_begin(struct pmdscope_sampling *s, uint32_t rate)
{
	const uint64_t a = pmdscope_sampling_draw(s, 2 * (uint64_t)rate);
	const uint64_t b = pmdscope_sampling_draw(s, 2 * (uint64_t)rate - 1);

	s->skip = RTE_MIN(a, b < a ? b : b + 1);
}

#endif /* PMDSCOPE_CAPTURE_SAMPLING_H */
