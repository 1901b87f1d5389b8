/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CONTROL_H
#define CONTROL_H

/*
 * The control thread: waits for signals and timeouts, prints statistics and ends the run. Poll
 * loops never wait, print or handle a signal; SIGINT and SIGTERM are blocked in every thread and
 * read by sigtimedwait(), so there is no signal handler.
 */

#include <stdbool.h>
#include <stdint.h>

struct control {
	uint64_t interval_ms;
	/* Request the end of the run after this time; 0: no limit. */
	uint64_t duration_ms;
	/* Called at each interval with the time since control_start() and since the last call. */
	void (*report)(uint64_t elapsed_ns, uint64_t span_ns);
};

extern bool control_stop_asked;

/* True once the run has to end. For poll loops. */
static inline bool
control_stopping(void)
{
	return __atomic_load_n(&control_stop_asked, __ATOMIC_RELAXED);
}

/* True once a signal, not only the end of the duration, has requested the end of the run. */
bool control_interrupted(void);

/*
 * Block the signals and remember which CPUs this process may use. Call it before
 * rte_eal_init(), whose threads then inherit the mask.
 */
void control_prepare(void);

/* Sleep at most ms milliseconds. True if a signal requested the end of the run. */
bool control_sleep(uint64_t ms);

/* Start the thread, not on the CPUs of the polling lcores if there are others. 0 or -errno.
 * May be called again after control_end(). */
int control_start(const struct control *control);

/* End and join the thread. */
void control_end(void);

#endif /* CONTROL_H */
