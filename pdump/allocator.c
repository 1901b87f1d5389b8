/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "allocator.h"
#include "control_files.h"
#include "locks.h"

/* Timeout for a lock. */
#define HELD_MS 2000

/* Of the thread that is in the allocator, as it was before. */
static sigset_t signals;

int
allocator_await(const struct app *app, const struct state *dead, struct failure *failure)
{
	char lock[LOCKS_NAME_MAX];

	if (locks_wait(app, HELD_MS, lock) != LOCKS_HELD)
		return 0;
	if ((dead != NULL && dead->phase == STATE_ALLOCATOR) || state_find_died_in_allocator(app))
		return failure_set(failure, EBUSY,
				"a capture was killed inside of the app's allocator, and %s is held: "
				"restart the app",
				lock);
	return failure_set(failure, EBUSY,
			"%s of the app has been held for %u s: let it go on, else restart it", lock,
			HELD_MS / 1000);
}

int
allocator_enter(const struct app *app, struct state *state, struct failure *failure)
{
	sigset_t all;

	if (allocator_await(app, NULL, failure) < 0)
		return -1;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &signals);
	if (!control_files_share()) {
		failure_set(failure, errno, "the app's memory cannot be mapped: %s",
				strerror(errno));
		control_files_unshare();
		pthread_sigmask(SIG_SETMASK, &signals, NULL);
		return -1;
	}
	state_enter(state, STATE_ALLOCATOR);
	return 0;
}

void
allocator_leave(struct state *state)
{
	state_enter(state, STATE_INSIDE);
	control_files_unshare();
	pthread_sigmask(SIG_SETMASK, &signals, NULL);
}
