/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_STATE_H
#define PMDSCOPE_STATE_H

/* The one instance of the library. */

#include <pthread.h>
#include <stdbool.h>

#include "pmdscope.h"

struct pmdscope_state {
	/*
	 * The state lock: held by the control thread for a tick or an event, by telemetry
	 * threads while they render, by pmdscope_init() and pmdscope_fini(). Never by an lcore
	 * in its poll loop.
	 */
	pthread_mutex_t lock;
	bool running;
	/* Settings in force. */
	struct pmdscope_conf conf;
	/* The control thread may run on the CPU of a polling lcore. */
	bool shares_cpu;
};

extern struct pmdscope_state pmdscope_state;

#endif /* PMDSCOPE_STATE_H */
