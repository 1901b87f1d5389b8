/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <inttypes.h>
#include <stdio.h>

#include "hdr.h"
#include "output.h"
#include "report.h"
#include "settings.h"
#include "worker.h"

/* What happened in an interval. */
struct interval {
	uint64_t elapsed_ns; /* From the start of the run to the end of the interval. */
	uint64_t span_ns;
	struct totals before, now;
	struct latency latency;
};

static uint64_t tsc_hz;
static struct output hdr_log = { .fd = -1 };
static uint64_t start_ns; /* CLOCK_MONOTONIC */
static uint64_t last_elapsed_ns;
static struct totals last;
static struct latency last_latency;

static double
us(uint64_t cycles)
{
	return (double)clock_ns(cycles, tsc_hz) / 1e3;
}

int
report_open(uint64_t hz)
{
	tsc_hz = hz;
	return settings.hdr_log != NULL ? output_open(&hdr_log, "hdr-log", settings.hdr_log) : 0;
}

void
report_start(const struct moment *start)
{
	start_ns = start->monotonic_ns;
	last_elapsed_ns = 0;
	last = (struct totals){ 0 };
	latency_clear(&last_latency);
	if (hdr_log.fd >= 0)
		hdr_log_begin(&hdr_log, start);
}

static void
take_interval(struct interval *interval, uint64_t elapsed_ns, uint64_t span_ns)
{
	static struct latency now;

	latency_clear(&now);
	workers_latency(&now);
	interval->elapsed_ns = elapsed_ns;
	interval->span_ns = span_ns;
	interval->before = last;
	interval->now = workers_total();
	interval->latency = now;
	latency_subtract(&interval->latency, &last_latency);
	last = interval->now;
	last_latency = now;
	last_elapsed_ns = elapsed_ns;
}

static void
print_line(const struct interval *interval)
{
	const struct totals *now = &interval->now, *before = &interval->before;
	const double span_s = (double)interval->span_ns / 1e9;
	char tx[16], rx[16];

	printf("%6.1f s  tx %s pps  rx %s pps  not back %" PRId64 "  copies %" PRIu64
	       "  reordered %" PRIu64 "  p50 %.1f us  p99 %.1f us\n",
			(double)interval->elapsed_ns / 1e9,
			app_rate((double)(now->sent - before->sent) / span_s, tx),
			app_rate((double)(now->received - before->received) / span_s, rx),
			(int64_t)(now->sent - now->received), now->duplicates, now->reordered,
			us(latency_percentile(&interval->latency, 0.5)),
			us(latency_percentile(&interval->latency, 0.99)));
}

static void
write_files(const struct interval *interval)
{
	if (hdr_log.fd >= 0)
		hdr_log_line(&hdr_log, NULL, interval->elapsed_ns - interval->span_ns,
				interval->span_ns, &interval->latency, tsc_hz);
}

void
report(uint64_t elapsed_ns, uint64_t span_ns)
{
	static struct interval interval;

	take_interval(&interval, elapsed_ns, span_ns);
	if (!settings.app.quiet)
		print_line(&interval);
	write_files(&interval);
}

int
report_close(const struct moment *end)
{
	static struct interval interval;
	const uint64_t elapsed_ns = end->monotonic_ns - start_ns;

	if (elapsed_ns > last_elapsed_ns) {
		take_interval(&interval, elapsed_ns, elapsed_ns - last_elapsed_ns);
		write_files(&interval);
	}
	return output_close(&hdr_log);
}
