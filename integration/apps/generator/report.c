/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "report.h"
#include "settings.h"
#include "worker.h"

static uint64_t tsc_hz;

void
report_start(uint64_t hz)
{
	tsc_hz = hz;
}

static double
us(uint64_t cycles)
{
	return (double)clock_ns(cycles, tsc_hz) / 1e3;
}

void
report(uint64_t elapsed_ns, uint64_t span_ns)
{
	static struct totals last;
	static struct latency before, now, span;
	const struct totals sum = workers_total();
	const double span_s = (double)span_ns / 1e9;
	char tx[16], rx[16];

	if (settings.app.quiet)
		return;
	latency_clear(&now);
	workers_latency(&now);
	span = now;
	latency_subtract(&span, &before);
	printf("%6.1f s  tx %s pps  rx %s pps  not back %" PRId64 "  copies %" PRIu64
	       "  reordered %" PRIu64 "  p50 %.1f us  p99 %.1f us\n",
			(double)elapsed_ns / 1e9,
			app_rate((double)(sum.sent - last.sent) / span_s, tx),
			app_rate((double)(sum.received - last.received) / span_s, rx),
			(int64_t)(sum.sent - sum.received), sum.duplicates, sum.reordered,
			us(latency_percentile(&span, 0.5)), us(latency_percentile(&span, 0.99)));
	last = sum;
	before = now;
}
