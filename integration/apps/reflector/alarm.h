/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef ALARM_H
#define ALARM_H

/* Injects signals: a timer interrupts the poll loop, and a handler runs in its thread. */

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* CPU time that each handler takes, nanoseconds. */
static uint64_t alarm_busy_ns;

static inline uint64_t
alarm_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline void
alarm_handle(int signo)
{
	const uint64_t begin = alarm_cpu_ns();

	(void)signo;
	while (alarm_cpu_ns() - begin < alarm_busy_ns)
		;
}

/*
 * A handler of this many microseconds with this period in milliseconds, in the calling thread; 0:
 * never.
 */
static inline int
alarm_start(uint64_t us, uint64_t every_ms)
{
	const struct itimerspec interval = {
		.it_interval = { .tv_sec = (time_t)(every_ms / 1000),
				.tv_nsec = (long)(every_ms % 1000 * 1000000) },
		.it_value = { .tv_sec = (time_t)(every_ms / 1000),
				.tv_nsec = (long)(every_ms % 1000 * 1000000) },
	};
	struct sigaction action = { .sa_handler = alarm_handle, .sa_flags = SA_RESTART };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };
	timer_t timer;

	if (us == 0)
		return 0;
	alarm_busy_ns = us * 1000;
	/* glibc has a name for this member only since 2.38. */
	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (sigaction(SIGALRM, &action, NULL) != 0)
		return -1;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
		return -1;
	return timer_settime(timer, 0, &interval, NULL);
}

#endif /* ALARM_H */
