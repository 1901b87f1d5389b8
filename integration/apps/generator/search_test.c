/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "check.h"
#include "search.h"

/* Search a path that passes up to capacity. Returns the rate found; *trials is their number. */
static uint64_t
run(uint64_t low, uint64_t high, uint64_t resolution, uint64_t capacity, unsigned int *trials)
{
	struct search search;

	search_start(&search, low, high, resolution);
	for (*trials = 0; search.next != 0; (*trials)++) {
		CHECK(search.next >= low && search.next <= high);
		CHECK(*trials < 70);
		search_tell(&search, search.next <= capacity);
	}
	return search.found;
}

static void
test_ends(void)
{
	unsigned int trials;

	CHECK_EQ(run(10, 1000, 10, 1000, &trials), 1000);
	CHECK_EQ(trials, 1);
	CHECK_EQ(run(10, 1000, 10, 9, &trials), 0);
	CHECK_EQ(trials, 2);
	CHECK_EQ(run(10, 1000, 1, 10, &trials), 10);
	CHECK_EQ(run(7, 7, 1, 7, &trials), 7);
	CHECK_EQ(trials, 1);
	CHECK_EQ(run(7, 7, 1, 6, &trials), 0);
	CHECK_EQ(trials, 1);
}

static void
test_resolution(void)
{
	uint64_t random = 31, low, high, capacity, resolution, found;
	unsigned int i, trials;

	for (i = 0; i < 100000; i++) {
		low = 1 + check_random(&random) % 1000;
		high = low + check_random(&random) % 1000000000;
		resolution = 1 + check_random(&random) % 10000;
		capacity = low + check_random(&random) % (high - low + 1);
		found = run(low, high, resolution, capacity, &trials);
		CHECK(found <= capacity && capacity - found <= resolution);
	}
}

int
main(void)
{
	test_ends();
	test_resolution();
	return 0;
}
