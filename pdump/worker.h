/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_WORKER_H
#define PDUMP_WORKER_H

/* The processes that attach to the app; main.c forks and monitors them. */

#include "app.h"
#include "options.h"
#include "state.h"
#include "capture_request.h"

struct worker {
	const struct options *options;
	const struct app *app;
	struct pmdscope_capture_spec *spec;
	struct state *state;
	const char *path; /* Of the state file. */
	int ops_index;	  /* Of the mempool ops in the app. */
	int watchdog;	  /* Hangs up when the parent dies. */
	bool last_try;	  /* WORKER_AGAIN must not be returned. */
};

/* Exit codes of workers. */
enum {
	WORKER_DONE,	  /* Nothing is left in the app. */
	WORKER_FAILED,	  /* The same; the consumer got the reason. */
	WORKER_ABANDONED, /* Something is left: the app could not be waited for. */
	WORKER_AGAIN,	  /* Nothing was done: the app was changing its memory. */
	WORKER_PARKED,	  /* The state was parked: the app has removed a port or queue. */
};

/* Capture until the consumer, the app or a signal ends it. Returns an exit code. */
int worker_capture(const struct worker *worker);

/* Undo the changes of a dead capture. Returns an exit code. */
int worker_recover(const struct worker *worker);

#endif /* PDUMP_WORKER_H */
