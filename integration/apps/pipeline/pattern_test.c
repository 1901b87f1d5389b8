/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "check.h"
#include "pattern.h"

#define HZ UINT64_C(2999999977)
#define MS (HZ / 1000)

static struct pattern
started(const char *text, uint64_t now, uint64_t seed)
{
	struct pattern pattern;

	CHECK(pattern_parse(&pattern, text));
	pattern_start(&pattern, HZ, now, seed);
	return pattern;
}

static void
test_steady(void)
{
	struct pattern steady = started("steady", 5, 1);
	uint64_t now;

	for (now = 5; now < UINT64_MAX / 3; now = now * 2 + 1)
		CHECK(pattern_on(&steady, now));
	CHECK(pattern_on(&steady, UINT64_MAX));
	CHECK(pattern_on(&steady, UINT64_MAX));
}

/*
 * Traffic, a pause of this many seconds, traffic again: exact to the millisecond, and repeatedly.
 */
static void
test_idle(void)
{
	const uint64_t start = UINT64_C(1) << 62;
	struct pattern idle = started("idle:60", start, 1);
	uint64_t ms;

	for (ms = 0; ms < 3 * (PATTERN_BUSY_MS + 60000); ms++) {
		const uint64_t at = ms % (PATTERN_BUSY_MS + 60000);
		const bool seen = pattern_on(&idle, start + ms * MS);

		/* A change may be seen one step late, and each later change by one more. */
		if (at > 10 && at + 10 < PATTERN_BUSY_MS)
			CHECK(seen);
		if (at > PATTERN_BUSY_MS + 10)
			CHECK(!seen);
	}
}

/* Phases have the promised lengths, and are on for about half of the time. */
static void
test_bursty(void)
{
	struct pattern bursty = started("bursty", 0, 12345);
	uint64_t ms, since = 0, shortest = UINT64_MAX, longest = 0, on_ms = 0, changes = 0;
	const uint64_t end = 3600 * 1000;
	bool was = true;

	for (ms = 0; ms < end; ms++) {
		const bool on = pattern_on(&bursty, ms * MS);

		on_ms += on;
		if (on == was)
			continue;
		shortest = ms - since < shortest ? ms - since : shortest;
		longest = ms - since > longest ? ms - since : longest;
		since = ms;
		was = on;
		changes++;
	}
	CHECK(shortest >= PATTERN_MIN_MS && shortest <= PATTERN_MIN_MS + 5);
	CHECK(longest <= PATTERN_MAX_MS + 1 && longest >= PATTERN_MAX_MS - 5);
	CHECK(changes > end / PATTERN_MAX_MS && changes < end / 600);
	CHECK(on_ms > end * 9 / 20 && on_ms < end * 11 / 20);
}

static void
test_seed(void)
{
	struct pattern a = started("bursty", 0, 7), b = started("bursty", 0, 7),
		       c = started("bursty", 0, 8);
	unsigned int i, differ = 0;

	for (i = 0; i < 100; i++) {
		CHECK_EQ(a.next, b.next);
		differ += a.next != c.next;
		pattern_change(&a, a.next);
		pattern_change(&b, b.next);
		pattern_change(&c, c.next);
	}
	CHECK(differ > 90);
}

/* A loop that missed many phases continues with the next one only. */
static void
test_late(void)
{
	struct pattern idle = started("idle:1", 0, 1);

	CHECK(!pattern_on(&idle, 3600 * HZ));
	CHECK(!pattern_on(&idle, 3600 * HZ + 999 * MS));
	CHECK(pattern_on(&idle, 3601 * HZ));
}

static void
test_parse(void)
{
	static const char *const bad[] = { "", "Steady", "steady ", "idle", "idle:", "idle:0",
		"idle:-1", "idle:1.5", "idle:86401", "idle:5s", "bursty:1" };
	struct pattern pattern = { .idle_ms = 77 };
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(!pattern_parse(&pattern, bad[i]));
		CHECK_EQ(pattern.idle_ms, 77);
	}
	CHECK(pattern_parse(&pattern, "idle:86400"));
	CHECK_EQ(pattern.idle_ms, 86400000);
}

int
main(void)
{
	test_steady();
	test_idle();
	test_bursty();
	test_seed();
	test_late();
	test_parse();
	return 0;
}
