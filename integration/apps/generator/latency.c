/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_common.h>

#include "counter.h"
#include "latency.h"

const struct latency_quantile latency_quantiles[LATENCY_QUANTILES] = {
	{ "p50", "p50", 0.5 },
	{ "p90", "p90", 0.9 },
	{ "p99", "p99", 0.99 },
	{ "p99.9", "p99_9", 0.999 },
	{ "p99.99", "p99_99", 0.9999 },
	{ "p99.999", "p99_999", 0.99999 },
};

/* Values under 256 have a bucket each; above, the top 8 bits choose it. */
static unsigned int
bucket_of(uint64_t value)
{
	unsigned int shift;

	if (value < LATENCY_SUBS)
		return (unsigned int)value;
	shift = 63 - (unsigned int)__builtin_clzll(value) - LATENCY_SUB_BITS;
	return shift * LATENCY_SUBS + (unsigned int)(value >> shift);
}

/* The smallest value of a bucket. After the last one 0, which is the maximum plus 1 modulo 2^64. */
static uint64_t
first_of(unsigned int bucket)
{
	if (bucket < 2 * LATENCY_SUBS)
		return bucket;
	if (bucket == LATENCY_BUCKETS)
		return 0;
	return (uint64_t)(bucket % LATENCY_SUBS + LATENCY_SUBS) << (bucket / LATENCY_SUBS - 1);
}

/* The middle of a bucket. */
static uint64_t
value_of(unsigned int bucket)
{
	if (bucket < 2 * LATENCY_SUBS)
		return bucket;
	return first_of(bucket) + (UINT64_C(1) << (bucket / LATENCY_SUBS - 1)) / 2;
}

void
latency_clear(struct latency *latency)
{
	memset(latency, 0, sizeof(*latency));
	latency->min = UINT64_MAX;
}

void
latency_add_n(struct latency *latency, uint64_t value, uint64_t n)
{
	counter_add(&latency->buckets[bucket_of(value)], n);
	if (value < latency->min)
		counter_set(&latency->min, value);
	if (value > latency->max)
		counter_set(&latency->max, value);
	latency->sum += (unsigned __int128)value * n;
}

void
latency_add(struct latency *latency, uint64_t value)
{
	latency_add_n(latency, value, 1);
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

uint64_t
latency_value(const struct latency *latency, unsigned int bucket)
{
	const uint64_t value = value_of(bucket);

	/* The middle of the outermost buckets may be beyond the values seen. */
	if (value > latency->max)
		return latency->max;
	return value < latency->min ? latency->min : value;
}

void
latency_subtract(struct latency *from, const struct latency *earlier)
{
	unsigned int i, lowest = LATENCY_BUCKETS, highest = 0;

	from->sum = 0;
	for (i = 0; i < LATENCY_BUCKETS; i++) {
		from->buckets[i] -= earlier->buckets[i];
		if (from->buckets[i] == 0)
			continue;
		lowest = RTE_MIN(lowest, i);
		highest = i;
		from->sum += (unsigned __int128)from->buckets[i] * latency_value(from, i);
	}
	if (lowest == LATENCY_BUCKETS) {
		from->min = UINT64_MAX;
		from->max = 0;
		return;
	}
	from->min = RTE_MAX(from->min, first_of(lowest));
	from->max = RTE_MIN(from->max, first_of(highest + 1) - 1);
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
	unsigned int i;

	if (count == 0)
		return 0;
	if (rank < 1)
		rank = 1;
	if (rank > count)
		rank = count;
	for (i = 0; i < LATENCY_BUCKETS - 1; i++) {
		passed += latency->buckets[i];
		if (passed >= rank)
			break;
	}
	return latency_value(latency, i);
}

double
latency_mean(const struct latency *latency)
{
	const uint64_t count = latency_count(latency);

	return count == 0 ? 0 : (double)latency->sum / (double)count;
}
