/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_random.h>

#include <pmdscope.h>

#include "answer.h"
#include "control.h"
#include "counter.h"
#include "neighbour.h"
#include "settings.h"
#include "worker.h"

static const struct app *app;
static struct sender *senders; /* One for each lane, in the order of app->lanes. */
static struct worker *workers[RTE_MAX_LCORE];
static struct phase phase;
static uint16_t run; /* Number of the phase; the first one is random. */
static uint16_t nb_runs;
/* Of each port. */
static struct {
	struct rte_ether_addr own;
	struct rte_ether_addr peer;
} macs[RTE_MAX_ETHPORTS];
static uint64_t started_at; /* TSC. */
static uint64_t silence_cycles;
static uint64_t deaf_from; /* TSC. */

/* The addresses that a port sends from and to; the latter may have to be asked for. */
static int
find_macs(uint16_t port)
{
	struct probe_path path = settings.path;
	char text[RTE_ETHER_ADDR_FMT_SIZE];
	int rc;

	if (settings.own_src_mac && rte_eth_macaddr_get(port, &path.src_mac) != 0)
		rte_eth_random_addr(path.src_mac.addr_bytes);
	macs[port].own = path.src_mac;
	macs[port].peer = path.dst_mac;
	if (!settings.resolve)
		return 0;
	rc = neighbour_resolve(port, (uint16_t)settings.app.queues, app->pool, &path,
			settings.next_hop, settings.resolve_ms, &macs[port].peer);
	rte_ether_format_addr(text, sizeof(text), &macs[port].peer);
	if (rc == 0 && !settings.app.quiet)
		printf("port %u sends to %s\n", port, text);
	return rc;
}

static void
create_sender(unsigned int index)
{
	struct probe_path path = settings.path;
	struct sender *sender = &senders[index];

	path.src_mac = macs[app->lanes.lane[index].port].own;
	path.dst_mac = macs[app->lanes.lane[index].port].peer;
	probe_template(&sender->template, &path);
	sender->template.fill = settings.fill || settings.verify;
	sender->shares =
			app->lanes.lane[index].queue == settings.hot_queue ? settings.hot_times : 1;
}

static int
create_worker(unsigned int lcore)
{
	struct worker *worker = rte_zmalloc("worker", sizeof(*worker), RTE_CACHE_LINE_SIZE);

	if (worker == NULL)
		return -ENOMEM;
	workers[lcore] = worker;
	/* Only the pages of lanes whose packets arrive here are ever written. */
	worker->sequences = calloc(app->lanes.nb_lanes, sizeof(*worker->sequences));
	return worker->sequences != NULL ? 0 : -ENOMEM;
}

int
workers_create(const struct app *of)
{
	unsigned int i, lcore;
	int rc = 0;

	app = of;
	for (i = 0; i < app->nb_ports; i++) {
		rc = find_macs(app->ports[i]);
		if (rc != 0)
			return rc;
	}
	run = (uint16_t)rte_rand();
	senders = rte_calloc("senders", app->lanes.nb_lanes, sizeof(*senders), RTE_CACHE_LINE_SIZE);
	if (senders == NULL)
		rc = -ENOMEM;
	for (i = 0; rc == 0 && i < app->lanes.nb_lanes; i++)
		create_sender(i);
	RTE_LCORE_FOREACH(lcore)
		if (rc == 0)
			rc = create_worker(lcore);
	if (rc != 0)
		fprintf(stderr, "%s: no memory for %u queues; give the EAL more (-m MIB)\n",
				program_invocation_short_name, app->lanes.nb_lanes);
	return rc;
}

void
workers_destroy(void)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore) {
		if (workers[lcore] != NULL)
			free(workers[lcore]->sequences);
		rte_free(workers[lcore]);
		workers[lcore] = NULL;
	}
	rte_free(senders);
	senders = NULL;
}

static unsigned int
all_shares(void)
{
	unsigned int i, shares = 0;

	for (i = 0; i < app->lanes.nb_lanes; i++)
		shares += senders[i].shares;
	return shares;
}

uint64_t
workers_target_gap(uint64_t rate, uint64_t tsc_hz)
{
	const uint64_t share = RTE_MIN(rate * settings.hot_times, PACER_MAX_RATE);

	return rate == 0 ? 0 : tsc_hz * all_shares() / share;
}

/* Queues take turns: their packets are not due at the same moment. */
static void
start_pacers(uint64_t tsc_hz, uint64_t now)
{
	const unsigned int shares = all_shares();
	unsigned int i;

	for (i = 0; i < app->lanes.nb_lanes; i++)
		pacer_start(&senders[i].pacer, settings.pace,
				RTE_MIN(phase.rate * senders[i].shares, PACER_MAX_RATE), shares,
				settings.tx_burst, tsc_hz, now + i * tsc_hz / phase.rate);
}

static void
reset_sender(unsigned int index)
{
	const uint64_t nb_lanes = app->lanes.nb_lanes;
	struct sender *sender = &senders[index];

	rte_pktmbuf_free_bulk(sender->pending, sender->nb_pending);
	sender->nb_pending = 0;
	sender->built = 0;
	sender->next_size = 0;
	sender->nb_hot = 0;
	sender->flow = settings.flows.first;
	sender->replay = (struct replay_cursor){ .at = index };
	sender->handed = 0;
	/* Shares differ by one packet at most and add up. */
	sender->quota = phase.count == 0
					? UINT64_MAX
					: phase.count / nb_lanes + (index < phase.count % nb_lanes);
}

static void
reset_worker(struct worker *worker)
{
	struct sequence *sequences = worker->sequences;
	unsigned int lane;

	memset(worker, 0, sizeof(*worker));
	worker->sequences = sequences;
	latency_clear(&worker->latency);
	latency_clear(&worker->gaps);
	for (lane = 0; lane < app->lanes.nb_lanes; lane++)
		if (sequences[lane].next != 0)
			memset(&sequences[lane], 0, sizeof(sequences[lane]));
}

void
workers_start(const struct phase *of, uint64_t tsc_hz, uint64_t now)
{
	unsigned int i, lcore;

	phase = *of;
	run++;
	nb_runs++;
	silence_cycles = tsc_hz;
	deaf_from = settings.deaf_after_ms == 0 ? UINT64_MAX
						: now + settings.deaf_after_ms * tsc_hz / 1000;
	for (i = 0; i < app->lanes.nb_lanes; i++)
		reset_sender(i);
	RTE_LCORE_FOREACH(lcore)
		reset_worker(workers[lcore]);
	started_at = now;
	if (phase.rate != 0)
		start_pacers(tsc_hz, now);
	else if (settings.replay_file != NULL)
		replay_schedule(&settings.replay, tsc_hz, settings.replay_speed);
}

/* How many new packets may be offered, given the room in the burst. */
static uint32_t
allowance(struct sender *sender, uint64_t now)
{
	const uint64_t room = RTE_MIN(sender->quota - sender->built,
			(uint64_t)(settings.tx_burst - sender->nb_pending));

	if (phase.rate == 0)
		return settings.replay_file == NULL
				       ? (uint32_t)room
				       : replay_ready(&settings.replay, sender->replay,
							 app->lanes.nb_lanes, now - started_at,
							 (uint32_t)room);
	return pacer_ready(&sender->pacer, now, (uint32_t)room);
}

/* The flows take turns, but for the packets that make a queue hot. */
static const struct flow *
current_flow(const struct sender *sender)
{
	return sender->nb_hot == 0 ? &sender->flow : &settings.flows.first;
}

static void
next_flow(struct sender *sender)
{
	if (sender->nb_hot > 0) {
		sender->nb_hot--;
		return;
	}
	sender->nb_hot = sender->shares - 1;
	flows_next(&settings.flows, &sender->flow);
}

/* The same with packets of the file. */
static void
build_replay(struct sender *sender, uint32_t n)
{
	struct rte_mbuf **pkts = &sender->pending[sender->nb_pending];
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct replay_packet *packet =
				replay_next(&settings.replay, &sender->replay, app->lanes.nb_lanes);

		memcpy(rte_pktmbuf_mtod(pkts[i], void *), packet->data, packet->size);
		pkts[i]->data_len = (uint16_t)packet->size;
		pkts[i]->pkt_len = packet->size;
	}
	sender->nb_pending += n;
	__atomic_store_n(&sender->built, sender->built + n, __ATOMIC_RELEASE);
}

/* Put so many new probes behind the pending ones. */
static void
build(struct sender *sender, uint32_t n, uint64_t now)
{
	struct rte_mbuf **pkts = &sender->pending[sender->nb_pending];
	struct probe probe = {
		.run = run,
		.lane = (uint16_t)(sender - senders),
		.seq = sender->built,
		.tsc = now,
	};
	uint32_t i;

	for (i = 0; i < n; i++, probe.seq++) {
		probe_write_flow(&sender->template, pkts[i], settings.sizes.size[sender->next_size],
				current_flow(sender), &probe);
		next_flow(sender);
		if (++sender->next_size == settings.sizes.nb)
			sender->next_size = 0;
	}
	sender->nb_pending += n;
	/* The receiver, perhaps on another lcore, accepts no number from beyond this. */
	__atomic_store_n(&sender->built, probe.seq, __ATOMIC_RELEASE);
}

static uint64_t
bytes_of(struct rte_mbuf *const *pkts, uint16_t n)
{
	uint64_t bytes = 0;
	uint16_t i;

	for (i = 0; i < n; i++)
		bytes += pkts[i]->pkt_len;
	return bytes;
}

static void
count_gaps(struct sender *sender, uint16_t sent, uint64_t handed, struct latency *gaps)
{
	if (sender->handed != 0)
		latency_add(gaps, handed - sender->handed);
	if (sent > 1)
		latency_add_n(gaps, 0, sent - 1u);
	sender->handed = handed;
}

/* Offer what is pending; what the NIC does not take stays, in order. */
static void
offer(const struct lane *lane, struct sender *sender, uint32_t nb_new, uint64_t now,
		struct worker *worker)
{
	const uint16_t offered = sender->nb_pending;
	/* Counted first: once taken, a packet is not ours to look at. */
	const uint64_t bytes = bytes_of(sender->pending, offered);
	const uint64_t handed = rte_rdtsc();
	const uint16_t sent = pmdscope_tx_burst(lane->port, lane->queue, sender->pending, offered);
	const uint16_t left = offered - sent;

	if (sent > 0) {
		sender->nb_pending = left;
		memmove(sender->pending, &sender->pending[sent], left * sizeof(sender->pending[0]));
		counter_add(&worker->sent, sent);
		counter_add(&worker->sent_bytes, bytes - bytes_of(sender->pending, left));
		if (worker->first_send == 0)
			counter_set(&worker->first_send, now);
		counter_set(&worker->last_send, rte_rdtsc());
		if (phase.rate != 0)
			count_gaps(sender, sent, handed, &worker->gaps);
	}
	counter_add(&worker->tx_short, RTE_MIN((uint32_t)left, nb_new));
}

static void
send_on(const struct lane *lane, struct sender *sender, uint64_t now, struct worker *worker)
{
	uint32_t n = allowance(sender, now);

	if (n > 0 && rte_pktmbuf_alloc_bulk(app->pool, &sender->pending[sender->nb_pending], n) !=
					0) {
		counter_add(&worker->no_mbuf, 1);
		n = 0;
	}
	if (n > 0) {
		if (settings.replay_file == NULL)
			build(sender, n, now);
		else
			build_replay(sender, n);
		if (phase.rate != 0)
			pacer_spend(&sender->pacer, n);
	}
	if (sender->nb_pending > 0)
		offer(lane, sender, n, now, worker);
}

static bool
was_sent(const struct probe *probe)
{
	return probe->lane < app->lanes.nb_lanes &&
	       probe->seq < __atomic_load_n(&senders[probe->lane].built, __ATOMIC_ACQUIRE);
}

/* The number of a packet tells its size. */
static bool
is_intact(const struct rte_mbuf *m, const struct probe *probe)
{
	const uint16_t size = settings.sizes.size[probe->seq % settings.sizes.nb];

	return probe_intact(&senders[probe->lane].template, m, size, probe);
}

/* A straggler of the warm-up or of an earlier trial. */
static bool
is_of_earlier_phase(const struct probe *probe)
{
	const uint16_t age = run - probe->run;

	return age > 0 && age < nb_runs;
}

/* Answer as a host does; with a copy, since all that was received is freed. */
static void
receive_other(struct rte_mbuf *m, const struct lane *lane, struct worker *worker)
{
	const struct rte_ether_addr *own = &macs[lane->port].own;
	struct rte_mbuf *answer;

	if (answer_packet(m, own, &settings.own_ips) <= ANSWER_IGNORED) {
		counter_add(&worker->foreign, 1);
		return;
	}
	answer = rte_pktmbuf_copy(m, app->pool, 0, UINT32_MAX);
	if (answer != NULL && pmdscope_tx_burst(lane->port, lane->queue, &answer, 1) == 1)
		counter_add(&worker->answered, 1);
	else
		rte_pktmbuf_free(answer);
}

/* True if the packet is a probe that had not arrived before. */
static bool
receive_probe(struct rte_mbuf *m, const struct lane *lane, uint64_t now, struct worker *worker)
{
	struct probe probe;
	enum sequence_verdict verdict;

	if (!probe_read(m, settings.path.ipv6, &probe)) {
		receive_other(m, lane, worker);
		return false;
	}
	if (unlikely(probe.run != run)) {
		counter_add(&worker->foreign, is_of_earlier_phase(&probe) ? 0 : 1);
		return false;
	}
	if (unlikely(!was_sent(&probe))) {
		counter_add(settings.verify ? &worker->corrupted : &worker->foreign, 1);
		return false;
	}
	/* Before its number is noted: that may be what is wrong. */
	if (settings.verify && !is_intact(m, &probe)) {
		counter_add(&worker->corrupted, 1);
		return true;
	}
	counter_add(&worker->received_bytes, m->pkt_len);
	verdict = sequence_see(&worker->sequences[probe.lane], probe.seq);
	if (verdict == SEQUENCE_DUPLICATE)
		return false;
	latency_add(&worker->latency, probe_age(&probe, now));
	return true;
}

/* Returns the packets received, and in *fresh whether one of them was new. */
static uint16_t
receive_on(const struct lane *lane, struct worker *worker, bool *fresh)
{
	struct rte_mbuf *pkts[APP_MAX_BURST];
	const uint16_t nb_rx = rte_eth_rx_burst(
			lane->port, lane->queue, pkts, (uint16_t)settings.rx_burst);
	uint64_t now;
	uint16_t i;

	if (nb_rx == 0)
		return 0;
	now = rte_rdtsc();
	if (settings.replay_file != NULL) {
		/* Any of them may be one that was sent. */
		counter_add(&worker->sequences[lane - app->lanes.lane].received, nb_rx);
		*fresh = true;
	} else {
		for (i = 0; i < nb_rx; i++)
			*fresh |= receive_probe(pkts[i], lane, now, worker);
	}
	rte_pktmbuf_free_bulk(pkts, nb_rx);
	return nb_rx;
}

/* One round over the lanes of this lcore. False when all of them have sent their share. */
static bool
send_and_receive(const struct lane *first, unsigned int nb_lanes, struct worker *worker)
{
	const bool deaf = rte_rdtsc() >= deaf_from;
	bool more = false, fresh = false;
	uint16_t nb_rx = 0;
	unsigned int i;

	for (i = 0; i < nb_lanes; i++) {
		struct sender *sender = &senders[first + i - app->lanes.lane];

		if (likely(!deaf))
			nb_rx += receive_on(&first[i], worker, &fresh);
		send_on(&first[i], sender, rte_rdtsc(), worker);
		more |= sender->built < sender->quota || sender->nb_pending > 0;
	}
	pmdscope_poll(nb_rx);
	return more;
}

static uint64_t
received_by(const struct worker *worker)
{
	uint64_t received = 0;
	unsigned int lane;

	for (lane = 0; lane < app->lanes.nb_lanes; lane++)
		received += counter_read(&worker->sequences[lane].received);
	return received;
}

/* True once all lcores have stopped sending and everything sent is back. */
static bool
all_returned(void)
{
	uint64_t sent = 0, received = 0;
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore) {
		if (app->lanes.count[lcore] == 0)
			continue;
		if (__atomic_load_n(&workers[lcore]->stopped, __ATOMIC_ACQUIRE) == 0)
			return false;
		sent += counter_read(&workers[lcore]->sent);
		received += received_by(workers[lcore]) + counter_read(&workers[lcore]->corrupted);
	}
	return received >= sent;
}

/* Receive until all is back or nothing new has come for a second. */
static void
drain(const struct lane *first, unsigned int nb_lanes, struct worker *worker)
{
	uint64_t now = rte_rdtsc(), last_fresh = now;
	uint16_t nb_rx;
	unsigned int i;
	bool fresh;

	while (now - last_fresh < silence_cycles && !all_returned()) {
		nb_rx = 0;
		fresh = false;
		for (i = 0; i < nb_lanes; i++)
			nb_rx += receive_on(&first[i], worker, &fresh);
		pmdscope_poll(nb_rx);
		now = rte_rdtsc();
		if (fresh)
			last_fresh = now;
	}
}

int
worker_main(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	const struct lane *first = &app->lanes.lane[app->lanes.first[lcore]];
	const unsigned int nb_lanes = app->lanes.count[lcore];
	struct worker *worker = workers[lcore];

	(void)arg;
	if (nb_lanes == 0)
		return 0;
	while (!control_stopping() && send_and_receive(first, nb_lanes, worker))
		;
	__atomic_store_n(&worker->stopped, rte_rdtsc(), __ATOMIC_RELEASE);
	if (phase.drain)
		drain(first, nb_lanes, worker);
	return 0;
}

static void
add_sequences(struct totals *sum, const struct worker *worker)
{
	unsigned int lane;

	for (lane = 0; lane < app->lanes.nb_lanes; lane++) {
		const struct sequence *sequence = &worker->sequences[lane];

		sum->received += counter_read(&sequence->received);
		sum->duplicates += counter_read(&sequence->duplicates);
		sum->reordered += counter_read(&sequence->reordered);
		sum->late += counter_read(&sequence->late);
		sum->extents += counter_read(&sequence->extents);
		sum->extent_sum += counter_read(&sequence->extent_sum);
		sum->extent_max = RTE_MAX(sum->extent_max, counter_read(&sequence->extent_max));
	}
}

/* Packets of a queue before the newest that is back; those on their way behind it are left out. */
static uint64_t
overtaken(unsigned int lane)
{
	uint64_t next = 0, received = 0;
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore) {
		const struct sequence *sequence = &workers[lcore]->sequences[lane];

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

	for (i = 0; i < app->lanes.nb_lanes; i++)
		sum.missing += overtaken(i);
	RTE_LCORE_FOREACH(lcore) {
		const struct worker *worker = workers[lcore];

		/* Received before sent: a moment must not show more back than went out. */
		add_sequences(&sum, worker);
		sum.foreign += counter_read(&worker->foreign);
		sum.received_bytes += counter_read(&worker->received_bytes);
		sum.corrupted += counter_read(&worker->corrupted);
		sum.answered += counter_read(&worker->answered);
	}
	RTE_LCORE_FOREACH(lcore) {
		const struct worker *worker = workers[lcore];
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
	for (i = 0; i < app->lanes.nb_lanes; i++) {
		sum.pace_late += counter_read(&senders[i].pacer.late);
		sum.pace_skipped += pacer_skipped(&senders[i].pacer);
	}
	return sum;
}

uint64_t
worker_sent(unsigned int lcore)
{
	return counter_read(&workers[lcore]->sent);
}

uint64_t
worker_received(unsigned int lcore)
{
	return received_by(workers[lcore]);
}

bool
worker_is_used(unsigned int lcore)
{
	return app->lanes.count[lcore] > 0;
}

void
workers_latency(struct latency *latency)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore)
		latency_merge(latency, &workers[lcore]->latency);
}

void
workers_gaps(struct latency *gaps)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore)
		latency_merge(gaps, &workers[lcore]->gaps);
}

void
workers_free_pending(void)
{
	unsigned int i;

	for (i = 0; i < app->lanes.nb_lanes; i++) {
		rte_pktmbuf_free_bulk(senders[i].pending, senders[i].nb_pending);
		senders[i].nb_pending = 0;
	}
}
