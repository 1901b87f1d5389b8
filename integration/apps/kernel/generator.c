/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-kernel-generator: like pmdscope-generator, but with UDP sockets of the kernel.
 *
 * A flow is a connected socket with a unique source port. Each thread sends on its flows and
 * receives on them in turn, without waiting.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "clock.h"
#include "counter.h"
#include "latency.h"
#include "pacer.h"
#include "rate.h"
#include "run.h"
#include "sequence.h"
#include "summary.h"

struct kernel_flow {
	struct transport transport;
	struct sequence sequence;
	struct pacer pacer;
	uint64_t built; /* Sequence numbers used. */
	uint64_t quota;
	uint64_t short_packets; /* Not taken when they were first offered. */
	uint64_t foreign;
	uint8_t *payloads;			   /* A batch of consecutive payloads. */
	struct datagram pending[KERNEL_MAX_BATCH]; /* Messages, oldest first. */
	unsigned int nb_pending;
};

/* Counters of one thread. */
struct worker {
	uint64_t first_send; /* TSC before the first and after the last packet; 0: none. */
	uint64_t last_send;
	uint64_t stopped;    /* TSC when it stopped sending. */
	struct cpu_time cpu; /* While it sent. */
	struct latency latency;
};

static struct kernel_flow *flows;
static struct worker *workers;
static uint32_t payload_size;
static uint32_t message_packets; /* Packets in a message at most. */
static uint16_t run_id;
static uint64_t tsc_hz, start_tsc;

static int
open_flow(unsigned int index)
{
	struct kernel_flow *flow = &flows[index];
	union address local = settings.local;

	/* The kernel requires an address family even for an unspecified address. */
	local.any.sa_family = settings.remote.any.sa_family;
	address_set_port(&local, (uint16_t)(PROBE_SRC_PORT + index));
	/* Shares differ by one packet at most and add up. */
	flow->quota = settings.count == 0
				      ? UINT64_MAX
				      : settings.count / settings.flows +
							(index < settings.count % settings.flows);
	flow->payloads = calloc(settings.batch, payload_size);
	if (flow->payloads == NULL)
		return -1;
	return transport_open(&flow->transport, &local, &settings.remote);
}

static int
open_flows(void)
{
	unsigned int i;

	payload_size = settings.size - datagram_overhead(settings_ipv6(&settings.remote));
	message_packets = settings.gso ? datagram_max_packets(payload_size) : 1;
	run_id = (uint16_t)rte_rdtsc();
	address_set_port(&settings.remote, (uint16_t)settings.port);
	flows = calloc(settings.flows, sizeof(*flows));
	workers = calloc(settings.threads, sizeof(*workers));
	if (flows == NULL || workers == NULL)
		return -1;
	for (i = 0; i < settings.threads; i++)
		latency_clear(&workers[i].latency);
	for (i = 0; i < settings.flows; i++)
		if (open_flow(i) != 0)
			return -1;
	return 0;
}

static void
close_flows(void)
{
	unsigned int i;

	for (i = 0; flows != NULL && i < settings.flows; i++) {
		transport_close(&flows[i].transport);
		free(flows[i].payloads);
	}
	free(flows);
	free(workers);
}

/* Number of packets to send now. */
static uint32_t
allowance(struct kernel_flow *flow, uint64_t now)
{
	const uint32_t room =
			(uint32_t)RTE_MIN(flow->quota - flow->built, (uint64_t)settings.batch);

	return settings.rate == 0 ? room : pacer_ready(&flow->pacer, now, room);
}

/* Make new probes, and messages of them. */
static void
build(struct kernel_flow *flow, uint32_t nb_packets, uint64_t now)
{
	struct probe probe = {
		.run = run_id, .lane = (uint16_t)(flow - flows), .seq = flow->built, .tsc = now
	};
	uint8_t *payload = flow->payloads;
	uint32_t left = nb_packets, n;

	for (flow->nb_pending = 0; left > 0; left -= n) {
		n = RTE_MIN(left, message_packets);
		flow->pending[flow->nb_pending++] = (struct datagram){
			.data = payload, .size = n * payload_size, .segment = payload_size
		};
		payload += n * payload_size;
	}
	for (payload = flow->payloads; nb_packets > 0; nb_packets--, probe.seq++) {
		datagram_write(payload, &probe);
		payload += payload_size;
	}
	flow->built = probe.seq;
}

/* Offer the pending packets; those that the kernel does not take stay pending, in order. */
static void
offer(struct kernel_flow *flow, bool is_new, struct worker *worker, uint64_t now)
{
	const uint64_t before = flow->transport.stats.sent;
	const unsigned int done = transport_send(&flow->transport, flow->pending, flow->nb_pending);
	unsigned int i;

	flow->nb_pending -= done;
	memmove(flow->pending, &flow->pending[done], flow->nb_pending * sizeof(flow->pending[0]));
	for (i = 0; is_new && i < flow->nb_pending; i++)
		counter_add(&flow->short_packets, datagram_packets(&flow->pending[i]));
	if (flow->transport.stats.sent == before)
		return;
	if (worker->first_send == 0)
		worker->first_send = now;
	worker->last_send = rte_rdtsc();
}

static void
send_on(struct kernel_flow *flow, struct worker *worker)
{
	const uint64_t now = rte_rdtsc();
	const bool is_new = flow->nb_pending == 0;
	uint32_t n;

	if (is_new) {
		n = allowance(flow, now);
		if (n == 0)
			return;
		build(flow, n, now);
		if (settings.rate != 0)
			pacer_spend(&flow->pacer, n);
	}
	offer(flow, is_new, worker, now);
}

/* True if the packet is a probe of this run that had not arrived before. */
static bool
receive_probe(struct kernel_flow *flow, const uint8_t *payload, uint32_t size, uint64_t now,
		struct worker *worker)
{
	struct probe probe;

	if (size != payload_size || !datagram_read(payload, size, &probe) || probe.run != run_id ||
			probe.lane != flow - flows || probe.seq >= flow->built) {
		counter_add(&flow->foreign, 1);
		return false;
	}
	if (sequence_see(&flow->sequence, probe.seq) == SEQUENCE_DUPLICATE)
		return false;
	latency_add(&worker->latency, probe_age(&probe, now));
	return true;
}

/* True if a new packet has come. */
static bool
receive_on(struct kernel_flow *flow, struct worker *worker)
{
	const unsigned int nb_messages = transport_receive(&flow->transport, false);
	const uint64_t now = rte_rdtsc();
	bool fresh = false;
	unsigned int i;
	uint32_t k;

	for (i = 0; i < nb_messages; i++) {
		const struct datagram *message = &flow->transport.received[i];

		for (k = 0; k < datagram_packets(message); k++)
			fresh |= receive_probe(flow, message->data + k * message->segment,
					datagram_packet_size(message, k), now, worker);
	}
	return fresh;
}

/* Receive until all packets are back or no new one has come for the time of --drain. */
static void
drain(struct kernel_flow *first, unsigned int nb_flows, struct worker *worker)
{
	/* If this thread did not run for a while, others may not have run either. */
	const uint64_t longest_step = tsc_hz / 100;
	const uint64_t limit = settings.drain_ms * tsc_hz / 1000;
	uint64_t silence = 0, last = rte_rdtsc(), now, missing;
	unsigned int i;

	do {
		missing = 0;
		for (i = 0; i < nb_flows; i++) {
			if (receive_on(&first[i], worker))
				silence = 0;
			missing += first[i].transport.stats.sent > first[i].sequence.received;
		}
		now = rte_rdtsc();
		silence += RTE_MIN(now - last, longest_step);
		last = now;
	} while (missing > 0 && silence < limit);
}

static void
worker_main(unsigned int index)
{
	/* Shares differ by one flow at most. */
	const unsigned int from = settings.flows * index / settings.threads;
	const unsigned int to = settings.flows * (index + 1) / settings.threads;
	struct worker *worker = &workers[index];
	bool more = true;
	unsigned int i;

	while (more && !run_stopping()) {
		more = false;
		for (i = from; i < to; i++) {
			receive_on(&flows[i], worker);
			send_on(&flows[i], worker);
			more |= flows[i].built < flows[i].quota || flows[i].nb_pending > 0;
		}
	}
	worker->stopped = rte_rdtsc();
	worker->cpu = run_cpu_time();
	drain(&flows[from], to - from, worker);
}

static struct totals
total(void)
{
	struct totals sum = { 0 };
	unsigned int i;

	for (i = 0; i < settings.flows; i++) {
		const struct sequence *sequence = &flows[i].sequence;

		/* Read received before sent: a sample must not show more packets back than sent. */
		sum.received += counter_read(&sequence->received);
		sum.duplicates += counter_read(&sequence->duplicates);
		sum.reordered += counter_read(&sequence->reordered);
		sum.late += counter_read(&sequence->late);
		sum.foreign += counter_read(&flows[i].foreign);
		sum.short_packets += counter_read(&flows[i].short_packets);
		sum.drops += transport_drops(&flows[i].transport);
		run_add_stats(&sum.stats, &flows[i].transport.stats);
	}
	return sum;
}

static void
merge_latencies(struct latency *latency)
{
	unsigned int i;

	latency_clear(latency);
	for (i = 0; i < settings.threads; i++)
		latency_merge(latency, &workers[i].latency);
}

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
	const struct totals sum = total();
	const double span_s = (double)span_ns / 1e9;
	char tx[16], rx[16];

	merge_latencies(&now);
	span = now;
	latency_subtract(&span, &before);
	printf("%6.1f s  tx %s pps  rx %s pps  not back %" PRId64 "  copies %" PRIu64
	       "  reordered %" PRIu64 "  dropped at the socket %" PRIu64
	       "  p50 %.1f us  p99 %.1f us\n",
			(double)elapsed_ns / 1e9,
			rate_text((double)(sum.stats.sent - last.stats.sent) / span_s, tx),
			rate_text((double)(sum.received - last.received) / span_s, rx),
			(int64_t)(sum.stats.sent - sum.received), sum.duplicates, sum.reordered,
			sum.drops, us(latency_percentile(&span, 0.5)),
			us(latency_percentile(&span, 0.99)));
	last = sum;
	before = now;
}

static void
summarise(struct summary *s)
{
	uint64_t stopped = 0;
	unsigned int i;

	s->totals = total();
	s->transport = &flows[0].transport;
	s->tsc_hz = tsc_hz;
	merge_latencies(&s->latency);
	for (i = 0; i < settings.threads; i++) {
		const struct worker *worker = &workers[i];

		s->cpu.user_ns += worker->cpu.user_ns;
		s->cpu.system_ns += worker->cpu.system_ns;
		stopped = RTE_MAX(stopped, worker->stopped);
		s->last_send = RTE_MAX(s->last_send, worker->last_send);
		if (worker->first_send != 0 &&
				(s->first_send == 0 || worker->first_send < s->first_send))
			s->first_send = worker->first_send;
	}
	s->duration_s = stopped > start_tsc ? (double)clock_ns(stopped - start_tsc, tsc_hz) / 1e9
					    : 0;
	s->rate = s->duration_s > 0 ? (double)s->totals.stats.sent / s->duration_s : 0;
	s->lost = s->totals.stats.sent > s->totals.received
				  ? s->totals.stats.sent - s->totals.received
				  : 0;
}

/* Send, receive and sum up. 0, or negative after a message. */
static int
run(void)
{
	static struct summary summary;
	unsigned int i;
	int rc;

	tsc_hz = clock_measure_hz();
	summary.start = clock_now();
	start_tsc = summary.start.tsc;
	for (i = 0; i < settings.flows && settings.rate != 0; i++)
		pacer_start(&flows[i].pacer, PACER_PACKETS, settings.rate, settings.flows,
				settings.batch, tsc_hz, start_tsc);
	rc = run_threads(worker_main, report);
	summary.end = clock_now();
	if (rc != 0)
		return rc;
	summarise(&summary);
	summary_print(&summary);
	if (settings.json != NULL)
		rc = summary_save(&summary);
	return summary_judge(&summary.totals) != 0 ? -1 : rc;
}

int
main(int argc, char **argv)
{
	int rc = settings_parse_generator(argc, argv);

	if (rc >= 0)
		return rc;
	run_prepare();
	rc = open_flows();
	if (rc == 0)
		rc = run();
	close_flows();
	return rc == 0 ? KERNEL_EXIT_OK : KERNEL_EXIT_FAILED;
}
