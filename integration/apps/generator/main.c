/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-generator: sends probes at a given rate and checks the packets that return. */

#include <inttypes.h>
#include <stdio.h>

#include <rte_cycles.h>

#include "app.h"
#include "clock.h"
#include "settings.h"
#include "worker.h"

#define POOL_NAME "generator_pool"

/* What is known of a run once it is over. */
struct summary {
	struct totals totals;
	struct moment start, end; /* Around the run. */
	uint64_t lost;
	double duration_s; /* From the start until the last lcore stopped sending. */
	double rate;
	uint64_t first_send_ns; /* CLOCK_REALTIME; 0: nothing was sent. */
	uint64_t last_send_ns;
	unsigned int in_use;
};

static struct app app = { .pool_name = POOL_NAME, .options = &settings.app };
static uint64_t tsc_hz;
static struct latency latency; /* Of the whole run; only for the summary. */

static double
us(uint64_t cycles)
{
	return (double)clock_ns(cycles, tsc_hz) / 1e3;
}

static void
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

static struct summary
summarise(const struct moment *start, const struct moment *end, unsigned int in_use)
{
	struct summary s = {
		.totals = workers_total(), .start = *start, .end = *end, .in_use = in_use
	};

	latency_clear(&latency);
	workers_latency(&latency);
	/* An answer sent twice can make up for a lost one only if it came too late to tell. */
	s.lost = s.totals.sent > s.totals.received ? s.totals.sent - s.totals.received : 0;
	s.duration_s = (double)clock_ns(s.totals.stopped - start->tsc, tsc_hz) / 1e9;
	s.rate = s.duration_s > 0 ? (double)s.totals.sent / s.duration_s : 0;
	if (s.totals.sent > 0) {
		s.first_send_ns = clock_realtime_ns(start, s.totals.first_send, tsc_hz);
		s.last_send_ns = clock_realtime_ns(end, s.totals.last_send, tsc_hz);
	}
	return s;
}

static void
print_summary(const struct summary *s)
{
	const struct totals *t = &s->totals;
	char asked[16], achieved[16];

	printf("sent %" PRIu64 " packets (%" PRIu64 " bytes) in %.3f s: %s pps, asked for %s; "
	       "%" PRIu64 " not taken by the NIC at once\n",
			t->sent, t->sent_bytes, s->duration_s, app_rate(s->rate, achieved),
			settings.rate == 0 ? "no limit" : app_rate((double)settings.rate, asked),
			t->tx_short);
	printf("received %" PRIu64 ": %" PRIu64 " lost, %" PRIu64 " duplicates, %" PRIu64
	       " reordered, %" PRIu64 " too late to tell; %" PRIu64 " foreign packets\n",
			t->received, s->lost, t->duplicates, t->reordered, t->late, t->foreign);
	if (t->received > 0)
		printf("latency us: min %.2f mean %.2f p50 %.2f p99 %.2f p99.9 %.2f max %.2f\n",
				us(latency.min), us((uint64_t)latency_mean(&latency)),
				us(latency_percentile(&latency, 0.5)),
				us(latency_percentile(&latency, 0.99)),
				us(latency_percentile(&latency, 0.999)), us(latency.max));
	if (t->no_mbuf > 0)
		printf("the pool was empty %" PRIu64 " times; raise --mbufs\n", t->no_mbuf);
	if (s->in_use > 0)
		printf("%u packets missing from the pool\n", s->in_use);
}

/* Two moments around the run: with them, the time stamps in the packets can be told exactly. */
static void
json_clock(struct json *json, const struct summary *s)
{
	json_open(json, "clock");
	json_u64(json, "start_tsc", s->start.tsc);
	json_u64(json, "start_ns", s->start.realtime_ns);
	json_u64(json, "end_tsc", s->end.tsc);
	json_u64(json, "end_ns", s->end.realtime_ns);
	json_close(json);
}

static void
json_latency(struct json *json)
{
	json_open(json, "latency_ns");
	json_u64(json, "min", clock_ns(latency.min, tsc_hz));
	json_u64(json, "mean", clock_ns((uint64_t)latency_mean(&latency), tsc_hz));
	json_u64(json, "p50", clock_ns(latency_percentile(&latency, 0.5), tsc_hz));
	json_u64(json, "p99", clock_ns(latency_percentile(&latency, 0.99), tsc_hz));
	json_u64(json, "p99_9", clock_ns(latency_percentile(&latency, 0.999), tsc_hz));
	json_u64(json, "max", clock_ns(latency.max, tsc_hz));
	json_close(json);
}

static int
save_summary(const struct summary *s)
{
	const struct totals *t = &s->totals;
	struct json json;

	if (json_begin(&json) != 0)
		return -1;
	app_json(&json, &app, s->duration_s);
	json_u64(&json, "rate_asked", settings.rate);
	json_f64(&json, "rate_achieved", s->rate);
	json_u64(&json, "sent", t->sent);
	json_u64(&json, "sent_bytes", t->sent_bytes);
	json_u64(&json, "received", t->received);
	json_u64(&json, "lost", s->lost);
	json_u64(&json, "duplicates", t->duplicates);
	json_u64(&json, "reordered", t->reordered);
	json_u64(&json, "late", t->late);
	json_u64(&json, "foreign", t->foreign);
	json_u64(&json, "tx_short", t->tx_short);
	json_u64(&json, "no_mbuf", t->no_mbuf);
	json_u64(&json, "size_min", settings.min_size);
	json_u64(&json, "size_max", settings.max_size);
	json_u64(&json, "first_send_ns", s->first_send_ns);
	json_u64(&json, "last_send_ns", s->last_send_ns);
	json_u64(&json, "tsc_hz", tsc_hz);
	json_clock(&json, s);
	if (t->received > 0)
		json_latency(&json);
	else
		json_null(&json, "latency_ns");
	json_open(&json, "pool");
	json_str(&json, "name", POOL_NAME);
	json_u64(&json, "size", app.pool->size);
	json_u64(&json, "in_use_end", s->in_use);
	json_close(&json);
	return app_json_save(&json, &app);
}

/* A run that proves nothing is a failure. */
static int
judge(const struct totals *t)
{
	if (t->sent == 0)
		fprintf(stderr,
				"%s: nothing was sent: the NIC took no packet, the pool was empty, or "
				"the run ended at once\n",
				program_invocation_short_name);
	else if (t->received == 0)
		fprintf(stderr,
				"%s: none of %" PRIu64
				" packets came back: does anything reflect on "
				"the other side, with as many queues, and let --dst-mac through?\n",
				program_invocation_short_name, t->sent);
	else
		return 0;
	return -1;
}

/* Send, receive and sum up. 0, or negative after a message. */
static int
run(void)
{
	struct moment start, end;
	struct summary summary;
	unsigned int in_use;
	int rc;

	tsc_hz = clock_measure_hz();
	start = clock_now();
	workers_start(tsc_hz, start.tsc);
	rc = app_run(&app, worker_main, NULL, report);
	end = clock_now();

	workers_free_pending();
	in_use = app_stop(&app);
	summary = summarise(&start, &end, in_use);
	print_summary(&summary);
	if (settings.app.json != NULL && save_summary(&summary) != 0)
		rc = -1;
	if (judge(&summary.totals) != 0)
		rc = -1;
	return rc;
}

int
main(int argc, char **argv)
{
	int rc = settings_parse(&argc, argv);

	if (rc >= 0)
		return rc;
	app.wait_link_ms = settings.wait_link_ms;
	rc = app_open(&app, argc, argv);
	if (rc != 0)
		return rc;
	rc = workers_create(&app);
	if (rc == 0)
		rc = run();
	else
		app_stop(&app);
	workers_destroy();
	app_close(&app);
	return rc == 0 ? APP_EXIT_OK : APP_EXIT_FAILED;
}
