/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PACER_H
#define PACER_H

/*
 * Paces a sender by the TSC: exact over long times, smooth over short ones.
 *
 * Two token buckets must both allow a packet. One fills at the configured rate and holds up to one
 * second of packets, so that a sender that lost its CPU for a while still reaches its rate. The
 * other fills twice as fast but holds only as many packets as may leave together, so that the
 * sender catches up at no more than twice the rate. Credit is counted in integers of (cycle x
 * rate), so there is no rounding error.
 *
 * In mode PACER_PACKETS one packet may leave at a time. Only while a round of the poll loop takes
 * longer than that allows, and the sender falls further and further behind, this grows to a burst,
 * and shrinks again. Pauses, in which another thread has the CPU, do not count as rounds.
 */

#include <stdint.h>

struct bucket {
	uint64_t rate;	/* Credit per cycle. */
	uint64_t price; /* Credit per packet. */
	uint64_t cap;	/* Maximum credit. */
	uint64_t credit;
	uint64_t last; /* TSC up to which credit has been given. */
};

enum pacer_mode {
	PACER_PACKETS, /* Each packet when it is due. */
	PACER_DUE,     /* All that are due, up to a burst. */
	PACER_BURSTS,  /* Whole bursts, once all their packets are due. */
};

struct pacer {
	struct bucket owed;
	struct bucket peak;
	enum pacer_mode mode;
	uint32_t burst;
	uint32_t together;   /* Packets that may leave together. */
	uint32_t calls;	     /* Since together was last adapted. */
	uint64_t due;	     /* Packets due at the last pacer_ready() that asked for some. */
	uint64_t slow_round; /* Cycles: in a longer round more than one packet may fall due. */
	uint64_t max_round;  /* Cycles: a longer one counts as this one. */
	uint64_t rounds;     /* Cycles in rounds since together was last adapted; all, slow ones. */
	uint64_t slow_rounds;
	uint64_t last_owed;   /* Credit when together was last adapted. */
	uint64_t late;	      /* Packets that left an interval late, or later. */
	uint64_t lost_credit; /* Of pauses of more than a second. */
};

/* Highest rate, packets per second over all lanes. */
#define PACER_MAX_RATE UINT64_C(1000000000)

/*
 * Pace one of nb_lanes lanes, which share rate packets per second (at least 1) equally, in
 * bursts of at most burst packets. now, which may be in the future, and hz are of the TSC.
 */
void pacer_start(struct pacer *pacer, enum pacer_mode mode, uint64_t rate, unsigned int nb_lanes,
		unsigned int burst, uint64_t hz, uint64_t now);

/* Number of packets, at most max, that may be sent now. */
uint32_t pacer_ready(struct pacer *pacer, uint64_t now, uint32_t max);

/* Use up the credit of n packets that pacer_ready() allowed. */
void pacer_spend(struct pacer *pacer, uint32_t n);

/* Packets that were due and will not be sent later. Any thread. */
uint64_t pacer_skipped(const struct pacer *pacer);

#endif /* PACER_H */
