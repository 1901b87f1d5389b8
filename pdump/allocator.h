/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ALLOCATOR_H
#define PDUMP_ALLOCATOR_H

/*
 * Critical sections in which this process works in the app's allocator, with locks that the app
 * waits for: one per capture to allocate its memory, and one to free it. A process that is killed
 * in one leaves the locks held, and the app must be restarted. So signals that can be caught are
 * blocked there, and the state file says which section is running.
 */

#include "app.h"
#include "state.h"
#include "failure.h"

/*
 * Wait until no lock of the app is held, for 2 seconds. 0, or -1 with the failure: which one it is, and
 * whether a capture was killed that may have had it: that of this state, if any, or of a file that
 * was left.
 */
int allocator_await(const struct app *app, const struct state *dead, struct failure *failure);

/* Begin to allocate or free memory of the app. 0, or -1 with the failure. */
int allocator_enter(const struct app *app, struct state *state, struct failure *failure);

/* No lock of the app is held by this process any more. */
void allocator_leave(struct state *state);

#endif /* PDUMP_ALLOCATOR_H */
