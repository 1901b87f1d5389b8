/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "rate.h"
#include "settings.h"
#include "summary.h"

static double
us(const struct summary *s, uint64_t cycles)
{
	return (double)clock_ns(cycles, s->tsc_hz) / 1e3;
}

static uint64_t
ns(const struct summary *s, uint64_t cycles)
{
	return clock_ns(cycles, s->tsc_hz);
}

void
summarise(struct summary *s, const struct phase *phase, uint64_t tsc_hz)
{
	const uint64_t start = phase->start.tsc;

	*s = (struct summary){
		.totals = workers_total(),
		.start = phase->start,
		.end = phase->end,
		.tsc_hz = tsc_hz,
		.target_gap = workers_target_gap(phase->rate, tsc_hz),
	};
	latency_clear(&s->latency);
	workers_latency(&s->latency);
	latency_clear(&s->gaps);
	workers_gaps(&s->gaps);
	/* A late copy can hide a lost packet, as it is not recognised as a copy. */
	s->lost = s->totals.sent > s->totals.received ? s->totals.sent - s->totals.received : 0;
	if (s->totals.stopped > start)
		s->duration_s = (double)clock_ns(s->totals.stopped - start, tsc_hz) / 1e9;
	s->rate = s->duration_s > 0 ? (double)s->totals.sent / s->duration_s : 0;
	if (s->totals.sent > 0) {
		s->first_send_ns = clock_realtime_ns(&s->start, s->totals.first_send, tsc_hz);
		s->last_send_ns = clock_realtime_ns(&s->end, s->totals.last_send, tsc_hz);
	}
}

/* RFC 4737, 4.1: of the packets received, except those of unknown order. */
static double
reordered_ratio(const struct totals *t)
{
	const uint64_t known = t->received - t->late;

	return known == 0 ? 0 : (double)t->reordered / (double)known;
}

static double
extent_mean(const struct totals *t)
{
	return t->extents == 0 ? 0 : (double)t->extent_sum / (double)t->extents;
}

static void
print_latency(const struct summary *s)
{
	unsigned int i;

	printf("latency us: min %.2f mean %.2f", us(s, s->latency.min),
			us(s, (uint64_t)latency_mean(&s->latency)));
	for (i = 0; i < LATENCY_QUANTILES; i++)
		printf(" %s %.2f", latency_quantiles[i].name,
				us(s, latency_percentile(&s->latency, latency_quantiles[i].share)));
	printf(" max %.2f\n", us(s, s->latency.max));
}

static void
print_pace(const struct summary *s)
{
	printf("inter-departure ns: target ");
	if (s->target_gap != 0)
		printf("%" PRIu64, ns(s, s->target_gap));
	else
		printf("none");
	printf(" mean %" PRIu64 " p50 %" PRIu64 " p99 %" PRIu64 " p99.9 %" PRIu64 " max %" PRIu64,
			ns(s, (uint64_t)latency_mean(&s->gaps)),
			ns(s, latency_percentile(&s->gaps, 0.5)),
			ns(s, latency_percentile(&s->gaps, 0.99)),
			ns(s, latency_percentile(&s->gaps, 0.999)), ns(s, s->gaps.max));
	if (s->target_gap != 0)
		printf("; %" PRIu64 " packets late, %" PRIu64 " given up", s->totals.pace_late,
				s->totals.pace_skipped);
	printf("\n");
}

void
summary_print(const struct summary *s)
{
	const struct totals *t = &s->totals;
	char asked[16], achieved[16];

	printf("sent %" PRIu64 " packets (%" PRIu64 " bytes) in %.3f s: %s pps, asked for %s; "
	       "%" PRIu64 " not taken by the NIC at once\n",
			t->sent, t->sent_bytes, s->duration_s, rate_text(s->rate, achieved),
			settings.rate != 0	       ? rate_text((double)settings.rate, asked)
			: settings.replay_file != NULL ? "the times of the file"
						       : "no limit",
			t->tx_short);
	if (settings.replay_file != NULL)
		printf("received %" PRIu64
		       "; which of them were sent is unknown, and so are loss, order and latency\n",
				t->received);
	else
		printf("received %" PRIu64 ": %" PRIu64 " lost, %" PRIu64 " duplicates, %" PRIu64
		       " reordered, %" PRIu64 " too late to tell; %" PRIu64 " foreign packets\n",
				t->received, s->lost, t->duplicates, t->reordered, t->late,
				t->foreign);
	if (settings.verify)
		printf("corrupted %" PRIu64 ", which count as lost\n", t->corrupted);
	if (t->reordered > 0)
		printf("reordered %.6f %% of the packets; extent mean %.1f max %" PRIu64
		       " packets; %" PRIu64 " 3-reordered, n at most %" PRIu64 "\n",
				100 * reordered_ratio(t), extent_mean(t), t->extent_max,
				t->n_reordered[2], t->n_max);
	if (latency_count(&s->latency) > 0)
		print_latency(s);
	if (latency_count(&s->gaps) > 0)
		print_pace(s);
	if (t->no_mbuf > 0)
		printf("the pool was empty %" PRIu64 " times; raise --mbufs\n", t->no_mbuf);
	if (s->in_use > 0)
		printf("%u packets missing from the pools\n", s->in_use);
}

static void
json_order(struct json *json, const struct totals *t)
{
	json_open(json, "reordering");
	json_f64(json, "ratio_ppm", 1e6 * reordered_ratio(t));
	json_u64(json, "extents_known", t->extents);
	if (t->extents > 0) {
		json_f64(json, "extent_mean", extent_mean(t));
		json_u64(json, "extent_max", t->extent_max);
		json_u64(json, "n_max", t->n_max);
	} else {
		json_null(json, "extent_mean");
		json_null(json, "extent_max");
		json_null(json, "n_max");
	}
	json_u64(json, "n_reordered_1", t->n_reordered[0]);
	json_u64(json, "n_reordered_2", t->n_reordered[1]);
	json_u64(json, "n_reordered_3", t->n_reordered[2]);
	json_close(json);
}

/* Two moments around the run, to convert the time stamps in the packets exactly. */
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

/* The members of an object. */
static void
json_percentiles(struct json *json, const struct summary *s, const struct latency *latency)
{
	unsigned int i;

	json_u64(json, "min", ns(s, latency->min));
	json_u64(json, "mean", ns(s, (uint64_t)latency_mean(latency)));
	for (i = 0; i < LATENCY_QUANTILES; i++)
		json_u64(json, latency_quantiles[i].key,
				ns(s, latency_percentile(latency, latency_quantiles[i].share)));
	json_u64(json, "max", ns(s, latency->max));
}

static void
json_latency(struct json *json, const struct summary *s)
{
	json_open(json, "latency_ns");
	json_percentiles(json, s, &s->latency);
	json_close(json);
}

static void
json_pace(struct json *json, const struct summary *s)
{
	json_str(json, "pace", settings_pace());
	json_u64(json, "pace_late", s->totals.pace_late);
	json_u64(json, "pace_skipped", s->totals.pace_skipped);
	if (latency_count(&s->gaps) == 0) {
		json_null(json, "inter_departure_ns");
		return;
	}
	json_open(json, "inter_departure_ns");
	if (s->target_gap != 0)
		json_u64(json, "target", ns(s, s->target_gap));
	else
		json_null(json, "target");
	json_percentiles(json, s, &s->gaps);
	json_close(json);
}

/* A number that needs packets with a probe header. */
static void
json_probes(struct json *json, const char *key, uint64_t value)
{
	if (settings.replay_file == NULL)
		json_u64(json, key, value);
	else
		json_null(json, key);
}

int
summary_save(const struct summary *s, const struct app *app)
{
	const struct totals *t = &s->totals;
	struct json json;

	if (json_begin(&json) != 0)
		return -1;
	app_json(&json, app, s->duration_s);
	json_u64(&json, "rx_queues", settings.app.rx_queues);
	json_u64(&json, "tx_queues", settings.app.tx_queues);
	json_u64(&json, "rate_asked", settings.rate);
	json_f64(&json, "warm_up_s", (double)settings.warm_up_ms / 1e3);
	json_f64(&json, "rate_achieved", s->rate);
	json_u64(&json, "sent", t->sent);
	json_u64(&json, "sent_bytes", t->sent_bytes);
	json_u64(&json, "received", t->received);
	json_probes(&json, "lost", s->lost);
	json_probes(&json, "duplicates", t->duplicates);
	json_probes(&json, "reordered", t->reordered);
	json_probes(&json, "late", t->late);
	if (settings.replay_file == NULL)
		json_order(&json, t);
	else
		json_null(&json, "reordering");
	json_probes(&json, "foreign", t->foreign);
	if (settings.replay_file != NULL)
		json_str(&json, "replay", settings.replay_file);
	else
		json_null(&json, "replay");
	if (settings.verify)
		json_u64(&json, "corrupted", t->corrupted);
	else
		json_null(&json, "corrupted");
	json_u64(&json, "answered", t->answered);
	json_u64(&json, "tx_short", t->tx_short);
	json_u64(&json, "no_mbuf", t->no_mbuf);
	json_u64(&json, "size_min", settings.sizes.min);
	json_u64(&json, "size_max", settings.sizes.max);
	json_u64(&json, "first_send_ns", s->first_send_ns);
	json_u64(&json, "last_send_ns", s->last_send_ns);
	json_u64(&json, "tsc_hz", s->tsc_hz);
	json_clock(&json, s);
	if (latency_count(&s->latency) > 0)
		json_latency(&json, s);
	else
		json_null(&json, "latency_ns");
	json_pace(&json, s);
	json_open(&json, "pool");
	json_str(&json, "name", app->pool_name);
	json_u64(&json, "size", app->pool->size);
	json_u64(&json, "in_use_end", s->in_use);
	json_close(&json);
	return app_json_save(&json, app);
}

int
summary_judge(const struct summary *s)
{
	const struct totals *t = &s->totals;

	if (t->sent == 0)
		fprintf(stderr,
				"%s: nothing was sent: the NIC took no packet, the pool was empty, or "
				"the run ended at once\n",
				program_invocation_short_name);
	else if (t->received == 0 && settings.replay_file == NULL)
		fprintf(stderr,
				"%s: none of %" PRIu64
				" packets came back: does anything reflect on "
				"the other side, with as many queues, and let --dst-mac through?\n",
				program_invocation_short_name, t->sent);
	else
		return 0;
	return -1;
}
