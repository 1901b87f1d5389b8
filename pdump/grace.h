/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_GRACE_H
#define PDUMP_GRACE_H

/*
 * Waits until every thread of the app has left the callback that was just removed. Before DPDK
 * 25.11 the app does not report this, and memory that a callback still uses must not be freed. A
 * callback makes no system call and takes microseconds of CPU time; so a thread has left it after
 * it has slept, or has run for GRACE_CPU_NS more. Elapsed time does not prove this: the thread may
 * have been preempted in the callback.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* More CPU time than it takes to copy a burst. */
#define GRACE_CPU_NS 20000000ULL
#define GRACE_MAX_THREADS 1024U

/* A thread as /proc shows it. */
struct grace_thread {
	pid_t tid;
	char state;	   /* As in stat: R, S, D, T, t, Z, X, I... */
	uint64_t cpu_ns;   /* CPU time. */
	uint64_t switches; /* Number of voluntary sleeps. */
};

struct grace {
	pid_t pid;
	unsigned int nb_threads; /* Threads that may still be in the callback. */
	struct grace_thread threads[GRACE_MAX_THREADS];
};

/* Parse the /proc files of a thread. False if the text is not theirs. */
bool grace_parse(const char *stat, const char *schedstat, const char *status,
		struct grace_thread *thread);

/* Whether a thread that was `before` when the callback was removed, and is `now`, has left it. */
bool grace_passed(const struct grace_thread *before, const struct grace_thread *now);

/* Record the threads of a process; false if not all could be recorded. */
bool grace_begin(struct grace *grace, pid_t pid);

/* Wait until all have left; false if some did not in time, which are then in threads. */
bool grace_wait(struct grace *grace);

#endif /* PDUMP_GRACE_H */
