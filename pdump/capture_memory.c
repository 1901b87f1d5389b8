/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>

#include "attach.h"
#include "capture_memory.h"

/* For devices that are added during the capture. */
#define SPARE_PORTS 4

/* The app's counters, if they are those in the state. */
static const struct rte_memzone *
find_zone(const struct state *state)
{
	const struct rte_memzone *zone = counters_find();

	return state->counters != 0 && zone != NULL && zone->addr_64 == state->counters ? zone
											: NULL;
}

bool
capture_memory_find(const struct state *state, struct arena *arena)
{
	const struct rte_memzone *zone = find_zone(state);
	struct counters_span spans[COUNTERS_SPANS];

	if (zone == NULL)
		return false;
	counters_spans(zone, (uint16_t)state->first_port, spans);
	return arena_place(arena, spans, state_nb_taps(state));
}

int
capture_memory_check(const struct state *state, const struct ports *ports, struct failure *failure)
{
	const int port = ports_highest(ports, (uint16_t)state->first_port);

	if (port < 0)
		return 0;
	return failure_set(failure, EBUSY,
			"the app has a new port %d, whose counters were used for copies: capture again",
			port);
}

/*
 * rte_pdump_uninit() may have read the pointer before it was taken out, and be about to free the
 * memzone. It first stops answering requests. So if the app answers a request now,
 * rte_pdump_uninit() has not begun, and the memzone remains.
 */
static int
hold(struct state *state, const struct rte_memzone *zone, struct failure *failure)
{
	state->counters = zone->addr_64;
	if (!counters_hold(zone)) {
		state->counters = 0;
		return failure_set(
				failure, EBUSY, "others use the counters of the app's rte_pdump");
	}
	if (app_answers(state, failure) < 0)
		return -1;
	state->built = 1;
	return 0;
}

int
capture_memory_take(struct state *state, const struct ports *ports, int ops_index,
		struct arena *arena, struct failure *failure)
{
	const int highest = ports_highest(ports, 0), first = highest + 1 + SPARE_PORTS;
	const struct rte_memzone *zone = counters_find();
	struct counters_span spans[COUNTERS_SPANS];

	if (zone == NULL && rte_memzone_lookup(COUNTERS_NAME) != NULL)
		return failure_set(failure, EPROTONOSUPPORT,
				"the app's rte_pdump counts otherwise: build pmdscope-pdump with its DPDK");
	if (zone == NULL)
		return failure_set(failure, ENOTSUP,
				"the app did not call rte_pdump_init(); link it with libpmdscope instead");
	if (first >= RTE_MAX_ETHPORTS)
		return failure_set(failure, ENOSPC,
				"the app has ports up to %d of %d, which leaves no memory for copies",
				highest, RTE_MAX_ETHPORTS);
	state->first_port = (uint32_t)first;
	counters_spans(zone, (uint16_t)first, spans);
	if (!arena_place(arena, spans, state_nb_taps(state)))
		return failure_set(failure, ENOSPC,
				"no memory for copies of %u queues, beside ports up to %d: select some",
				state->nb_taps, highest);
	if (hold(state, zone, failure) < 0 || capture_memory_check(state, ports, failure) < 0)
		return -1;
	arena_build(arena, ops_index);
	return 0;
}

bool
capture_memory_give_back(struct state *state)
{
	const struct rte_memzone *zone = find_zone(state);
	struct failure failure;

	if (zone != NULL && counters_held(zone)) {
		if (!state->built && app_answers(state, &failure) < 0) {
			complain("%s; the next capture cleans up", failure.text);
			return false;
		}
		counters_clear(zone, (uint16_t)state->first_port);
		counters_release(zone);
	}
	state->counters = 0;
	return true;
}
