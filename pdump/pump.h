/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_PUMP_H
#define PDUMP_PUMP_H

/* Moves packets from the rings that the app fills to the capture ring that the consumer reads. */

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
	const struct state *state;
	/* Copies, which the app cannot change. Packets of those that are not armed are passed over. */
	struct state_tap taps[STATE_MAX_TAPS];
	unsigned int nb_taps;
	struct arena arena;
	struct pmdscope_capture_producer producer;
	const struct counters *counts; /* Counters of pdump. */
	struct pump_losses {
		uint64_t seen;
	} losses[STATE_MAX_TAPS];
	uint32_t sample;	 /* As last requested by the consumer. */
	uint64_t still_tail;	 /* The consumer's tail at a full ring... */
	uint64_t still_since_ms; /* ...and since when; 0 if it is not full. */
};

/* Create the capture ring of the request. 0, or -1 with the failure. */
int pump_open(struct pump *pump, struct pmdscope_capture_spec *spec, struct state *state,
		struct failure *failure);

/* Begin with the taps of the state, from the current counts of pdump. 0, or -1 with the failure. */
int pump_start(struct pump *pump, struct failure *failure);

/* Copy the waiting packets of every tap; returns their number. */
unsigned int pump_round(struct pump *pump);

/*
 * Call a few times a second: updates anchors, counts losses that no packet follows, checks
 * the lease. 0, or -1 with the failure if the capture has to end.
 */
int pump_tick(struct pump *pump, struct failure *failure);

#endif /* PDUMP_PUMP_H */
