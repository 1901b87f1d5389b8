/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "pacer.h"

/* Maximum rate to catch up, as a multiple of the configured rate. */
#define PEAK 2

static void
bucket_start(struct bucket *bucket, uint64_t rate, uint64_t price, uint64_t cap, uint64_t now)
{
	*bucket = (struct bucket){ .rate = rate, .price = price, .cap = cap, .last = now };
}

static void
bucket_fill(struct bucket *bucket, uint64_t now)
{
	const uint64_t cycles = now - bucket->last;
	uint64_t gain;

	/* The TSC of another socket may lag a little. */
	if ((int64_t)cycles <= 0)
		return;
	bucket->last = now;
	if (__builtin_mul_overflow(cycles, bucket->rate, &gain) ||
			gain > bucket->cap - bucket->credit)
		bucket->credit = bucket->cap;
	else
		bucket->credit += gain;
}

void
pacer_start(struct pacer *pacer, uint64_t rate, unsigned int nb_lanes, unsigned int burst,
		uint64_t hz, uint64_t now)
{
	const uint64_t price = hz * nb_lanes;
	const uint64_t second = rate * hz;

	/* A lane slower than one packet a second must still be able to save up for it. */
	bucket_start(&pacer->owed, rate, price, second > price ? second : price, now);
	bucket_start(&pacer->peak, rate * PEAK, price, price * burst, now);
}

uint32_t
pacer_ready(struct pacer *pacer, uint64_t now, uint32_t max)
{
	uint64_t n;

	bucket_fill(&pacer->owed, now);
	bucket_fill(&pacer->peak, now);
	if (pacer->owed.credit < pacer->owed.price || pacer->peak.credit < pacer->peak.price)
		return 0;
	n = pacer->owed.credit / pacer->owed.price;
	if (n > pacer->peak.credit / pacer->peak.price)
		n = pacer->peak.credit / pacer->peak.price;
	return n < max ? (uint32_t)n : max;
}

void
pacer_spend(struct pacer *pacer, uint32_t n)
{
	pacer->owed.credit -= n * pacer->owed.price;
	pacer->peak.credit -= n * pacer->peak.price;
}
