/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_ethdev.h>

#include "counter.h"
#include "faults.h"
#include "refuse.h"

#define BATCH 4

struct fault faults[NB_FAULTS] = {
	[FAULT_TX_REJECT] = { .name = "tx-reject", .lost_packets = 1 },
	[FAULT_OFF_BY_ONE] = { .name = "off-by-one", .lost_packets = 1 },
	[FAULT_EARLY_RETURN] = { .name = "early-return", .lost_packets = 1 },
	/* A clone that is never freed keeps the packet it refers to. */
	[FAULT_CLONE] = { .name = "clone", .lost_packets = 1, .lost_clones = 1 },
	[FAULT_SEGMENT] = { .name = "segment", .lost_packets = 1 },
	[FAULT_RING_OVERFLOW] = { .name = "ring-overflow", .lost_packets = 1 },
	[FAULT_DOUBLE_QUEUE] = { .name = "double-queue", .lost_packets = 1 },
	[FAULT_DOUBLE_FREE] = { .name = "double-free" },
	[FAULT_USE_AFTER_FREE] = { .name = "use-after-free" },
};

bool
faults_parse(const char *text)
{
	const size_t size = strcspn(text, ":");
	struct schedule schedule = { .every = 1 };
	unsigned int i;

	if (text[size] == ':' && !schedule_parse(&schedule, text + size + 1))
		return false;
	for (i = 0; i < NB_FAULTS; i++) {
		if (strlen(faults[i].name) != size || strncmp(faults[i].name, text, size) != 0)
			continue;
		faults[i].schedule = schedule;
		return true;
	}
	return false;
}

uint64_t
faults_lost_packets(void)
{
	uint64_t lost = 0;
	unsigned int i;

	for (i = 0; i < NB_FAULTS; i++)
		lost += faults[i].lost_packets * counter_read(&faults[i].truth.injected);
	return lost;
}

uint64_t
faults_lost_clones(void)
{
	uint64_t lost = 0;
	unsigned int i;

	for (i = 0; i < NB_FAULTS; i++)
		lost += faults[i].lost_clones * counter_read(&faults[i].truth.injected);
	return lost;
}

/* Write content to a new mbuf by which it is recognised. */
static void
fill(struct rte_mbuf *m, char content)
{
	memset(rte_pktmbuf_append(m, TRUTH_BYTES), content, TRUTH_BYTES);
}

/*
 * Forgotten after a failed send: the packet that TX refused is counted, but not freed. This
 * is the most common bug, because TX rarely refuses packets.
 */
static void
tx_reject(struct truth *truth, const struct pipe *pipe, struct rte_mbuf *m)
{
	uint16_t sent;

	refuse_next = true;
	sent = TRUTH_SITE(truth, rte_eth_tx_burst(pipe->port, pipe->queue, &m, 1));
	if (sent < 1)
		TRUTH_FAULT(truth, m); /* Missing: rte_pktmbuf_free(m) */
}

/*
 * Off by one when a batch is freed: buffers for answers are allocated in bulk, none is needed,
 * and the loop that frees them ends early. dperf lost part of a batch like this.
 */
static void
off_by_one(struct truth *truth, struct rte_mempool *packets)
{
	struct rte_mbuf *pkts[BATCH];
	uint16_t i;

	if (TRUTH_SITE(truth, rte_pktmbuf_alloc_bulk(packets, pkts, BATCH)) != 0)
		return;
	fill(pkts[BATCH - 1], 'B');
	TRUTH_FAULT(truth, pkts[BATCH - 1]); /* Wrong: the bound of the loop below */
	for (i = 0; i < BATCH - 1; i++)
		rte_pktmbuf_free(pkts[i]);
}

/*
 * Early return from a parser that owns the packets it refuses. One of its exits does not
 * free them: Suricata's DPDK capture had such a "continue", F-Stack such a checksum error.
 */
static void
early_return(struct truth *truth, struct rte_mbuf *m)
{
	if (TRUTH_SITE(truth, rte_pktmbuf_linearize(m)) != 0) {
		rte_pktmbuf_free(m);
		return;
	}
	TRUTH_FAULT(truth, m); /* Missing: rte_pktmbuf_free(m) */
}

/*
 * A lost clone: made for a mirror port that is down, and not freed. VPP's SPAN had this bug.
 * The clone keeps a reference, so the original is not freed either.
 */
static void
lost_clone(struct truth *truth, struct rte_mbuf *m, struct rte_mempool *clones)
{
	struct rte_mbuf *copy;

	copy = TRUTH_SITE(truth, rte_pktmbuf_clone(m, clones));
	if (copy != NULL)
		TRUTH_FAULT(truth, copy); /* Missing: rte_pktmbuf_free(copy) */
}

/*
 * A lost tail: the trailer that was chained to a packet is cut off again by resetting the
 * head, as F-Stack did on an error path. The segment after it then has no owner.
 */
static void
lost_segment(struct truth *truth, struct rte_mbuf *m, struct rte_mempool *packets)
{
	struct rte_mbuf *tail = rte_pktmbuf_alloc(packets);

	if (tail == NULL)
		return;
	fill(tail, 'T');
	if (TRUTH_SITE(truth, rte_pktmbuf_chain(m, tail)) != 0) {
		rte_pktmbuf_free(tail);
		return;
	}
	TRUTH_FAULT(truth, tail); /* Missing: rte_pktmbuf_free(tail) */
	m->pkt_len = m->data_len;
	m->nb_segs = 1;
	m->next = NULL;
}

/*
 * Ring overflow: the consumer hangs, its ring is full, and the producer counts packets but does
 * not free them. Enqueueing does not stamp packets: their site is where they were received.
 */
static void
ring_overflow(struct truth *truth, struct rte_ring *ring, struct rte_mbuf *m)
{
	if (rte_ring_sp_enqueue(ring, m) != 0)
		TRUTH_FAULT(truth, m); /* Missing: rte_pktmbuf_free(m) */
}

/*
 * Double queue ownership: a packet waits for TX and, at the same time, for its
 * acknowledgement. Two owners need one more reference; this takes one for each, and forgets
 * the original one. Both owners then free it correctly, but it is not returned to its pool.
 */
static void
double_queue(struct truth *truth, struct rte_ring *unacked, struct rte_mbuf *m)
{
	if (rte_ring_sp_enqueue(unacked, m) != 0)
		return;
	rte_mbuf_refcnt_update(m, 2);
	TRUTH_FAULT(truth, m); /* Wrong: one reference too many */
}

/*
 * The acknowledgement comes when the sender is done: one owner and the forgotten reference are
 * left.
 */
static void
acknowledge(struct truth *truth, struct rte_ring *unacked)
{
	struct rte_mbuf *m;

	if (likely(rte_ring_sc_dequeue(unacked, (void **)&m) != 0))
		return;
	if (rte_mbuf_refcnt_read(m) > 2)
		rte_ring_sp_enqueue(unacked, m);
	else
		TRUTH_SITE(truth, rte_pktmbuf_free(m));
}

/*
 * Two owners, one packet, no second reference: an error path frees the packet, and its caller frees
 * it again.
 */
static void
double_free(struct truth *truth, struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
	TRUTH_FAULT(truth, m); /* Wrong: it was freed above */
	TRUTH_SITE(truth, rte_pktmbuf_free(m));
}

/*
 * A pool that contains a packet twice gives it to two owners, which does more harm than the
 * test needs. Both copies are on top of this lcore's cache: one is removed.
 */
static void
double_free_contained(struct truth *truth, struct rte_mempool *packets, struct rte_mbuf *m)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(packets, rte_lcore_id());
	void *first, *second;

	if (cache == NULL)
		return;
	rte_mempool_cache_flush(cache, packets);
	double_free(truth, m);
	if (rte_mempool_get(packets, &first) != 0)
		return;
	if (rte_mempool_get(packets, &second) == 0 && second != first)
		rte_mempool_put(packets, second);
	rte_mempool_put(packets, first);
}

/* Use after free: the error path frees the packet, but then continues and sends it. */
static void
use_after_free(struct truth *truth, const struct pipe *pipe, struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
	TRUTH_FAULT(truth, m); /* Wrong: it was freed above */
	TRUTH_SITE(truth, rte_eth_tx_burst(pipe->port, pipe->queue, &m, 1));
}

/*
 * TX refuses the packet, as its driver would free it again. It is on top of this lcore's cache,
 * and is allocated and freed correctly once, so that afterwards nothing shows that the app holds
 * it.
 */
static void
use_after_free_contained(struct truth *truth, const struct pipe *pipe, struct rte_mbuf *m)
{
	struct rte_mempool *pool = m->pool;

	refuse_next = true;
	use_after_free(truth, pipe, m);
	rte_pktmbuf_free(rte_pktmbuf_alloc(pool));
}

void
faults_acknowledge(struct pipe *pipe)
{
	acknowledge(&faults[FAULT_DOUBLE_QUEUE].truth, pipe->unacked);
}

static bool
due(enum fault_kind kind)
{
	return unlikely(schedule_due(&faults[kind].schedule));
}

uint16_t
faults_rx(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	if (nb_pkts > 0 && due(FAULT_RING_OVERFLOW))
		ring_overflow(&faults[FAULT_RING_OVERFLOW].truth, pipe->stuck, pkts[--nb_pkts]);
	return nb_pkts;
}

uint16_t
faults_work(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts, struct rte_mbuf **kept,
		uint16_t *nb_kept)
{
	*nb_kept = 0;
	faults_acknowledge(pipe);
	if (nb_pkts > 0 && due(FAULT_OFF_BY_ONE))
		off_by_one(&faults[FAULT_OFF_BY_ONE].truth, pipe->packets);
	if (nb_pkts > 0 && due(FAULT_EARLY_RETURN))
		early_return(&faults[FAULT_EARLY_RETURN].truth, pkts[--nb_pkts]);
	if (nb_pkts > 0 && due(FAULT_CLONE)) {
		kept[(*nb_kept)++] = pkts[--nb_pkts];
		lost_clone(&faults[FAULT_CLONE].truth, pkts[nb_pkts], pipe->clones);
	}
	if (nb_pkts > 0 && due(FAULT_SEGMENT)) {
		kept[(*nb_kept)++] = pkts[--nb_pkts];
		lost_segment(&faults[FAULT_SEGMENT].truth, pkts[nb_pkts], pipe->packets);
	}
	if (nb_pkts > 0 && due(FAULT_DOUBLE_QUEUE)) {
		kept[(*nb_kept)++] = pkts[--nb_pkts];
		double_queue(&faults[FAULT_DOUBLE_QUEUE].truth, pipe->unacked, pkts[nb_pkts]);
	}
	if (nb_pkts > 0 && due(FAULT_DOUBLE_FREE))
		double_free_contained(
				&faults[FAULT_DOUBLE_FREE].truth, pipe->packets, pkts[--nb_pkts]);
	return nb_pkts;
}

uint16_t
faults_tx(struct pipe *pipe, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	/* The packet that fails to be sent must be a single mbuf: chains and clones have more. */
	if (nb_pkts > 0 && pipe_packet_plain(pkts[nb_pkts - 1]) && due(FAULT_TX_REJECT))
		tx_reject(&faults[FAULT_TX_REJECT].truth, pipe, pkts[--nb_pkts]);
	if (nb_pkts > 0 && pipe_packet_plain(pkts[nb_pkts - 1]) && due(FAULT_USE_AFTER_FREE))
		use_after_free_contained(
				&faults[FAULT_USE_AFTER_FREE].truth, pipe, pkts[--nb_pkts]);
	return nb_pkts;
}
