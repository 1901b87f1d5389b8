/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PHASE_H
#define PHASE_H

/* A part of a run with separate numbers: warm-up, measurement, a trial of --find-rate. */

#include <stdbool.h>
#include <stdint.h>

#include "app.h"
#include "clock.h"

struct phase {
	uint64_t rate;	      /* Packets per second over all queues; 0: no limit. */
	uint64_t count;	      /* Packets; 0: no limit. */
	uint64_t duration_ms; /* 0: no limit. */
	bool drain;	      /* At the end wait for packets under way. */
	void (*begin)(const struct moment *
					start); /* NULL, or called right before the first packet. */
	void (*report)(uint64_t elapsed_ns, uint64_t span_ns);

	/* Set by phase_run(). */
	struct moment start, end;
};

/* Run it on all lcores. 0 or a negative errno, reported. */
int phase_run(struct phase *phase, struct app *app, uint64_t tsc_hz);

/*
 * Send for --warm-up without counting, at settings.rate. If that is to be a percentage of the rate
 * that its second half reaches, sets it; the packets under way have then returned, so that the
 * measurement begins with empty rings. 0 or a negative errno, reported.
 */
int phase_warm_up(struct app *app, uint64_t tsc_hz);

#endif /* PHASE_H */
