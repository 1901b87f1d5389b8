/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ALLOCATOR_H
#define PDUMP_ALLOCATOR_H

/*
 * The moments in which this process works in the app's allocator, with locks that the app
 * waits for. There is one for each capture to get its memory, and one to give it back. A process
 * that is killed just then leaves them held, and only a restart of the app helps: so no signal that can
 * be caught ends it there, and its state says where it was.
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
