/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ATTACH_H
#define PDUMP_ATTACH_H

/* Makes this process a secondary process of the app. */

#include "app.h"
#include "arena.h"
#include "options.h"
#include "ports.h"
#include "state.h"
#include "failure.h"

/* Time that an app may take to end after it has closed its sockets. */
#define ENDING_MS 200U

/*
 * Attach, on the CPUs of the options. 0, or -1 with the failure: EAGAIN if the app has changed its
 * memory meanwhile; another process may try again.
 */
int attach(const struct options *options, const struct app *app, struct state *state,
		struct failure *failure);

/*
 * Answer requests of the app that follow when it enables or disables a capture. 0, or -1 with the
 * failure.
 */
int pdump_action_register(struct failure *failure);

/*
 * Whether the app has ended, or does so within this time. Another app may have its file prefix
 * by then, whose memory must not be written.
 */
bool app_ended(const struct state *state, unsigned int ms);

/* Whether the app's rte_pdump answers a request that changes nothing. 0, or -1 with the failure. */
int app_answers(struct state *state, struct failure *failure);

/* Enable every tap of the state on its ring; if one fails, those before it stay armed. */
int taps_enable(struct state *state, const struct arena *arena, const struct app *app,
		struct failure *failure);

enum taps_result {
	TAPS_DISABLED,
	/*
	 * The app does not have the port or queue of those that are still armed. It may call their
	 * callbacks once it has them again.
	 */
	TAPS_LEFT,
	/* The app has ended, or does not answer, which is reported on stderr. */
	TAPS_UNANSWERED,
};

/*
 * Disable every tap that is armed, under the name that its port has now. Without `ports`, that is
 * the name in the state.
 */
enum taps_result taps_disable(struct state *state, const struct ports *ports);

#endif /* PDUMP_ATTACH_H */
