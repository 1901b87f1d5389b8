/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Effects of hardware watchpoints on the watched process, see docs/xray.md: the time of each hit,
 * whether the kernel ends them at a limit, and whether the process gets SIGTRAP, which ends it if
 * it is not handled. The watched process is a child of this one.
 */

#include <errno.h>
#include <inttypes.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Debug registers of a thread on x86-64. */
#define NB_WATCHED 4
#define NB_TIMES (1U << 16)
/* Pages of samples of a watchpoint: enough for about 6000 hits. */
#define NB_SAMPLE_PAGES 64
#define LIMIT 100
#define DEFAULT_SECONDS 30
#define MAX_SECONDS 86400
#define MS 1000000L
#define NS_PER_S 1000000000U
/* meson: the test was skipped */
#define EXIT_SKIPPED 77

/* Accesses from RX to free, see docs/xray.md: writes, and reads as well. */
static const unsigned int hits_of_life[] = { 3, 8 };
static const unsigned int packets_of_leak[] = { 1000, 10000, 100000, 100000000 };

/* Written by the child, except `watched`, whose writes are watched. */
struct shared {
	uint64_t watched[NB_WATCHED];
	uint64_t writes;
	uint64_t traps;
	int trap_code;
	uint32_t times_ns[NB_TIMES]; /* Of the latest writes. */
};

struct watchpoint {
	int fd;
	struct perf_event_mmap_page *samples;
};

static struct shared *shared;

static void
die(const char *what)
{
	fprintf(stderr, "watchpoints: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void
sleep_ns(long ns)
{
	const struct timespec time = { .tv_sec = ns / (1000 * MS), .tv_nsec = ns % (1000 * MS) };

	nanosleep(&time, NULL);
}

static void
on_trap(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	shared->trap_code = info->si_code;
	__atomic_add_fetch(&shared->traps, 1, __ATOMIC_RELAXED);
}

static void
write_forever(void)
{
	const struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	uint64_t begin, i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGTRAP, &action, NULL);
	for (i = 0;; i++) {
		begin = now_ns();
		__atomic_store_n(&shared->watched[i % NB_WATCHED], i, __ATOMIC_RELAXED);
		shared->times_ns[i % NB_TIMES] = (uint32_t)(now_ns() - begin);
		__atomic_store_n(&shared->writes, i + 1, __ATOMIC_RELEASE);
	}
}

static size_t
samples_bytes(void)
{
	return (NB_SAMPLE_PAGES + 1) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Created disabled; false if there are no watchpoints. */
static bool
watch(struct watchpoint *watchpoint, pid_t pid, const void *word)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_RW,
		.bp_addr = (uintptr_t)word,
		.bp_len = HW_BREAKPOINT_LEN_8,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	watchpoint->fd = (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, 0);
	if (watchpoint->fd < 0)
		return false;
	watchpoint->samples = mmap(NULL, samples_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
			watchpoint->fd, 0);
	if (watchpoint->samples == MAP_FAILED)
		die("memory for samples");
	return true;
}

static bool
watch_all(struct watchpoint *watchpoints, pid_t child)
{
	unsigned int i;

	for (i = 0; i < NB_WATCHED; i++)
		if (!watch(&watchpoints[i], child, &shared->watched[i]))
			return false;
	return true;
}

static void
end_watch(const struct watchpoint *watchpoints)
{
	unsigned int i;

	for (i = 0; i < NB_WATCHED; i++) {
		munmap(watchpoints[i].samples, samples_bytes());
		close(watchpoints[i].fd);
	}
}

/* Discards samples to make room for more: their content does not matter here. */
static void
drop_samples(const struct watchpoint *watchpoints)
{
	struct perf_event_mmap_page *samples;
	unsigned int i;

	for (i = 0; i < NB_WATCHED; i++) {
		samples = watchpoints[i].samples;
		__atomic_store_n(&samples->data_tail,
				__atomic_load_n(&samples->data_head, __ATOMIC_ACQUIRE),
				__ATOMIC_RELEASE);
	}
}

static uint64_t
count(const struct watchpoint *watchpoints)
{
	uint64_t hits, sum = 0;
	unsigned int i;

	for (i = 0; i < NB_WATCHED; i++) {
		if (read(watchpoints[i].fd, &hits, sizeof(hits)) != sizeof(hits))
			die("count of hits");
		sum += hits;
	}
	return sum;
}

static void
request(const struct watchpoint *watchpoints, unsigned long what, int arg)
{
	unsigned int i;

	for (i = 0; i < NB_WATCHED; i++)
		if (ioctl(watchpoints[i].fd, what, arg) != 0)
			die("ioctl of a watchpoint");
}

/* Wait until all times are those of later writes. */
static void
wait_for_times(const struct watchpoint *watchpoints)
{
	const uint64_t until = __atomic_load_n(&shared->writes, __ATOMIC_ACQUIRE) + NB_TIMES;

	while (__atomic_load_n(&shared->writes, __ATOMIC_ACQUIRE) < until) {
		sleep_ns(10 * MS);
		drop_samples(watchpoints);
	}
}

static int
compare_times(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Quartiles of the times of writes, microseconds. */
static void
quartiles(double us[3])
{
	static uint32_t times[NB_TIMES];
	unsigned int i;

	memcpy(times, shared->times_ns, sizeof(times));
	qsort(times, NB_TIMES, sizeof(times[0]), compare_times);
	for (i = 0; i < 3; i++)
		us[i] = times[(i + 1) * NB_TIMES / 4] / 1e3;
}

static void
print_odds(double us)
{
	double lives_ps, minutes;
	unsigned int i, k;

	for (i = 0; i < sizeof(hits_of_life) / sizeof(hits_of_life[0]); i++) {
		lives_ps = 0.01 * 1e6 / (us * hits_of_life[i]);
		printf("%u hits a life, 1 %% of an lcore: %.0f lives/s; expected time until a leak of\n",
				hits_of_life[i], lives_ps);
		for (k = 0; k < sizeof(packets_of_leak) / sizeof(packets_of_leak[0]); k++) {
			minutes = packets_of_leak[k] / lives_ps / 60;
			printf("  1 in %-9u packets is watched: %.1f minutes\n", packets_of_leak[k],
					minutes);
		}
	}
}

static void
measure_hits(const struct watchpoint *watchpoints, long seconds)
{
	double without[3], with[3];
	uint64_t hits, end;

	wait_for_times(watchpoints);
	quartiles(without);
	request(watchpoints, PERF_EVENT_IOC_ENABLE, 0);
	wait_for_times(watchpoints);
	quartiles(with);
	printf("a write: %.2f us, watched %.2f us (%.2f to %.2f)\n", without[1], with[1], with[0],
			with[2]);
	print_odds(with[1] - without[1]);

	end = now_ns() + (uint64_t)seconds * NS_PER_S;
	while (now_ns() < end) {
		sleep_ns(10 * MS);
		drop_samples(watchpoints);
	}
	request(watchpoints, PERF_EVENT_IOC_DISABLE, 0);
	hits = count(watchpoints);
	printf("SIGTRAP: %" PRIu64 " in %" PRIu64 " hits", shared->traps, hits);
	if (shared->traps > 0)
		printf(", code %d: each would have ended an app", shared->trap_code);
	printf("\n");
}

/* The limit is that of the kernel: watchpoints have to end at it, whatever this process does. */
static void
measure_limit(const struct watchpoint *watchpoints)
{
	static const char *const names[] = { "limit", "the same limit again" };
	uint64_t before = 0, hits;
	double us[3];
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		request(watchpoints, PERF_EVENT_IOC_REFRESH, LIMIT);
		sleep_ns(1000 * MS);
		wait_for_times(watchpoints);
		quartiles(us);
		hits = count(watchpoints);
		printf("%s, %u hits: %" PRIu64 " counted, a write then %.2f us\n", names[i],
				LIMIT * NB_WATCHED, hits - before, us[1]);
		before = hits;
	}
}

int
main(int argc, char **argv)
{
	struct watchpoint watchpoints[NB_WATCHED];
	long seconds = DEFAULT_SECONDS;
	char *end = NULL;
	pid_t child;

	if (argc > 1)
		seconds = strtol(argv[1], &end, 10);
	if (argc > 2 || (end != NULL && *end != '\0') || seconds < 1 || seconds > MAX_SECONDS) {
		fprintf(stderr, "Usage: %s [SECONDS]\n1 to %d seconds to look for SIGTRAP (%d)\n",
				argv[0], MAX_SECONDS, DEFAULT_SECONDS);
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			0);
	if (shared == MAP_FAILED)
		die("memory");
	child = fork();
	if (child < 0)
		die("child");
	if (child == 0)
		write_forever();
	if (!watch_all(watchpoints, child)) {
		printf("SKIP: no hardware watchpoints here: %s\n", strerror(errno));
		kill(child, SIGKILL);
		return EXIT_SKIPPED;
	}
	measure_hits(watchpoints, seconds);
	end_watch(watchpoints);
	if (!watch_all(watchpoints, child))
		die("watchpoints");
	measure_limit(watchpoints);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
