/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <pmdscope.h>

#include "clock.h"
#include "counter.h"
#include "run.h"

#define NS_PER_MS UINT64_C(1000000)

bool run_stop_asked;

static void (*thread_main)(unsigned int index);
static pthread_t main_thread;
static unsigned int nb_running;

/* SIGUSR1: the last thread has ended. */
static void
awaited_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
}

void
run_prepare(void)
{
	sigset_t set;

	awaited_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	/* The run must not end if the reader of the statistics does. */
	signal(SIGPIPE, SIG_IGN);
	main_thread = pthread_self();
}

static void *
thread_start(void *arg)
{
	thread_main((unsigned int)(uintptr_t)arg);
	if (__atomic_sub_fetch(&nb_running, 1, __ATOMIC_ACQ_REL) == 0)
		pthread_kill(main_thread, SIGUSR1);
	return NULL;
}

/* True if a signal came before the deadline. */
static bool
wait_until(uint64_t deadline_ns)
{
	const uint64_t now = clock_read_ns(CLOCK_MONOTONIC);
	const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
	const struct timespec timeout = {
		.tv_sec = (time_t)(left / (1000 * NS_PER_MS)),
		.tv_nsec = (long)(left % (1000 * NS_PER_MS)),
	};
	sigset_t set;

	awaited_signals(&set);
	return sigtimedwait(&set, NULL, &timeout) > 0;
}

/* Report until the run is to end. */
static void
watch(void (*report)(uint64_t elapsed_ns, uint64_t span_ns))
{
	const uint64_t start = clock_read_ns(CLOCK_MONOTONIC);
	const uint64_t end = settings.duration_ms != 0 ? start + settings.duration_ms * NS_PER_MS
						       : UINT64_MAX;
	const uint64_t interval = settings.interval_ms * NS_PER_MS;
	uint64_t tick = start + interval, last = start, now;

	while (!wait_until(tick < end ? tick : end)) {
		now = clock_read_ns(CLOCK_MONOTONIC);
		if (now >= end)
			return;
		if (now < tick)
			continue;
		if (!settings.quiet)
			report(now - start, now - last);
		last = now;
		/* Ticks missed during a sleep are skipped. */
		tick += (now - tick) / interval * interval + interval;
	}
}

int
run_threads(void (*main)(unsigned int index), void (*report)(uint64_t elapsed_ns, uint64_t span_ns))
{
	pthread_t threads[KERNEL_MAX_THREADS];
	unsigned int i;
	int rc = 0;

	thread_main = main;
	nb_running = settings.threads;
	for (i = 0; i < settings.threads && rc == 0; i++)
		rc = pthread_create(&threads[i], NULL, thread_start, (void *)(uintptr_t)i);
	if (rc == 0) {
		watch(report);
	} else {
		i--;
		fprintf(stderr, "%s: no thread: %s\n", program_invocation_short_name, strerror(rc));
	}
	__atomic_store_n(&run_stop_asked, true, __ATOMIC_RELAXED);
	while (i > 0)
		pthread_join(threads[--i], NULL);
	return rc == 0 ? 0 : -1;
}

static uint64_t
time_ns(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * 1000 * NS_PER_MS + (uint64_t)time->tv_usec * 1000;
}

struct cpu_time
run_cpu_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (struct cpu_time){ time_ns(&usage.ru_utime), time_ns(&usage.ru_stime) };
}

void
run_add_stats(struct transport_stats *sum, const struct transport_stats *stats)
{
	const uint64_t error = counter_read(&stats->last_error);

	sum->sent += counter_read(&stats->sent);
	sum->received += counter_read(&stats->received);
	sum->send_calls += counter_read(&stats->send_calls);
	sum->receive_calls += counter_read(&stats->receive_calls);
	sum->empty_calls += counter_read(&stats->empty_calls);
	sum->no_room += counter_read(&stats->no_room);
	sum->no_buffers += counter_read(&stats->no_buffers);
	sum->refused += counter_read(&stats->refused);
	sum->other_errors += counter_read(&stats->other_errors);
	sum->truncated += counter_read(&stats->truncated);
	if (error != 0)
		sum->last_error = error;
}

void
run_json_head(struct json *json, double duration_s)
{
	json_u64(json, "schema", 1);
	json_str(json, "program", program_invocation_short_name);
	json_str(json, "version", PMDSCOPE_VERSION);
	json_u64(json, "pid", (uint64_t)getpid());
	json_str(json, "io", settings.io == KERNEL_IO_URING ? "uring" : "mmsg");
	json_u64(json, "gso", settings.gso);
	json_u64(json, "gro", settings.gro);
	json_u64(json, "batch", settings.batch);
	json_u64(json, "threads", settings.threads);
	json_f64(json, "duration_s", duration_s);
}

void
run_json_kernel(struct json *json, const struct transport_stats *sum, const struct cpu_time *cpu,
		const struct transport *sample, uint64_t drops)
{
	json_u64(json, "socket_drops", drops);
	json_u64(json, "truncated", sum->truncated);
	json_open(json, "errors");
	json_u64(json, "eagain", sum->no_room);
	json_u64(json, "enobufs", sum->no_buffers);
	json_u64(json, "econnrefused", sum->refused);
	json_u64(json, "other", sum->other_errors);
	if (sum->last_error != 0)
		json_str(json, "last", strerror((int)sum->last_error));
	json_close(json);
	json_open(json, "system_calls");
	json_u64(json, "send", sum->send_calls);
	json_u64(json, "receive", sum->receive_calls);
	json_u64(json, "receive_empty", sum->empty_calls);
	json_close(json);
	json_open(json, "cpu_ns");
	json_u64(json, "user", cpu->user_ns);
	json_u64(json, "system", cpu->system_ns);
	json_close(json);
	json_open(json, "socket_bytes");
	json_u64(json, "asked", settings.buffer);
	json_u64(json, "receive", transport_buffer(sample, SO_RCVBUF));
	json_u64(json, "send", transport_buffer(sample, SO_SNDBUF));
	json_close(json);
}

static double
per_call(uint64_t packets, uint64_t calls)
{
	return calls > 0 ? (double)packets / (double)calls : 0;
}

void
run_print_kernel(const struct transport_stats *sum, const struct cpu_time *cpu,
		const struct transport *sample, double duration_s)
{
	/* The kernel doubles the requested size, for its own structures. */
	const uint64_t got = transport_buffer(sample, SO_RCVBUF) / 2;
	const uint64_t full_calls = sum->receive_calls - sum->empty_calls;

	printf("system calls: %" PRIu64 " send (%.1f packets each), %" PRIu64
	       " receive (%.1f packets each), %" PRIu64 " receive that found nothing\n",
			sum->send_calls, per_call(sum->sent, sum->send_calls), full_calls,
			per_call(sum->received, full_calls), sum->empty_calls);
	printf("CPU: %.3f s user, %.3f s system in %.3f s, softirqs on these threads included\n",
			(double)cpu->user_ns / 1e9, (double)cpu->system_ns / 1e9, duration_s);
	if (got < settings.buffer)
		printf("receive buffer: %" PRIu64 " of %" PRIu64 " bytes asked for; raise "
		       "net.core.rmem_max\n",
				got, settings.buffer);
	if (sum->no_room + sum->no_buffers + sum->refused + sum->other_errors > 0)
		printf("errors: %" PRIu64 " EAGAIN (send buffer full), %" PRIu64
		       " ENOBUFS (queue full), %" PRIu64 " ECONNREFUSED (no listener), %" PRIu64
		       " others; last: %s\n",
				sum->no_room, sum->no_buffers, sum->refused, sum->other_errors,
				sum->last_error != 0 ? strerror((int)sum->last_error) : "EAGAIN");
	if (sum->truncated > 0)
		printf("%" PRIu64 " packets were too large to receive\n", sum->truncated);
}

int
run_json_save(struct json *json)
{
	const int rc = json_save(json, settings.json);

	if (rc == 0)
		return 0;
	fprintf(stderr, "%s: --json %s: %s\n", program_invocation_short_name, settings.json,
			strerror(-rc));
	return -1;
}
