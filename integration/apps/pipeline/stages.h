/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef STAGES_H
#define STAGES_H

/* The stages of the pipeline: receive, process and send packets. */

#include <stdbool.h>
#include <stdint.h>

#include "pipe.h"

struct stages_options {
	uint16_t burst;
	bool stamp; /* Make every packet received a probe of the generator's kind. */
	bool mix;   /* Clone, chain and drop some packets, as applications do. */
	bool paced;
	uint64_t faults_from; /* TSC before which no fault happens. */
	/* Stages of the leak ledger. */
	int worker_stage;
	int hold_stage;
};

extern struct stages_options stages_options;

/* Headers of the packets that stamp writes. Before the first stage runs. */
void stages_prepare(void);

/* Each returns the number of packets it processed. */
uint16_t stage_rx(struct pipe *pipe, struct pipe_stats *stats, uint64_t now);
uint16_t stage_work(struct pipe *pipe, struct pipe_stats *stats, uint64_t now);
uint16_t stage_tx(struct pipe *pipe, struct pipe_stats *stats, uint64_t now);

/* Free the packets between the stages, when all stages have ended. */
void stages_drain(struct pipe *pipe);

#endif /* STAGES_H */
