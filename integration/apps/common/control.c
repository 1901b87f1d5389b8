/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include <rte_common.h>
#include <rte_lcore.h>

#include "control.h"

#define NS_PER_MS UINT64_C(1000000)

bool control_stop_asked;

static bool interrupted;
static bool ending;
static struct control control;
static pthread_t control_thread;
static cpu_set_t process_cpus;

static void
end_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
}

void
control_prepare(void)
{
	sigset_t set;

	end_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	/* The forwarding must not end if the reader of the statistics does. */
	signal(SIGPIPE, SIG_IGN);
	if (sched_getaffinity(0, sizeof(process_cpus), &process_cpus) != 0)
		CPU_ZERO(&process_cpus);
}

static uint64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 * NS_PER_MS + (uint64_t)ts.tv_nsec;
}

/* True if a signal came before the deadline. */
static bool
wait_until(uint64_t deadline_ns)
{
	struct timespec left;
	uint64_t now;
	sigset_t set;

	end_signals(&set);
	do {
		now = monotonic_ns();
		if (now > deadline_ns)
			now = deadline_ns;
		left.tv_sec = (time_t)((deadline_ns - now) / (1000 * NS_PER_MS));
		left.tv_nsec = (long)((deadline_ns - now) % (1000 * NS_PER_MS));
		if (sigtimedwait(&set, NULL, &left) > 0) {
			/* control_end() sends a signal, too. */
			if (!__atomic_load_n(&ending, __ATOMIC_RELAXED))
				__atomic_store_n(&interrupted, true, __ATOMIC_RELAXED);
			__atomic_store_n(&control_stop_asked, true, __ATOMIC_RELAXED);
			return true;
		}
		/* EINTR: a debugger or a stopped job; continue with the rest of the time. */
	} while (errno == EINTR);
	return false;
}

bool
control_interrupted(void)
{
	return __atomic_load_n(&interrupted, __ATOMIC_RELAXED);
}

bool
control_sleep(uint64_t ms)
{
	return wait_until(monotonic_ns() + ms * NS_PER_MS);
}

static void *
control_loop(void *arg)
{
	const uint64_t start = monotonic_ns();
	const uint64_t end = control.duration_ms != 0 ? start + control.duration_ms * NS_PER_MS
						      : UINT64_MAX;
	uint64_t tick = start + control.interval_ms * NS_PER_MS;
	uint64_t now, last = start;

	(void)arg;
	while (!wait_until(RTE_MIN(tick, end))) {
		now = monotonic_ns();
		if (now >= end) {
			__atomic_store_n(&control_stop_asked, true, __ATOMIC_RELAXED);
			wait_until(UINT64_MAX);
			break;
		}
		control.report(now - start, now - last);
		last = now;
		/* Ticks missed during a sleep are skipped. */
		do {
			tick += control.interval_ms * NS_PER_MS;
		} while (tick <= now);
	}
	return NULL;
}

/* rte_eal_init() pinned the caller to the main lcore; new threads would inherit that. */
static void
leave_lcores(pthread_attr_t *attr)
{
	cpu_set_t others = process_cpus;
	unsigned int lcore, cpu;

	RTE_LCORE_FOREACH(lcore) {
		const cpu_set_t polled = rte_lcore_cpuset(lcore);

		for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &polled))
				CPU_CLR(cpu, &others);
	}
	if (CPU_COUNT(&others) == 0)
		others = process_cpus;
	if (CPU_COUNT(&others) > 0)
		pthread_attr_setaffinity_np(attr, sizeof(others), &others);
}

int
control_start(const struct control *conf)
{
	pthread_attr_t attr;
	int rc;

	control = *conf;
	__atomic_store_n(&control_stop_asked, false, __ATOMIC_RELAXED);
	__atomic_store_n(&ending, false, __ATOMIC_RELAXED);
	rc = pthread_attr_init(&attr);
	if (rc != 0)
		return -rc;
	leave_lcores(&attr);
	rc = pthread_create(&control_thread, &attr, control_loop, NULL);
	pthread_attr_destroy(&attr);
	if (rc != 0)
		return -rc;
	pthread_setname_np(control_thread, "app-control");
	return 0;
}

void
control_end(void)
{
	__atomic_store_n(&ending, true, __ATOMIC_RELAXED);
	pthread_kill(control_thread, SIGTERM);
	pthread_join(control_thread, NULL);
}
