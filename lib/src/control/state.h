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
	/* The process or its EAL ends: no thread may wait for the lock. */
	bool ending;
	/*
	 * The lcore that waits until the control thread has stopped; LCORE_ID_ANY if there is none.
	 */
	unsigned int stopping_lcore;
	/* Settings in force. */
	struct pmdscope_conf conf;
	/* The control thread may run on the CPU of a polling lcore. */
	bool shares_cpu;
};

extern struct pmdscope_state pmdscope_state;

/*
 * Take the state lock to answer a telemetry request. False when the app ends instead, perhaps in a
 * signal handler that interrupted the holder of the lock.
 */
bool pmdscope_state_lock_to_answer(void);

/*
 * Stop observing, on the control thread, and wait for that up to timeout_ms. False when the thread is
 * stuck in a call of DPDK. Safe on any thread, in signal handlers, and in a forked child.
 */
bool pmdscope_control_stop(unsigned int timeout_ms);

/* pmdscope_init() was called in this process, not in one that forked it. */
bool pmdscope_control_is_here(void);

#endif /* PMDSCOPE_STATE_H */
