/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_CAPTURE_MEMORY_H
#define PDUMP_CAPTURE_MEMORY_H

/* The memory of a capture in the app: unused counters, and when they may be written. */

#include <stdbool.h>

#include "arena.h"
#include "failure.h"
#include "ports.h"
#include "state.h"

/*
 * Take memory of the app for the taps of the state, and build the arena in it. 0, or -1 with the
 * failure; what the state has then must be given back.
 */
int capture_memory_take(struct state *state, const struct ports *ports, int ops_index,
		struct arena *arena, struct failure *failure);

/* The arena of a state, which another process may have made; false if it has none. */
bool capture_memory_find(const struct state *state, struct arena *arena);

/*
 * Check that no new device has an id whose counters are memory of the capture. 0, or -1 with the
 * failure.
 */
int
capture_memory_check(const struct state *state, const struct ports *ports, struct failure *failure);

/*
 * Keep only what the app still uses or may use for the taps of a state that are armed, and return
 * the rest, filled with zeros. False if there is no such memory.
 */
bool capture_memory_retire(struct state *state);

/*
 * Whether the app's counters are still those of a parked state, so that its memory must be left
 * alone.
 */
bool capture_memory_is_kept(const struct state *state);

/*
 * Return what a parked state has kept, filled with zeros; `last` if no other state has memory in
 * the counters, which the app can free from then on.
 */
void capture_memory_return_kept(const struct state *state, bool last);

/*
 * Return the memory of a state to the app, filled with zeros. It must not be in use. False if the
 * app had to be asked and did not answer, which is reported on stderr.
 */
bool capture_memory_give_back(struct state *state);

#endif /* PDUMP_CAPTURE_MEMORY_H */
