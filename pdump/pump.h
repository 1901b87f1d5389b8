/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_PUMP_H
#define PDUMP_PUMP_H

/* From the rings that the app fills into the one capture ring that the consumer reads. */

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "state.h"
#include "capture_instance.h"
#include "failure.h"

/* The "lcore" of the capture ring: no lcore of the app writes it. */
#define PUMP_LCORE 0xfffeU

struct pump {
	struct pmdscope_capture_spec *spec;
	struct state *state;
	struct arena arena;
	struct pmdscope_capture_producer producer;
	const struct counters *counts; /* What pdump has counted. */
	struct pump_losses {
		uint64_t seen;
	} losses[STATE_MAX_TAPS];
	uint32_t sample;	 /* As the consumer wants it by now. */
	uint64_t still_tail;	 /* The consumer's tail at a full ring... */
	uint64_t still_since_ms; /* ...and since when; 0 when it is not full. */
};

/* The capture ring, as the request has it. 0, or -1 with the failure. */
int pump_open(struct pump *pump, struct pmdscope_capture_spec *spec, struct state *state,
		struct failure *failure);

/* Begin with what pdump has counted so far. */
void pump_start(struct pump *pump);

/* Copy what there is of every tap; how many packets there were. */
unsigned int pump_round(struct pump *pump);

/*
 * A few times a second: anchors, losses that no packet follows, the lease. 0, or -1 with the
 * failure when the capture has to end.
 */
int pump_tick(struct pump *pump, struct failure *failure);

#endif /* PDUMP_PUMP_H */
