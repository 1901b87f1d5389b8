/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <math.h>

#include "check.h"
#include "latency.h"

#define VALUES 100001

static struct latency l, other;
static uint64_t values[VALUES];

static int
compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void
check_close(uint64_t seen, uint64_t exact)
{
	if (fabs((double)seen - (double)exact) > (double)exact * 0.004 + 0.5) {
		fprintf(stderr, "%" PRIu64 " is not close to %" PRIu64 "\n", seen, exact);
		exit(1);
	}
}

/* Log-uniform values over the whole range against the sorted list. */
static void
test_percentiles(unsigned int max_bits)
{
	static const double shares[] = { 0, 0.001, 0.5, 0.9, 0.99, 0.999, 1 };
	uint64_t random = 17;
	long double sum = 0;
	unsigned int i;

	latency_clear(&l);
	for (i = 0; i < VALUES; i++) {
		values[i] = check_random(&random) >>
			    (64 - max_bits + check_random(&random) % max_bits);
		sum += values[i];
		latency_add(&l, values[i]);
	}
	qsort(values, VALUES, sizeof(values[0]), compare);
	CHECK_EQ(latency_count(&l), VALUES);
	CHECK_EQ(l.min, values[0]);
	CHECK_EQ(l.max, values[VALUES - 1]);
	CHECK(fabsl(latency_mean(&l) / (sum / VALUES) - 1) < 1e-9);
	for (i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		const double rank = ceil(shares[i] * VALUES);

		check_close(latency_percentile(&l, shares[i]),
				values[rank < 1 ? 0 : (unsigned int)rank - 1]);
	}
}

/* A single value is returned exactly: the extremes limit its bucket. */
static void
test_single(void)
{
	static const uint64_t edges[] = { 0, 1, 63, 64, 127, 128, 129, 255, 256, 257, 1 << 20,
		UINT64_MAX - 1, UINT64_MAX };
	unsigned int i;

	for (i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
		latency_clear(&l);
		latency_add(&l, edges[i]);
		CHECK_EQ(latency_percentile(&l, 0.5), edges[i]);
	}
	latency_clear(&l);
	CHECK_EQ(latency_percentile(&l, 0.5), 0);
	CHECK(latency_mean(&l) == 0);
}

static void
test_merge(void)
{
	latency_clear(&l);
	latency_clear(&other);
	latency_add(&l, 10);
	latency_add(&other, 30);
	latency_add(&other, 50);
	latency_merge(&l, &other);
	CHECK_EQ(latency_count(&l), 3);
	CHECK_EQ(l.min, 10);
	CHECK_EQ(l.max, 50);
	CHECK(latency_mean(&l) == 30);
	latency_subtract(&l, &other);
	CHECK_EQ(latency_count(&l), 1);
	CHECK_EQ(latency_percentile(&l, 0.5), 10);
	CHECK_EQ(l.min, 10);
	CHECK_EQ(l.max, 10);
	CHECK(latency_mean(&l) == 10);
}

/* After a subtraction the extremes are exact to a bucket, the mean to 0.4 %. */
static void
test_interval(void)
{
	latency_clear(&l);
	latency_clear(&other);
	latency_add(&l, 1);
	latency_add(&l, UINT64_MAX);
	latency_merge(&other, &l);
	latency_add(&l, 70000);
	latency_add(&l, 90000);
	latency_subtract(&l, &other);
	CHECK(l.min <= 70000 && (double)l.min > 70000 * 0.992);
	CHECK(l.max >= 90000 && (double)l.max < 90000 * 1.008);
	CHECK(fabs(latency_mean(&l) / 80000 - 1) < 0.004);
	latency_subtract(&l, &l);
	CHECK_EQ(latency_count(&l), 0);
	CHECK_EQ(l.max, 0);
}

int
main(void)
{
	test_percentiles(64);
	test_percentiles(24);
	test_percentiles(6);
	test_single();
	test_merge();
	test_interval();
	return 0;
}
