/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef INTERVAL_H
#define INTERVAL_H

/* Counters of an interval of the run. */

#include <stdint.h>

#include "latency.h"
#include "worker.h"

struct interval {
	uint64_t elapsed_ns; /* From the start of the run to the end of the interval. */
	uint64_t span_ns;
	struct totals before, now;
	struct lcore_rates {
		uint64_t sent;
		uint64_t received;
	} lcores[RTE_MAX_LCORE]; /* In the interval. */
	struct latency latency;
};

#endif /* INTERVAL_H */
