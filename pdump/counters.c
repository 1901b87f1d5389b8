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

void
counters_clear(const struct rte_memzone *zone, uint16_t first_port)
{
	struct counters_span spans[COUNTERS_SPANS];
	unsigned int i;

	counters_spans(zone, first_port, spans);
	for (i = 0; i < COUNTERS_SPANS; i++)
		memset(spans[i].begin, 0, (size_t)(spans[i].end - spans[i].begin));
}
