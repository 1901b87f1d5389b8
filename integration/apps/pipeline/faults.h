/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef FAULTS_H
#define FAULTS_H

/* Bugs that real applications have had with mbufs, on demand. */

#include <stdbool.h>
#include <stdint.h>

#include "pipe.h"
#include "schedule.h"
#include "truth.h"

enum fault_kind {
	FAULT_TX_REJECT,
	FAULT_OFF_BY_ONE,
	FAULT_EARLY_RETURN,
	FAULT_CLONE,
	FAULT_SEGMENT,
	FAULT_RING_OVERFLOW,
	FAULT_DOUBLE_QUEUE,
	FAULT_DOUBLE_FREE,
	FAULT_USE_AFTER_FREE,
	NB_FAULTS,
};

struct fault {
	const char *name;
	/* Mbufs that each time are gone for good, from either pool. */
	unsigned int lost_packets;
	unsigned int lost_clones;
	struct schedule schedule;
	struct truth truth;
};

/* Each happens in one stage only, so there is one lcore that writes it. */
extern struct fault faults[NB_FAULTS];

/* Read "NAME[:1/N]" or "NAME:once" into faults. False if text is neither. */
bool faults_parse(const char *text);

/* Mbufs lost so far by all faults. */
uint64_t faults_lost_packets(void);
uint64_t faults_lost_clones(void);

/*
 * Let what is due happen to packets from the end of a burst; never twice to the same one.
 * Return how many of the burst are left to the caller, in front. faults_work() hands packets
 * that are still to be sent back through kept, which has room for all.
 */
uint16_t faults_rx(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts);
uint16_t faults_work(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct rte_mbuf **kept, uint16_t *nb_kept);
uint16_t faults_tx(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts);

/* What faults_work() does first: let go on what waits for its acknowledgement. */
void faults_acknowledge(struct pipe *pipe);

#endif /* FAULTS_H */
