/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_COUNTERS_H
#define PDUMP_COUNTERS_H

/*
 * The memzone in which rte_pdump counts packets, for each port and queue that there could be. The app
 * makes it in rte_pdump_init() and never uses the counters of ports that do not exist: these are most of
 * its 4 MiB, and the memory of a capture. So a capture allocates nothing in the app, and takes none of its
 * locks.
 *
 * rte_pdump_uninit() frees the memzone by the pointer at its end. While a capture has memory in it, that
 * pointer is NULL, with which nothing is freed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_memzone.h>
#include <rte_pdump.h>

/* Of the memzone. */
#define COUNTERS_NAME "rte_pdump_stats"

/* As rte_pdump.c has it. */
struct counters {
	struct rte_pdump_stats rx[RTE_MAX_ETHPORTS][RTE_MAX_QUEUES_PER_PORT];
	struct rte_pdump_stats tx[RTE_MAX_ETHPORTS][RTE_MAX_QUEUES_PER_PORT];
	const struct rte_memzone *zone;
};

/* Bytes from begin up to end. */
struct counters_span {
	uint8_t *begin, *end;
};

/* Directions, each with counters of its own. */
#define COUNTERS_SPANS 2

/* The app's memzone; NULL if it has none that is laid out like that. */
const struct rte_memzone *counters_find(void);

/* Take the pointer out of the memzone, which stays from here on. False if it is not there. */
bool counters_hold(const struct rte_memzone *zone);

/* Has somebody taken the pointer out? */
bool counters_held(const struct rte_memzone *zone);

/* Put it back. */
void counters_release(const struct rte_memzone *zone);

/* The memory of ports from this id on. */
void counters_spans(const struct rte_memzone *zone, uint16_t first_port,
		struct counters_span spans[COUNTERS_SPANS]);

/* Fill that memory with zeros, as the app expects it for new ports. */
void counters_clear(const struct rte_memzone *zone, uint16_t first_port);

#endif /* PDUMP_COUNTERS_H */
