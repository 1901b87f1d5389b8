/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_CALLBACKS_H
#define PDUMP_CALLBACKS_H

/*
 * The structs that an app allocates for the callbacks of pdump, in memory that it shares.
 * It never frees them: each capture would take some 200 bytes per tap for good. They are found
 * during a capture, and freed after its grace period.
 */

#include "app_memory.h"
#include "arena.h"
#include "state.h"

/* Of what the app's data path reads, where the lists of callbacks begin. */
extern const struct app_symbol callbacks_symbol;

enum callback_fate {
	CALLBACK_GONE,
	CALLBACK_LINKED, /* The app calls it, or will when it has that queue again. */
	CALLBACK_UNKNOWN,
};

/*
 * Take note of the callbacks of all taps in the state that have none yet; of those that cannot be
 * found, nothing.
 */
void callbacks_note(struct state *state, const struct arena *arena);

/* Is there a callback with this pool in the app's list for a tap? */
enum callback_fate callbacks_look(const struct state *state, const struct state_tap *tap,
		const struct rte_mempool *pool);

/* Free those of the taps that are no longer armed. */
void callbacks_free(struct state *state);

#endif /* PDUMP_CALLBACKS_H */
