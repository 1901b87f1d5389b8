/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

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

/* Clears the bits of [from, to), which are from one window before. */
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

enum sequence_verdict
sequence_see(struct sequence *sequence, uint64_t number)
{
	const int64_t ahead = (int64_t)(number - sequence->next);
	uint64_t *word = word_of(sequence, number);

	if (ahead >= 0) {
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
	counter_add(&sequence->received, 1);
	counter_add(&sequence->reordered, 1);
	return SEQUENCE_REORDERED;
}
