/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LATENCY_H
#define LATENCY_H

/*
 * A log-linear histogram over all 64-bit values: each power of two is split into 128
 * buckets, so a percentile is off by 0.4 % at most: two decimal digits in HdrHistogram's terms. Minimum, maximum and mean are exact.
 */

#include <stdint.h>

#define LATENCY_SUB_BITS 7
#define LATENCY_SUBS (1U << LATENCY_SUB_BITS)
#define LATENCY_BUCKETS ((64 - LATENCY_SUB_BITS + 1) * LATENCY_SUBS)

struct latency {
	uint64_t buckets[LATENCY_BUCKETS];
	uint64_t min;
	uint64_t max;
	unsigned __int128 sum; /* Complete only for its writer. */
};

void latency_clear(struct latency *latency);

/* One writer; concurrent merges may miss only the latest values. */
void latency_add(struct latency *latency, uint64_t value);

/* The same for n times the same value; n is at least 1. */
void latency_add_n(struct latency *latency, uint64_t value, uint64_t n);

/* Add the buckets and extremes of from, and its sum, which is valid once its writer has ended. */
void latency_merge(struct latency *into, const struct latency *from);

/*
 * Subtract an earlier state of the same histogram. Extremes and sum become those of the rest, with
 * the precision of the buckets.
 */
void latency_subtract(struct latency *from, const struct latency *earlier);

/* Value that represents this bucket: the middle, within the extremes. */
uint64_t latency_value(const struct latency *latency, unsigned int bucket);

uint64_t latency_count(const struct latency *latency);

/* The value that a share of all values (0 to 1) does not exceed; 0 when empty. */
uint64_t latency_percentile(const struct latency *latency, double share);

#define LATENCY_QUANTILES 6

/* The percentiles in summaries. */
struct latency_quantile {
	const char *name;
	const char *key; /* In JSON. */
	double share;
};

extern const struct latency_quantile latency_quantiles[LATENCY_QUANTILES];

/* 0 when empty. */
double latency_mean(const struct latency *latency);

#endif /* LATENCY_H */
