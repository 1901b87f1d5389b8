/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include <rte_lcore.h>

#include "clock.h"
#include "csv.h"
#include "settings.h"

/* A row: 17 numbers, and two for each lcore. */
static char row[(17 + 2 * RTE_MAX_LCORE) * 32];
static size_t used;

static void __attribute__((format(printf, 1, 2))) put(const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(row + used, sizeof(row) - used, format, args);
	va_end(args);
	if (n > 0 && used + (size_t)n < sizeof(row))
		used += (size_t)n;
}

static void
end_row(struct output *output)
{
	put("\n");
	output_write(output, row, used);
	used = 0;
}

void
csv_begin(struct output *output)
{
	unsigned int lcore;

	put("time_s,tx_pps,rx_pps,tx_bps,rx_bps,lost,latency_min_ns,latency_avg_ns,latency_max_ns,"
	    "latency_p50_ns,latency_p99_ns,latency_p99_9_ns,reordered,duplicates,corrupted,"
	    "tx_short,in_flight");
	RTE_LCORE_FOREACH(lcore)
		if (worker_is_used(lcore))
			put(",lcore%u_tx_pps,lcore%u_rx_pps", lcore, lcore);
	end_row(output);
}

/* Empty if nothing came back, as that does not mean a latency of 0. */
static void
put_latency(const struct latency *latency, uint64_t tsc_hz)
{
	if (latency_count(latency) == 0) {
		put(",,,,,,");
		return;
	}
	put(",%" PRIu64 ",%" PRIu64 ",%" PRIu64, clock_ns(latency->min, tsc_hz),
			clock_ns((uint64_t)latency_mean(latency), tsc_hz),
			clock_ns(latency->max, tsc_hz));
	put(",%" PRIu64 ",%" PRIu64 ",%" PRIu64, clock_ns(latency_percentile(latency, 0.5), tsc_hz),
			clock_ns(latency_percentile(latency, 0.99), tsc_hz),
			clock_ns(latency_percentile(latency, 0.999), tsc_hz));
}

void
csv_row(struct output *output, const struct interval *interval, uint64_t tsc_hz)
{
	const struct totals *now = &interval->now, *before = &interval->before;
	const double span_s = (double)interval->span_ns / 1e9;
	unsigned int lcore;

	put("%.6f,%.1f,%.1f,%.0f,%.0f,%" PRId64, (double)interval->elapsed_ns / 1e9,
			(double)(now->sent - before->sent) / span_s,
			(double)(now->received - before->received) / span_s,
			8 * (double)(now->sent_bytes - before->sent_bytes) / span_s,
			8 * (double)(now->received_bytes - before->received_bytes) / span_s,
			(int64_t)(now->missing - before->missing));
	put_latency(&interval->latency, tsc_hz);
	put(",%" PRIu64 ",%" PRIu64 ",", now->reordered - before->reordered,
			now->duplicates - before->duplicates);
	if (settings.verify)
		put("%" PRIu64, now->corrupted - before->corrupted);
	put(",%" PRIu64 ",%" PRId64, now->tx_short - before->tx_short,
			(int64_t)(now->sent - now->received - now->missing));
	RTE_LCORE_FOREACH(lcore)
		if (worker_is_used(lcore))
			put(",%.1f,%.1f", (double)interval->lcores[lcore].sent / span_s,
					(double)interval->lcores[lcore].received / span_s);
	end_row(output);
}
