/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <time.h>

#include <rte_cpuflags.h>
#include <rte_cycles.h>

#include "clock.h"
#include "log.h"

#define NS_PER_SEC UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define ANCHOR_TRIES 16
/* A rate over a shorter interval is too coarse to be reported. */
#define HZ_MIN_SPAN_NS (100 * NS_PER_MS)
/*
 * Anchors are off by some microseconds per second. If a TSC is off by more than 1/HZ_TOLERANCE, it
 * was replaced.
 */
#define HZ_TOLERANCE 1000

static struct pmdscope_anchor first_anchor;
static struct pmdscope_anchor last_anchor;
static uint64_t measured_hz;

static uint64_t
clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* The try that took the least time, because it was not interrupted. */
static struct pmdscope_anchor
take_anchor(void)
{
	struct pmdscope_anchor best = { 0 };
	uint64_t best_width = UINT64_MAX;
	unsigned int i;

	for (i = 0; i < ANCHOR_TRIES; i++) {
		const uint64_t before = rte_rdtsc_precise();
		const uint64_t realtime_ns = clock_ns(CLOCK_REALTIME);
		const uint64_t raw_ns = clock_ns(CLOCK_MONOTONIC_RAW);
		const uint64_t width = rte_rdtsc_precise() - before;

		if (width < best_width) {
			best_width = width;
			best = (struct pmdscope_anchor){
				.tsc = before + width / 2,
				.realtime_ns = realtime_ns,
				.raw_ns = raw_ns,
			};
		}
	}
	return best;
}

/* The timers of other architectures are steady by definition. */
static void
warn_unsteady_tsc(void)
{
#ifdef RTE_ARCH_X86
	if (rte_cpu_get_flag_enabled(RTE_CPUFLAG_INVTSC) <= 0)
		PMDSCOPE_LOG(NOTICE, "this CPU does not promise a steady TSC; "
				     "times in captures are as good as it is");
#endif
}

void
pmdscope_clock_start(void)
{
	warn_unsteady_tsc();
	first_anchor = take_anchor();
	last_anchor = first_anchor;
	measured_hz = 0;
}

bool
pmdscope_clock_jumped(
		const struct pmdscope_anchor *from, const struct pmdscope_anchor *to, uint64_t hz)
{
	const uint64_t ns = to->raw_ns - from->raw_ns;
	const uint64_t cycles = to->tsc - from->tsc;
	const uint64_t expected = (uint64_t)((unsigned __int128)ns * hz / NS_PER_SEC);
	const uint64_t off = cycles > expected ? cycles - expected : expected - cycles;

	return to->tsc <= from->tsc || (hz != 0 && off > expected / HZ_TOLERANCE);
}

int
pmdscope_clock_tick(void)
{
	const uint64_t age = clock_ns(CLOCK_MONOTONIC_RAW) - last_anchor.raw_ns;
	struct pmdscope_anchor now;
	uint64_t cycles, ns;

	if (age < (measured_hz == 0 ? HZ_MIN_SPAN_NS : NS_PER_SEC))
		return 0;

	now = take_anchor();
	if (pmdscope_clock_jumped(&last_anchor, &now, measured_hz)) {
		first_anchor = now;
		last_anchor = now;
		measured_hz = 0;
		return 1;
	}
	last_anchor = now;
	cycles = last_anchor.tsc - first_anchor.tsc;
	ns = last_anchor.raw_ns - first_anchor.raw_ns;
	measured_hz = (uint64_t)((unsigned __int128)cycles * NS_PER_SEC / ns);
	return 1;
}

const struct pmdscope_anchor *
pmdscope_clock_first(void)
{
	return &first_anchor;
}

const struct pmdscope_anchor *
pmdscope_clock_last(void)
{
	return &last_anchor;
}

uint64_t
pmdscope_clock_hz(void)
{
	return measured_hz;
}

static uint64_t
best_hz(void)
{
	return measured_hz != 0 ? measured_hz : rte_get_tsc_hz();
}

uint64_t
pmdscope_clock_realtime_ns(uint64_t tsc)
{
	const __int128 cycles = (int64_t)(tsc - last_anchor.tsc);

	return (uint64_t)(last_anchor.realtime_ns + cycles * (__int128)NS_PER_SEC / best_hz());
}

uint64_t
pmdscope_clock_us(uint64_t cycles)
{
	return (uint64_t)((unsigned __int128)cycles * 1000000 / best_hz());
}
