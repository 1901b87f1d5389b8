/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SUMMARY_H
#define SUMMARY_H

/* The results that are printed and saved at the end of a run. */

#include <stdint.h>

#include "app.h"
#include "clock.h"
#include "phase.h"
#include "worker.h"

/* The results of a run. */
struct summary {
	struct totals totals;
	struct moment start, end; /* Around the run. */
	uint64_t tsc_hz;
	uint64_t lost;
	double duration_s; /* From the start until the last lcore stopped sending. */
	double rate;
	uint64_t first_send_ns; /* CLOCK_REALTIME; 0: nothing was sent. */
	uint64_t last_send_ns;
	unsigned int in_use;
	struct latency latency; /* TSC cycles. */
	struct latency gaps;	/* The same, between consecutive packets of a queue. */
	uint64_t target_gap;	/* TSC cycles; 0: no limit. */
};

/* Fill it from the workers, whose lcores have ended. in_use is set to 0. */
void summarise(struct summary *s, const struct phase *phase, uint64_t tsc_hz);

void summary_print(const struct summary *s);

/* Write it to --json. 0 or a negative errno, reported. */
int summary_save(const struct summary *s, const struct app *app);

/* A run without a usable result is a failure. 0, or -1, reported. */
int summary_judge(const struct summary *s);

#endif /* SUMMARY_H */
