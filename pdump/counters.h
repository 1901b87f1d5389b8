/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_COUNTERS_H
#define PDUMP_COUNTERS_H

/*
 * The memzone in which rte_pdump counts packets, for each possible port and queue. The app makes it
 * in rte_pdump_init() and never uses the counters of ports that do not exist: these are most of its
 * 4 MiB, and a capture uses them as memory. So a capture allocates nothing in the app, and takes
 * none of its locks.
 *
 * rte_pdump_uninit() frees the memzone by the pointer at its end. While a capture has memory in it,
 * that pointer is NULL, so nothing is freed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_memzone.h>
#include <rte_pdump.h>

#include "line_set.h"

/* Name of the memzone. */
#define COUNTERS_NAME "rte_pdump_stats"

/* As in rte_pdump.c. */
struct counters {
	struct rte_pdump_stats rx[RTE_MAX_ETHPORTS][RTE_MAX_QUEUES_PER_PORT];
	struct rte_pdump_stats tx[RTE_MAX_ETHPORTS][RTE_MAX_QUEUES_PER_PORT];
	const struct rte_memzone *zone;
};

/* The bytes from begin to end. */
struct counters_span {
	uint8_t *begin, *end;
};

/* Directions, each of which has its own counters. */
#define COUNTERS_SPANS 2

/* The app's memzone; NULL if there is none with this layout. */
const struct rte_memzone *counters_find(void);

/* Remove the pointer from the memzone, so that it is not freed. False if there is no pointer. */
bool counters_hold(const struct rte_memzone *zone);

/* Whether a process has removed the pointer. */
bool counters_held(const struct rte_memzone *zone);

/* Restore the pointer. */
void counters_release(const struct rte_memzone *zone);

/* The counters of ports with this id or a higher one. */
void counters_spans(const struct rte_memzone *zone, uint16_t first_port,
		struct counters_span spans[COUNTERS_SPANS]);

/* Most pieces of memory in which a capture has its parts; what is in further ones is not used. */
#define COUNTERS_PIECES 1024U

/*
 * The counters of ports with this id or a higher one, without `kept`, in pieces in order of their
 * addresses. Returns their number.
 */
unsigned int counters_pieces(const struct rte_memzone *zone, uint16_t first_port,
		const struct line_set *kept, struct counters_span pieces[COUNTERS_PIECES]);

/*
 * Fill the counters of ports with this id or a higher one with zeros, as the app expects it for new
 * ports, except `kept`.
 */
void
counters_clear(const struct rte_memzone *zone, uint16_t first_port, const struct line_set *kept);

/* Fill these lines with zeros. */
void counters_clear_lines(const struct rte_memzone *zone, const struct line_set *lines);

#endif /* PDUMP_COUNTERS_H */
