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

/* Walks that are remembered. */
#define PMDSCOPE_TURNOVER_WALKS 64

/* Of one queue. */
struct pmdscope_turnover {
	uint64_t at_end[PMDSCOPE_TURNOVER_WALKS]; /* Progress at the end of each walk. */
	uint64_t progress;			  /* Packets that have come out. */
	uint64_t packets;			  /* The queue's counter when it was last read. */
	uint32_t born;				  /* Walk that met the queue first; 0: none yet. */
	uint32_t moved;	 /* Last walk, or the time after it, in which packets came out. */
	uint32_t turned; /* What was in the queue at the end of this walk has come out. */
};

/*
 * Begin a walk, from 1 upwards: read what has come out. End one: remember it. Unless the drivers
 * are asked, what was offered is taken for sent: good enough to suspect, not to confirm.
 */
void pmdscope_turnover_begin(uint32_t walk, bool ask_drivers);
void pmdscope_turnover_end(uint32_t walk);

/* For one pool in one walk: what can no longer be in a receive queue. */
struct pmdscope_proof {
	uint32_t walk;
	/* By walks before this one: a stamped object first missed then is in no receive queue. */
	bool gone[PMDSCOPE_TURNOVER_WALKS];
	/* The same for walks before those: when first missed in this walk or later. */
	uint32_t gone_from;
	/* An object that was never stamped, and first missed in this walk or before. */
	uint32_t all_turned;
	/* Most objects that the queues that have not turned over may hold. */
	uint64_t may_hold;
	/* What its receive queues had before this walk has come out of all; newest of them. */
	uint32_t rx_turned;
	uint32_t rx_born;
	/* Most objects that they can hold. */
	uint64_t rx_capacity;
	/* The same of transmit queues, of whatever pool. */
	uint64_t may_send;
};

/* The pool is not followed. */
void pmdscope_turnover_proof(struct pmdscope_proof *proof, const void *pool, uint32_t walk);

/* An object with a stamp, first missed in that walk, cannot be posted to a NIC. */
bool pmdscope_proof_stamped(const struct pmdscope_proof *proof, uint32_t first);

/* An object given to this queue before the end of that walk has been sent. */
bool pmdscope_turnover_sent(unsigned int port, unsigned int queue, uint32_t first);

#endif /* PMDSCOPE_TURNOVER_H */
