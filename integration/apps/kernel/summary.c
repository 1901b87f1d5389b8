/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "json.h"
#include "rate.h"
#include "summary.h"

static double
us(uint64_t cycles, uint64_t tsc_hz)
{
	return (double)clock_ns(cycles, tsc_hz) / 1e3;
}

static void
print_latency(const struct latency *latency, uint64_t tsc_hz)
{
	unsigned int i;

	printf("latency us: min %.2f mean %.2f", us(latency->min, tsc_hz),
			us((uint64_t)latency_mean(latency), tsc_hz));
	for (i = 0; i < LATENCY_QUANTILES; i++)
		printf(" %s %.2f", latency_quantiles[i].name,
				us(latency_percentile(latency, latency_quantiles[i].share),
						tsc_hz));
	printf(" max %.2f\n", us(latency->max, tsc_hz));
}

void
summary_print(const struct summary *s)
{
	const struct totals *t = &s->totals;
	char asked[16], achieved[16];

	printf("sent %" PRIu64 " packets (%" PRIu64 " bytes) in %.3f s: %s pps, asked for %s; "
	       "%" PRIu64 " not taken by the kernel at once\n",
			t->stats.sent, t->stats.sent * settings.size, s->duration_s,
			rate_text(s->rate, achieved),
			settings.rate == 0 ? "no limit" : rate_text((double)settings.rate, asked),
			t->short_packets);
	printf("received %" PRIu64 ": %" PRIu64 " lost, of which %" PRIu64
	       " %s dropped at the receive buffer here; %" PRIu64 " duplicates, %" PRIu64
	       " reordered, %" PRIu64 " too late to tell; %" PRIu64 " foreign packets\n",
			t->received, s->lost, t->drops,
			settings.gro ? "messages (of up to 64 packets)" : "packets", t->duplicates,
			t->reordered, t->late, t->foreign);
	if (t->received > 0)
		print_latency(&s->latency, s->tsc_hz);
	run_print_kernel(&t->stats, &s->cpu, s->transport, s->duration_s);
}

static void
json_latency(struct json *json, const struct latency *latency, uint64_t tsc_hz)
{
	unsigned int i;

	json_open(json, "latency_ns");
	json_u64(json, "min", clock_ns(latency->min, tsc_hz));
	json_u64(json, "mean", clock_ns((uint64_t)latency_mean(latency), tsc_hz));
	for (i = 0; i < LATENCY_QUANTILES; i++)
		json_u64(json, latency_quantiles[i].key,
				clock_ns(latency_percentile(latency, latency_quantiles[i].share),
						tsc_hz));
	json_u64(json, "max", clock_ns(latency->max, tsc_hz));
	json_close(json);
}

int
summary_save(const struct summary *s)
{
	const struct totals *t = &s->totals;
	struct json json;

	if (json_begin(&json) != 0)
		return -1;
	run_json_head(&json, s->duration_s);
	json_u64(&json, "flows", settings.flows);
	json_u64(&json, "rate_asked", settings.rate);
	json_f64(&json, "rate_achieved", s->rate);
	json_u64(&json, "sent", t->stats.sent);
	json_u64(&json, "sent_bytes", t->stats.sent * settings.size);
	json_u64(&json, "received", t->received);
	json_u64(&json, "lost", s->lost);
	json_u64(&json, "duplicates", t->duplicates);
	json_u64(&json, "reordered", t->reordered);
	json_u64(&json, "late", t->late);
	json_u64(&json, "foreign", t->foreign);
	json_u64(&json, "tx_short", t->short_packets);
	json_u64(&json, "size_min", settings.size);
	json_u64(&json, "size_max", settings.size);
	json_u64(&json, "first_send_ns",
			s->first_send == 0
					? 0
					: clock_realtime_ns(&s->start, s->first_send, s->tsc_hz));
	json_u64(&json, "last_send_ns",
			s->last_send == 0 ? 0
					  : clock_realtime_ns(&s->end, s->last_send, s->tsc_hz));
	json_u64(&json, "tsc_hz", s->tsc_hz);
	if (t->received > 0)
		json_latency(&json, &s->latency, s->tsc_hz);
	else
		json_null(&json, "latency_ns");
	run_json_kernel(&json, &t->stats, &s->cpu, s->transport, t->drops);
	return run_json_save(&json);
}

int
summary_judge(const struct totals *t)
{
	const char *reason = t->stats.last_error != 0 ? strerror((int)t->stats.last_error)
						      : "the run ended at once";

	if (t->stats.sent == 0)
		fprintf(stderr, "%s: nothing was sent: %s\n", program_invocation_short_name,
				reason);
	else if (t->received == 0)
		fprintf(stderr,
				"%s: none of %" PRIu64
				" packets came back: does a reflector listen on "
				"--dst-ip and --port, and is there a route back?\n",
				program_invocation_short_name, t->stats.sent);
	else
		return 0;
	return -1;
}
