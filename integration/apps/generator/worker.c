/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>

#include <pmdscope.h>

#include "answer.h"
#include "control.h"
#include "counter.h"
#include "generator.h"
#include "settings.h"
#include "stall.h"

/* Maximum number of new packets to offer, given the room in the burst. */
static uint32_t
allowance(struct sender *sender, uint64_t now)
{
	const uint64_t room = RTE_MIN(sender->quota - sender->built,
			(uint64_t)(settings.tx_burst - sender->nb_pending));

	if (generator.phase.rate == 0)
		return settings.replay_file == NULL ? (uint32_t)room
						    : replay_ready(&settings.replay, sender->replay,
								      generator.nb_senders,
								      now - generator.started_at,
								      (uint32_t)room);
	return pacer_ready(&sender->pacer, now, (uint32_t)room);
}

/* The flows take turns, except for the packets that make a queue hot. */
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
		const struct replay_packet *packet = replay_next(
				&settings.replay, &sender->replay, generator.nb_senders);

		memcpy(rte_pktmbuf_mtod(pkts[i], void *), packet->data, packet->size);
		pkts[i]->data_len = (uint16_t)packet->size;
		pkts[i]->pkt_len = packet->size;
	}
	sender->nb_pending += n;
	__atomic_store_n(&sender->built, sender->built + n, __ATOMIC_RELEASE);
}

/* The same with probes, each with its own flow and payload. */
static void
build_flows(struct sender *sender, struct rte_mbuf *const *pkts, const uint16_t *sizes, uint32_t n,
		struct probe probe)
{
	uint32_t i;

	for (i = 0; i < n; i++, probe.seq++) {
		probe_write_flow(
				&sender->template, pkts[i], sizes[i], current_flow(sender), &probe);
		next_flow(sender);
	}
}

/* Add new probes after the pending ones. */
static void
build(struct sender *sender, uint32_t n, uint64_t now)
{
	struct rte_mbuf **pkts = &sender->pending[sender->nb_pending];
	const struct probe first = {
		.run = generator.run,
		.lane = (uint16_t)(sender - generator.senders),
		.seq = sender->built,
		.tsc = now,
	};
	uint16_t sizes[APP_MAX_BURST];
	uint32_t i;

	for (i = 0; i < n; i++) {
		/* The NIC, or the peer of a virtual link, used the mbufs last. */
		__builtin_prefetch(rte_pktmbuf_mtod(pkts[i], void *), 1);
		sizes[i] = settings.sizes.size[sender->next_size];
		if (++sender->next_size == settings.sizes.nb)
			sender->next_size = 0;
	}
	if (settings.flows.nb_varying == 0 && !sender->template.fill)
		probe_write_burst(&sender->template, pkts, n, sizes, &sender->flow, &first);
	else
		build_flows(sender, pkts, sizes, n, first);
	sender->nb_pending += n;
	/* The receiver, perhaps on another lcore, accepts only smaller numbers. */
	__atomic_store_n(&sender->built, first.seq + n, __ATOMIC_RELEASE);
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

/* Offer the pending packets; those that the NIC does not take stay pending, in order. */
static void
offer(const struct lane *lane, struct sender *sender, uint32_t nb_new, uint64_t now,
		struct worker *worker)
{
	const uint16_t offered = sender->nb_pending;
	/* Counted before sending: the NIC owns the packets afterwards. */
	const uint64_t bytes = bytes_of(sender->pending, offered);
	const uint64_t handed = generator.phase.rate != 0 ? rte_rdtsc() : 0;
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
		if (generator.phase.rate != 0)
			count_gaps(sender, sent, handed, &worker->gaps);
	}
	counter_add(&worker->tx_short, RTE_MIN((uint32_t)left, nb_new));
}

/* Put n empty mbufs after the pending ones. False if the pool is empty. */
static bool
take_mbufs(struct sender *sender, uint32_t n)
{
	struct rte_mbuf **to = &sender->pending[sender->nb_pending];
	const uint16_t taken = returned_take(&sender->returned, to, (uint16_t)n);

	if (taken == n || rte_pktmbuf_alloc_bulk(generator.tx_pool, to + taken, n - taken) == 0)
		return true;
	returned_keep(&sender->returned, to, taken);
	return false;
}

static void
send_on(const struct lane *lane, struct sender *sender, uint64_t now, struct worker *worker)
{
	uint32_t n = allowance(sender, now);

	if (n > 0 && !take_mbufs(sender, n)) {
		counter_add(&worker->no_mbuf, 1);
		n = 0;
	}
	if (n > 0) {
		if (settings.replay_file == NULL)
			build(sender, n, now);
		else
			build_replay(sender, n);
		if (generator.phase.rate != 0)
			pacer_spend(&sender->pacer, n);
	}
	if (sender->nb_pending > 0)
		offer(lane, sender, n, now, worker);
}

static bool
was_sent(const struct probe *probe)
{
	return probe->lane < generator.app->lanes.nb_lanes &&
	       probe->seq < __atomic_load_n(&generator.senders[probe->lane].built,
					    __ATOMIC_ACQUIRE);
}

/* The number of a packet determines its size. */
static bool
is_intact(const struct rte_mbuf *m, const struct probe *probe)
{
	const uint16_t size = settings.sizes.size[probe->seq % settings.sizes.nb];

	return probe_intact(&generator.senders[probe->lane].template, m, size, probe);
}

/* A late packet of the warm-up or of an earlier trial. */
static bool
is_of_earlier_phase(const struct probe *probe)
{
	const uint16_t age = generator.run - probe->run;

	return age > 0 && age < generator.nb_runs;
}

/* Answer as a host does; with a copy, as all received packets are freed. */
static void
receive_other(struct rte_mbuf *m, const struct lane *lane, struct worker *worker)
{
	const struct rte_ether_addr *own = &generator.macs[lane->port].own;
	struct rte_mbuf *answer;

	/* If the lcore has no TX queue with the same number, it must not use another one. */
	if (lane->queue >= settings.app.tx_queues ||
			answer_packet(m, own, &settings.own_ips) <= ANSWER_IGNORED) {
		counter_add(&worker->foreign, 1);
		return;
	}
	answer = rte_pktmbuf_copy(m, generator.app->pool, 0, UINT32_MAX);
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
	if (unlikely(probe.run != generator.run)) {
		counter_add(&worker->foreign, is_of_earlier_phase(&probe) ? 0 : 1);
		return false;
	}
	if (unlikely(!was_sent(&probe))) {
		counter_add(settings.verify ? &worker->corrupted : &worker->foreign, 1);
		return false;
	}
	/* Checked before its number is recorded, as that may be wrong. */
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

/*
 * Handle packets that came back unchanged, with one stamp and consecutive numbers, as a group.
 * False if they have to be handled one by one.
 */
static bool
receive_run(const struct probe_run *run, uint64_t now, struct worker *worker)
{
	const struct probe last = { .lane = run->first.lane, .seq = run->first.seq + run->n - 1 };
	struct sequence *sequence;

	if (unlikely(run->first.run != generator.run || !was_sent(&last)))
		return false;
	sequence = &worker->sequences[last.lane];
	if (unlikely(!sequence_see_next(sequence, run->first.seq, run->n)))
		return false;
	counter_add(&worker->received_bytes, run->bytes);
	latency_add_n(&worker->latency, probe_age(&run->first, now), run->n);
	return true;
}

/*
 * True if all were handled in groups; *fresh is set if one of them is a probe that had not arrived
 * before.
 */
static bool
receive_probes(struct rte_mbuf *const *pkts, uint16_t n, const struct lane *lane, uint64_t now,
		struct worker *worker, bool *fresh)
{
	uint16_t i = 0, end;
	struct probe_run run;
	bool in_groups = true;

	while (i < n) {
		run.n = 0;
		if (likely(!settings.verify))
			probe_read_run(&pkts[i], n - i, settings.path.ipv6, &run);
		end = i + RTE_MAX(run.n, 1);
		if (likely(run.n > 0) && likely(receive_run(&run, now, worker))) {
			*fresh = true;
			i = end;
		}
		in_groups &= i == end;
		for (; i < end; i++)
			*fresh |= receive_probe(pkts[i], lane, now, worker);
	}
	return in_groups;
}

/* Returns the number of packets received; *fresh is whether one of them was new. */
static uint16_t
receive_on(const struct lane *lane, struct worker *worker, bool *fresh)
{
	struct sender *sender = &generator.senders[lane - generator.app->lanes.lane];
	struct rte_mbuf *pkts[APP_MAX_BURST];
	uint16_t i, nb_rx;
	bool returned = false;
	uint64_t now;

	if (unlikely(lane->queue >= settings.app.rx_queues))
		return 0;
	nb_rx = rte_eth_rx_burst(lane->port, lane->queue, pkts, (uint16_t)settings.rx_burst);
	if (nb_rx == 0)
		return 0;
	now = rte_rdtsc();
	if (settings.replay_file != NULL) {
		/* Any of them may be a packet that was sent. */
		counter_add(&worker->sequences[lane - generator.app->lanes.lane].received, nb_rx);
		*fresh = true;
	} else {
		for (i = 0; i < nb_rx; i++)
			rte_prefetch0(rte_pktmbuf_mtod(pkts[i], void *));
		returned = receive_probes(pkts, nb_rx, lane, now, worker, fresh);
	}
	if (returned && generator.resend && sender->shares > 0)
		returned_keep(&sender->returned, pkts, nb_rx);
	else
		rte_pktmbuf_free_bulk(pkts, nb_rx);
	return nb_rx;
}

/* One round over the lanes of this lcore. False when all have sent their share. */
static bool
send_and_receive(const struct lane *first, unsigned int nb_lanes, struct worker *worker)
{
	const bool deaf = generator.deaf_from != UINT64_MAX && rte_rdtsc() >= generator.deaf_from;
	bool more = false, fresh = false;
	unsigned int i, nb_full = 0;
	uint16_t nb_rx = 0;
	uint64_t now = 0;

	for (i = 0; i < nb_lanes; i++) {
		struct sender *sender = &generator.senders[first + i - generator.app->lanes.lane];

		if (likely(!deaf))
			nb_rx += receive_on(&first[i], worker, &fresh);
		now = rte_rdtsc();
		if (likely(sender->shares > 0))
			send_on(&first[i], sender, now, worker);
		more |= sender->built < sender->quota || sender->nb_pending > 0;
		nb_full += sender->nb_pending > 0;
	}
	pmdscope_poll_tsc(nb_rx, now);
	/*
	 * Each poll takes cache lines of the rings from the peer of a virtual link, which would make
	 * room sooner with them.
	 */
	if (nb_full == nb_lanes && nb_rx < settings.rx_burst)
		pause_until(rte_rdtsc(), generator.full_cycles);
	return more;
}

/* True once the lcores that send have stopped. */
static bool
senders_stopped(void)
{
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore)
		if (generator.workers[lcore]->sends &&
				__atomic_load_n(&generator.workers[lcore]->stopped,
						__ATOMIC_ACQUIRE) == 0)
			return false;
	return true;
}

/* True once all lcores have stopped sending and all packets are back. */
static bool
all_returned(void)
{
	uint64_t sent = 0, received = 0;
	unsigned int lcore;

	RTE_LCORE_FOREACH(lcore) {
		if (generator.app->lanes.count[lcore] == 0)
			continue;
		if (__atomic_load_n(&generator.workers[lcore]->stopped, __ATOMIC_ACQUIRE) == 0)
			return false;
		sent += counter_read(&generator.workers[lcore]->sent);
		received += worker_received(lcore) +
			    counter_read(&generator.workers[lcore]->corrupted);
	}
	return received >= sent;
}

/* Receive until all packets are back or no new one has come for a second. */
static void
drain(const struct lane *first, unsigned int nb_lanes, struct worker *worker)
{
	uint64_t now = rte_rdtsc(), last_fresh = now;
	uint16_t nb_rx;
	unsigned int i;
	bool fresh;

	while (now - last_fresh < generator.silence_cycles && !all_returned()) {
		nb_rx = 0;
		fresh = false;
		for (i = 0; i < nb_lanes; i++)
			nb_rx += receive_on(&first[i], worker, &fresh);
		now = rte_rdtsc();
		pmdscope_poll_tsc(nb_rx, now);
		if (fresh)
			last_fresh = now;
	}
}

int
worker_main(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	const struct lane *first = &generator.app->lanes.lane[generator.app->lanes.first[lcore]];
	const unsigned int nb_lanes = generator.app->lanes.count[lcore];
	struct worker *worker = generator.workers[lcore];
	struct periodic stall = generator.stall;

	(void)arg;
	if (nb_lanes == 0)
		return 0;
	while (!control_stopping() && (send_and_receive(first, nb_lanes, worker) ||
						      (!worker->sends && !senders_stopped())))
		stall_when_due(&stall);
	__atomic_store_n(&worker->stopped, rte_rdtsc(), __ATOMIC_RELEASE);
	if (generator.phase.drain)
		drain(first, nb_lanes, worker);
	return 0;
}
