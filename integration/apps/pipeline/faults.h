/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef FAULTS_H
#define FAULTS_H

/* Mbuf bugs of real applications, on demand. */

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
	/* Mbufs of either pool that are lost each time. */
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
 * Apply the faults that are due to packets at the end of a burst; never two to the same one.
 * Return the number of packets at its start that are left to the caller. faults_work()
 * returns packets that are still to be sent in kept, which has room for all.
 */
uint16_t faults_rx(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts);
uint16_t faults_work(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct rte_mbuf **kept, uint16_t *nb_kept);
uint16_t faults_tx(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts);

/* First step of faults_work(): release the packet that waits for its acknowledgement. */
void faults_acknowledge(struct pipe *pipe);

#endif /* FAULTS_H */
