/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LIBRARY_STATE_H
#define LIBRARY_STATE_H

/* Shared by both builds of library_app.c. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_distributor.h>
#include <rte_ip_frag.h>
#include <rte_reorder.h>

struct library_state {
	struct rte_ip_frag_tbl *table;
	struct rte_ip_frag_death_row death_row;
	struct rte_reorder_buffer *reorder;
	struct rte_distributor *distributor;
	void *gro;
	uint16_t next;		/* Id of the next packet. */
	uint32_t sequence;	/* Of the next packet to be put in order. */
	volatile bool lose;	/* The worker of the distributor is to lose a packet. */
	volatile bool stopping; /* No more packets for the distributor. */
};

extern struct library_state library_state;

#endif /* LIBRARY_STATE_H */
