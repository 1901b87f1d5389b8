/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdbool.h>

#include "counter.h"
#include "pacer.h"

/* Maximum rate to catch up, as a multiple of the configured rate. */
#define PEAK 2

/* The backlog is checked once in this many calls that find a packet due. */
#define ADAPT_CALLS 256

/* And over at least this many of the longest rounds, as a single pause must not decide. */
#define ADAPT_ROUNDS 20

/* Longer rounds of a poll loop are usually pauses: 50 us. */
#define MAX_ROUNDS_PER_S 20000

static void
bucket_start(struct bucket *bucket, uint64_t rate, uint64_t price, uint64_t cap, uint64_t now)
{
	*bucket = (struct bucket){ .rate = rate, .price = price, .cap = cap, .last = now };
}

/* Returns the credit that does not fit. */
static uint64_t
bucket_fill(struct bucket *bucket, uint64_t now)
{
	const uint64_t cycles = now - bucket->last;
	const uint64_t room = bucket->cap - bucket->credit;
	uint64_t gain;

	/* The TSC of another socket may lag a little. */
	if ((int64_t)cycles <= 0)
		return 0;
	bucket->last = now;
	if (__builtin_mul_overflow(cycles, bucket->rate, &gain))
		gain = UINT64_MAX;
	if (gain > room) {
		bucket->credit = bucket->cap;
		return gain - room;
	}
	bucket->credit += gain;
	return 0;
}

static void
let_together(struct pacer *pacer, uint32_t packets)
{
	pacer->together = packets;
	pacer->peak.cap = packets * pacer->peak.price;
	if (pacer->peak.credit > pacer->peak.cap)
		pacer->peak.credit = pacer->peak.cap;
}

static void
count_round(struct pacer *pacer, uint64_t cycles)
{
	const uint64_t counted = cycles < pacer->max_round ? cycles : pacer->max_round;

	pacer->rounds += counted;
	if (cycles > pacer->slow_round)
		pacer->slow_rounds += counted;
}

/* Single packets are not enough if the loop is slow for much of the time and the backlog grows. */
static void
adapt(struct pacer *pacer)
{
	const uint64_t owed = pacer->owed.credit;
	const uint64_t in_one_go = pacer->together * pacer->owed.price;
	bool slow;

	if (++pacer->calls < ADAPT_CALLS || pacer->rounds < ADAPT_ROUNDS * pacer->max_round)
		return;
	slow = pacer->slow_rounds > pacer->rounds / 4;
	pacer->calls = 0;
	pacer->rounds = 0;
	pacer->slow_rounds = 0;
	if (owed < in_one_go) {
		let_together(pacer, pacer->together / 2);
	} else if (slow && owed >= 2 * in_one_go && owed >= pacer->last_owed &&
			pacer->together < pacer->burst) {
		let_together(pacer, pacer->together * 2 < pacer->burst ? pacer->together * 2
								       : pacer->burst);
	}
	pacer->last_owed = owed;
}

void
pacer_start(struct pacer *pacer, enum pacer_mode mode, uint64_t rate, unsigned int nb_lanes,
		unsigned int burst, uint64_t hz, uint64_t now)
{
	const uint64_t price = hz * nb_lanes;
	const uint64_t second = rate * hz;

	*pacer = (struct pacer){
		.mode = mode,
		.burst = burst,
		.slow_round = price / rate / PEAK,
		.max_round = hz / MAX_ROUNDS_PER_S,
	};
	/*
	 * A lane with less than one packet per second must be able to save up the credit for one.
	 */
	bucket_start(&pacer->owed, rate, price, second > price ? second : price, now);
	bucket_start(&pacer->peak, rate * PEAK, price, price * burst, now);
	let_together(pacer, mode == PACER_PACKETS ? 1 : burst);
}

uint32_t
pacer_ready(struct pacer *pacer, uint64_t now, uint32_t max)
{
	uint64_t overflow, n;

	if (pacer->mode == PACER_PACKETS && (int64_t)(now - pacer->owed.last) > 0)
		count_round(pacer, now - pacer->owed.last);
	overflow = bucket_fill(&pacer->owed, now);
	if (__builtin_expect(overflow > 0, 0))
		counter_add(&pacer->lost_credit, overflow);
	bucket_fill(&pacer->peak, now);
	if (pacer->owed.credit < pacer->owed.price)
		return 0;
	if (pacer->mode == PACER_PACKETS)
		adapt(pacer);
	if (pacer->peak.credit < pacer->peak.price)
		return 0;
	pacer->due = pacer->owed.credit / pacer->owed.price;
	n = pacer->peak.credit / pacer->peak.price;
	if (n > pacer->due)
		n = pacer->due;
	if (pacer->mode == PACER_BURSTS && n < (max < pacer->burst ? max : pacer->burst))
		return 0;
	return n < max ? (uint32_t)n : max;
}

void
pacer_spend(struct pacer *pacer, uint32_t n)
{
	/* The newest due packet is not late, nor are packets that waited for their burst. */
	const uint32_t on_time = pacer->mode == PACER_BURSTS ? pacer->burst : 1;

	if (n > 0 && pacer->due > on_time)
		counter_add(&pacer->late, pacer->due - on_time < n ? pacer->due - on_time : n);
	pacer->owed.credit -= n * pacer->owed.price;
	pacer->peak.credit -= n * pacer->peak.price;
}

uint64_t
pacer_skipped(const struct pacer *pacer)
{
	const uint64_t price = counter_read(&pacer->owed.price);

	return price == 0 ? 0 : counter_read(&pacer->lost_credit) / price;
}
