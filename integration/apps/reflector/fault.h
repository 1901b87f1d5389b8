/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef FAULT_H
#define FAULT_H

/*
 * Injects page faults: returns memory to the kernel, touches it again, and measures the time of
 * that.
 */

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "report.h"

/* One transparent hugepage of x86-64, if the kernel has a free one; clearing it takes a while. */
#define FAULT_BYTES ((size_t)2 << 20)

/* Number of requested faults. */
static volatile sig_atomic_t fault_requests;

static inline void
fault_request(int signo)
{
	(void)signo;
	fault_requests++;
}

/* Fault on each SIGUSR2. 0, or -1 with errno set. */
static inline int
fault_prepare(void)
{
	const struct sigaction action = { .sa_handler = fault_request, .sa_flags = SA_RESTART };

	return sigaction(SIGUSR2, &action, NULL);
}

static inline uint64_t
fault_clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Memory for the faults. NULL with errno set if there is none. */
static inline volatile char *
fault_memory(void)
{
	char *memory = mmap(NULL, 2 * FAULT_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	memory += FAULT_BYTES - (uintptr_t)memory % FAULT_BYTES;
	/* Kernels without hugepages use ordinary pages. */
	(void)madvise(memory, FAULT_BYTES, MADV_HUGEPAGE);
	return memory;
}

/*
 * Fault once: on the whole memory if it is a hugepage. There is no fault if the kernel does not
 * free the memory, for instance because it is locked.
 */
static inline struct fault_time
fault_inject(volatile char *memory)
{
	struct fault_time time = { .begin_ns = fault_clock_ns(CLOCK_REALTIME) };
	struct rusage before, after;
	uint64_t ns;

	if (madvise((void *)(uintptr_t)memory, FAULT_BYTES, MADV_DONTNEED) != 0)
		return time;
	getrusage(RUSAGE_THREAD, &before);
	time.begin_ns = fault_clock_ns(CLOCK_REALTIME);
	ns = fault_clock_ns(CLOCK_MONOTONIC);
	*memory = 1;
	ns = fault_clock_ns(CLOCK_MONOTONIC) - ns;
	getrusage(RUSAGE_THREAD, &after);
	if (after.ru_nivcsw == before.ru_nivcsw)
		time.ns = ns;
	return time;
}

#endif /* FAULT_H */
