/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_CALLBACKS_H
#define PDUMP_CALLBACKS_H

/*
 * The callbacks of pdump in the lists of an app, in memory that it shares. The app never frees
 * them: each capture costs it about 200 bytes per tap permanently. To free them here would need a
 * lock of its heap.
 */

#include <rte_mempool.h>

#include "app_memory.h"
#include "state.h"

/* Symbol of the table that the app's data path reads; the lists of callbacks begin there. */
extern const struct app_symbol callbacks_symbol;

enum callback_fate {
	CALLBACK_GONE,
	CALLBACK_LINKED, /* The app calls it, or will when it has that queue again. */
	CALLBACK_UNKNOWN,
};

/* Store in the state where the lists of its taps are; those not found are left out. */
void callbacks_note(struct state *state);

/* Whether the app's list for a tap has a callback with this pool. */
enum callback_fate callbacks_look(const struct state_tap *tap, const struct rte_mempool *pool);

#endif /* PDUMP_CALLBACKS_H */
