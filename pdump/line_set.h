/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_LINE_SET_H
#define PDUMP_LINE_SET_H

/*
 * A set of cache lines of the app's counters. It is part of a state file, which the app's user can
 * change, so it has no number that could be wrong.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_common.h>
#include <rte_ethdev.h>
#include <rte_pdump.h>

/* Lines of the counters of all ports and directions. */
#define LINE_SET_LINES \
	(2 * (size_t)RTE_MAX_ETHPORTS * RTE_MAX_QUEUES_PER_PORT * sizeof(struct rte_pdump_stats) / \
			RTE_CACHE_LINE_SIZE)
#define LINE_SET_WORDS ((LINE_SET_LINES + 63) / 64)

struct line_set {
	uint64_t words[LINE_SET_WORDS];
};

/* Whether the set has a line; lines behind the last one are in no set. */
bool line_set_has(const struct line_set *set, size_t line);

/*
 * Add or remove all lines of these bytes, for counters at `base`. Bytes elsewhere are passed over.
 */
void line_set_add(struct line_set *set, const void *base, const void *begin, size_t bytes);
void line_set_remove(struct line_set *set, const void *base, const void *begin, size_t bytes);

/* Whether the set has any of these bytes. */
bool
line_set_touches(const struct line_set *set, const void *base, const void *begin, size_t bytes);

/* Add all lines of another set. */
void line_set_join(struct line_set *set, const struct line_set *other);

bool line_set_is_empty(const struct line_set *set);

#endif /* PDUMP_LINE_SET_H */
