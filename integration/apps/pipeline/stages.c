/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include <pmdscope.h>

#include "app.h"
#include "counter.h"
#include "faults.h"
#include "probe.h"
#include "reflect.h"
#include "rest.h"
#include "stages.h"

/* One in this many packets is held. */
#define HOLD_EVERY 1024
/* With --mix, one in this many bursts is cloned from, chained to, and dropped. */
#define MIX_EVERY 16
#define MIX_TAIL 32
/* Room for packets that faults return and for held packets that continue. */
#define WORK_ROOM (2 * APP_MAX_BURST + NB_FAULTS)

struct stages_options stages_options;

static struct probe_template probe_headers;

void
stages_prepare(void)
{
	const struct probe_path path = {
		/* Locally administered; addresses reserved for benchmarks. */
		.src_mac = { .addr_bytes = { 0x02, 'p', 'm', 'd', 's', 1 } },
		.dst_mac = { .addr_bytes = { 0x02, 'p', 'm', 'd', 's', 2 } },
		.src_ip = { 198, 18, 0, 1 },
		.dst_ip = { 198, 19, 0, 1 },
	};

	probe_template(&probe_headers, &path);
}

static void
stamp(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts, uint64_t now)
{
	const uint16_t size = RTE_MAX(probe_min_frame(false), PROBE_MIN_FRAME);
	struct probe probe = { .lane = pipe->number, .tsc = now };
	uint16_t i;

	for (i = 0; i < nb_pkts; i++) {
		probe.seq = pipe->seq++;
		probe_write(&probe_headers, pkts[i], size, 0, &probe);
	}
}

/* Faults may happen: their start time has passed, and the app is not about to rest. */
static bool
faulty(uint64_t now)
{
	return now >= stages_options.faults_from && rest_asked() == REST_NONE;
}

/* Enqueue packets and free those that do not fit. */
static void
hand_over(struct rte_ring *ring, struct rte_mbuf **pkts, uint16_t nb_pkts, uint64_t *dropped)
{
	const uint16_t taken = rte_ring_sp_enqueue_burst(ring, (void **)pkts, nb_pkts, NULL);

	if (likely(taken == nb_pkts))
		return;
	rte_pktmbuf_free_bulk(&pkts[taken], nb_pkts - taken);
	counter_add(dropped, nb_pkts - taken);
}

/* Number of packets that the pattern and the rate allow now. An idle port is still polled. */
static uint16_t
admitted(struct pipe *pipe, uint64_t now)
{
	if (!pattern_on(&pipe->pattern, now))
		return 0;
	if (!stages_options.paced)
		return stages_options.burst;
	return (uint16_t)pacer_ready(&pipe->pacer, now, stages_options.burst);
}

uint16_t
stage_rx(struct pipe *pipe, struct pipe_stats *stats, uint64_t now)
{
	struct truth *overflow = &faults[FAULT_RING_OVERFLOW].truth;
	const uint16_t max = admitted(pipe, now);
	struct rte_mbuf *pkts[APP_MAX_BURST];
	uint16_t nb_rx, nb_left;

	nb_rx = TRUTH_SITE(overflow, rte_eth_rx_burst(pipe->port, pipe->queue, pkts, max));
	if (nb_rx == 0)
		return 0;
	counter_add(&stats->rx, nb_rx);
	if (stages_options.paced)
		pacer_spend(&pipe->pacer, nb_rx);
	if (stages_options.stamp)
		stamp(pipe, pkts, nb_rx, now);
	nb_left = nb_rx;
	if (faulty(now))
		nb_left = faults_rx(pipe, pkts, nb_left);
	hand_over(pipe->in, pkts, nb_left, &stats->rx_dropped);
	return nb_rx;
}

/* Swap the addresses of each packet; runts are freed and left out. */
static uint16_t
turn_round(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts, struct pipe_stats *stats)
{
	uint16_t i, nb_out = 0;

	for (i = 0; i < nb_pkts; i++) {
		if (unlikely(reflect_packet(pkts[i], &pipe->mac) == REFLECT_RUNT))
			rte_pktmbuf_free(pkts[i]);
		else
			pkts[nb_out++] = pkts[i];
	}
	counter_add(&stats->runts, nb_pkts - nb_out);
	return nb_out;
}

/* Hold one packet in HOLD_EVERY, and release those whose time has come. */
static uint16_t
hold(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts, struct pipe_stats *stats,
		uint64_t now)
{
	struct rte_mbuf *m;

	if (pipe->hold.cycles == 0)
		return nb_pkts;
	pipe->since_hold += nb_pkts;
	if (pipe->since_hold >= HOLD_EVERY) {
		pipe->since_hold -= HOLD_EVERY;
		m = pkts[nb_pkts - 1];
		pmdscope_mark(m, stages_options.hold_stage);
		if (hold_put(&pipe->hold, m, now)) {
			counter_add(&stats->held, 1);
			nb_pkts--;
		}
	}
	return nb_pkts + hold_take(&pipe->hold, &pkts[nb_pkts], APP_MAX_BURST, now);
}

/* A copy for a mirror. */
static uint16_t
mix_clone(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts, struct pipe_stats *stats)
{
	pkts[nb_pkts] = rte_pktmbuf_clone(pkts[0], pipe->clones);
	if (pkts[nb_pkts] == NULL)
		return nb_pkts;
	counter_add(&stats->clones, 1);
	return nb_pkts + 1;
}

/* A trailer in a separate segment. */
static void
mix_chain(struct pipe *pipe, struct rte_mbuf *m, struct pipe_stats *stats)
{
	struct rte_mbuf *tail = rte_pktmbuf_alloc(pipe->packets);

	if (tail == NULL)
		return;
	memset(rte_pktmbuf_append(tail, MIX_TAIL), 0, MIX_TAIL);
	if (rte_pktmbuf_chain(m, tail) != 0)
		rte_pktmbuf_free(tail);
	else
		counter_add(&stats->chains, 1);
}

static uint16_t
mix(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts, struct pipe_stats *stats)
{
	switch (pipe->bursts++ % MIX_EVERY) {
	case 0:
		return mix_clone(pipe, pkts, nb_pkts, stats);
	case 1:
		mix_chain(pipe, pkts[0], stats);
		return nb_pkts;
	case 2:
		rte_pktmbuf_free(pkts[--nb_pkts]);
		counter_add(&stats->work_dropped, 1);
		return nb_pkts;
	default:
		return nb_pkts;
	}
}

uint16_t
stage_work(struct pipe *pipe, struct pipe_stats *stats, uint64_t now)
{
	struct rte_mbuf *pkts[WORK_ROOM], *kept[NB_FAULTS];
	uint16_t nb_work, nb_out, nb_kept = 0;

	nb_work = rte_ring_sc_dequeue_burst(pipe->in, (void **)pkts, stages_options.burst, NULL);
	pmdscope_mark_bulk(pkts, nb_work, stages_options.worker_stage);
	nb_out = turn_round(pipe, pkts, nb_work, stats);
	if (faulty(now))
		nb_out = faults_work(pipe, pkts, nb_out, kept, &nb_kept);
	else
		faults_acknowledge(pipe);
	if (stages_options.mix && nb_out > 0)
		nb_out = mix(pipe, pkts, nb_out, stats);
	memcpy(&pkts[nb_out], kept, nb_kept * sizeof(kept[0]));
	nb_out = hold(pipe, pkts, nb_out + nb_kept, stats, now);
	if (nb_out > 0)
		hand_over(pipe->out, pkts, nb_out, &stats->work_dropped);
	return nb_work;
}

uint16_t
stage_tx(struct pipe *pipe, struct pipe_stats *stats, uint64_t now)
{
	struct rte_mbuf *pkts[APP_MAX_BURST];
	uint16_t nb_pkts, nb_left, sent;

	nb_pkts = rte_ring_sc_dequeue_burst(pipe->out, (void **)pkts, stages_options.burst, NULL);
	if (nb_pkts == 0)
		return 0;
	nb_left = nb_pkts;
	if (faulty(now))
		nb_left = faults_tx(pipe, pkts, nb_left);
	sent = rte_eth_tx_burst(pipe->port, pipe->queue, pkts, nb_left);
	counter_add(&stats->tx, sent);
	if (unlikely(sent < nb_left)) {
		rte_pktmbuf_free_bulk(&pkts[sent], nb_left - sent);
		counter_add(&stats->tx_dropped, nb_left - sent);
	}
	return nb_pkts;
}

static void
drain_ring(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (ring != NULL && rte_ring_sc_dequeue(ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
}

void
stages_drain(struct pipe *pipe)
{
	struct rte_mbuf *m;

	drain_ring(pipe->in);
	drain_ring(pipe->out);
	drain_ring(pipe->stuck);
	drain_ring(pipe->unacked);
	while (hold_take(&pipe->hold, &m, 1, UINT64_MAX) > 0)
		rte_pktmbuf_free(m);
}
