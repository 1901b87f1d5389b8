/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "counter.h"
#include "latency.h"

/* Values under 64 have a bucket each; above, the top 7 bits choose it. */
static unsigned int
bucket_of(uint64_t value)
{
	unsigned int shift;

	if (value < LATENCY_SUBS)
		return (unsigned int)value;
	shift = 63 - (unsigned int)__builtin_clzll(value) - LATENCY_SUB_BITS;
	return shift * LATENCY_SUBS + (unsigned int)(value >> shift);
}

/* The middle of a bucket. */
static uint64_t
value_of(unsigned int bucket)
{
	unsigned int shift;

	if (bucket < 2 * LATENCY_SUBS)
		return bucket;
	shift = bucket / LATENCY_SUBS - 1;
	return ((uint64_t)(bucket % LATENCY_SUBS + LATENCY_SUBS) << shift) +
	       (UINT64_C(1) << shift) / 2;
}

void
latency_clear(struct latency *latency)
{
	memset(latency, 0, sizeof(*latency));
	latency->min = UINT64_MAX;
}

void
latency_add(struct latency *latency, uint64_t value)
{
	counter_add(&latency->buckets[bucket_of(value)], 1);
	if (value < latency->min)
		counter_set(&latency->min, value);
	if (value > latency->max)
		counter_set(&latency->max, value);
	latency->sum += value;
}

void
latency_merge(struct latency *into, const struct latency *from)
{
	const uint64_t min = counter_read(&from->min), max = counter_read(&from->max);
	unsigned int i;

	for (i = 0; i < LATENCY_BUCKETS; i++)
		into->buckets[i] += counter_read(&from->buckets[i]);
	if (min < into->min)
		into->min = min;
	if (max > into->max)
		into->max = max;
	into->sum += from->sum;
}

void
latency_subtract(struct latency *from, const struct latency *earlier)
{
	unsigned int i;

	for (i = 0; i < LATENCY_BUCKETS; i++)
		from->buckets[i] -= earlier->buckets[i];
}

uint64_t
latency_count(const struct latency *latency)
{
	uint64_t count = 0;
	unsigned int i;

	for (i = 0; i < LATENCY_BUCKETS; i++)
		count += latency->buckets[i];
	return count;
}

uint64_t
latency_percentile(const struct latency *latency, double share)
{
	const uint64_t count = latency_count(latency);
	/* The rank of the value, from 1. */
	uint64_t rank = (uint64_t)(share * (double)count + 0.999999), passed = 0;
	uint64_t value = 0;
	unsigned int i;

	if (count == 0)
		return 0;
	if (rank < 1)
		rank = 1;
	if (rank > count)
		rank = count;
	for (i = 0; passed < rank; i++) {
		passed += latency->buckets[i];
		value = value_of(i);
	}
	/* The middle of the outermost buckets may lie outside of what was seen. */
	if (value > latency->max)
		return latency->max;
	return value < latency->min ? latency->min : value;
}

double
latency_mean(const struct latency *latency)
{
	const uint64_t count = latency_count(latency);

	return count == 0 ? 0 : (double)latency->sum / (double)count;
}
