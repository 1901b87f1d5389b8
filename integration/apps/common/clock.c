/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <time.h>

#include <rte_cycles.h>

#include "clock.h"

uint64_t
clock_read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

struct moment
clock_now(void)
{
	struct moment best = { 0 }, now;
	uint64_t before, span, best_span = UINT64_MAX;
	int i;

	for (i = 0; i < 16; i++) {
		before = rte_rdtsc_precise();
		now.monotonic_ns = clock_read_ns(CLOCK_MONOTONIC);
		now.realtime_ns = clock_read_ns(CLOCK_REALTIME);
		span = rte_rdtsc_precise() - before;
		now.tsc = before + span / 2;
		if (span < best_span) {
			best_span = span;
			best = now;
		}
	}
	return best;
}

uint64_t
clock_hz(const struct moment *from, const struct moment *to)
{
	const uint64_t ns = to->monotonic_ns - from->monotonic_ns;

	if (ns < NS_PER_S / 1000)
		return 0;
	return (uint64_t)((unsigned __int128)(to->tsc - from->tsc) * NS_PER_S / ns);
}

uint64_t
clock_measure_hz(void)
{
	struct moment from = clock_now(), to;

	do {
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		to = clock_now();
	} while (to.monotonic_ns - from.monotonic_ns < NS_PER_S / 10);
	return clock_hz(&from, &to);
}

uint64_t
clock_ns(uint64_t cycles, uint64_t hz)
{
	return (uint64_t)((unsigned __int128)cycles * NS_PER_S / hz);
}

uint64_t
clock_realtime_ns(const struct moment *near, uint64_t tsc, uint64_t hz)
{
	if (tsc >= near->tsc)
		return near->realtime_ns + clock_ns(tsc - near->tsc, hz);
	return near->realtime_ns - clock_ns(near->tsc - tsc, hz);
}
