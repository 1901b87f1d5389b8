/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_random.h>
#include <rte_time.h>

#include "counter.h"
#include "generator.h"
#include "neighbour.h"
#include "settings.h"
#include "traffic.h"

/* Mbufs that an lcore keeps. */
#define TX_CACHE 256

/* Pause while all TX rings are full; at 15 Mpps five packets leave in this time. */
#define FULL_PAUSE_NS 300

struct generator generator;

/* The addresses that a port sends from and to; the latter may have to be resolved. */
static int
find_macs(uint16_t port)
{
	struct probe_path path = settings.path;
	char text[RTE_ETHER_ADDR_FMT_SIZE];
	int rc;

	if (settings.own_src_mac && rte_eth_macaddr_get(port, &path.src_mac) != 0)
		rte_eth_random_addr(path.src_mac.addr_bytes);
	generator.macs[port].own = path.src_mac;
	generator.macs[port].peer = path.dst_mac;
	if (!settings.resolve)
		return 0;
	rc = neighbour_resolve(port, (uint16_t)settings.app.rx_queues, generator.app->pool, &path,
			settings.next_hop, settings.resolve_ms, &generator.macs[port].peer);
	rte_ether_format_addr(text, sizeof(text), &generator.macs[port].peer);
	if (rc == 0 && !settings.app.quiet)
		printf("port %u sends to %s\n", port, text);
	return rc;
}

static void
zero_payload(struct rte_mempool *pool, void *arg, void *object, unsigned int index)
{
	struct rte_mbuf *m = object;

	(void)pool;
	(void)arg;
	(void)index;
	memset(m->buf_addr, 0, m->buf_len);
}

/*
 * Packets to send have a separate pool. Only --fill writes to its payloads, so without it only
 * headers have to be written.
 */
static int
open_tx_pool(void)
{
	const struct app_options *options = &settings.app;
	const unsigned int need =
			generator.app->lanes.nb_lanes * (options->descriptors + settings.tx_burst) +
			rte_lcore_count() * (TX_CACHE + TX_CACHE / 2);
	const unsigned int size = options->mbufs != 0 ? options->mbufs : need;

	/* The EAL refuses a cache that could starve a small pool. */
	generator.tx_pool = rte_pktmbuf_pool_create("generator_tx_pool", size,
			RTE_MIN((unsigned int)TX_CACHE, size * 2 / 3), 0, RTE_MBUF_DEFAULT_BUF_SIZE,
			(int)rte_socket_id());
	if (generator.tx_pool == NULL)
		return -ENOMEM;
	rte_mempool_obj_iter(generator.tx_pool, zero_payload, NULL);
	return 0;
}

static void
create_sender(unsigned int index)
{
	struct probe_path path = settings.path;
	struct sender *sender = &generator.senders[index];

	if (generator.app->lanes.lane[index].queue >= settings.app.tx_queues)
		return;
	sender->rank = generator.nb_senders++;
	path.src_mac = generator.macs[generator.app->lanes.lane[index].port].own;
	path.dst_mac = generator.macs[generator.app->lanes.lane[index].port].peer;
	probe_template(&sender->template, &path);
	sender->template.fill = settings.fill || settings.verify;
	sender->template.only_headers = true;
	sender->shares = generator.app->lanes.lane[index].queue == settings.hot_queue
					 ? settings.hot_times
					 : 1;
}

/*
 * Mbufs of packets that came back are sent again if headers, which are written anew, are all that
 * they have: payloads are not written again, and the peer may have changed them. With several ports
 * one might have a driver that receives into mbufs without writing them, such as net_null: packets
 * that another port lost would seem to come back.
 */
static bool
may_resend(void)
{
	return generator.app->nb_ports == 1 && settings.replay_file == NULL &&
	       settings.sizes.max == traffic_headers();
}

static int
create_worker(unsigned int lcore)
{
	struct worker *worker = rte_zmalloc("worker", sizeof(*worker), RTE_CACHE_LINE_SIZE);
	unsigned int i;

	if (worker == NULL)
		return -ENOMEM;
	generator.workers[lcore] = worker;
	for (i = 0; i < generator.app->lanes.count[lcore]; i++)
		worker->sends |=
				generator.senders[generator.app->lanes.first[lcore] + i].shares > 0;
	/* Only pages of lanes whose packets arrive here are ever written. */
	worker->sequences = calloc(generator.app->lanes.nb_lanes, sizeof(*worker->sequences));
	return worker->sequences != NULL ? 0 : -ENOMEM;
}

int
workers_create(const struct app *of)
{
	unsigned int i, lcore;
	int rc = 0;

	generator.app = of;
	for (i = 0; i < generator.app->nb_ports; i++) {
		rc = find_macs(generator.app->ports[i]);
		if (rc != 0)
			return rc;
	}
	generator.run = (uint16_t)rte_rand();
	generator.senders = rte_calloc("senders", generator.app->lanes.nb_lanes,
			sizeof(*generator.senders), RTE_CACHE_LINE_SIZE);
	generator.resend = may_resend();
	rc = generator.senders == NULL ? -ENOMEM : open_tx_pool();
	for (i = 0; rc == 0 && i < generator.app->lanes.nb_lanes; i++)
		create_sender(i);
	RTE_LCORE_FOREACH(lcore)
		if (rc == 0)
			rc = create_worker(lcore);
	if (rc != 0)
		fprintf(stderr, "%s: no memory for %u queues; give the EAL more (-m MIB)\n",
				program_invocation_short_name, generator.app->lanes.nb_lanes);
	return rc;
}

void
workers_destroy(void)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore) {
		if (generator.workers[lcore] != NULL)
			free(generator.workers[lcore]->sequences);
		rte_free(generator.workers[lcore]);
		generator.workers[lcore] = NULL;
	}
	rte_free(generator.senders);
	generator.senders = NULL;
	rte_mempool_free(generator.tx_pool);
	generator.tx_pool = NULL;
}

unsigned int
workers_in_use(void)
{
	return rte_mempool_in_use_count(generator.tx_pool);
}

static unsigned int
all_shares(void)
{
	unsigned int i, shares = 0;

	for (i = 0; i < generator.app->lanes.nb_lanes; i++)
		shares += generator.senders[i].shares;
	return shares;
}

uint64_t
workers_target_gap(uint64_t rate, uint64_t tsc_hz)
{
	const uint64_t share = RTE_MIN(rate * settings.hot_times, PACER_MAX_RATE);

	return rate == 0 ? 0 : tsc_hz * all_shares() / share;
}

/* The start of queues is staggered: their packets are not due at the same moment. */
static void
start_pacers(uint64_t tsc_hz, uint64_t now)
{
	const unsigned int shares = all_shares();
	unsigned int i;

	for (i = 0; i < generator.app->lanes.nb_lanes; i++) {
		struct sender *sender = &generator.senders[i];

		if (sender->shares == 0)
			continue;
		pacer_start(&sender->pacer, settings.pace,
				RTE_MIN(generator.phase.rate * sender->shares, PACER_MAX_RATE),
				shares, settings.tx_burst, tsc_hz,
				now + sender->rank * tsc_hz / generator.phase.rate);
	}
}

static void
free_mbufs(struct sender *sender)
{
	rte_pktmbuf_free_bulk(sender->pending, sender->nb_pending);
	sender->nb_pending = 0;
	returned_free(&sender->returned);
}

static void
reset_sender(unsigned int index)
{
	const uint64_t count = generator.phase.count;
	struct sender *sender = &generator.senders[index];

	free_mbufs(sender);
	sender->built = 0;
	sender->next_size = 0;
	sender->nb_hot = 0;
	sender->flow = settings.flows.first;
	sender->replay = (struct replay_cursor){ .at = sender->rank };
	sender->handed = 0;
	/* Shares differ by one packet at most and add up. */
	if (sender->shares == 0)
		sender->quota = 0;
	else if (count == 0)
		sender->quota = UINT64_MAX;
	else
		sender->quota = count / generator.nb_senders +
				(sender->rank < count % generator.nb_senders);
}

static void
reset_worker(struct worker *worker)
{
	struct sequence *sequences = worker->sequences;
	const bool sends = worker->sends;
	unsigned int lane;

	memset(worker, 0, sizeof(*worker));
	worker->sequences = sequences;
	worker->sends = sends;
	latency_clear(&worker->latency);
	latency_clear(&worker->gaps);
	for (lane = 0; lane < generator.app->lanes.nb_lanes; lane++)
		if (sequences[lane].next != 0)
			memset(&sequences[lane], 0, sizeof(sequences[lane]));
}

void
workers_start(const struct phase *of, uint64_t tsc_hz, uint64_t now)
{
	unsigned int i, lcore;

	generator.phase = *of;
	generator.run++;
	generator.nb_runs++;
	generator.silence_cycles = tsc_hz;
	generator.full_cycles = tsc_hz * FULL_PAUSE_NS / NSEC_PER_SEC;
	generator.deaf_from = settings.deaf_after_ms == 0
					      ? UINT64_MAX
					      : now + settings.deaf_after_ms * tsc_hz / 1000;
	generator.stall = periodic_start(settings.stall_us, settings.stall_every_ms, tsc_hz, now);
	for (i = 0; i < generator.app->lanes.nb_lanes; i++)
		reset_sender(i);
	RTE_LCORE_FOREACH(lcore)
		reset_worker(generator.workers[lcore]);
	generator.started_at = now;
	if (generator.phase.rate != 0)
		start_pacers(tsc_hz, now);
	else if (settings.replay_file != NULL)
		replay_schedule(&settings.replay, tsc_hz, settings.replay_speed);
}

static void
add_sequences(struct totals *sum, const struct worker *worker)
{
	unsigned int lane, n;

	for (lane = 0; lane < generator.app->lanes.nb_lanes; lane++) {
		const struct sequence *sequence = &worker->sequences[lane];

		sum->received += counter_read(&sequence->received);
		sum->duplicates += counter_read(&sequence->duplicates);
		sum->reordered += counter_read(&sequence->reordered);
		sum->late += counter_read(&sequence->late);
		sum->extents += counter_read(&sequence->extents);
		sum->extent_sum += counter_read(&sequence->extent_sum);
		sum->extent_max = RTE_MAX(sum->extent_max, counter_read(&sequence->extent_max));
		for (n = 0; n < SEQUENCE_DEGREES; n++)
			sum->n_reordered[n] += counter_read(&sequence->n_reordered[n]);
		sum->n_max = RTE_MAX(sum->n_max, counter_read(&sequence->n_max));
	}
}

/* Missing packets of a queue before the newest that is back; later ones may still be under way. */
static uint64_t
overtaken(unsigned int lane)
{
	uint64_t next = 0, received = 0;
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore) {
		const struct sequence *sequence = &generator.workers[lcore]->sequences[lane];

		received += counter_read(&sequence->received);
		next = RTE_MAX(next, counter_read(&sequence->next));
	}
	return next > received ? next - received : 0;
}

struct totals
workers_total(void)
{
	struct totals sum = { .first_send = UINT64_MAX };
	unsigned int lcore, i;

	for (i = 0; i < generator.app->lanes.nb_lanes; i++)
		sum.missing += overtaken(i);
	RTE_LCORE_FOREACH(lcore) {
		const struct worker *worker = generator.workers[lcore];

		/* Read received before sent: a sample must not show more packets back than sent. */
		add_sequences(&sum, worker);
		sum.foreign += counter_read(&worker->foreign);
		sum.received_bytes += counter_read(&worker->received_bytes);
		sum.corrupted += counter_read(&worker->corrupted);
		sum.answered += counter_read(&worker->answered);
	}
	RTE_LCORE_FOREACH(lcore) {
		const struct worker *worker = generator.workers[lcore];
		const uint64_t first_send = counter_read(&worker->first_send);

		sum.sent += counter_read(&worker->sent);
		sum.sent_bytes += counter_read(&worker->sent_bytes);
		sum.tx_short += counter_read(&worker->tx_short);
		sum.no_mbuf += counter_read(&worker->no_mbuf);
		if (first_send != 0)
			sum.first_send = RTE_MIN(sum.first_send, first_send);
		sum.last_send = RTE_MAX(sum.last_send, counter_read(&worker->last_send));
		sum.stopped = RTE_MAX(sum.stopped, counter_read(&worker->stopped));
	}
	for (i = 0; i < generator.app->lanes.nb_lanes; i++) {
		sum.pace_late += counter_read(&generator.senders[i].pacer.late);
		sum.pace_skipped += pacer_skipped(&generator.senders[i].pacer);
	}
	return sum;
}

uint64_t
worker_sent(unsigned int lcore)
{
	return counter_read(&generator.workers[lcore]->sent);
}

static uint64_t
received_by(const struct worker *worker)
{
	uint64_t received = 0;
	unsigned int lane;

	for (lane = 0; lane < generator.app->lanes.nb_lanes; lane++)
		received += counter_read(&worker->sequences[lane].received);
	return received;
}

uint64_t
worker_received(unsigned int lcore)
{
	return received_by(generator.workers[lcore]);
}

bool
worker_is_used(unsigned int lcore)
{
	return generator.app->lanes.count[lcore] > 0;
}

void
workers_latency(struct latency *latency)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore)
		latency_merge(latency, &generator.workers[lcore]->latency);
}

void
workers_gaps(struct latency *gaps)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore)
		latency_merge(gaps, &generator.workers[lcore]->gaps);
}

void
workers_free_pending(void)
{
	unsigned int i;

	for (i = 0; i < generator.app->lanes.nb_lanes; i++)
		free_mbufs(&generator.senders[i]);
}
