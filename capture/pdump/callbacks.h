/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_CALLBACKS_H
#define PDUMP_CALLBACKS_H

/*
 * The structs that an app allocates for the callbacks of pdump, in memory that it shares.
 * It never frees them: each capture would take some 200 bytes per tap for good. They are found
 * while a capture is on, and freed behind its grace period.
 */

#include "arena.h"
#include "state.h"

/* Take note of the callbacks of all taps in the state; of those that cannot be found, nothing. */
void callbacks_note(struct state *state, const struct arena *arena);

/* Free those of the taps that are no longer armed. */
void callbacks_free(struct state *state);

#endif /* PDUMP_CALLBACKS_H */
