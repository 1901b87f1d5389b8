/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "sequence.h"

static struct sequence s;

static void
restart(uint64_t next)
{
	memset(&s, 0, sizeof(s));
	s.next = next;
}

static void
check_counts(uint64_t received, uint64_t duplicates, uint64_t reordered, uint64_t late)
{
	CHECK_EQ(s.received, received);
	CHECK_EQ(s.duplicates, duplicates);
	CHECK_EQ(s.reordered, reordered);
	CHECK_EQ(s.late, late);
}

/* Several windows long, so that every bit is used again. */
static void
test_in_order(void)
{
	uint64_t i;

	restart(0);
	for (i = 0; i < 3 * SEQUENCE_WINDOW + 5; i++)
		CHECK_EQ(sequence_see(&s, i), SEQUENCE_NEW);
	check_counts(3 * SEQUENCE_WINDOW + 5, 0, 0, 0);
}

static void
test_disorder(uint64_t base)
{
	restart(base);
	CHECK_EQ(sequence_see(&s, base + 0), SEQUENCE_NEW);
	CHECK_EQ(sequence_see(&s, base + 3), SEQUENCE_NEW); /* 1 and 2 missing */
	CHECK_EQ(sequence_see(&s, base + 2), SEQUENCE_REORDERED);
	CHECK_EQ(sequence_see(&s, base + 2), SEQUENCE_DUPLICATE);
	CHECK_EQ(sequence_see(&s, base + 3), SEQUENCE_DUPLICATE);
	CHECK_EQ(sequence_see(&s, base + 4), SEQUENCE_NEW);
	check_counts(4, 2, 1, 0);
}

static void
check_extents(uint64_t extents, uint64_t sum, uint64_t max)
{
	CHECK_EQ(s.extents, extents);
	CHECK_EQ(s.extent_sum, sum);
	CHECK_EQ(s.extent_max, max);
}

/* Expected values were calculated by hand from the definition. */
static void
test_extents(uint64_t base)
{
	static const uint64_t one[] = { 1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11 };
	static const uint64_t two[] = { 1, 2, 3, 5, 4, 4, 5, 6 };
	unsigned int i;

	restart(base + 1);
	for (i = 0; i < 11; i++)
		sequence_see(&s, base + one[i]);
	CHECK_EQ(s.reordered, 3);
	check_extents(3, 4 + 5 + 6, 6);
	restart(base + 1);
	for (i = 0; i < 8; i++)
		sequence_see(&s, base + two[i]);
	check_extents(1, 1, 1);
}

/* RFC 4737, 5: packets right before, all with higher numbers. */
static void
check_degrees(uint64_t one, uint64_t two, uint64_t three, uint64_t max)
{
	CHECK_EQ(s.n_reordered[0], one);
	CHECK_EQ(s.n_reordered[1], two);
	CHECK_EQ(s.n_reordered[2], three);
	CHECK_EQ(s.n_max, max);
}

/* Expected values were calculated by hand from the definition. */
static void
test_degrees(uint64_t base)
{
	/* 4 comes behind four packets; before 5 and 6 came a lower one, so that n is 0. */
	static const uint64_t one[] = { 1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11 };
	/* 5 behind 7 8, 3 behind 7 8 5, 4 right behind 3, 2 behind 7 8 5 3 4. */
	static const uint64_t two[] = { 1, 7, 8, 5, 3, 4, 2 };
	/* 6 behind 8 and 9, 7 behind 10. */
	static const uint64_t three[] = { 5, 8, 9, 6, 10, 7 };
	unsigned int i;

	restart(base + 1);
	for (i = 0; i < 11; i++)
		sequence_see(&s, base + one[i]);
	check_degrees(1, 1, 1, 4);
	restart(base + 1);
	for (i = 0; i < 7; i++)
		sequence_see(&s, base + two[i]);
	check_degrees(3, 3, 2, 5);
	restart(base + 5);
	for (i = 0; i < 6; i++)
		sequence_see(&s, base + three[i]);
	check_degrees(2, 1, 0, 2);
}

/* If packets do not fit, degrees get too low, not too high. */
static void
test_many_behind(void)
{
	enum { NUMBERS = 2 * SEQUENCE_BEHIND };
	uint64_t i;

	restart(0);
	sequence_see(&s, 2 * NUMBERS + 2);
	for (i = 0; i < NUMBERS; i++)
		sequence_see(&s, 2 * i + 1);
	/* Each one had a lower number right before it, except the first. */
	check_degrees(1, 0, 0, 1);
	/* All except the 1 came right before this one; half of them are kept. */
	sequence_see(&s, 2);
	CHECK(s.n_max >= SEQUENCE_BEHIND - 2 && s.n_max < NUMBERS);
	/* Nothing lower came before it. */
	sequence_see(&s, 0);
	CHECK_EQ(s.n_max, NUMBERS + 2);
}

/* A gap that was dropped, or never seen, has no extent. */
static void
test_forgotten_extents(void)
{
	uint64_t i;

	restart(0);
	for (i = 0; i <= SEQUENCE_JUMPS; i++)
		sequence_see(&s, 2 * i + 1);
	CHECK_EQ(sequence_see(&s, 0), SEQUENCE_REORDERED);
	check_extents(0, 0, 0);
	CHECK_EQ(sequence_see(&s, 2), SEQUENCE_REORDERED);
	check_extents(1, SEQUENCE_JUMPS + 1, SEQUENCE_JUMPS + 1);
}

static void
test_window_edge(void)
{
	restart(0);
	sequence_see(&s, SEQUENCE_WINDOW);
	CHECK_EQ(sequence_see(&s, 1), SEQUENCE_REORDERED);
	CHECK_EQ(sequence_see(&s, 0), SEQUENCE_LATE);
	CHECK_EQ(sequence_see(&s, UINT64_C(1) << 40), SEQUENCE_NEW);
	CHECK_EQ(sequence_see(&s, (UINT64_C(1) << 40) - SEQUENCE_WINDOW + 1), SEQUENCE_REORDERED);
	check_counts(5, 0, 2, 1);
}

/* Compared with a table of all packets, under loss, copies and disorder. */
static void
test_against_table(void)
{
	enum { NUMBERS = 400000, SPREAD = 1000 };
	static bool seen[NUMBERS];
	static uint64_t first_above[NUMBERS]; /* Arrival of the first packet above. */
	static uint64_t order[NUMBERS];	      /* Numbers as they came. */
	uint64_t degrees = 0, degree_max = 0, degree;
	uint64_t extent_sum = 0, extents = 0;
	uint64_t random = 99, highest = 0, received = 0, duplicates = 0, reordered = 0;
	bool any = false;
	uint64_t i, number, number_below;

	restart(0);
	for (i = 0; i + SPREAD < NUMBERS; i += check_random(&random) % 3) {
		number = i + check_random(&random) % SPREAD;
		if (seen[number]) {
			duplicates++;
			CHECK_EQ(sequence_see(&s, number), SEQUENCE_DUPLICATE);
			continue;
		}
		if (any && number < highest) {
			extents++;
			extent_sum += received - first_above[number];
			degree = 0;
			while (degree < received && order[received - degree - 1] > number)
				degree++;
			degrees += degree >= SEQUENCE_DEGREES;
			degree_max = degree > degree_max ? degree : degree_max;
		}
		order[received] = number;
		for (number_below = any ? highest + 1 : 0; number_below < number; number_below++)
			first_above[number_below] = received;
		received++;
		CHECK_EQ(sequence_see(&s, number),
				any && number < highest ? SEQUENCE_REORDERED : SEQUENCE_NEW);
		reordered += any && number < highest;
		highest = any && number < highest ? highest : number;
		any = seen[number] = true;
	}
	CHECK(duplicates > 1000 && reordered > 1000);
	check_counts(received, duplicates, reordered, 0);
	/* Old gaps are dropped: of 1000 numbers at a time less than 256 are missing. */
	CHECK(s.extents > extents / 2 && s.extents <= extents);
	CHECK(s.extents < extents || s.extent_sum == extent_sum);
	/* The degrees of the same packets, some of which are too low. */
	CHECK(s.n_reordered[2] > degrees / 2 && s.n_reordered[2] <= degrees);
	CHECK(s.n_max <= degree_max);
}

/* A group has the same result as its packets one by one, in the bitmap too. */
static void
test_next(uint64_t base)
{
	static struct sequence many;
	uint64_t random = 29, at = base, i, n;
	unsigned int round;

	memset(&many, 0, sizeof(many));
	many.next = base;
	restart(base);
	for (round = 0; round < 2000; round++) {
		n = 1 + check_random(&random) % 256;
		CHECK(!sequence_see_next(&many, at + 1, (uint32_t)n));
		CHECK(at == 0 || !sequence_see_next(&many, at - 1, (uint32_t)n));
		CHECK(sequence_see_next(&many, at, (uint32_t)n));
		for (i = 0; i < n; i++)
			CHECK_EQ(sequence_see(&s, at + i), SEQUENCE_NEW);
		at += n;
		CHECK(memcmp(&many, &s, sizeof(s)) == 0);
		/* An occasional gap: skipped numbers stay missing. */
		if (round % 10 == 0) {
			at += check_random(&random) % 100;
			sequence_see(&many, at);
			sequence_see(&s, at++);
		}
	}
}

int
main(void)
{
	test_in_order();
	test_next(0);
	test_next(UINT64_MAX - 1000);
	test_disorder(0);
	test_disorder(SEQUENCE_WINDOW - 2);
	test_disorder(UINT64_MAX - 1); /* The numbers themselves wrap. */
	test_extents(0);
	test_extents(UINT64_MAX - 4);
	test_degrees(0);
	test_degrees(UINT64_MAX - 4);
	test_many_behind();
	test_forgotten_extents();
	test_window_edge();
	test_against_table();
	return 0;
}
