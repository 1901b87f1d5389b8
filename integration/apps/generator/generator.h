/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef GENERATOR_H
#define GENERATOR_H

/* Shared by the poll loops and the code that sets them up and sums them up. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_lcore.h>

#include "periodic.h"
#include "worker.h"

/* Between workers_start() and the end of the lcores only senders and workers change. */
struct generator {
	const struct app *app;
	struct rte_mempool *tx_pool;
	bool resend;		 /* Mbufs of packets that came back are sent again. */
	struct sender *senders;	 /* One for each lane, in the order of app->lanes. */
	unsigned int nb_senders; /* Those of lanes with a TX queue. */
	struct worker *workers[RTE_MAX_LCORE];
	struct phase phase;
	uint16_t run; /* Number of the phase; the first one is random. */
	uint16_t nb_runs;
	/* Of each port. */
	struct {
		struct rte_ether_addr own;
		struct rte_ether_addr peer;
	} macs[RTE_MAX_ETHPORTS];
	uint64_t started_at; /* TSC. */
	uint64_t silence_cycles;
	uint64_t full_cycles;  /* Pause while all TX rings are full. */
	uint64_t deaf_from;    /* TSC. */
	struct periodic stall; /* Initial value for each lcore. */
};

extern struct generator generator;

#endif /* GENERATOR_H */
