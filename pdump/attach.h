/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ATTACH_H
#define PDUMP_ATTACH_H

/* This process as a secondary process of the app. */

#include "app.h"
#include "arena.h"
#include "options.h"
#include "state.h"
#include "failure.h"

/* How long an app that has closed its sockets may take to end. */
#define ENDING_MS 200U

/*
 * Become one, on the CPUs of the options. 0, or -1 with the failure: EAGAIN when the app has changed
 * its memory meanwhile, and another process may try again.
 */
int attach(const struct options *options, const struct app *app, struct state *state,
		struct failure *failure);

/* Answer what the app asks of us when it enables or disables a capture. 0, or -1 with the failure. */
int pdump_action_register(struct failure *failure);

/*
 * Has that app ended, or does so within this time? Its file prefix may be another one's by now,
 * whose memory must not be touched.
 */
bool app_ended(const struct state *state, unsigned int ms);

/* Does the app's rte_pdump answer, to a request that changes nothing? 0, or -1 with the failure. */
int app_answers(struct state *state, struct failure *failure);

/* Enable every tap of the state on its ring; those before one that fails stay armed. */
int taps_enable(struct state *state, const struct arena *arena, const struct app *app,
		struct failure *failure);

/*
 * Disable every tap that is armed. False when a callback is left in the app or may be, which is
 * then told on stderr, or when the app has ended.
 */
bool taps_disable(struct state *state);

#endif /* PDUMP_ATTACH_H */
