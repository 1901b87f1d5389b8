/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef RESTART_H
#define RESTART_H

/* Stops and starts ports on demand, as an app does that changes their settings. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include "lane.h"

struct restart {
	uint64_t period;      /* Cycles; 0: never. */
	uint64_t due;	      /* TSC of the next one. */
	unsigned int down_ms; /* Between stop and start. */
};

static inline struct restart
restart_start(uint64_t every_ms, uint64_t down_ms, uint64_t hz, uint64_t now)
{
	return (struct restart){
		.period = every_ms * hz / 1000,
		.due = now + every_ms * hz / 1000,
		.down_ms = (unsigned int)down_ms,
	};
}

/*
 * Stop and start the ports of these lanes if it is time. True if so. No other lcore may poll them;
 * a port that does not come back stays down.
 */
static inline bool
restart_when_due(struct restart *restart, const struct lane *lane, const struct lane *end)
{
	const uint64_t now = rte_rdtsc();

	if (now < restart->due)
		return false;
	restart->due = now + restart->period;
	for (; lane < end; lane++)
		if (lane->queue == 0 && rte_eth_dev_stop(lane->port) == 0) {
			if (restart->down_ms != 0)
				rte_delay_ms(restart->down_ms);
			rte_eth_dev_start(lane->port);
		}
	return true;
}

#endif /* RESTART_H */
