/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TURNOVER_H
#define PMDSCOPE_TURNOVER_H

/*
 * Proof by turnover: after a queue has processed more packets than it has descriptors, all mbufs
 * that were in its descriptors before have left it. Counted from walk to walk; control thread only.
 */

#include <stdbool.h>
#include <stdint.h>

/* Number of walks that are remembered. */
#define PMDSCOPE_TURNOVER_WALKS 64

/* Of one queue. */
struct pmdscope_turnover {
	uint64_t at_end[PMDSCOPE_TURNOVER_WALKS]; /* Progress at the end of each walk. */
	uint64_t progress;			  /* Packets that came out. */
	uint64_t packets;			  /* The queue's counter when it was last read. */
	uint32_t born;				  /* First walk that saw the queue; 0: none yet. */
	uint32_t moved;	 /* Packets last came out during this walk, or after it. */
	uint32_t turned; /* All mbufs that it held at the end of this walk have left it. */
};

/*
 * Begin a walk, numbered from 1: read how many packets came out. End one: store that number. If
 * the drivers are not asked, packets offered count as sent, which is enough to suspect a loss
 * but not to confirm it.
 */
void pmdscope_turnover_begin(uint32_t walk, bool ask_drivers);
void pmdscope_turnover_end(uint32_t walk);

/* For one pool in one walk: which objects can no longer be in a receive queue. */
struct pmdscope_proof {
	uint32_t walk;
	/* By walk before this one: a stamped object first missed in it is in no receive queue. */
	bool gone[PMDSCOPE_TURNOVER_WALKS];
	/*
	 * The same for still earlier walks: true for an object first missed in this walk or later.
	 */
	uint32_t gone_from;
	/*
	 * An object that was never stamped and first missed in this walk or before is in no queue.
	 */
	uint32_t all_turned;
	/* Maximum objects in the queues that have not turned over. */
	uint64_t may_hold;
	/*
	 * All mbufs that its receive queues held before this walk have left them; the newest queue.
	 */
	uint32_t rx_turned;
	uint32_t rx_born;
	/* Maximum objects in its receive queues. */
	uint64_t rx_capacity;
	/* As may_hold for transmit queues, whatever their pool. */
	uint64_t may_send;
};

/* Fills in the proof for a pool, which is not dereferenced. */
void pmdscope_turnover_proof(struct pmdscope_proof *proof, const void *pool, uint32_t walk);

/* An object with a stamp, first missed in that walk, cannot be posted to a NIC. */
bool pmdscope_proof_stamped(const struct pmdscope_proof *proof, uint32_t first);

/* An object given to this queue before the end of that walk has been sent. */
bool pmdscope_turnover_sent(unsigned int port, unsigned int queue, uint32_t first);

#endif /* PMDSCOPE_TURNOVER_H */
