/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>

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

	if (zone == NULL)
		return false;
	arena->nb_pieces = counters_pieces(
			zone, (uint16_t)state->first_port, &state->others, arena->pieces);
	return arena_place(arena, state_nb_taps(state));
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
	/* Since the first parked state. */
	if (line_set_is_empty(&state->others) && !counters_hold(zone)) {
		state->counters = 0;
		return failure_set(
				failure, EBUSY, "others use the counters of the app's rte_pdump");
	}
	if (app_answers(state, failure) < 0)
		return -1;
	state->built = 1;
	return 0;
}

/* The app would count packets of a tap in memory that a parked state has kept. */
static int
check_counters_of_taps(
		const struct state *state, const struct rte_memzone *zone, struct failure *failure)
{
	const struct counters *counters = zone->addr;
	const struct state_tap *tap;
	unsigned int i;

	for (i = 0; i < state_nb_taps(state); i++) {
		tap = &state->taps[i];
		if (!state_tap_valid(tap))
			return failure_set(failure, EINVAL, "the state file was changed");
		if (line_set_touches(&state->others, counters,
				    tap->dir == PMDSCOPE_DIR_RX
						    ? &counters->rx[tap->port][tap->queue]
						    : &counters->tx[tap->port][tap->queue],
				    sizeof(struct rte_pdump_stats)))
			return failure_set(failure, EBUSY,
					"the counters of port %u are kept for a port that the app has removed; "
					"add that again first",
					tap->port);
	}
	return 0;
}

int
capture_memory_take(struct state *state, const struct ports *ports, int ops_index,
		struct arena *arena, struct failure *failure)
{
	const int highest = ports_highest(ports, 0), first = highest + 1 + SPARE_PORTS;
	const struct rte_memzone *zone = counters_find();

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
	if (check_counters_of_taps(state, zone, failure) < 0)
		return -1;
	arena->nb_pieces = counters_pieces(zone, (uint16_t)first, &state->others, arena->pieces);
	if (!arena_place(arena, state_nb_taps(state)))
		return failure_set(failure, ENOSPC,
				"no memory for copies of %u queues, beside ports up to %d%s: select some",
				state->nb_taps, highest,
				line_set_is_empty(&state->others) ? "" : " and removed ones");
	if (hold(state, zone, failure) < 0 || capture_memory_check(state, ports, failure) < 0)
		return -1;
	arena_build(arena, ops_index);
	return 0;
}

bool
capture_memory_retire(struct state *state)
{
	const struct rte_memzone *zone = find_zone(state);
	static struct line_set kept;
	static struct arena arena;
	unsigned int i;

	if (!capture_memory_find(state, &arena))
		return false;
	if (!state->retired) {
		memset(&kept, 0, sizeof(kept));
		arena_retire(&arena, zone->addr, &kept);
		for (i = 0; i < arena.nb_rings; i++)
			if (state->taps[i].armed)
				line_set_add(&kept, zone->addr, arena_ring(&arena, i),
						arena.ring_bytes);
		state->kept = kept;
		__atomic_store_n(&state->retired, 1, __ATOMIC_RELEASE);
	}
	kept = state->kept;
	line_set_join(&kept, &state->others);
	counters_clear(zone, (uint16_t)state->first_port, &kept);
	return true;
}

bool
capture_memory_is_kept(const struct state *state)
{
	const struct rte_memzone *zone = find_zone(state);

	return zone != NULL && counters_held(zone);
}

void
capture_memory_return_kept(const struct state *state, bool last)
{
	const struct rte_memzone *zone = find_zone(state);

	if (zone == NULL || !counters_held(zone))
		return;
	counters_clear_lines(zone, &state->kept);
	if (last)
		counters_release(zone);
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
		counters_clear(zone, (uint16_t)state->first_port, &state->others);
		if (line_set_is_empty(&state->others))
			counters_release(zone);
	}
	state->counters = 0;
	return true;
}
