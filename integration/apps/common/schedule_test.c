/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "check.h"
#include "schedule.h"

/* Exactly the N-th, 2N-th, ... burst. */
static void
test_every(uint64_t n)
{
	struct schedule schedule = { .every = n };
	uint64_t burst;

	for (burst = 1; burst <= 5 * n + 3; burst++)
		CHECK_EQ(schedule_due(&schedule), burst % n == 0);
}

static void
test_largest(void)
{
	struct schedule schedule;

	CHECK(schedule_parse(&schedule, "1/2147483648"));
	CHECK_EQ(schedule.every, SCHEDULE_MAX);
	schedule.bursts = SCHEDULE_MAX - 2;
	CHECK(!schedule_due(&schedule));
	CHECK(schedule_due(&schedule));
	CHECK(!schedule_due(&schedule));
}

static void
test_once_and_never(void)
{
	struct schedule once, never = { 0 };
	unsigned int burst, due = 0;

	CHECK(schedule_parse(&once, "once"));
	CHECK(schedule_due(&once));
	for (burst = 0; burst < 100000; burst++)
		due += schedule_due(&once) + schedule_due(&never);
	CHECK_EQ(due, 0);
}

static void
test_parse(void)
{
	static const char *const bad[] = { "", "1", "/", "1/", "1/0", "0/5", "2/5", "1/2147483649",
		"1/-1", "1/ 5", " 1/5", "1/5x", "1/18446744073709551617", "Once", "once ",
		"1/once" };
	struct schedule schedule = { .every = 77 };
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(!schedule_parse(&schedule, bad[i]));
		CHECK_EQ(schedule.every, 77);
	}
	CHECK(schedule_parse(&schedule, "1/4096"));
	CHECK_EQ(schedule.every, 4096);
	CHECK(!schedule.once);
}

int
main(void)
{
	test_every(1);
	test_every(2);
	test_every(7);
	test_every(4096);
	test_largest();
	test_once_and_never();
	test_parse();
	return 0;
}
