/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "counters.h"

const struct rte_memzone *
counters_find(void)
{
	const struct rte_memzone *zone = rte_memzone_lookup(COUNTERS_NAME);

	if (zone == NULL ||
			zone->len != RTE_ALIGN_CEIL(sizeof(struct counters), RTE_CACHE_LINE_SIZE))
		return NULL;
	return zone;
}

bool
counters_hold(const struct rte_memzone *zone)
{
	struct counters *counters = zone->addr;
	const struct rte_memzone *there = zone;

	/* Memory that the app has freed no longer contains the pointer. */
	return __atomic_compare_exchange_n(
			&counters->zone, &there, NULL, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

bool
counters_held(const struct rte_memzone *zone)
{
	const struct counters *counters = zone->addr;

	return __atomic_load_n(&counters->zone, __ATOMIC_SEQ_CST) == NULL;
}

void
counters_release(const struct rte_memzone *zone)
{
	struct counters *counters = zone->addr;
	const struct rte_memzone *none = NULL;

	__atomic_compare_exchange_n(
			&counters->zone, &none, zone, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void
counters_spans(const struct rte_memzone *zone, uint16_t first_port,
		struct counters_span spans[COUNTERS_SPANS])
{
	struct counters *counters = zone->addr;

	first_port = RTE_MIN(first_port, RTE_MAX_ETHPORTS);
	spans[0].begin = (uint8_t *)counters->rx[first_port];
	spans[0].end = (uint8_t *)counters->rx[RTE_MAX_ETHPORTS];
	spans[1].begin = (uint8_t *)counters->tx[first_port];
	spans[1].end = (uint8_t *)counters->tx[RTE_MAX_ETHPORTS];
}

/* Call `each` for all pieces of a span that have only lines in the set, or only others. */
static void
for_pieces(const struct rte_memzone *zone, const struct counters_span *span,
		const struct line_set *set, bool in_set,
		void (*each)(void *arg, uint8_t *begin, uint8_t *end), void *arg)
{
	uint8_t *const base = zone->addr;
	size_t line = (size_t)(span->begin - base) / RTE_CACHE_LINE_SIZE, first = line;
	const size_t end = (size_t)(span->end - base) / RTE_CACHE_LINE_SIZE;

	for (; line <= end; line++) {
		if (line < end && line_set_has(set, line) == in_set)
			continue;
		if (first < line)
			each(arg, base + first * RTE_CACHE_LINE_SIZE,
					base + line * RTE_CACHE_LINE_SIZE);
		first = line + 1;
	}
}

/* Pieces that are collected. */
struct pieces {
	struct counters_span *list;
	unsigned int nb;
};

static void
collect(void *arg, uint8_t *begin, uint8_t *end)
{
	struct pieces *pieces = arg;

	if (pieces->nb < COUNTERS_PIECES)
		pieces->list[pieces->nb++] = (struct counters_span){ begin, end };
}

static void
clear(void *arg, uint8_t *begin, uint8_t *end)
{
	(void)arg;
	memset(begin, 0, (size_t)(end - begin));
}

unsigned int
counters_pieces(const struct rte_memzone *zone, uint16_t first_port, const struct line_set *kept,
		struct counters_span list[COUNTERS_PIECES])
{
	struct counters_span spans[COUNTERS_SPANS];
	struct pieces pieces = { .list = list };
	unsigned int i;

	counters_spans(zone, first_port, spans);
	for (i = 0; i < COUNTERS_SPANS; i++)
		for_pieces(zone, &spans[i], kept, false, collect, &pieces);
	return pieces.nb;
}

void
counters_clear(const struct rte_memzone *zone, uint16_t first_port, const struct line_set *kept)
{
	struct counters_span spans[COUNTERS_SPANS];
	unsigned int i;

	counters_spans(zone, first_port, spans);
	for (i = 0; i < COUNTERS_SPANS; i++)
		for_pieces(zone, &spans[i], kept, false, clear, NULL);
}

void
counters_clear_lines(const struct rte_memzone *zone, const struct line_set *lines)
{
	struct counters_span spans[COUNTERS_SPANS];
	unsigned int i;

	counters_spans(zone, 0, spans);
	for (i = 0; i < COUNTERS_SPANS; i++)
		for_pieces(zone, &spans[i], lines, true, clear, NULL);
}
