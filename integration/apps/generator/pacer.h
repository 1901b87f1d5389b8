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
 * other fills twice as fast but holds only a burst, so that the sender catches up at no more than
 * twice the rate. Credit is counted in integers of (cycle x rate), so there is no rounding error.
 */

#include <stdint.h>

struct bucket {
	uint64_t rate;	/* Credit per cycle. */
	uint64_t price; /* Credit per packet. */
	uint64_t cap;	/* Most credit that is kept. */
	uint64_t credit;
	uint64_t last; /* TSC up to which credit has been given. */
};

struct pacer {
	struct bucket owed;
	struct bucket peak;
};

/* Highest rate, packets per second over all lanes. */
#define PACER_MAX_RATE UINT64_C(1000000000)

/*
 * Pace one of nb_lanes lanes, which share rate packets per second (at least 1) equally, in
 * bursts of at most burst packets. now and hz are of the TSC.
 */
void pacer_start(struct pacer *pacer, uint64_t rate, unsigned int nb_lanes, unsigned int burst,
		uint64_t hz, uint64_t now);

/* How many packets, at most max, may be sent now. */
uint32_t pacer_ready(struct pacer *pacer, uint64_t now, uint32_t max);

/* Take so many, of those that pacer_ready() allowed. */
void pacer_spend(struct pacer *pacer, uint32_t n);

#endif /* PACER_H */
