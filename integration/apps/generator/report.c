/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_lcore.h>

#include "csv.h"
#include "hdr.h"
#include "interval.h"
#include "output.h"
#include "rate.h"
#include "report.h"
#include "settings.h"
#include "worker.h"

#define NS_PER_MS UINT64_C(1000000)

static uint64_t tsc_hz;
static struct output csv = { .fd = -1 };
static struct output hdr_log = { .fd = -1 };
static uint64_t start_ns; /* CLOCK_MONOTONIC */

/* Lines on standard output, and rows of the files, have separate intervals. */
static struct series {
	uint64_t interval_ms;
	uint64_t end_ns; /* Of the latest interval, from the start of the run. */
	struct totals totals;
	struct latency latency;
	struct lcore_rates lcores[RTE_MAX_LCORE];
} lines, rows;

static double
us(uint64_t cycles)
{
	return (double)clock_ns(cycles, tsc_hz) / 1e3;
}

int
report_open(uint64_t hz)
{
	tsc_hz = hz;
	lines.interval_ms = settings.app.interval_ms;
	rows.interval_ms = settings.csv_interval_ms != 0 ? settings.csv_interval_ms
							 : settings.app.interval_ms;
	/* The control thread wakes up for both. */
	if (settings.csv != NULL || settings.hdr_log != NULL)
		settings.app.interval_ms = RTE_MIN(lines.interval_ms, rows.interval_ms);
	if (settings.csv != NULL && output_open(&csv, "csv", settings.csv) != 0)
		return -EIO;
	if (settings.hdr_log != NULL && output_open(&hdr_log, "hdr-log", settings.hdr_log) != 0)
		return -EIO;
	return 0;
}

static void
series_start(struct series *series)
{
	series->end_ns = 0;
	series->totals = (struct totals){ 0 };
	latency_clear(&series->latency);
	memset(series->lcores, 0, sizeof(series->lcores));
}

/* True if an interval, counted from the start of the run, is over. */
static bool
series_is_due(const struct series *series, uint64_t elapsed_ns)
{
	const uint64_t interval_ns = series->interval_ms * NS_PER_MS;

	return elapsed_ns / interval_ns > series->end_ns / interval_ns;
}

void
report_start(const struct moment *start)
{
	start_ns = start->monotonic_ns;
	series_start(&lines);
	series_start(&rows);
	if (csv.fd >= 0)
		csv_begin(&csv);
	if (hdr_log.fd >= 0)
		hdr_log_begin(&hdr_log, start);
}

static void
take_interval(struct series *series, struct interval *interval, uint64_t elapsed_ns)
{
	static struct latency now;
	unsigned int lcore;

	latency_clear(&now);
	workers_latency(&now);
	interval->elapsed_ns = elapsed_ns;
	interval->span_ns = elapsed_ns - series->end_ns;
	interval->before = series->totals;
	interval->now = workers_total();
	RTE_LCORE_FOREACH(lcore) {
		const struct lcore_rates sum = { worker_sent(lcore), worker_received(lcore) };

		interval->lcores[lcore].sent = sum.sent - series->lcores[lcore].sent;
		interval->lcores[lcore].received = sum.received - series->lcores[lcore].received;
		series->lcores[lcore] = sum;
	}
	interval->latency = now;
	latency_subtract(&interval->latency, &series->latency);
	series->totals = interval->now;
	series->latency = now;
	series->end_ns = elapsed_ns;
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
			rate_text((double)(now->sent - before->sent) / span_s, tx),
			rate_text((double)(now->received - before->received) / span_s, rx),
			(int64_t)(now->sent - now->received), now->duplicates, now->reordered,
			us(latency_percentile(&interval->latency, 0.5)),
			us(latency_percentile(&interval->latency, 0.99)));
}

static void
write_row(uint64_t elapsed_ns, bool last)
{
	static struct interval interval;

	take_interval(&rows, &interval, elapsed_ns);
	/* Packets that are not back now are lost, even if no later one came. */
	if (last && interval.now.sent > interval.now.received)
		interval.now.missing = interval.now.sent - interval.now.received;
	if (csv.fd >= 0)
		csv_row(&csv, &interval, tsc_hz);
	if (hdr_log.fd >= 0)
		hdr_log_line(&hdr_log, NULL, elapsed_ns - interval.span_ns, interval.span_ns,
				&interval.latency, tsc_hz);
}

void
report(uint64_t elapsed_ns, uint64_t span_ns)
{
	static struct interval interval;

	(void)span_ns;
	if ((csv.fd >= 0 || hdr_log.fd >= 0) && series_is_due(&rows, elapsed_ns))
		write_row(elapsed_ns, false);
	if (settings.app.quiet || !series_is_due(&lines, elapsed_ns))
		return;
	take_interval(&lines, &interval, elapsed_ns);
	print_line(&interval);
}

/* For the whole run, after the intervals. Without --rate there is no pace to check. */
static void
write_gaps(uint64_t elapsed_ns)
{
	static struct latency gaps;

	latency_clear(&gaps);
	workers_gaps(&gaps);
	if (latency_count(&gaps) > 0)
		hdr_log_line(&hdr_log, "inter-departure", 0, elapsed_ns, &gaps, tsc_hz);
}

int
report_close(const struct moment *end)
{
	const uint64_t elapsed_ns = end->monotonic_ns - start_ns;
	int rc;

	if (elapsed_ns > rows.end_ns && (csv.fd >= 0 || hdr_log.fd >= 0))
		write_row(elapsed_ns, true);
	if (hdr_log.fd >= 0)
		write_gaps(elapsed_ns);
	rc = output_close(&csv);
	return output_close(&hdr_log) != 0 ? -EIO : rc;
}
