/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef HOLD_H
#define HOLD_H

/*
 * A queue that intentionally holds packets for a fixed time, as reassembly or retransmission does.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#define HOLD_SIZE 4096

struct hold {
	uint64_t cycles; /* 0: holds nothing. */
	uint32_t head;
	uint32_t tail;
	struct {
		struct rte_mbuf *m;
		uint64_t due;
	} slot[HOLD_SIZE];
};

/* Add a packet. False if the queue is full: it stays the caller's. */
static inline bool
hold_put(struct hold *hold, struct rte_mbuf *m, uint64_t now)
{
	if (hold->head - hold->tail == HOLD_SIZE)
		return false;
	hold->slot[hold->head % HOLD_SIZE].m = m;
	hold->slot[hold->head++ % HOLD_SIZE].due = now + hold->cycles;
	return true;
}

/* Remove at most max packets whose time has come; all with now = UINT64_MAX. */
static inline uint16_t
hold_take(struct hold *hold, struct rte_mbuf **pkts, uint16_t max, uint64_t now)
{
	uint16_t n = 0;

	while (n < max && hold->tail != hold->head && hold->slot[hold->tail % HOLD_SIZE].due <= now)
		pkts[n++] = hold->slot[hold->tail++ % HOLD_SIZE].m;
	return n;
}

#endif /* HOLD_H */
