/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_common.h>

#include "counter.h"
#include "sequence.h"

static uint64_t *
word_of(struct sequence *sequence, uint64_t number)
{
	return &sequence->seen[number % SEQUENCE_WINDOW / 64];
}

static uint64_t
bit_of(uint64_t number)
{
	return UINT64_C(1) << (number % 64);
}

/* Clears the bits of [from, to), which are from the previous window. */
static void
clear(struct sequence *sequence, uint64_t from, uint64_t to)
{
	uint64_t number;

	if (to - from >= SEQUENCE_WINDOW) {
		memset(sequence->seen, 0, sizeof(sequence->seen));
		return;
	}
	for (number = from; number != to; number++)
		*word_of(sequence, number) &= ~bit_of(number);
}

static void
note_jump(struct sequence *sequence, uint64_t number)
{
	sequence->jumps[sequence->nb_jumps++ % SEQUENCE_JUMPS] = (struct sequence_jump){
		.from = sequence->next,
		.number = number,
		.arrival = sequence->received,
	};
}

/* The packet that came first of those with a higher number, or NULL if it was dropped. */
static const struct sequence_jump *
find_jump(const struct sequence *sequence, uint64_t number)
{
	uint64_t low = sequence->nb_jumps < SEQUENCE_JUMPS ? 0
							   : sequence->nb_jumps - SEQUENCE_JUMPS;
	uint64_t high = sequence->nb_jumps, middle;
	const struct sequence_jump *jump;

	/* The jumps from high on have higher numbers, those before low have lower ones. */
	while (low < high) {
		middle = low + (high - low) / 2;
		if ((int64_t)(sequence->jumps[middle % SEQUENCE_JUMPS].number - number) > 0)
			high = middle;
		else
			low = middle + 1;
	}
	if (high == sequence->nb_jumps)
		return NULL;
	jump = &sequence->jumps[high % SEQUENCE_JUMPS];
	return (int64_t)(number - jump->from) >= 0 ? jump : NULL;
}

/*
 * The latest reordered packet with a lower number, or NULL. Those with higher numbers are dropped,
 * as this packet comes after them.
 */
static const struct sequence_behind *
find_behind(struct sequence *sequence, uint64_t number)
{
	while (sequence->nb_behind > 0) {
		const struct sequence_behind *behind = &sequence->behind[sequence->nb_behind - 1];

		if ((int64_t)(behind->number - number) < 0)
			return behind;
		sequence->nb_behind--;
	}
	return NULL;
}

static void
note_behind(struct sequence *sequence, uint64_t number)
{
	struct sequence_behind *behind = sequence->behind;

	if (sequence->nb_behind == SEQUENCE_BEHIND) {
		/* The lowest two are merged: a degree may then be too low, but never too high. */
		behind[1].number = behind[0].number;
		memmove(behind, behind + 1, (SEQUENCE_BEHIND - 1) * sizeof(*behind));
		sequence->nb_behind--;
	}
	behind[sequence->nb_behind++] = (struct sequence_behind){
		.number = number,
		.arrival = sequence->received,
	};
}

/* Consecutive packets with higher numbers right before this one. */
static void
count_degree(struct sequence *sequence, const struct sequence_jump *jump,
		const struct sequence_behind *behind)
{
	const uint64_t from = behind == NULL ? 0 : behind->arrival + 1;
	const uint64_t degree = sequence->received - (jump->arrival > from ? jump->arrival : from);
	unsigned int i;

	for (i = 0; i < SEQUENCE_DEGREES && i < degree; i++)
		counter_add(&sequence->n_reordered[i], 1);
	if (degree > sequence->n_max)
		counter_set(&sequence->n_max, degree);
}

static void
count_extent(struct sequence *sequence, const struct sequence_jump *jump)
{
	uint64_t extent;

	extent = sequence->received - jump->arrival;
	counter_add(&sequence->extents, 1);
	counter_add(&sequence->extent_sum, extent);
	if (extent > sequence->extent_max)
		counter_set(&sequence->extent_max, extent);
}

static void
count_disorder(struct sequence *sequence, uint64_t number)
{
	const struct sequence_jump *jump = find_jump(sequence, number);
	const struct sequence_behind *behind = find_behind(sequence, number);

	if (jump != NULL) {
		count_degree(sequence, jump, behind);
		count_extent(sequence, jump);
	}
	note_behind(sequence, number);
}

enum sequence_verdict
sequence_see(struct sequence *sequence, uint64_t number)
{
	const int64_t ahead = (int64_t)(number - sequence->next);
	uint64_t *word = word_of(sequence, number);

	if (ahead >= 0) {
		if (ahead > 0)
			note_jump(sequence, number);
		clear(sequence, sequence->next, number);
		*word |= bit_of(number);
		counter_set(&sequence->next, number + 1);
		counter_add(&sequence->received, 1);
		return SEQUENCE_NEW;
	}
	if (-ahead > SEQUENCE_WINDOW) {
		counter_add(&sequence->received, 1);
		counter_add(&sequence->late, 1);
		return SEQUENCE_LATE;
	}
	if ((*word & bit_of(number)) != 0) {
		counter_add(&sequence->duplicates, 1);
		return SEQUENCE_DUPLICATE;
	}
	*word |= bit_of(number);
	count_disorder(sequence, number);
	counter_add(&sequence->received, 1);
	counter_add(&sequence->reordered, 1);
	return SEQUENCE_REORDERED;
}

bool
sequence_see_next(struct sequence *sequence, uint64_t number, uint32_t n)
{
	uint64_t at = number;
	uint32_t left, here;

	if (number != sequence->next)
		return false;
	/* Word by word. The bits are from the previous window: all of them are set. */
	for (left = n; left > 0; left -= here, at += here) {
		here = RTE_MIN(left, 64 - (uint32_t)(at % 64));
		*word_of(sequence, at) |= UINT64_MAX >> (64 - here) << at % 64;
	}
	counter_set(&sequence->next, at);
	counter_add(&sequence->received, n);
	return true;
}
