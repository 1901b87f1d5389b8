/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-thief: takes a CPU from the thread that polls on it, and reports how much it took. */

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t
now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void
sleep_us(uint64_t us)
{
	const struct timespec t = { .tv_sec = (time_t)(us / 1000000),
		.tv_nsec = (long)(us % 1000000 * 1000) };

	nanosleep(&t, NULL);
}

static int
pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

/*
 * Runs on the CPU with real-time priority, if that is permitted: `count` times for `us` of CPU time,
 * `gap_us` apart.
 */
static int
hog(int cpu, uint64_t count, uint64_t us, uint64_t gap_us)
{
	const struct sched_param priority = { .sched_priority = 20 };
	uint64_t i, wall, cpu_begin, wall_ns = 0, cpu_ns = 0, spent;
	bool real_time;

	prctl(PR_SET_NAME, "pmdscope-hog");
	if (pin(cpu) != 0)
		return -1;
	real_time = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
	for (i = 0; i < count; i++) {
		sleep_us(gap_us);
		wall = now_ns(CLOCK_MONOTONIC);
		cpu_begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
		do {
			spent = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
		} while (spent < us * 1000);
		cpu_ns += spent;
		wall_ns += now_ns(CLOCK_MONOTONIC) - wall;
	}
	printf("{\"count\": %" PRIu64 ", \"wall_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64
	       ", \"real_time\": %s}\n",
			count, wall_ns, cpu_ns, real_time ? "true" : "false");
	return 0;
}

/* Interrupts the CPU from another one: `count` times, `gap_us` apart. */
static int
ipi(int cpu, uint64_t count, uint64_t gap_us)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.disabled = 1,
	};
	uint64_t i;
	int fd;

	prctl(PR_SET_NAME, "pmdscope-ipi");
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);
	if (fd < 0)
		return -1;
	/* The event is switched on and off by a function that runs on the CPU. */
	for (i = 0; i < count; i++) {
		if (ioctl(fd, i % 2 ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE, 0) != 0)
			return -1;
		sleep_us(gap_us);
	}
	printf("{\"count\": %" PRIu64 "}\n", count);
	close(fd);
	return 0;
}

/*
 * Has the timer of the CPU interrupt it every `period_us`, `count` times: by the clock of an event
 * without a reader. Nothing is scheduled there.
 */
static int
timer(int cpu, uint64_t count, uint64_t period_us)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_us * 1000,
	};
	uint64_t ns;
	int fd;

	prctl(PR_SET_NAME, "pmdscope-timer");
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);
	if (fd < 0)
		return -1;
	sleep_us(count * period_us);
	if (read(fd, &ns, sizeof(ns)) != sizeof(ns))
		return -1;
	printf("{\"count\": %" PRIu64 "}\n", ns / (period_us * 1000));
	close(fd);
	return 0;
}

static uint64_t
number(const char *text)
{
	char *end;
	const unsigned long long value = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0') {
		fprintf(stderr, "pmdscope-thief: not a number: %s\n", text);
		exit(2);
	}
	return value;
}

int
main(int argc, char **argv)
{
	int rc;

	if (argc == 6 && strcmp(argv[1], "hog") == 0) {
		rc = hog((int)number(argv[2]), number(argv[3]), number(argv[4]), number(argv[5]));
	} else if (argc == 5 && strcmp(argv[1], "ipi") == 0) {
		rc = ipi((int)number(argv[2]), number(argv[3]), number(argv[4]));
	} else if (argc == 5 && strcmp(argv[1], "timer") == 0) {
		rc = timer((int)number(argv[2]), number(argv[3]), number(argv[4]));
	} else {
		fputs("Usage: pmdscope-thief hog CPU COUNT BUSY_US GAP_US\n"
		      "       pmdscope-thief ipi CPU COUNT GAP_US\n"
		      "       pmdscope-thief timer CPU COUNT PERIOD_US\n",
				stderr);
		return 2;
	}
	if (rc != 0)
		fprintf(stderr, "pmdscope-thief: %s: %s\n", argv[1], strerror(errno));
	return rc == 0 ? 0 : 1;
}
